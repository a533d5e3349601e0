"""Where data files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from clove.errors import CloveError
from clove.folders import cache_folder, readable


def named_folder(data_dir: str | Path | None) -> Path | None:
    """Return the folder that a user named, or say that there is none."""
    if data_dir is None:
        return None
    folder = Path(data_dir).expanduser()
    with readable(folder):
        there = folder.is_dir()
    if not there:
        raise CloveError(f"there is no data folder {folder}: make it, or name another data_dir")
    return folder


def data_folders(data_dir: Path | None = None) -> list[Path]:
    """Return the folders to search, first the one asked for, last the user's cache."""
    named = os.environ.get("CLOVE_DATA")
    folders = [data_dir, Path(named).expanduser() if named else None, cache_folder() / "data"]
    return [folder for folder in folders if folder is not None]
