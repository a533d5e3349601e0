from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clove.federation import parameters as stacks
from clove.federation.parameters import GroupSums

from .worlds import assert_identical, relaxed


def model(value: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((2, 3), value), "seen": torch.tensor(int(value))}


def stack(*values: float) -> dict[str, torch.Tensor]:
    return stacks.stack([model(value) for value in values])


def at(*index: int) -> np.ndarray:
    return np.array(index, dtype=np.int64)


def means(models, groups, weights, number=None) -> dict[str, torch.Tensor]:
    sums = GroupSums(number or max(groups) + 1)
    sums.add(models, at(*groups), np.array(weights, dtype=np.float64))
    return sums.means()


@pytest.fixture
def three():
    """A stack of three models, which must come out of each test as it went in."""
    models = stack(1.0, 2.0, 3.0)
    yield models
    assert_identical(models, stack(1.0, 2.0, 3.0))


def test_a_stack_has_a_leading_model_axis(three):
    assert stacks.count(three) == 3
    assert three["weight"].shape == (3, 2, 3)
    assert three["seen"].shape == (3,)


def test_picking_names_models_in_any_order_and_again(three):
    assert_identical(stacks.pick(three, at(2, 0, 2)), stack(3.0, 1.0, 3.0))


def test_what_is_picked_is_a_copy(three):
    stacks.pick(three, at(0, 1, 2))["weight"].zero_()


def test_picking_none_leaves_an_empty_stack_of_the_same_kind(three):
    nothing = stacks.pick(three, at())
    assert nothing["weight"].shape == (0, 2, 3)
    assert stacks.count(nothing) == 0


def test_there_is_nothing_to_pick_from_an_empty_tree():
    assert stacks.pick({}, at(0, 1)) == {}


def test_one_model_has_no_model_axis(three):
    assert_identical(stacks.one(three, 1), model(2.0))


def test_repeating_makes_a_stack_of_the_same_model():
    assert_identical(stacks.repeat(model(4.0), 3), stack(4.0, 4.0, 4.0))


def test_stacks_are_joined_in_order(three):
    assert_identical(stacks.concatenate([three, stack(9.0)]), stack(1.0, 2.0, 3.0, 9.0))


def test_rows_are_replaced_in_a_new_stack(three):
    assert_identical(stacks.replace_rows(three, at(2, 0), stack(7.0, 8.0)), stack(8.0, 2.0, 7.0))
    assert_identical(stacks.replace_rows(three, at(), stacks.pick(three, at())), three)


def test_replaced_rows_take_on_the_stacks_precision(three):
    rows = {"weight": torch.full((1, 2, 3), 7.0).double(), "seen": torch.tensor([7.0])}
    assert_identical(stacks.replace_rows(three, at(1), rows), stack(1.0, 7.0, 3.0))


def test_moving_changes_the_precision_of_floating_numbers_only(three):
    moved = stacks.move(three, torch.device("cpu"), torch.float64)
    assert (moved["weight"].dtype, moved["seen"].dtype) == (torch.float64, torch.int64)


def test_the_size_of_a_model_is_that_of_all_its_numbers(three):
    assert stacks.model_bytes(three) == 6 * 4 + 8
    assert stacks.model_bytes(stacks.pick(three, at())) == 0


def test_models_that_are_not_finite_are_found(three):
    models = {name: tensor.clone() for name, tensor in three.items()}
    models["weight"][0, 1, 1] = torch.nan
    models["weight"][2, 0, 0] = torch.inf
    assert stacks.finite_rows(models)().tolist() == [False, True, False]
    assert stacks.finite_rows(three)().all()


def test_means_weigh_models_by_their_samples(three):
    result = means(three, [1, 0, 1], [3, 5, 1])
    assert_identical({"weight": result["weight"]}, {"weight": stack(2.0, 1.5)["weight"]})


def test_integers_are_averaged_and_rounded(three):
    assert means(three, [0, 0, 0], [1, 1, 2])["seen"].tolist() == [2]  # of 2.25
    assert means(three, [0, 0, 0], [0, 1, 9])["seen"].tolist() == [3]  # of 2.9
    assert means(three, [0, 0, 0], [1, 1, 2])["seen"].dtype == torch.int64


def test_large_integers_lose_nothing():
    seen = {"seen": torch.tensor([2**40 + 1, 2**40 + 3])}
    assert means(seen, [0, 0], [1, 1])["seen"].tolist() == [2**40 + 2]


def test_a_group_of_no_weight_comes_out_as_zeros(three):
    result = means(three, [0, 2, 2], [1, 1, 0], number=4)
    assert result["weight"][:, 0, 0].tolist() == [1.0, 0.0, 2.0, 0.0]


def test_adding_no_models_adds_nothing(three):
    sums = GroupSums(2)
    sums.add(stacks.pick(three, at()), at(), np.zeros(0))
    assert sums.weights.tolist() == [0.0, 0.0]
    sums.add(three, at(0, 1, 1), np.ones(3))
    sums.add(stacks.pick(three, at()), at(), np.zeros(0))
    assert sums.weights.tolist() == [1.0, 2.0]
    assert sums.means()["weight"][:, 0, 0].tolist() == [1.0, 2.5]


@relaxed
@given(st.data(), st.integers(1, 12), st.integers(1, 4))
def test_means_do_not_depend_on_how_models_are_added_up(data, number, groups):
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    models = {
        "weight": torch.from_numpy(draw.normal(size=(number, 2, 3))),
        "seen": torch.from_numpy(draw.integers(100, size=number)),
    }
    group, weight = draw.integers(groups, size=number), draw.integers(1, 50, number).astype(float)
    cut = data.draw(st.integers(0, number))
    whole, parts = GroupSums(groups), GroupSums(groups)
    whole.add(models, group, weight)
    for part in (np.arange(cut), np.arange(cut, number)):
        parts.add(stacks.pick(models, part), group[part], weight[part])
    np.testing.assert_allclose(parts.weights, whole.weights)
    torch.testing.assert_close(parts.means(), whole.means())
    for own in np.unique(group):
        expected = np.average(models["weight"][group == own], axis=0, weights=weight[group == own])
        np.testing.assert_allclose(whole.means()["weight"][own], expected)


def test_sums_that_ran_out_of_memory_have_not_begun(monkeypatch):
    sums = stacks.GroupSums(2)
    models = {"w": torch.tensor([[1.0], [3.0]])}

    def no_memory(*_):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as now:
        now.setattr(stacks, "_by_kind", no_memory)
        with pytest.raises(torch.OutOfMemoryError):
            sums.add(models, np.array([0, 0]), np.ones(2))
    sums.add(models, np.array([0, 0]), np.ones(2))
    assert sums.weights.tolist() == [2, 0]
    assert sums.means()["w"].tolist() == [[2.0], [0.0]]


# --------------------------------------------------------------- lengths, angles, combinations


def test_inner_products_are_over_all_real_numbers_of_the_models(three):
    # Six numbers each; the whole number is none of theirs.
    expected = [[6.0, 12.0, 18.0], [12.0, 24.0, 36.0], [18.0, 36.0, 54.0]]
    assert stacks.inner_products(three, three).tolist() == expected
    assert stacks.squared_lengths(three).tolist() == [6.0, 24.0, 54.0]


def test_what_is_left_out_has_no_part_in_them():
    models = {"weight": torch.tensor([[3.0, 4.0]]), "var": torch.tensor([[9.0]])}
    assert stacks.inner_products(models, models, {"var"}).tolist() == [[25.0]]
    assert stacks.squared_lengths(models, {"var"}).tolist() == [25.0]


def test_products_of_long_vectors_keep_small_differences():
    one, other = ({"weight": torch.tensor([[4096.0, small]])} for small in (0.5, 0.25))
    assert stacks.inner_products(one, other).item() == 4096.0**2 + 0.125


def test_combinations_are_weighted_sums_whole_numbers_rounded(three):
    shares = np.array([[0.5, 0.0, 0.5], [1.0, 1.0, 1.0], [0.0, 0.4, 0.0]])
    assert stacks.combined(three, shares)["weight"][:2].equal(stack(2.0, 6.0)["weight"])
    assert stacks.combined(three, shares)["seen"].tolist() == [2, 6, 1]


def test_a_difference_is_by_place(three):
    apart = stacks.difference(three, stack(1.0, 1.0, 5.0))
    assert apart["seen"].tolist() == [0, 1, -2]
