"""A few of very many clients, drawn so that they stand for all."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from clove.clustering.arrays import FloatArray, IntArray

# Ward's clustering and silhouettes compare every client with every other. At this many clients
# that takes seconds and under 1 GB; above, they are asked of a sample of this many.
EXACT_LIMIT = 10_000


def systematic_sample(
    vectors: FloatArray, size: int, random_state: int | np.random.RandomState | None = None
) -> IntArray:
    """Draw clients, each as likely as any other, and of every best model its due share.

    Clients are put in random order, sorted by the model on which their loss is least, and every
    (n / size)-th is taken. So of the clients that do best on one model the sample holds their share
    to within one client: clients of one kind are lost only if they are fewer than n / size, or do
    best on the same model as many others, and then with the chance of a plain random draw.

    >>> systematic_sample(np.array([[0.0, 1.0]] * 8 + [[1.0, 0.0]] * 2), 5, 0)[-1] >= 8
    np.True_
    """
    draw = check_random_state(random_state)
    order = draw.permutation(len(vectors))
    order = order[np.argsort(vectors.argmin(axis=1)[order], kind="stable")]
    places = (draw.random_sample() + np.arange(size)) * (len(vectors) / size)
    sample: IntArray = np.sort(order[places.astype(np.intp)])
    return sample
