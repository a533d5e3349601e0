"""Reader for idx files, the format MNIST and Fashion-MNIST are published in.

An idx file is two zero bytes, a type code, the number of axes, the length of each axis as a
big-endian 32-bit integer, and the values; published files are often gzipped.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clove.errors import CloveError

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes (plain or gzipped) with a given number of axes."""
    raw = _read(path)
    header = 4 + 4 * axes
    expected = bytes([0, 0, UNSIGNED_BYTE, axes])
    if raw[:4] != expected:
        raise CloveError(
            f"{path} is no idx file of bytes with {axes} axes: "
            f"expected it to begin with {expected.hex()}, found {raw[:4].hex() or 'nothing'}"
        )
    if len(raw) < header:
        raise CloveError(f"{path} is truncated: expected {header} bytes of header, got {len(raw)}")
    shape = struct.unpack(f">{axes}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        raise CloveError(
            f"{path} is damaged: its header announces {' × '.join(map(str, shape))} = "
            f"{math.prod(shape)} values, found {len(raw) - header}"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == GZIP_MAGIC else raw
    except (EOFError, OSError, zlib.error) as error:
        raise CloveError(f"{path} cannot be read: {error}") from error
