"""Reading pickled arrays without running what else a pickle could hold.

CIFAR-10 is published as pickles. A pickle can name any function to be called on loading; here only
what arrays and plain containers need is let through.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np


def _latin1(text: str, encoding: str) -> bytes:
    # How Python 3 writes bytes in the old protocol that numpy arrays are often pickled with.
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> np.ndarray[Any, Any]:
    # An array is unpickled as an empty one whose state is set after.
    return np.ndarray((0,), np.int8)


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _latin1,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return ALLOWED[module, name]


def load_arrays(raw: bytes) -> Any:
    """Load a pickle of arrays and plain containers; names of Python 2 come out as bytes."""
    return _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
