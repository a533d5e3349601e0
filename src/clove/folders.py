"""Where clove keeps things on disk, and how it writes so that nothing is ever half there."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from clove.errors import CloveError, CloveWarning

PART = ".part"
LOCK = ".lock"  # in a folder that a process writes to: which one that is
PAUSE = 0.05  # seconds between two tries to get it
if sys.platform != "win32":  # which has no such locks: there folders go without
    import fcntl

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of a disk that knows none

# The files of a run's folder.
SETTINGS, METRICS, TIMINGS = "settings.toml", "metrics.jsonl", "timings.jsonl"
CHECKPOINT, SUMMARY, PICTURE = "checkpoint.safetensors", "summary.json", "picture.png"
RECENT = "checkpoint-recent.safetensors"  # newer than that, but maybe not on the disk yet
CLIENTS, DATA, LOSS_VECTORS = "clients.csv", "data.json", "loss_vectors"
MODELS = "models"
TRACKING = "tracking"  # logs of other programs, which are not the run's own
COMPARISON = "comparison.json"  # what makes a folder of runs a comparison
TABLE = "table.csv"  # and what it has when it has come to its end
ERRORS = "error.txt"  # in a method's folder of a comparison, where it failed


def cache_folder() -> Path:
    """Return clove's cache folder: $CLOVE_CACHE, or `clove` in the user's cache folder."""
    if "CLOVE_CACHE" in os.environ:
        return Path(os.environ["CLOVE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clove"


class Unreadable(CloveError):
    """A file or folder that its owner does not let us read."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say plainly where reading fails for want of permission; `path` is where, if it is not said.

    Python's own checks whether a file is there fail in this way too, below a closed folder.
    """
    try:
        yield
    except PermissionError as error:
        where = error.filename or path
        raise Unreadable(
            f"no permission to read {where}: change its permissions, or copy it elsewhere"
        ) from error


def write_atomically(
    path: Path, content: bytes, mode: int = 0o644, *, durable: bool = True
) -> None:
    """Write a file so that whoever looks sees the old content or the new, never a part.

    It is on the disk when this returns, even if the machine goes down after, unless it need not be
    `durable`: then it outlives only the process. Nobody but its owner could ever read it if `mode`
    says so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def put_on_disk(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def half_written(folder: Path) -> list[Path]:
    """Return the files that `write_atomically` was killed over in a folder: nobody needs them."""
    return list(folder.rglob(f".*{PART}"))


def is_empty(folder: Path) -> bool:
    """Say whether a folder holds nothing, or only what was left half written there."""
    return not folder.is_dir() or set(folder.iterdir()) <= {*half_written(folder), folder / LOCK}


@contextmanager
def held(folder: Path, what: str = "the run folder", patience: float = 0.0) -> Iterator[None]:
    """Have a folder for oneself while writing there; refuse one that another process writes to.

    `patience` is for how many seconds to wait before that. The system takes the lock off when a
    process ends in whatever way, so none is ever left behind. Folders that were made for this, and
    into which nothing was written, go again.
    """
    if folder.exists() and not folder.is_dir():
        raise CloveError(f"{folder} is a file: choose another folder")
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    with plain_errors(folder, what):
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(folder / LOCK, what, time.monotonic() + patience)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # first: whoever is next makes its own
        file.close()
        with suppress(OSError):  # something was written there
            for one in made:
                one.rmdir()


def _locked(path: Path, what: str, until: float) -> TextIO:
    """Return a file that is locked, and says by whom."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "another process"
            file.close()
            if time.monotonic() < until:
                time.sleep(PAUSE)
                continue
            raise CloveError(
                f"{who} is writing to {what} {path.parent}: wait until it has ended, or end it"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            warnings.warn(
                f"the disk with {what} {path.parent} knows no locks: see to it that nothing else "
                "writes there",
                CloveWarning,
                stacklevel=2,
            )
        if _is_at(file, path):  # else it was just removed by whoever had it
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
            return file
        file.close()


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def plain_errors(path: Path, what: str = "the run folder") -> Iterator[None]:
    """Turn what the system says about files into what a user can do about it."""
    try:
        yield
    except OSError as error:
        again = f"continue with `clove resume {path}`" if "run" in what else "try again"
        reasons = {
            errno.ENOSPC: f"the disk is full: free some space, then {again}",
            errno.EACCES: "no permission to write there: choose another folder",
            errno.EPERM: "no permission to write there: choose another folder",
            errno.EROFS: "it is on a read-only disk: choose another folder",
            errno.ENOTDIR: "a part of that path is a file: choose another folder",
            errno.ENOENT: "it cannot be made there: choose another folder",
        }
        reason = reasons.get(error.errno or 0, str(error))
        raise CloveError(f"cannot write {what} {path}: {reason}") from error
