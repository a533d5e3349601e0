from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from clove.data.npy import ArrayFile, checksum, whole


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    array=arrays(
        st.sampled_from([np.uint8, np.int64, np.float32]), array_shapes(max_dims=4, max_side=7)
    ),
    cuts=st.lists(st.integers(0, 7), max_size=4),
)
def test_pieces_make_the_whole_array(array: np.ndarray, cuts: list[int], tmp_path: Path) -> None:
    path = tmp_path / "grown.npy"
    with ArrayFile(path, array) as file:
        for piece in np.split(array, sorted(cuts)):
            file.append(piece)
    np.testing.assert_array_equal(np.load(path), array)
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), array)
    assert file.facts["shape"] == list(array.shape)
    assert file.facts["crc32"] == checksum(array)
    assert whole(path, file.facts)


def test_values_that_do_not_lie_in_a_row_are_written_in_order(tmp_path: Path) -> None:
    array = np.arange(24).reshape(4, 6)[:, ::-2]
    with ArrayFile(tmp_path / "turned.npy", array) as file:
        file.append(array)
    np.testing.assert_array_equal(np.load(tmp_path / "turned.npy"), array)


@pytest.mark.parametrize("piece", [np.zeros((1, 3)), np.zeros((1, 2), np.int8)])
def test_pieces_of_another_kind_are_refused(piece: np.ndarray, tmp_path: Path) -> None:
    first = np.zeros((2, 2))
    with ArrayFile(tmp_path / "some.npy", first) as file:
        file.append(first)
        with pytest.raises(ValueError, match=r"some\.npy: rows of"):
            file.append(piece)
