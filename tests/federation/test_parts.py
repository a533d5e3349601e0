"""The head and the body of a network, features, and training of a part only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clove.errors import CloveError
from clove.federation import Sequential, Train, Vectorized, averaged
from clove.federation.heads import find_head
from clove.tasks import build_model, classification

from .worlds import (
    ASSIGNMENT,
    ENGINES,
    SGD,
    assert_identical,
    assert_same_models,
    conv_norm,
    dense,
    everyone,
    models_for,
    on_both,
    some_clients,
    world,
)


class Branching(nn.Module):
    """A network that is no chain: its head is found by running it, not by its place."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(6, 3)
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.classes(torch.cat([self.left(x).relu(), self.right(x).tanh()], dim=1))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, x):
        return self.top(self.body(x))


NETWORKS = {
    "chain": (dense, (4,), "3"),
    "batch norm": (classification(conv_norm), (1, 8, 8), "5"),
    "branching": (classification(Branching), (4,), "classes"),
    "nested": (classification(Nested), (4,), "top.2"),
    "only a head": (classification(lambda: nn.Linear(4, 3)), (4,), ""),
    "named": (
        replace(classification(Nested), head="top.0"),
        (4,),
        "top.0",
    ),
}


def federation(name, engine_type, dtype=torch.float64):
    task, shape, _ = NETWORKS[name]
    return engine_type(some_clients(shape=shape), task, dtype=dtype)


def features_by_hand(engine, model, x):
    """Return what goes into the head, by a copy of the network that ends before it."""
    met = []
    network = engine.task.build().double().eval()
    network.load_state_dict(model)
    network.get_submodule(engine.head).register_forward_pre_hook(lambda _, x: met.append(x[0]))
    return network(x), met[0]


@pytest.mark.parametrize("engine_type", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_head_is_the_last_linear_layer_to_run(name, engine_type):
    engine = federation(name, engine_type)
    assert engine.head == NETWORKS[name][2]
    head, body = engine.part("head"), engine.part("body")
    assert sorted(head + body) == sorted(engine.task.build().state_dict())
    start = f"{engine.head}." if engine.head else ""
    assert all(one.startswith(start) for one in head)
    assert not any(one.startswith(start) for one in body)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_objective_can_look_at_the_features(name):
    seen = {}

    def pull_to_nought(learner, parameters, batch, extras):
        outputs, features = learner.outputs_and_features(parameters, batch.x, batch.weight)
        seen[type(learner).__name__] = features.shape[-1]
        pull = (features.flatten(1).square().mean(1) * batch.weight).sum() / batch.weight.sum()
        return learner.loss(outputs, batch) + pull

    def ask(engine):
        engine.begin_round(1)
        question = Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD, pull_to_nought)
        return engine.answer(question).models

    task, shape, _ = NETWORKS[name]
    alone, together = on_both(ask, some_clients(shape=shape), task, dtype=torch.float64)
    assert_same_models(together, alone)
    assert len(set(seen.values())) == 1


@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_what_goes_into_the_head(name):
    engine = federation(name, Sequential)
    found = []

    def noted(learner, parameters, batch, extras):
        found.append((batch.x, learner.features(parameters, batch.x)))
        return learner.loss(learner.outputs(parameters, batch.x), batch)

    models = models_for(engine)
    engine.network.train()  # what looks for the head leaves it so
    one = np.array([2])
    engine.answer(Train(models, one * 0, one, SGD, noted))
    if engine.normalises:  # by the batch at hand: not what the copy below does
        return
    x, features = found[0]
    _, expected = features_by_hand(engine, {n: t[0] for n, t in models.items()}, x)
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("part", ["head", "body", ("0",), ("0.weight", "5")], ids=str)
def test_only_a_part_is_trained_and_the_rest_comes_out_as_it_was(part):
    def ask(engine):
        engine.begin_round(1)
        models = models_for(engine)
        question = Train(models, ASSIGNMENT, everyone(engine), SGD, only=part)
        return models, engine.answer(question).models, set(engine.part(part))

    task, clients = world("cnn with batch norm")
    (models, alone, names), (_, together, _) = on_both(ask, clients, task)
    assert_same_models(together, alone)
    for found in (alone, together):
        start = {name: tensor[ASSIGNMENT] for name, tensor in models.items()}
        assert_identical(
            {name: t for name, t in found.items() if name not in names},
            {name: t for name, t in start.items() if name not in names},
        )
        assert all(not torch.equal(found[name], start[name]) for name in names)


@pytest.mark.parametrize("engine_type", ENGINES)
@pytest.mark.parametrize("reduce", [None, ASSIGNMENT], ids=["by client", "by group"])
def test_a_part_may_be_all_that_travels(engine_type, reduce):
    engine = engine_type(some_clients(), dense)
    models, cohort = models_for(engine), everyone(engine)
    engine.begin_round(1)
    whole = engine.answer(Train(models, ASSIGNMENT, cohort, SGD, reduce=reduce))
    engine.begin_round(1)
    part = engine.answer(Train(models, ASSIGNMENT, cohort, SGD, reduce=reduce, send="body"))
    assert_identical(part.models, {n: whole.models[n] for n in ("1.weight", "1.bias")})
    assert engine.ledger.up == 5 * (8 * 4 + 8) * 4 + 5 * 8
    if reduce is not None:
        after = averaged(models, part)
        assert_identical(
            {n: after[n] for n in ("3.weight", "3.bias")},
            {n: models[n] for n in ("3.weight", "3.bias")},
        )


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_part_nobody_knows_is_refused_with_the_nearest_name(engine_type):
    engine = engine_type(some_clients(), dense)
    with pytest.raises(CloveError, match="unknown part of the network 'hed': did you mean 'head'"):
        engine.part("hed")
    with pytest.raises(CloveError, match=r"'3\.wait': did you mean '3\.weight'"):
        engine.part(("1", "3.wait"))


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_network_without_a_linear_layer_has_no_head(engine_type):
    def convolutions():
        return nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten())

    engine = engine_type(some_clients(shape=(1, 8, 8)), classification(convolutions))
    with pytest.raises(CloveError, match=r"no linear layer to be its head.*Task\(head="):
        engine.part("body")


def test_a_head_that_the_network_lacks_is_refused():
    task = replace(classification(Nested), head="topp")
    with pytest.raises(CloveError, match="unknown layer of the network 'topp': did you mean 'top'"):
        Sequential(some_clients(), task).part("head")


def test_a_head_that_cannot_be_stacked_says_so():
    def wide():
        return nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3)))

    def features(learner, parameters, batch, extras):
        return learner.features(parameters, batch.x).sum()

    task = replace(classification(wide), head="1")
    engine = Vectorized(some_clients(), task)
    with pytest.raises(CloveError, match=r"the head '1'.*Use --engine sequential"):
        engine.answer(Train(models_for(engine), ASSIGNMENT, everyone(engine), SGD, features))


@pytest.mark.parametrize(
    ("name", "shape", "head"),
    [
        ("mlp", (8,), "3"),
        ("cnn", (1, 28, 28), "7"),
        ("cifar-cnn", (3, 32, 32), "23"),
        ("text-cnn", (20,), "classes"),
        ("amazon-mlp", (50,), "7"),
        ("linear", (8,), ""),
    ],
)
def test_networks_of_the_zoo_end_in_their_head(name, shape, head):
    x = torch.zeros(1, *shape, dtype=torch.int64 if name == "text-cnn" else torch.float32)
    assert find_head(build_model(name, shape, 4), x) == head
