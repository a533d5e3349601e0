"""Downloading one file so that it is either there, whole and as published, or not there at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, build_opener

from clove.data.card import Progress, RemoteFile
from clove.data.digest import md5_of, md5_of_stream
from clove.errors import CloveError

CHUNK = 1 << 16
ROUNDS = 3  # how often the list of mirrors is gone through
RANGE_NOT_SATISFIABLE = 416
PARTIAL_CONTENT = 206


class _Failure(Exception):
    """Why a mirror could not deliver."""


def download(
    file: RemoteFile,
    folder: Path,
    progress: Progress | None = None,
    *,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download a file from the first of its addresses that delivers it as published.

    What has arrived is kept beside the file under the name `*.part`, and the next attempt, by this
    or a later call, from this or another address, goes on from there. The file gets its name when
    its checksum is right. Proxies named in the environment are used.

    Parameters
    ----------
    file : RemoteFile
        What to download, and from where.
    folder : path
        Where to put it.
    progress : callable, optional
        Told how far it is.
    timeout : float
        Seconds without a byte after which an address is given up.
    pause : float
        Seconds to wait before the addresses are tried again.
    """
    target = folder / file.name
    part = target.with_name(f"{target.name}.part")
    try:
        if _is_published(target, file):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with _held(part) as stream:
            # Another process may have been at it until now.
            if not _is_published(target, file):
                _fill(file, folder, stream, progress, timeout, pause)
                part.replace(target)
    except OSError as error:
        raise CloveError(f"{target} cannot be written: {error}") from error
    return target


def _is_published(path: Path, file: RemoteFile) -> bool:
    return path.is_file() and md5_of(path) == file.md5


@contextmanager
def _held(part: Path) -> Iterator[BinaryIO]:
    """Open what has arrived so far for this process alone; remove it if nothing has."""
    with part.open("a+b") as stream:
        _lock(stream)
        try:
            yield stream
        finally:
            if stream.seek(0, os.SEEK_END) == 0:
                part.unlink(missing_ok=True)


def _lock(stream: BinaryIO) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system: two downloads at once then fail by their checksum
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise CloveError(f"{stream.name} is being downloaded by another process") from error


def _fill(
    file: RemoteFile,
    folder: Path,
    part: BinaryIO,
    progress: Progress | None,
    timeout: float,
    pause: float,
) -> None:
    """Go through the addresses until the part is the whole file as published."""
    if md5_of_stream(part) == file.md5:  # all had come before it could get its name
        return
    failures: dict[str, str] = {}
    for turn in range(ROUNDS):
        if turn:
            time.sleep(pause)
        for url in file.urls:
            try:
                _attempt(file, url, part, progress, timeout)
                return
            except _Failure as failure:
                failures[url] = str(failure)
    reasons = "\n".join(f"  {url}: {reason}" for url, reason in failures.items())
    raise CloveError(
        f"{file.name} could not be downloaded. Try again later (it goes on where it stopped), or "
        f"get it by other means and put it in {folder}. What the addresses answered:\n{reasons}"
    )


def _attempt(
    file: RemoteFile, url: str, part: BinaryIO, progress: Progress | None, timeout: float
) -> None:
    resumed = part.seek(0, os.SEEK_END) > 0
    _receive(file.name, url, part, progress, timeout)
    if md5_of_stream(part) == file.md5:
        part.flush()
        os.fsync(part.fileno())
        return
    part.truncate(0)
    if resumed:
        # What was there before may have been at fault: this address deserves a fresh start.
        _attempt(file, url, part, progress, timeout)
    else:
        raise _Failure("delivered another file than the published one (wrong checksum)")


def _receive(
    name: str, url: str, part: BinaryIO, progress: Progress | None, timeout: float
) -> None:
    """Append what is still missing, or start over where an address cannot do that."""
    have = part.seek(0, os.SEEK_END)
    with _opened(url, have, timeout) as response:
        if response is None:
            return
        if response.status != PARTIAL_CONTENT:
            have = 0
            part.truncate(part.seek(0))
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        for chunk in _chunks(response):
            part.write(chunk)
            have += len(chunk)
            if progress is not None:
                progress(name, have, total)
    if total is not None and have < total:
        raise _Failure(f"stopped after {have:,} of {total:,} bytes")


@contextmanager
def _opened(url: str, have: int, timeout: float) -> Iterator[HTTPResponse | None]:
    """Ask for what comes after the bytes that are there; None: there is no more."""
    headers = {"User-Agent": "clove", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        # An opener of its own: the common one remembers the proxies of its first use.
        response = build_opener().open(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        if error.code != RANGE_NOT_SATISFIABLE or not have:
            raise _Failure(f"HTTP status {error.code} ({error.reason})") from error
        yield None
        return
    except (HTTPException, OSError, ValueError) as error:
        raise _Failure(_reason(error)) from error
    with response:
        span = response.headers.get("Content-Range", "")
        if response.status == PARTIAL_CONTENT and not span.startswith(f"bytes {have}-"):
            raise _Failure(f"asked for the bytes from {have}, got {span!r}")
        yield response


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """Hand on bytes as they come, and what is wrong with the network as a failure."""
    while True:
        try:
            # Not `read`: it would wait for more, and lose what has come if no more does.
            chunk = response.read1(CHUNK)
        except (HTTPException, OSError) as error:
            raise _Failure(_reason(error)) from error
        if not chunk:
            return
        yield chunk


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
