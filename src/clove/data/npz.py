"""Reading npz files that others made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from clove.data.card import Arrays
from clove.errors import CloveError


def read_npz(path: Path, names: Iterable[str]) -> Arrays:
    """Read some arrays of an npz file; all of them must be there."""
    wanted = list(names)
    with opened_npz(path) as file:
        arrays = {name: file[name] for name in wanted if name in file.files}
    if missing := [name for name in wanted if name not in arrays]:
        raise CloveError(f"{path} lacks arrays: {', '.join(missing)}")
    return arrays


def npz_names(path: Path) -> set[str]:
    """Return the names of the arrays in an npz file."""
    with opened_npz(path) as file:
        return set(file.files)


@contextmanager
def opened_npz(path: Path) -> Iterator[Any]:
    """Open an npz file for a while; whatever is wrong with its content is said in plain words."""
    try:
        # Opened here: of a file that is no zip numpy would say to load it as a pickle.
        with path.open("rb") as stream:
            if not is_zipfile(stream):
                raise CloveError(f"{path} is damaged or no npz file")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                yield file
    except (CloveError, PermissionError):
        raise
    # A damaged file makes numpy, zipfile, zlib or even Python's tokenizer fail, each in its way.
    except Exception as error:
        raise CloveError(f"{path} is damaged or no npz file: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return "it holds Python objects" if "allow_pickle" in str(error) else str(error)
