"""A run's folder carried from one machine to another, file by file."""

from __future__ import annotations

from pathlib import Path

from clove.folders import (
    CHECKPOINT,
    LOCK,
    RECENT,
    SETTINGS,
    SUMMARY,
    TRACKING,
    half_written,
    plain_errors,
    write_atomically,
)

Files = dict[str, bytes]  # by their path inside the folder

# The order a run writes them in, so that a folder half carried is one of a run that was killed.
ORDER = {SETTINGS: 0, CHECKPOINT: 2, RECENT: 3, SUMMARY: 4}


class Carrier:
    """Takes out of a folder what was written there since the last time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, tuple[int, ...]] = {}

    def news(self) -> Files:
        """Return the files that are new or changed."""
        changed = [path for path in _files(self._folder) if self._seen.get(path) != _mark(path)]
        self._seen |= {path: _mark(path) for path in changed}
        return {path.relative_to(self._folder).as_posix(): path.read_bytes() for path in changed}


def put(folder: Path, files: Files) -> None:
    """Write files into a folder so that it can be resumed whenever this is interrupted."""
    with plain_errors(folder):
        for name in sorted(files, key=lambda name: (ORDER.get(name, 1), name)):
            write_atomically(folder / name, files[name])
        if CHECKPOINT in files and RECENT not in files:
            (folder / RECENT).unlink(missing_ok=True)  # as where it comes from


def _files(folder: Path) -> list[Path]:
    """Return a run's own files: its logs stay where they are written."""
    left, logs = {*half_written(folder), folder / LOCK}, folder / TRACKING
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in left]
    return [path for path in found if logs not in path.parents]


def _mark(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced or added to."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
