"""Dropout and models made from seeds: everything random comes from a name."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from clove.data import ClientData
from clove.federation import Evaluate, Gradients, Losses, Seeded, Train, Vectorized
from clove.federation import parameters as stacks
from clove.tasks import classification

from .worlds import (
    ASSIGNMENT,
    ENGINES,
    SGD,
    assert_identical,
    dense,
    dropping,
    everyone,
    models_for,
    normalised,
    on_both,
    some_clients,
    train_rounds,
)

forgetful = classification(dropping)
each_engine = pytest.mark.parametrize("engine_type", ENGINES)


def trained(engine_type, seed=0, round_number=1, questions=1):
    engine = engine_type(some_clients(), forgetful, seed=seed)
    engine.begin_round(round_number)
    question = Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD)
    return [engine.answer(question).models["0.weight"] for _ in range(questions)][-1]


@each_engine
@pytest.mark.parametrize("task", [dense, normalised, forgetful])
def test_the_same_seed_gives_the_same_bits(engine_type, task):
    first, again = (train_rounds(engine_type(some_clients(), task, seed=3)) for _ in range(2))
    assert_identical(first, again)


@each_engine
def test_dropout_repeats_for_a_seed_round_and_question(engine_type):
    torch.manual_seed(1)
    first = trained(engine_type)
    torch.manual_seed(2)
    assert torch.equal(trained(engine_type), first)


@each_engine
@pytest.mark.parametrize("other", [{"seed": 1}, {"round_number": 2}, {"questions": 2}])
def test_dropout_differs_by_seed_round_and_question(engine_type, other):
    assert not torch.allclose(trained(engine_type, **other), trained(engine_type))


def test_stacked_clients_drop_different_numbers():
    alike = ClientData((np.ones((8, 4)), [1] * 8), (np.ones((1, 4)), [1]))
    engine = Vectorized([alike, alike], forgetful)
    answer = engine.answer(
        Gradients(models_for(engine, 1), np.array([0, 0]), np.array([0, 1]), SGD)
    )
    assert not torch.allclose(answer.models["3.weight"][0], answer.models["3.weight"][1])


@each_engine
def test_nothing_is_dropped_when_models_are_measured(engine_type):
    engine = engine_type(some_clients(), forgetful)
    question = Losses(models_for(engine), everyone(engine))
    np.testing.assert_array_equal(engine.answer(question).losses, engine.answer(question).losses)


@each_engine
def test_answering_leaves_the_generators_of_others_alone(engine_type):
    engine = engine_type(some_clients(), forgetful)
    models, cohort = models_for(engine), everyone(engine)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    for question in (
        Train(models, ASSIGNMENT, cohort, SGD),
        Gradients(models, ASSIGNMENT, cohort, SGD),
        Losses(Seeded(1, 3), cohort),
        Evaluate(models, cohort, ASSIGNMENT),
    ):
        engine.answer(question)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_seeded_models_are_the_same_on_every_engine():
    alone, together = on_both(lambda engine: engine.seeded(5, 2), some_clients(), dense)
    assert_identical(alone, together)


def test_seeded_models_differ_by_seed_and_number():
    engine = ENGINES[0](some_clients(), dense)
    weights = [engine.seeded(*which)["1.weight"] for which in ((5, 0), (5, 1), (6, 0))]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@each_engine
@pytest.mark.parametrize("task", [dense, normalised])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_on_seeded_models_are_those_on_the_same_models_sent(engine_type, task, dtype):
    engine = engine_type(some_clients(), task, dtype=dtype)
    seeded = engine.answer(Losses(Seeded(5, 3), everyone(engine)))
    models = stacks.stack([engine.seeded(5, number) for number in range(3)])
    sent = engine.answer(Losses(models, everyone(engine)))
    np.testing.assert_array_equal(seeded.losses, sent.losses)
    assert len(np.unique(seeded.losses)) == seeded.losses.size
