"""The page of a run that goes on: told by the file system that something is new, it tells browsers.

It reads the folder and nothing else, so it can be started before the run, beside it or after it, in
any process, and it cannot harm the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from functools import cached_property
from pathlib import Path
from threading import Condition, Event
from typing import TYPE_CHECKING, Any

from clove.folders import CHECKPOINT, COMPARISON, ERRORS, METRICS, SETTINGS, SUMMARY, TABLE
from clove.report.page.read import is_comparison, is_run, run_folders
from clove.report.page.render import page_data

if TYPE_CHECKING:
    from watchfiles import Change

# What changes when there is something new to see; the table is a comparison's end.
TELLING = (SETTINGS, METRICS, CHECKPOINT, SUMMARY, COMPARISON, ERRORS, TABLE)
GATHER, PAUSE = 1000, 300  # milliseconds: changes are told as one up to the first, or a pause
LOOK_AGAIN = 5000  # milliseconds after which to look all the same: some disks tell of nothing


class LivePage:
    """A folder, its page, and the news of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ending = Event()
        self.readers = 0  # browsers that listen
        self._shown = Condition()
        self._last: tuple[str, dict[str, Any]] = ("", {})

    def version(self) -> str:
        """Return a mark that changes when there is something new to see."""
        places = [self.folder, *run_folders(self.folder)] if is_run_or_more(self.folder) else []
        files = [place / name for place in places for name in TELLING]
        files += sorted(self.folder.glob(f"*/{ERRORS}"))
        marks = [(str(file), *_mark(file)) for file in files if file.exists()]
        return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]

    def data(self) -> dict[str, Any]:
        """Return what the page shows now, with its mark."""
        version = self.version()  # before reading: what comes meanwhile is told again
        if self._last[0] != version:
            found = page_data([self.folder]) if is_run_or_more(self.folder) else self._waiting
            self._last = (version, {**found, "version": version})
        with self._shown:
            self._shown.notify_all()
        return self._last[1]

    async def changes(self) -> AsyncIterator[str]:
        """Yield the mark now and whenever something has changed, until the page ends."""
        from watchfiles import awatch

        self.readers += 1
        try:
            yield self.version()
            while not self.ending.is_set():
                place = nearest(self.folder)
                watching = awatch(
                    place,
                    watch_filter=_tells if place == self.folder else None,
                    recursive=place == self.folder,
                    debounce=GATHER,
                    step=PAUSE,
                    rust_timeout=LOOK_AGAIN,
                    yield_on_timeout=True,
                    stop_event=self.ending,
                )
                async for _ in watching:
                    yield self.version()
                    if nearest(self.folder) != place:
                        break  # the folder has come, or gone
        finally:
            self.readers -= 1

    def end(self, patience: float = 0.0) -> None:
        """End, when browsers that listen have been shown the last there is, or after a while."""
        with self._shown:
            if self.readers:
                self._shown.wait_for(lambda: self._last[0] == self.version(), patience)
        self.ending.set()

    @cached_property
    def _waiting(self) -> dict[str, Any]:
        return {
            "kind": "waiting",
            "title": self.folder.name,
            "subtitle": f"in {self.folder}",
            "status": {"finished": False, "done": 0, "rounds": 0, "words": "waiting"},
            "remarks": ["The run has not begun yet. This page will show it when it does."],
        }


def is_run_or_more(folder: Path) -> bool:
    """Say whether there is a run in a folder, or a comparison whose first run has begun."""
    return is_run(folder) or (is_comparison(folder) and bool(run_folders(folder)))


def nearest(folder: Path) -> Path:
    """Return a folder, or the nearest one around it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.is_dir())


def _tells(change: Change, path: str) -> bool:
    return Path(path).name in TELLING


def _mark(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size
