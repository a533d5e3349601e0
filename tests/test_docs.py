"""Every command and every Python block of the documents is run here, as a reader would run it.

Blocks run in the order they stand in, in one folder; one that starts with a file name is saved.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clove.algorithms import ALGORITHMS
from clove.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each block that a reader would run."""
    return re.findall(r"^```(console|python)\n(.*?)^```", document.read_text(), re.M | re.S)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a folder of one's own, and forget methods and modules that a document adds."""
    monkeypatch.chdir(tmp_path)
    methods, modules = set(ALGORITHMS), set(sys.modules)
    yield tmp_path
    for name in set(ALGORITHMS) - methods:
        del ALGORITHMS[name]
    for file in tmp_path.glob("*.py"):
        if file.stem not in modules:
            sys.modules.pop(file.stem, None)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_works_from_top_to_bottom(document: Path, elsewhere: Path) -> None:
    names: dict[str, object] = {"__name__": "reader"}
    for language, text in blocks(document):
        file = re.match(r"# (\w+\.py)\n", text)
        if file:
            (elsewhere / file[1]).write_text(text)
        elif language == "python":
            exec(compile(text, str(document), "exec"), names)
        else:
            for line in text.splitlines():
                type_in(line)


def type_in(line: str) -> None:
    """Do as the reader of a console block does: run what stands after the prompt."""
    if not line.startswith("$ "):
        return
    program, *words = shlex.split(line[2:].partition(" #")[0])
    if program == "make":
        assert words[0] in re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
        return
    assert program == "clove"
    if "--ray" in words and find_spec("ray") is None:
        return
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, f"{line}\n{outcome.output}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_a_document_points_at_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    for target in [t for t in targets if "://" not in t]:
        assert (document.parent / target).exists(), target
