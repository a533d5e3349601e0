"""Flower's own command `flwr`, called with nothing sent home and failures that show."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clove.deployment.commands import flower_command, flower_environment
from clove.errors import CloveError
from clove.folders import write_atomically

CONNECTION = "clove"
"""The name under which `flwr` finds the server in a folder of ours."""
CONFIG = "config.toml"
AS_JSON = ("--format", "json")
MOST_SAID = 500  # letters of what cannot be read
FRAME = re.compile(r"╭─+ Error|[╭╮╰╯│─]")  # which it draws around what is wrong


def home_in(folder: Path) -> Path:
    """Return where `flwr` finds the server that runs in this folder."""
    return folder / "home"


def flwr(*arguments: str, home: Path | None) -> str:
    """Run `flwr` and return what it printed; what it refuses is an error."""
    return called(flower_command("flwr"), *arguments, home=home)


def called(*command: str, home: Path | None) -> str:
    """Run a command in Flower's environment and return what it printed."""
    done = subprocess.run(
        command,
        env=flower_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is for us
    )
    return checked(command, done.returncode, done.stdout, done.stderr)


def checked(command: Sequence[str], code: int, printed: str, complaint: str) -> str:
    """Return what a command printed; what it refused is an error."""
    if code:
        said = " ".join(FRAME.sub(" ", complaint or printed).split())
        name, *words = command
        raise CloveError(f"`{Path(name).name} {' '.join(words)}` failed: {said}")
    return printed


def flwr_json(*arguments: str, home: Path | None) -> dict[str, Any]:
    """Run `flwr` and return the object it printed."""
    return read_json(flwr(*arguments, *AS_JSON, home=home), *arguments)


def read_json(text: str, *arguments: str) -> dict[str, Any]:
    """Return the object that `flwr` printed, called with these arguments."""
    command = f"`flwr {' '.join(arguments)}`"
    try:
        found: dict[str, Any] = json.loads(text[text.index("{") :])
    except ValueError:
        said = " ".join(text.split())[:MOST_SAID] or "nothing"
        raise CloveError(f"{command} printed what cannot be read as JSON: {said}") from None
    if not found.get("success", False):
        raise CloveError(f"{command} failed: {found.get('error-message', text)}")
    return found


def write_connection(home: Path, address: str, authority: Path | None) -> None:
    """Write down for `flwr` where the server is, and whose certificate it must show."""
    trust = f"root-certificates = {json.dumps(str(authority))}" if authority else "insecure = true"
    lines = [
        "[superlink]",
        f'default = "{CONNECTION}"',
        "",
        f"[superlink.{CONNECTION}]",
        f'address = "{address}"',
        trust,
        "",
    ]
    write_atomically(home / CONFIG, "\n".join(lines).encode())
