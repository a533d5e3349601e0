"""Errors and warnings that say what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# What torch's errors say where memory ran out, and where a device failed.
OUT_OF_MEMORY = ("out of memory", "allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
DEVICE_FAILED = ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS")


class CloveError(Exception):
    """Something the user can mend: the message says what and how."""


class TooLittleMemory(CloveError):
    """Something does not fit in memory, however it is cut up."""


class CloveWarning(UserWarning):
    """Something the user should know; the work goes on."""


MOST_LISTED = 20
SEE = "`clove options` lists them all"


def unknown_name(kind: str, name: object, known: Iterable[str], see: str = SEE) -> CloveError:
    """Make the error for a name nobody knows, with the nearest one that exists.

    Where there are too many to list them, `see` says what does.

    >>> unknown_name("algorithm", "clov", ["clove", "ifca"])
    CloveError("unknown algorithm 'clov': did you mean 'clove'? Known: clove, ifca")
    """
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}?" if near else "."
    known_names = f"Known: {', '.join(names)}" if len(names) <= MOST_LISTED else see
    return CloveError(f"unknown {kind} {name!r}{hint} {known_names}")
