"""Checkpoints: a tree of values as one file, and back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clove.errors import CloveError
from clove.trees import read_tree, write_tree

arrays = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.uint8]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | arrays
    | arrays.map(lambda array: torch.from_numpy(array.copy()))
)
trees = st.dictionaries(
    st.text(),
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        one, other = one.numpy(), other.numpy()
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    return bool(one == other or (one != one and other != other))


def through_a_file(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    write_tree(folder / "tree.safetensors", tree)
    return read_tree(folder / "tree.safetensors")


@settings(deadline=None)
@given(tree=trees)
def test_a_tree_comes_back_as_it_was(
    tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert same(through_a_file(tree, tmp_path_factory.mktemp("tree")), tree)


@dataclass
class State:
    """What an algorithm may keep."""

    models: dict[str, torch.Tensor]
    rounds: tuple[int, ...]


def test_dataclasses_come_back_as_dicts_and_tuples_as_lists(tmp_path: Path) -> None:
    tree = {"state": State({"weight": torch.ones(2)}, (1, 2)), "number": np.int64(3)}
    expected = {"state": {"models": {"weight": torch.ones(2)}, "rounds": [1, 2]}, "number": 3}
    assert same(through_a_file(tree, tmp_path), expected)


def test_values_may_share_memory(tmp_path: Path) -> None:
    tensor, array = torch.arange(6.0), np.arange(3)
    tree = {"a": tensor, "b": tensor, "c": tensor[2:], "d": tensor[::2], "e": array, "f": array}
    assert same(through_a_file(tree, tmp_path), tree)


def test_places_whose_names_join_to_the_same_are_two(tmp_path: Path) -> None:
    tree = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    assert same(through_a_file(tree, tmp_path), tree)


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot save set at /state/odd"):
        write_tree(tmp_path / "tree.safetensors", {"state": {"odd": {1, 2}}})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match=r"there is no file .*tree\.safetensors"):
        read_tree(tmp_path / "tree.safetensors")


@pytest.mark.parametrize("kept", [0, 5, 40, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path: Path, kept: float) -> None:
    file = tmp_path / "tree.safetensors"
    write_tree(file, {"models": torch.zeros(100)})
    content = file.read_bytes()
    file.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    with pytest.raises(CloveError, match=r"tree\.safetensors is damaged or is not a checkpoint"):
        read_tree(file)


def test_some_other_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    file = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, file)
    with pytest.raises(CloveError, match="is damaged or is not a checkpoint"):
        read_tree(file)
