from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.federation import LocalTraining, Train
from clove.federation.batches import batch_plan, batch_plans, consecutive, split_by_share

from .worlds import ENGINES, assert_same_models, dense, models_for, relaxed, some_clients

seeds = st.integers(0, 2**32)
sizes = st.integers(1, 50)
batch_sizes = st.integers(1, 12)


def plan(
    seed=0, round_number=1, client=0, samples=20, batch_size=8, epochs=1, pairs=False, **options
):
    training = LocalTraining(batch_size=batch_size, epochs=epochs, **options)
    return batch_plan(seed, round_number, client, np.arange(100, 100 + samples), training, pairs)


def listed(steps):
    return [step.tolist() for step in steps]


@relaxed
@given(seeds, sizes, batch_sizes, st.integers(1, 4))
def test_every_epoch_covers_every_sample_once_in_full_batches(seed, samples, size, epochs):
    steps = listed(plan(seed, samples=samples, batch_size=size, epochs=epochs))
    per_epoch = -(-samples // size)
    assert len(steps) == epochs * per_epoch
    for epoch in range(epochs):
        own = steps[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(np.concatenate(own)) == list(range(100, 100 + samples))
        assert all(len(step) == size for step in own[:-1])


@relaxed
@given(seeds, sizes, st.integers(2, 12), st.integers(1, 3))
def test_pairs_leave_out_a_lone_last_sample_where_there_are_other_batches(
    seed, samples, size, epochs
):
    steps = listed(plan(seed, samples=samples, batch_size=size, epochs=epochs))
    paired = listed(plan(seed, samples=samples, batch_size=size, epochs=epochs, pairs=True))
    assert paired == (steps if samples == 1 else [step for step in steps if len(step) > 1])


def test_a_plan_is_the_same_every_time():
    assert listed(plan()) == listed(plan())


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"round_number": 2}, {"client": 1}, {"purpose": "probe-batches"}]
)
def test_seed_round_client_and_purpose_each_give_another_order(other):
    assert listed(plan(**other)) != listed(plan())


def test_epochs_are_in_different_orders():
    steps = listed(plan(samples=8, epochs=2))
    assert steps[0] != steps[1]


def test_the_optimiser_has_no_say_in_the_order():
    assert listed(plan(optimizer="sgd", learning_rate=3.0)) == listed(plan())


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_client_trains_the_same_whoever_else_takes_part(engine_type):
    engine = engine_type(some_clients(), dense)
    engine.begin_round(2)
    models, training = models_for(engine, 1), LocalTraining(batch_size=8)

    def trained(cohort):
        answer = engine.answer(Train(models, np.zeros(len(cohort), int), cohort, training))
        where = answer.clients.tolist().index(1)
        return {name: tensor[where] for name, tensor in answer.models.items()}

    assert_same_models(trained(np.array([4, 1, 3])), trained(np.array([1])), 1e-5)


@relaxed
@given(seeds, st.integers(0, 99), sizes, st.floats(0.01, 1.0))
def test_a_share_and_the_rest_are_a_partition(seed, client, samples, share):
    part, rest = split_by_share(seed, client, samples, share)
    assert sorted([*part, *rest]) == list(range(samples))
    assert part.tolist() == sorted(part)
    assert len(part) >= 1
    assert len(part) >= share * samples or len(rest) == 1
    if share < 1 and samples > 1:
        assert len(rest) >= 1


@relaxed
@given(seeds, st.integers(2, 50), st.floats(0.01, 0.99))
def test_a_split_is_the_same_every_time_for_a_seed_and_client(seed, samples, share):
    first, again = (split_by_share(seed, 3, samples, share) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])


def test_clients_are_split_differently():
    assert split_by_share(0, 0, 20, 0.5)[0].tolist() != split_by_share(0, 1, 20, 0.5)[0].tolist()


def test_the_whole_share_holds_nothing_back():
    part, rest = split_by_share(0, 0, 4, 1.0)
    assert (part.tolist(), rest.tolist()) == ([0, 1, 2, 3], [])


def test_a_single_sample_is_trained_on():
    part, rest = split_by_share(0, 0, 1, 0.5)
    assert (part.tolist(), rest.tolist()) == ([0], [])


@pytest.mark.parametrize(
    ("samples", "size", "lengths"),
    [(1, 4, [1]), (4, 4, [4]), (5, 4, [5]), (6, 4, [4, 2]), (9, 4, [4, 5]), (3, 1, [1, 1, 1])],
)
def test_consecutive_batches_leave_no_sample_alone(samples, size, lengths):
    parts = consecutive(np.arange(samples), size)
    assert [len(part) for part in parts] == lengths
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(samples))


# ------------------------------------------------------------------------------ so many steps


@relaxed
@given(seeds, sizes, batch_sizes, st.integers(1, 4), st.integers(1, 9))
def test_steps_are_the_first_of_all_epochs(seed, samples, size, epochs, steps):
    options = {"samples": samples, "batch_size": size, "epochs": epochs}
    every = listed(plan(seed, **options))
    assert listed(plan(seed, **options, steps=steps)) == every[:steps]


@relaxed
@given(seeds, sizes, batch_sizes, st.integers(1, 9))
def test_as_many_epochs_as_steps_are_exactly_so_many_steps(seed, samples, size, steps):
    options = {"samples": samples, "batch_size": size, "epochs": steps, "steps": steps}
    assert len(plan(seed, **options)) == steps


def test_engines_agree_where_clients_make_so_many_steps():
    training = LocalTraining("sgd", 0.1, batch_size=8, epochs=4, steps=4)

    def ask(engine_type):
        engine = engine_type(some_clients(), dense)
        engine.begin_round(1)
        cohort = np.arange(5)
        trained = engine.answer(
            Train(models_for(engine), cohort % 2, cohort, training, report_losses=True)
        )
        assert np.isfinite(trained.losses).all()
        assert trained.losses.shape == (5, 4)
        return trained.models

    alone, together = map(ask, ENGINES)
    assert_same_models(together, alone)


# --------------------------------------------------------------------------- batches in parts


@relaxed
@given(seeds, sizes, st.integers(6, 12), st.integers(1, 3), st.booleans())
def test_a_last_batch_too_small_for_its_parts_is_left_out(seed, samples, size, parts, pairs):
    training = LocalTraining(batch_size=size)
    rows = [np.arange(samples)]
    plans = batch_plans(seed, 1, np.array([0]), rows, training, pairs, parts)
    every = listed(plan(seed, samples=samples, batch_size=size))
    least = parts * (2 if pairs else 1)
    kept = [len(step) for step in every if len(step) >= least or len(every) == 1]
    assert [len(step) for step in plans.of(0)] == kept
