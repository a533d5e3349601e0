"""Reader for idx files, the format MNIST, Fashion-MNIST and QMNIST's labels are published in.

An idx file is two zero bytes, a type code, the number of axes, the length of each axis as a
big-endian 32-bit integer, and the values; published files are often gzipped.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.errors import CloveError

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE, INTEGER = 0x08, 0x0C
TYPES: dict[int, np.dtype[Any]] = {UNSIGNED_BYTE: np.dtype(np.uint8), INTEGER: np.dtype(">i4")}
WORDS = {UNSIGNED_BYTE: "bytes", INTEGER: "integers"}


def read_idx(path: Path, axes: int, code: int = UNSIGNED_BYTE) -> NDArray[Any]:
    """Read an idx file (plain or gzipped) with a given number of axes and type of values."""
    raw = read_maybe_gzipped(path)
    header = 4 + 4 * axes
    expected = bytes([0, 0, code, axes])
    if raw[:4] != expected:
        raise CloveError(
            f"{path} is no idx file of {WORDS[code]} with {axes} axes: "
            f"expected it to begin with {expected.hex()}, found {raw[:4].hex() or 'nothing'}"
        )
    if len(raw) < header:
        raise CloveError(f"{path} is truncated: expected {header} bytes of header, got {len(raw)}")
    shape = struct.unpack(f">{axes}I", raw[4:header])
    values = (len(raw) - header) / TYPES[code].itemsize
    if values != math.prod(shape):
        raise CloveError(
            f"{path} is damaged: its header announces {' × '.join(map(str, shape))} = "
            f"{math.prod(shape)} values, found {values:g}"
        )
    return np.frombuffer(raw, TYPES[code], offset=header).reshape(shape)


def read_maybe_gzipped(path: Path) -> bytes:
    """Read a file, unzipped if it is gzipped, whatever its name."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == GZIP_MAGIC else raw
    except PermissionError:
        raise
    except (EOFError, OSError, zlib.error) as error:
        raise CloveError(f"{path} cannot be read: {error}") from error


def idx_md5(array: NDArray[np.uint8]) -> str:
    """Return the MD5 sum of the plain idx file that holds an array of bytes."""
    header = bytes([0, 0, UNSIGNED_BYTE, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    digest = hashlib.md5(header, usedforsecurity=False)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
