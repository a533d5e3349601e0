"""Options of data sets and mixings: which there are, and are the given ones sound.

A loader or mixing declares its options as keyword-only parameters; everything else is read from
there, so that a name and its default stand in one place.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from clove.errors import CloveError, unknown_name


def options_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the keyword-only parameters of a function with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(owner: str, given: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuse options that the owner (such as "mixing 'none'") does not have."""
    names = list(known)
    for name in given:
        if not names:
            raise CloveError(f"{owner} has no options, got {name!r}")
        if name not in names:
            raise unknown_name(f"{owner} option", name, names)


def whole_number(option: str, value: object, at_least: int = 1) -> int:
    """Return a count given as an option, or say what is wrong with it."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < at_least:
        raise CloveError(f"{option} must be a whole number of at least {at_least}, got {value!r}")
    return number


def real_number(option: str, value: object, at_least: float = -math.inf) -> float:
    """Return a quantity given as an option, or say what is wrong with it."""
    number = float(value) if isinstance(value, Real) else math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < at_least:
        least = f" of at least {at_least:g}" if at_least > -math.inf else ""
        kind = "finite number" if math.isinf(number) else "number"
        raise CloveError(f"{option} must be a {kind}{least}, got {value!r}")
    return number


def switch(option: str, value: object) -> bool:
    """Return a yes-or-no option; anything but True or False is likely a slip."""
    if not isinstance(value, bool):
        raise CloveError(f"{option} must be true or false, got {value!r}")
    return value


def one_of(option: str, value: object, known: Iterable[str]) -> str:
    """Return a word given as an option, or name the words there are."""
    names = list(known)
    if value not in names:
        raise unknown_name(option, value, names)
    return str(value)
