"""What cannot work is said before any round, in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Gradients, LocalTraining, Losses, Train, Unseen
from clove.tasks import classification, reconstruction, regression

from .worlds import (
    ENGINES,
    TRAINING,
    dense,
    dense_norm,
    everyone,
    models_for,
    normalised,
    some_clients,
)

pytestmark = pytest.mark.parametrize("engine_type", ENGINES)


def refused(engine_type, clients, task=dense, **options):
    with pytest.raises(CloveError) as caught:
        engine_type(clients, task, **options)
    return str(caught.value)


def relabelled(train, test=None):
    """Return clients of which the last has these training and test labels."""
    clients = some_clients([3, 3])
    (x, y), (xt, yt) = clients[1].train, clients[1].test
    y = y if train is None else np.array(train)
    yt = yt if test is None else np.full(len(xt), test)
    if y.dtype.kind == "f":
        yt = yt.astype(float)
    return [*clients[:1], ClientData((x, y), (xt, yt), name="the other")]


def test_classification_needs_labels(engine_type):
    message = refused(engine_type, some_clients(classes=0))
    assert "'classification' needs labels" in message
    assert "clove.reconstruction" in message


def test_reconstruction_needs_none(engine_type):
    engine_type(some_clients(classes=0), reconstruction(lambda: nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("train", "test", "span"),
    [([0, 1, 3], None, "0 to 3"), ([0, -1, 1], None, "-1 to 2"), (None, 3, "0 to 3")],
    ids=["too high", "negative", "only in the test data"],
)
def test_labels_must_be_outputs_of_the_network(engine_type, train, test, span):
    message = refused(engine_type, relabelled(train, test))
    assert f"labels run from {span}, but the network has 3 outputs" in message
    assert "whole labels 0 to 2: see client 1 (the other)" in message


def test_labels_must_be_whole_numbers(engine_type):
    clients = [ClientData(([[1.0] * 4] * 2, [0.0, 0.5]), ([[1.0] * 4], [1.0]))]
    assert "labels are floating-point numbers" in refused(engine_type, clients)


def test_bytes_as_features_are_refused_with_what_to_do(engine_type):
    x = np.ones((2, 4), dtype=np.uint8)
    message = refused(engine_type, [ClientData((x, [0, 1]), (x, [0, 1]))])
    assert "convert the features to float32" in message


@pytest.mark.parametrize("shape", [(5,), (1, 4, 4)])
def test_the_network_must_take_the_samples(engine_type, shape):
    message = refused(engine_type, some_clients(shape=shape))
    assert f"the network cannot take samples of shape {shape}" in message


def test_outputs_and_targets_of_a_regression_must_be_as_many(engine_type):
    with pytest.raises(CloveError, match="they must hold as many numbers"):
        engine_type(some_clients(classes=1), regression(lambda: nn.Linear(4, 2)))


def test_a_network_that_cannot_be_made_says_why(engine_type):
    def broken():
        raise KeyError("weights")

    with pytest.raises(CloveError, match="cannot be made: KeyError: 'weights'"):
        engine_type(some_clients(), classification(broken))


def failing(outputs, targets):
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (failing, "the loss cannot be taken of outputs of shape"),
        (nn.functional.cross_entropy, r"but gives \(\): with torch's losses use reduction='none'"),
        (lambda outputs, targets: outputs, "must give one number for each of 2 samples"),
        (lambda outputs, targets: 1.0, "but gives float"),
    ],
    ids=["fails", "mean", "too many", "no tensor"],
)
def test_a_loss_of_ones_own_is_tried_before_any_round(engine_type, loss, said):
    task = replace(classification(lambda: nn.Linear(4, 3)), loss=loss)
    with pytest.raises(CloveError, match=said):
        engine_type(some_clients(), task)


class Breaking(nn.Linear):
    """A layer on a device that fails."""

    def forward(self, x):
        raise torch.AcceleratorError("CUDA error: unknown error")


def breaking(outputs, targets):
    raise torch.AcceleratorError("CUDA error: unknown error")


def test_what_fails_because_of_the_machine_is_not_blamed_on_the_users_own(engine_type):
    with pytest.raises(torch.AcceleratorError):
        engine_type(some_clients(), classification(lambda: Breaking(4, 3)))
    task = replace(classification(lambda: nn.Linear(4, 3)), loss=breaking)
    with pytest.raises(torch.AcceleratorError):
        engine_type(some_clients(), task)


@pytest.mark.parametrize("without", [(0,), (1,), (0, 1)], ids=str)
def test_every_client_needs_test_data(engine_type, without):
    clients = some_clients([3, 3])
    for client in without:
        clients[client] = ClientData(clients[client].train)
    assert "every client needs test data" in refused(engine_type, clients)


def test_batch_norm_needs_two_samples_of_each_client(engine_type):
    message = refused(engine_type, some_clients([4, 1]), normalised)
    assert "client 1 has a single training sample" in message
    engine_type(some_clients([4, 1]), dense)


@pytest.mark.parametrize("kind", [Train, Gradients])
def test_batch_norm_needs_batches_of_two(engine_type, kind):
    engine = engine_type(some_clients(), normalised)
    start, cohort = np.array([0]), np.array([2])
    with pytest.raises(CloveError, match="client 2 would train on a batch of one sample"):
        engine.answer(kind(models_for(engine), start, cohort, LocalTraining(batch_size=1)))


def test_batch_norm_needs_two_samples_in_the_share_trained_on(engine_type):
    engine = engine_type(some_clients(), normalised)
    start, cohort = np.array([0]), np.array([2])
    with pytest.raises(CloveError, match="client 2 would train on a batch of one sample"):
        engine.answer(Train(models_for(engine), start, cohort, TRAINING, share=0.3))


def test_a_single_sample_held_back_cannot_give_batch_statistics(engine_type):
    engine = engine_type(some_clients(), normalised)
    models, cohort = models_for(engine), everyone(engine)
    question = Losses(models, cohort, 8, Unseen(np.zeros(5, dtype=np.int64), 0.7))
    losses, seen = (engine.answer(q).losses for q in (question, Losses(models, cohort, 8)))
    assert losses[2, 0] == seen[2, 0]  # three samples, of which one is held back
    assert losses[1, 0] != seen[1, 0]


def test_tied_weights_are_refused(engine_type):
    def tied():
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        network[1].weight = network[0].weight
        return network

    assert "under two names" in refused(engine_type, some_clients(classes=3), classification(tied))


def test_statistics_of_a_layer_used_twice_are_refused(engine_type):
    def twice():
        norm = nn.BatchNorm1d(4, affine=False)
        return nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4), norm)

    said = refused(engine_type, some_clients(classes=3), classification(twice))
    assert "'1.running_mean' and '3.running_mean'" in said
    assert "under two names" in said


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_stragglers_are_a_share_below_one(engine_type, share):
    message = refused(engine_type, some_clients(), stragglers=share)
    assert message == f"stragglers must be a share in [0, 1), not {share}"


def test_checking_leaves_the_network_as_it_was(engine_type):
    engine = engine_type(some_clients(), classification(dense_norm))
    assert engine.network[1].num_batches_tracked == 0
    assert torch.equal(engine.network[1].running_mean, torch.zeros(6))
