"""MD5 sums, which is what is published of most data sets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from clove.errors import CloveError

CHUNK = 1 << 20


def md5_of(path: Path) -> str:
    """Return the MD5 sum of a file."""
    try:
        with path.open("rb") as file:
            return md5_of_stream(file)
    except OSError as error:
        raise CloveError(f"{path} cannot be read: {error}") from error


def md5_of_stream(file: BinaryIO) -> str:
    """Return the MD5 sum of an open file, from its beginning."""
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(0)
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
