"""Numbers as people read them, and as a page has them: few digits, none that JSON lacks."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

DIGITS = 4  # more than a picture shows


def brief(values: Iterable[Any]) -> list[float | None]:
    """Return numbers with a few digits each; None for those that are missing or not finite.

    >>> brief([0.123456, 1234567.0, None, float("nan")])
    [0.1235, 1235000.0, None, None]
    """
    return [_one(value) for value in values]


def _one(value: Any) -> float | None:
    if value is None or not isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def percent(value: float | None) -> str:
    """Show a share of one.

    >>> percent(0.9914)
    '99.1 %'
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def duration(seconds: float) -> str:
    """Show seconds in the unit a reader can compare at a glance.

    >>> [duration(one) for one in (0.0123, 5.0, 90.0, 7500.0)]
    ['12 ms', '5.0 s', '1.5 min', '2.1 h']
    """
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.0f} ms"


def megabytes(value: float, *others: float) -> str:
    """Show bytes in the unit a reader can compare at a glance; with ± others, such as their std.

    >>> megabytes(24_052_000), megabytes(24_052_000, 160_000)
    ('24.1 MB', '24.1 ± 0.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{' ± '.join(f'{one / size:.1f}' for one in (value, *others))} {unit}"
    return f"{' ± '.join(f'{one:.0f}' for one in (value, *others))} B"


def counted(number: int, what: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "round"), counted(20, "round")
    ('1 round', '20 rounds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"
