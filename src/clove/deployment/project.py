"""A small, complete project to start a federation from."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from clove.errors import CloveError
from clove.folders import is_empty, plain_errors, write_atomically

TEMPLATE = "template"
NAME = "my-federation"
"""What the template calls itself, until it has a folder."""
MOST_LETTERS = 32  # Flower allows no more


def new_project(folder: str | Path) -> list[Path]:
    """Write a project into an empty folder; return its files."""
    home = Path(folder)
    name = project_name(home)
    written = []
    with plain_errors(home, "the project"):
        if home.exists() and not (home.is_dir() and is_empty(home)):
            raise CloveError(f"{folder} is not empty: choose another folder for the project")
        for file in template():
            text = file.read_text(encoding="utf-8").replace(NAME, name)
            write_atomically(home / file.name, text.encode())
            written.append(home / file.name)
    return written


def template() -> list[Path]:
    """Return the files of the template, as they come with the package."""
    with resources.as_file(resources.files("clove.deployment") / TEMPLATE) as folder:
        return sorted(file for file in folder.iterdir() if file.is_file())


def project_name(folder: Path) -> str:
    """Return a folder's name as a project can have it: letters, digits and single hyphens.

    >>> project_name(Path("runs/My Federation 2"))
    'my-federation-2'
    """
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    if not name or len(name) > MOST_LETTERS:
        raise CloveError(
            f"{folder.absolute().name!r} cannot name a project: choose a folder name with letters "
            f"or digits, of up to {MOST_LETTERS}"
        )
    return name
