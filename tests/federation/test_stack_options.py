"""Objectives that differentiate by themselves, compiled networks, bfloat16: the same results."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import grad

from clove.federation import Losses, Sequential, Train, Vectorized
from clove.federation.layers import ONE_BY_ONE
from clove.federation.stacked import can_compile
from clove.tasks import classification

from .worlds import (
    SGD,
    WORLDS,
    assert_same_models,
    dense,
    everyone,
    models_for,
    normalised,
    some_clients,
    train_rounds,
    world,
)

UNEQUAL = [9, 5, 16, 7]


def one_by_one(clients, task, **options):
    """Return an engine whose convolutions, and what follows them, go client by client."""
    engine = Vectorized(clients, task, dtype=torch.float64, **options)
    engine.stack.use([ONE_BY_ONE] * len(engine.stack.convolutions), ONE_BY_ONE)
    return engine


def looking_ahead(learner, parameters, batch, extras):
    """Return the loss after one step of the client's own, as in meta-learning."""

    def loss(own):
        return learner.loss(learner.outputs(own, batch.x), batch)

    slope = grad(loss)(dict(parameters))
    return loss({name: p - 0.1 * slope[name].detach() for name, p in parameters.items()})


def trained(engine):
    engine.begin_round(1)
    cohort = everyone(engine)
    question = Train(models_for(engine), cohort % 2, cohort, SGD, objective=looking_ahead)
    models = engine.answer(question).models
    return {name: tensor for name, tensor in models.items() if name in engine.trainable}


def test_objectives_may_differentiate_by_themselves():
    found = [
        trained(kind(some_clients(UNEQUAL), dense, dtype=torch.float64))
        for kind in (Sequential, Vectorized)
    ]
    assert_same_models(found[1], found[0], 1e-8)


def test_padding_does_not_enter_their_batch_statistics():
    # Torch's own layer counts batches in place, which its grad forbids: no reference but alone.
    found = [
        trained(Vectorized(some_clients(UNEQUAL), normalised, dtype=torch.float64, group_size=size))
        for size in (1, len(UNEQUAL))
    ]
    assert_same_models(found[1], found[0], 1e-8)


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_a_compiled_network_gives_the_same():
    plain = Vectorized(some_clients([8] * 3), dense, dtype=torch.float64)
    compiled = Vectorized(some_clients([8] * 3), dense, dtype=torch.float64)
    compiled.stack.compiled = True
    assert_same_models(train_rounds(compiled, SGD), train_rounds(plain, SGD), 1e-8)


@pytest.mark.parametrize("sizes", [UNEQUAL, [8] * 3], ids=["padded", "of equal size"])
@pytest.mark.parametrize("name", ["cnn", "cnn with batch norm"])
def test_client_by_client_gives_the_same(name, sizes):
    task, shape, classes = WORLDS[name]
    clients = some_clients(sizes, shape, classes)
    assert_same_models(
        train_rounds(one_by_one(clients, task)),
        train_rounds(Sequential(clients, task, dtype=torch.float64)),
        1e-8,
    )


@pytest.mark.parametrize("name", ["cnn", "cnn with batch norm"])
def test_losses_client_by_client_are_the_same(name):
    task, clients = world(name)
    found, expected = (
        engine.answer(Losses(models_for(engine), everyone(engine))).losses
        for engine in (one_by_one(clients, task), Sequential(clients, task, dtype=torch.float64))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_compiled_client_by_client_gives_the_same():
    task, shape, classes = WORLDS["cnn with batch norm"]
    clients = some_clients([8] * 3, shape, classes)
    compiled = one_by_one(clients, task)
    compiled.stack.compiled = True
    assert_same_models(train_rounds(compiled), train_rounds(one_by_one(clients, task)), 1e-8)


@pytest.mark.parametrize("kind", [Sequential, Vectorized])
def test_bfloat16_keeps_parameters_in_single_precision_and_comes_near(kind):
    expected = train_rounds(kind(some_clients(), dense), SGD)
    found = train_rounds(kind(some_clients(), dense, precision="bf16"), SGD)
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert not torch.equal(tensor, expected[name])
        np.testing.assert_allclose(tensor.numpy(), expected[name].numpy(), atol=0.02)


class Repeating(nn.Sequential):
    """One activation in two places, as many write it."""

    def __init__(self) -> None:
        act = nn.Tanh()
        super().__init__(nn.Linear(4, 6), act, nn.Linear(6, 6), act, nn.Linear(6, 3))


class Waving(nn.Sequential):
    """A sequence with a way forward of its own."""

    def forward(self, x):
        return super().forward(3 * x.sin())


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def waving_inside() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), Waving(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 3))


def hooked() -> nn.Module:
    network = plain()
    network[0].register_forward_hook(lambda _module, _inputs, output: 5 * output)
    return network


def prepared() -> nn.Module:
    network = plain()
    network.register_forward_pre_hook(lambda _module, inputs: (inputs[0] + 1,))
    return network


def weight_normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old way is still met
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3))


def replaced() -> nn.Module:
    network = plain()
    network[1].forward = lambda x: x.square()
    return network


@pytest.mark.parametrize(
    "make", [Repeating, waving_inside, hooked, prepared, weight_normed, replaced]
)
def test_a_stack_does_what_the_network_does_and_not_what_it_looks_like(make):
    task, clients = classification(make), some_clients(UNEQUAL)
    found, expected = (
        train_rounds(kind(clients, task, dtype=torch.float64), SGD)
        for kind in (Vectorized, Sequential)
    )
    assert_same_models(found, expected, 1e-8)
