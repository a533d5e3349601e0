"""Npy files that grow: arrays written piece by piece, which numpy itself cannot do."""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAGIC = b"\x93NUMPY\x01\x00"
HEADER = 256  # bytes, fixed: written again at the end, when the length is known
CHUNK = 1 << 24


class ArrayFile:
    """An npy file that is written along its first axis, and complete when it is closed."""

    def __init__(self, path: Path, like: Array) -> None:
        self.dtype, self.tail = like.dtype, like.shape[1:]
        self.length = self.crc = 0
        self._path = path
        self._file = path.open("wb")
        self._file.write(bytes(HEADER))

    def append(self, piece: Array) -> None:
        """Write further rows, of the same type and shape as the first."""
        if piece.dtype != self.dtype or piece.shape[1:] != self.tail:
            raise ValueError(f"{self._path.name}: rows of {piece.dtype} {piece.shape[1:]}")
        self.crc = checksum(piece, self.crc)
        self._file.write(flat_bytes(piece))
        self.length += len(piece)

    @property
    def facts(self) -> dict[str, Any]:
        """Type and shape, and a checksum of the values."""
        shape = [self.length, *self.tail]
        return {"dtype": self.dtype.str, "shape": shape, "crc32": self.crc}

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            self._file.seek(0)
            self._file.write(_header(self.dtype, (self.length, *self.tail)))
            # On the disk before anyone is told: a power cut must not leave a name without content.
            self._file.flush()
            os.fsync(self._file.fileno())


def checksum(array: Array, start: int = 0) -> int:
    """Return the CRC-32 of an array's values, continued from that of earlier rows."""
    flat = flat_bytes(array)
    for first in range(0, len(flat), CHUNK):
        start = zlib.crc32(flat[first : first + CHUNK], start)
    return start


def flat_bytes(array: Array) -> memoryview:
    """Return an array's values as bytes, without a copy if they lie in a row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    facts = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    text = repr(facts).encode().ljust(HEADER - len(MAGIC) - 3) + b"\n"
    return MAGIC + struct.pack("<H", len(text)) + text


def whole(path: Path, facts: dict[str, Any]) -> bool:
    """Say whether a file has the size that goes with an array's type and shape."""
    values = math.prod(facts["shape"]) * np.dtype(facts["dtype"]).itemsize
    return bool(path.stat().st_size == HEADER + values)
