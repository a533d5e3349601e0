"""The engines are two ways to do the same sums: one batch plan, the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clove.algorithms import Clove
from clove.algorithms.base import Setup
from clove.federation import (
    Evaluate,
    Extras,
    Gradients,
    Kept,
    LocalTraining,
    Losses,
    Seeded,
    Sequential,
    Train,
    Unseen,
    Vectorized,
)
from clove.runs.loop import drive
from clove.tasks import classification

from .worlds import (
    ASSIGNMENT,
    SGD,
    TRAINING,
    UNEQUAL,
    WORLDS,
    assert_same_models,
    dense,
    dense_norm,
    everyone,
    models_for,
    normalised,
    on_both,
    proximal,
    some_clients,
    train_rounds,
    world,
)

OPTIMIZERS = {
    "adam": TRAINING,
    "adamw": LocalTraining("adamw", 0.01, batch_size=8, weight_decay=0.1),
    "sgd": SGD,
    "sgd with momentum": replace(SGD, momentum=0.9, weight_decay=0.01),
    "sgd with momentum that is kept": replace(
        SGD, momentum=0.9, keep_momentum=True, learning_rate_decay=0.5
    ),
    "several epochs": replace(TRAINING, epochs=3),
    "whole batches": replace(TRAINING, batch_size=100),
    "lone samples": replace(SGD, batch_size=1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", WORLDS)
def test_engines_agree_after_two_rounds_of_training_and_averaging(name, dtype):
    task, clients = world(name)
    alone, together = on_both(train_rounds, clients, task, dtype=dtype)
    assert_same_models(together, alone)


@pytest.mark.parametrize("training", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_engines_agree_whatever_the_optimiser(training):
    def ask(engine):
        return train_rounds(engine, training)

    alone, together = on_both(ask, some_clients(), dense)
    assert_same_models(together, alone)


@pytest.mark.parametrize("training", [SGD, OPTIMIZERS["sgd with momentum"], TRAINING])
def test_engines_agree_on_batch_norm_over_several_epochs(training):
    def ask(engine):
        return train_rounds(engine, replace(training, epochs=2))

    alone, together = on_both(ask, some_clients(), normalised)
    assert_same_models(together, alone)


@pytest.mark.parametrize(
    "options",
    [{"momentum": None}, {"affine": False}, {"track_running_stats": False}],
    ids=lambda options: next(iter(options)),
)
def test_engines_agree_on_every_kind_of_batch_norm(options):
    def ask(engine):
        models = train_rounds(engine)
        vectors = engine.answer(Losses(models, everyone(engine)))
        return models, vectors.losses

    task = classification(lambda: dense_norm(**options))
    (alone, losses), (together, same_losses) = on_both(ask, some_clients(), task)
    assert_same_models(together, alone)
    np.testing.assert_allclose(same_losses, losses, rtol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
@pytest.mark.parametrize("size", [1, 3, 0], ids=["one", "three", "all"])
def test_taking_clients_in_groups_changes_nothing(name, size):
    task, clients = world(name)
    alone = train_rounds(Sequential(clients, task))
    together = train_rounds(Vectorized(clients, task, group_size=size))
    assert_same_models(together, alone)


def test_clients_are_grouped_with_others_of_like_size(monkeypatch):
    engine = Vectorized(some_clients([4, 4, 4, 30, 5, 31, 6]), dense, group_size=2)
    groups = []
    train_group = engine.train_group

    def watched(work):
        groups.append(work.clients.tolist())
        return train_group(work)

    monkeypatch.setattr(engine, "train_group", watched)
    cohort = np.array([3, 4, 5, 6])
    engine.answer(Train(models_for(engine), cohort * 0, cohort, TRAINING))
    assert groups == [[3, 5], [4, 6]]


@pytest.mark.parametrize("size", [1, 2, 0])
def test_answers_by_client_come_in_the_order_asked(size):
    cohort = np.array([3, 0, 4, 2])
    start = np.array([1, 0, 0, 1])

    def ask(engine):
        engine.begin_round(1)
        return engine.answer(Train(models_for(engine), start, cohort, TRAINING))

    clients = some_clients()
    alone = ask(Sequential(clients, dense))
    together = ask(Vectorized(clients, dense, group_size=size))
    for trained in (alone, together):
        np.testing.assert_array_equal(trained.clients, cohort)
        np.testing.assert_array_equal(trained.samples, np.array(UNEQUAL)[cohort])
        assert trained.weights is None
    assert_same_models(together.models, alone.models)


@pytest.mark.parametrize("reduce", [None, ASSIGNMENT], ids=["by client", "by group"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "mlp with batch norm"])
def test_engines_agree_on_gradients(name, reduce):
    def ask(engine):
        engine.begin_round(1)
        cohort = everyone(engine)
        return engine.answer(
            Gradients(models_for(engine), ASSIGNMENT, cohort, TRAINING, reduce=reduce)
        )

    task, clients = world(name)
    alone, together = on_both(ask, clients, task)
    assert together.values == alone.values
    assert_same_models(together.models, alone.models)


def test_engines_agree_where_clients_train_on_a_share_and_measure_on_the_rest():
    def ask(engine):
        engine.begin_round(1)
        cohort = everyone(engine)
        same = models_for(engine, 1)
        start = np.zeros(5, dtype=np.int64)
        trained = engine.answer(Train(same, start, cohort, TRAINING, share=0.7))
        unseen = Unseen(np.array([0, -1, 2, 3, 4]), 0.7)
        return trained.models, engine.answer(Losses(trained.models, cohort, unseen=unseen)).losses

    (alone, losses), (together, same_losses) = on_both(ask, some_clients(), dense)
    assert_same_models(together, alone)
    np.testing.assert_allclose(same_losses, losses, rtol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm", "mlp with batch norm"])
@pytest.mark.parametrize("batch_statistics", [0, 8])
def test_engines_agree_on_losses(name, batch_statistics):
    def ask(engine):
        models = train_rounds(engine)
        question = Losses(models, everyone(engine), batch_statistics=batch_statistics)
        return engine.answer(question).losses

    task, clients = world(name)
    alone, together = on_both(ask, clients, task)
    np.testing.assert_allclose(together, alone, rtol=1e-4)


def test_losses_by_batch_statistics_differ_from_those_by_running_ones_and_leave_these_alone():
    engine = Vectorized(some_clients(), normalised)
    models = train_rounds(engine)
    before = {name: tensor.clone() for name, tensor in models.items()}
    running, batch = (
        engine.answer(Losses(models, everyone(engine), batch_statistics=size)).losses
        for size in (0, 8)
    )
    assert not np.allclose(running, batch, rtol=1e-2)
    assert_same_models(models, before, 0.0)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm", "autoencoder"])
def test_engines_agree_on_scores(name, split):
    def ask(engine):
        models = train_rounds(engine, assigns=True)
        index = np.array([1, 1, 0, 0, 1])
        kept = Kept("own", Seeded(5))
        engine.answer(Train(kept, ASSIGNMENT * 0, everyone(engine), TRAINING, keep="own"))
        return [
            engine.answer(question)
            for question in (
                Evaluate(models, everyone(engine), index, split),
                Evaluate(models, everyone(engine), split=split),
                Evaluate(kept, everyone(engine), split=split),
            )
        ]

    task, clients = world(name)
    for alone, together in zip(*on_both(ask, clients, task), strict=True):
        np.testing.assert_array_equal(together.clients, alone.clients)
        np.testing.assert_allclose(together.loss, alone.loss, rtol=1e-4)
        assert (together.accuracy is None) == (alone.accuracy is None)
        if alone.accuracy is not None:
            np.testing.assert_allclose(together.accuracy, alone.accuracy)


@pytest.mark.parametrize("name", ["mlp", "mlp with batch norm"])
def test_engines_agree_on_an_objective_with_a_shared_and_an_own_part(name):
    cohort = np.array([4, 1, 0])
    start = np.array([1, 1, 0])

    def ask(engine, pulls):
        models = models_for(engine)
        anchor = {name: models[name][0] for name in engine.trainable}
        extras = Extras(anchor, {"pull": torch.tensor(pulls)})
        engine.begin_round(1)
        return engine.answer(
            Train(models, start, cohort, SGD, objective=proximal, extras=extras)
        ).models

    task, clients = world(name)
    alone, together = on_both(lambda engine: ask(engine, [0.0, 0.5, 2.0]), clients, task)
    assert_same_models(together, alone)
    free = ask(Sequential(clients, task), [0.0, 0.0, 0.0])
    weight = next(iter(alone))
    assert torch.equal(alone[weight][0], free[weight][0])
    assert not torch.allclose(alone[weight][1], free[weight][1])


def test_engines_agree_where_all_clients_are_sent_the_same_extras():
    def ask(engine):
        models = models_for(engine)
        anchor = {name: models[name][1] for name in engine.trainable}
        return train_rounds(
            engine, objective=proximal, extras=Extras(anchor | {"pull": torch.tensor(0.3)})
        )

    alone, together = on_both(ask, some_clients(), dense)
    assert_same_models(together, alone)


def test_an_objective_sees_the_same_parameters_on_either_engine():
    seen = []

    def spying(learner, parameters, batch, extras):
        seen.append(list(parameters))
        return learner.loss(learner.outputs(parameters, batch.x), batch)

    on_both(lambda engine: train_rounds(engine, objective=spying), some_clients(), normalised)
    assert all(names == ["0.weight", "1.weight", "1.bias", "3.weight", "3.bias"] for names in seen)


def test_engines_agree_on_an_objective_that_runs_the_network_twice():
    def twice(learner, parameters, batch, extras):
        shifted = learner.outputs(parameters, batch.x + 1)
        return learner.loss(learner.outputs(parameters, batch.x) + shifted, batch)

    alone, together = on_both(
        lambda engine: train_rounds(engine, objective=twice), some_clients(), normalised
    )
    assert_same_models(together, alone)


def test_engines_agree_on_a_network_with_frozen_layers():
    def half_frozen():
        network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        network[0].requires_grad_(False)
        return network

    task = classification(half_frozen)
    alone, together = on_both(train_rounds, some_clients(), task)
    assert_same_models(together, alone)
    first = models_for(Sequential(some_clients(), task))
    np.testing.assert_allclose(alone["0.weight"], first["0.weight"], rtol=1e-6)
    assert not torch.allclose(alone["2.weight"], first["2.weight"])


@pytest.mark.parametrize("averaging", ["models", "gradients"])
def test_engines_agree_on_rounds_of_clove(averaging):
    def ask(engine):
        def initial(number, how):
            return models_for(engine, number, how)

        method = Clove(Setup(engine.clients, 2, SGD, 0, initial), averaging=averaging)
        state = method.begin()
        outcomes = []
        for number in (1, 2, 3):
            engine.begin_round(number)
            outcomes.append(drive(method.round(state, everyone(engine)), engine.answer))
            state = outcomes[-1].state
        return state.models, [outcome.assignment.tolist() for outcome in outcomes], engine.ledger

    alone, together = on_both(ask, some_clients(), dense)
    assert_same_models(together[0], alone[0])
    assert together[1] == alone[1]
    assert (together[2].up, together[2].down) == (alone[2].up, alone[2].down)
