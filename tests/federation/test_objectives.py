"""Parts of a batch, and gradients within an objective."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import vmap

from clove.federation import Batch, Train, Vectorized, cut
from clove.federation.objectives import task_loss

from .worlds import (
    ASSIGNMENT,
    SGD,
    assert_same_models,
    dense,
    everyone,
    models_for,
    on_both,
    relaxed,
    some_clients,
    world,
)


def batch_of(size: int, width: int) -> Batch:
    """Make a batch of samples 1, 2, 3, ..., padded with the first."""
    x = torch.arange(1.0, width + 1)
    real = x <= size
    x = torch.where(real, x, 1.0)
    return Batch(x[:, None], x.long(), real.double())


def samples(batch: Batch) -> list[float]:
    return batch.x[batch.weight > 0, 0].tolist()


@relaxed
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 5))
def test_the_parts_of_a_batch_are_disjoint_and_none_is_empty(size, parts, padding):
    found = [samples(part) for part in cut(batch_of(size, size + padding), parts)]
    assert len(found) == parts
    dealt = [one for own in found[:size] for one in own]
    assert sorted(dealt) == list(range(1, size + 1))
    assert all(own == [1.0] for own in found[size:])
    assert max(map(len, found)) - min(map(len, found)) <= 1 or size < parts


@relaxed
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_padding_changes_no_part(size, parts, padding):
    plain, padded = (cut(batch_of(size, size + more), parts) for more in (0, padding))
    assert [samples(part) for part in padded] == [samples(part) for part in plain]
    assert all(torch.equal(p.y, p.x[:, 0].long()) for p in padded)


def test_parts_are_the_same_under_vmap():
    batches = [batch_of(size, 7) for size in (1, 2, 5, 7)]
    stack = [torch.stack([getattr(b, name) for b in batches]) for name in ("x", "y", "weight")]

    def parts(x, y, weight):
        return [(p.x, p.y, p.weight) for p in cut(Batch(x, y, weight), 3)]

    for number, part in enumerate(vmap(parts)(*stack)):
        for place, batch in enumerate(batches):
            one = cut(batch, 3)[number]
            for found, expected in zip(part, (one.x, one.y, one.weight), strict=True):
                assert torch.equal(found[place], expected)


# ------------------------------------------------------------------------ gradients within steps


def looking_ahead(learner, parameters, batch, extras):
    """The loss a step ahead: a first-order meta-gradient."""
    gradient = learner.gradient(parameters, batch)
    ahead = {name: p - 0.5 * gradient[name] for name, p in parameters.items()}
    return task_loss(learner, ahead, batch, extras)


@pytest.mark.parametrize("name", ["mlp", "cnn", "cnn with batch norm", "autoencoder"])
def test_engines_agree_on_an_objective_that_takes_a_gradient(name):
    def ask(engine):
        engine.begin_round(1)
        question = Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD, looking_ahead)
        return engine.answer(question).models

    task, clients = world(name)
    alone, together = on_both(ask, clients, task, dtype=torch.float64)
    assert_same_models(together, alone)


def test_a_gradient_within_an_objective_leaves_no_trace_in_running_statistics():
    def idle(learner, parameters, batch, extras):
        learner.gradient(parameters, batch)
        return task_loss(learner, parameters, batch, extras)

    def ask(engine, objective):
        engine.begin_round(1)
        question = Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD, objective)
        return engine.answer(question).models

    task, clients = world("cnn with batch norm")
    for idling, plain in zip(
        on_both(lambda e: ask(e, idle), clients, task),
        on_both(lambda e: ask(e, task_loss), clients, task),
        strict=True,
    ):
        assert_same_models(idling, plain, 1e-6)


def test_a_gradient_of_some_parameters_leaves_the_others_alone():
    names = []

    def head_ahead(learner, parameters, batch, extras):
        names.append(sorted(learner.gradient(parameters, batch)))
        return looking_ahead(learner, parameters, batch, extras)

    def ask(engine):
        question = Train(
            models_for(engine), ASSIGNMENT, everyone(engine), SGD, head_ahead, only="head"
        )
        return engine.answer(question).models

    alone, together = on_both(ask, some_clients(), dense, dtype=torch.float64)
    assert_same_models(together, alone)
    assert all(found == ["3.bias", "3.weight"] for found in names)


def test_groups_of_any_size_take_the_same_gradients():
    def ask(size):
        engine = Vectorized(some_clients(), dense, group_size=size, dtype=torch.float64)
        engine.begin_round(1)
        question = Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD, looking_ahead)
        return engine.answer(question).models

    assert_same_models(ask(2), ask(0))
