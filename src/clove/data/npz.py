"""Reading npz files that others made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from clove.data.card import Arrays
from clove.errors import CloveError


def read_npz(path: Path, names: Iterable[str]) -> Arrays:
    """Read some arrays of an npz file; all of them must be there."""
    wanted = list(names)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in wanted if name in file.files}
    # A damaged file makes numpy, zipfile, zlib or even Python's tokenizer fail, each in its way.
    except Exception as error:
        raise CloveError(f"{path} is damaged or no npz file: {error}") from error
    if missing := [name for name in wanted if name not in arrays]:
        raise CloveError(f"{path} lacks arrays: {', '.join(missing)}")
    return arrays


def npz_names(path: Path) -> set[str]:
    """Return the names of the arrays in an npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return set(file.files)
    except Exception as error:
        raise CloveError(f"{path} is damaged or no npz file: {error}") from error
