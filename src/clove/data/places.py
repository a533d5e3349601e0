"""Where data files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from clove.folders import cache_folder


def data_folders(data_dir: Path | None = None) -> list[Path]:
    """Return the folders to search, first the one asked for, last the user's cache."""
    named = os.environ.get("CLOVE_DATA")
    folders = [data_dir, Path(named).expanduser() if named else None, cache_folder() / "data"]
    return [folder for folder in folders if folder is not None]
