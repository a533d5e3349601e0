"""Flower's commands: where they are, and the environment they run in."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from clove.errors import CloveError
from clove.extras import QUIET

QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}
"""For nodes: how often (seconds) one looks for work it was given; Flower's own choice is 1.

Looking costs: at 0.25 about two hundredths of a core, at 0.1 twice that.
"""


def flower_command(name: str) -> str:
    """Return the path of one of Flower's commands: beside this Python, or wherever it is found."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise CloveError(f"there is no command {name}: pip install 'clove-fl[flower]'")
    return found


def flower_environment(home: Path | None) -> dict[str, str]:
    """Return the environment for Flower's commands; `home` is where they keep what they keep.

    They start each other by bare names, so this Python's commands come first.
    """
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {} if home is None else {"FLWR_HOME": str(home)}
    return {**QUIET, **os.environ, "PATH": commands, **own}
