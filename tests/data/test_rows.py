from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix

from clove.data import Dataset
from clove.data.rows import Rows


@settings(deadline=None, max_examples=50)
@given(
    dense=arrays(np.uint8, (6, 4), elements=st.integers(0, 3)),
    rows=st.lists(st.integers(0, 5), min_size=1),
    data=st.data(),
)
def test_rows_of_a_sparse_matrix_are_those_of_the_dense_one(
    dense: np.ndarray, rows: list[int], data: st.DataObject
) -> None:
    some = Rows(csr_matrix(dense), np.array(rows))
    taken = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1))), int)
    np.testing.assert_array_equal(some[taken], dense[rows][taken])
    assert some[taken].dtype == some.dtype == np.float32
    assert (len(some), some.shape, some.ndim) == (len(rows), (len(rows), 4), 2)


def test_rows_of_an_array_keep_its_type() -> None:
    base = np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2)
    some = Rows(base, np.array([2, 0]))
    assert some.dtype == np.uint8
    assert some.shape == (2, 2, 2, 2)
    np.testing.assert_array_equal(np.asarray(some), base[[2, 0]])
    np.testing.assert_array_equal(np.array(some, np.float64), base[[2, 0]])
    assert some.stored is base


def test_a_data_set_hands_out_rows_dense() -> None:
    dense = np.eye(4, dtype=np.uint8)
    matrix = csr_matrix(dense)
    dataset = Dataset(
        name="sparse",
        x_train=Rows(matrix, np.array([0, 1, 3])),
        y_train=np.array([0, 1, 1]),
        x_test=Rows(matrix, np.array([2])),
        y_test=np.array([1]),
        classes=2,
    )
    x, y = dataset.take("train", np.array([2, 0]))
    assert x.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
    assert y is not None
    assert y.tolist() == [1, 0]
    assert (dataset.size("train"), dataset.size("test")) == (3, 1)
    assert dataset.feature_shape == (4,)
    assert not dataset.images
    assert "3 training and 1 test points of shape (4,)" in repr(dataset)
