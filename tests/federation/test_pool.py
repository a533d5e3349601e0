from __future__ import annotations

import numpy as np
import torch

from clove.federation.pool import Pool

CPU = torch.device("cpu")


def pool(labels=np.int64, dtype=torch.float32) -> Pool:
    parts = [(np.full((size, 2), size), np.full(size, -size)) for size in (2, 1, 3)]
    return Pool.of([(x.astype(float), y.astype(labels)) for x, y in parts], CPU, dtype)


def test_samples_lie_client_after_client():
    made = pool()
    assert made.sizes.tolist() == [2, 1, 3]
    assert [made.rows(client).tolist() for client in range(3)] == [[0, 1], [2], [3, 4, 5]]
    assert made.x[:, 1].tolist() == [2, 2, 1, 3, 3, 3]
    assert made.y.tolist() == [-2, -2, -1, -3, -3, -3]


def test_floating_numbers_take_the_precision_asked_for_and_others_are_integers():
    assert (pool().x.dtype, pool().y.dtype) == (torch.float32, torch.int64)
    double = pool(labels=np.float32, dtype=torch.float64)
    assert (double.x.dtype, double.y.dtype) == (torch.float64, torch.float64)
    assert pool(labels=np.uint8).y.dtype == torch.int64


def test_there_are_no_labels_unless_everybody_has_them():
    parts = [(np.zeros((1, 2)), np.zeros(1)), (np.zeros((1, 2)), None)]
    assert Pool.of(parts, CPU, torch.float32).y is None


def test_arrays_need_not_lie_in_order_in_memory():
    x = np.arange(12.0).reshape(3, 4).T[::-1]
    np.testing.assert_array_equal(Pool.of([(x, None)], CPU, torch.float64).x, x)
