"""Are options of mixings sound."""

from __future__ import annotations

from clove.data.options import real_number
from clove.errors import CloveError

# Beyond these, numpy's draws are no longer numbers; the results are extreme long before.
LEAST_ALPHA, MOST_ALPHA = 1e-6, 1e9


def concentration(value: object) -> float:
    """Return a Dirichlet distribution's concentration parameter."""
    alpha = real_number("alpha", value)
    if not LEAST_ALPHA <= alpha <= MOST_ALPHA:
        raise CloveError(f"alpha must lie between {LEAST_ALPHA:g} and {MOST_ALPHA:g}, got {alpha}")
    return alpha


def share(option: str, value: object, most: float = 1) -> float:
    """Return a share of a client's points."""
    number = real_number(option, value, 0)
    if number > most:
        raise CloveError(f"{option} must lie between 0 and {most:g}, got {value!r}")
    return number
