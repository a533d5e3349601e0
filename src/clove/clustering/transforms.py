"""What is done to losses before they are clustered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from clove.clustering.arrays import FloatArray
from clove.errors import unknown_name

# The square of single precision's resolution: neither a cross-entropy nor a squared error says
# anything below it. A floor much lower would make a loss that happens to be exactly zero an outlier
# (the log of the smallest float is -708) that outweighs every real difference.
LOG_FLOOR = float(np.finfo(np.float32).eps) ** 2

# Digits kept of a loss less its row's mean: the few bits that rounding spoils are dropped, so that
# losses equal for all models (as when all start alike) come out as exactly nothing.
ROW_BITS = 44


def transform_losses(losses: ArrayLike, transform: str = "identity") -> FloatArray:
    """Return the losses in the space in which they are clustered.

    Parameters
    ----------
    losses : array-like of shape (..., n_models)
        One loss per model, in the last axis.
    transform : {"identity", "sqrt", "log", "row"}
        What to do to them. ``log`` takes losses below ``LOG_FLOOR`` as that, so that a zero loss
        stays finite; ``row`` removes the mean of each loss vector, which leaves only how a client
        ranks the models, not how hard its data are.

    Returns
    -------
    ndarray of float64, of the same shape; a copy unless ``identity`` needs none.

    Examples
    --------
    >>> transform_losses([[1.0, 3.0], [5.0, 7.0]], "row").tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """
    if transform not in _FUNCTIONS:
        raise unknown_name("loss transform", transform, _FUNCTIONS)
    values = np.asarray(losses, dtype=np.float64)
    if transform in POSITIVE_ONLY and (values < 0).any():
        raise ValueError(
            f"the {transform!r} transform needs losses that are not negative, "
            f"and the smallest here is {np.nanmin(values):g}: use 'identity' or 'row'"
        )
    return _FUNCTIONS[transform](values)


def _identity(values: FloatArray) -> FloatArray:
    return values


def _sqrt(values: FloatArray) -> FloatArray:
    root: FloatArray = np.sqrt(values)
    return root


def _log(values: FloatArray) -> FloatArray:
    logarithm: FloatArray = np.log(np.maximum(values, LOG_FLOOR))
    return logarithm


def _row(values: FloatArray) -> FloatArray:
    centred = values - values.mean(axis=-1, keepdims=True)
    _, exponent = np.frexp(np.abs(values).max(axis=-1, keepdims=True))
    kept: FloatArray = np.ldexp(
        np.rint(np.ldexp(centred, ROW_BITS - exponent)), exponent - ROW_BITS
    )
    return kept


_FUNCTIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "identity": _identity,
    "sqrt": _sqrt,
    "log": _log,
    "row": _row,
}
TRANSFORMS = tuple(_FUNCTIONS)
POSITIVE_ONLY = ("sqrt", "log")
