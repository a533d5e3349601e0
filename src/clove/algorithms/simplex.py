"""The least value of a quadratic form over weights that are not negative and sum to one.

The quadratic program of FedPAC. Scipy solves it: it is a problem of non-negative least squares
(`scipy.optimize.nnls`). A solver of programs in general (cvxpy, quadprog) would be one more
dependency, for one method. What is added here is the choice of a few weights to begin with: with a
thousand clients there are a thousand programs of a thousand weights each, most of which end as
nought.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

Floats = NDArray[np.float64]

AT_FIRST = 32  # weights looked at in the beginning: most of many end as nought
ROUNDING = 1e-11  # of the form's largest number
RIDGE = 1e-12  # so that of weights that do equally well, equal ones are taken


def least_on_simplex(form: Floats, shift: Floats | float = 0.0) -> Floats:
    """Return the weights α, none negative, of sum one, for which αᵀ P α is least.

    P is `form`, which is symmetric, less the `shift` of its row and that of its column: so many
    problems can share a form, of which each looks at a few rows. P must be positive semidefinite.
    The problem is solved for the few weights that promise most, then with those added that would
    still lower the value, until none would: that is the solution for all of them.
    """
    shift = np.broadcast_to(shift, len(form))
    alone = form.diagonal() - 2 * shift
    free = np.argsort(alone, kind="stable")[:AT_FIRST]
    for _ in range(len(form)):  # far fewer: every time the value falls
        rows, own = form[free], shift[free]
        weights = _least(rows[:, free] - own - own[:, None])
        slope = weights @ rows - shift - weights @ own
        least = weights @ slope[free]
        slope[free] = np.inf  # among these it is the solution already
        better = np.argsort(slope, kind="stable")[: max(AT_FIRST, int(np.sum(weights > 0)))]
        better = better[slope[better] < least - ROUNDING * alone.max()]
        if not len(better):
            break
        free = np.concatenate([free[weights > 0], better])
    whole = np.zeros(len(form))
    whole[free] = weights
    return whole


def _least(form: Floats) -> Floats:
    """Solve the problem by non-negative least squares.

    With u = s α, the least of uᵀ P u + c (1 - Σu)² over s is c q / (c + q) for q = αᵀ P α, which
    grows with q: so its least over all u that are not negative is where α is the solution.
    """
    scale = form.diagonal().max() or 1.0
    ones = np.full(len(form), scale)
    root = cholesky(form + scale + RIDGE * np.diag(ones))
    most = 30 * len(form)  # steps; three for each weight are usual
    weights, _ = nnls(root, solve_triangular(root, ones, trans="T"), maxiter=most)
    solution: Floats = weights / weights.sum()
    return solution
