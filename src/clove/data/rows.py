"""Some rows of what is kept elsewhere, sparse or on disk: only what is taken is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Rows:
    """Looks like an array of some rows of another one, or of a sparse matrix.

    Indexing copies rows; those of a sparse matrix come out dense, as float32.

    Parameters
    ----------
    base : array or scipy.sparse.csr_matrix
        What to take rows of.
    rows : int array
        Which, in which order.

    Examples
    --------
    >>> some = Rows(np.array([[1, 2], [3, 4], [5, 6]]), np.array([2, 0]))
    >>> some[np.array([0])]
    array([[5, 6]])
    """

    def __init__(self, base: Any, rows: Array) -> None:
        self.base = base
        self.rows = rows
        self.sparse = hasattr(base, "toarray")

    def __getitem__(self, indices: Any) -> Array:
        taken = self.base[self.rows[indices]]
        dense: Array = taken.astype(np.float32).toarray() if self.sparse else taken
        return dense

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and the shape of each."""
        return (len(self.rows), *self.base.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values taken."""
        return np.dtype(np.float32) if self.sparse else np.dtype(self.base.dtype)

    @property
    def stored(self) -> Array:
        """The values kept, in no particular order: those of a sparse matrix without the noughts."""
        values: Array = self.base.data if self.sparse else self.base
        return values
