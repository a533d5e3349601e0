from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import clove
from clove.algorithms import FedProto
from clove.algorithms.fedproto import nearest_prototype
from clove.algorithms.prototypes import LocalPrototypeLoss, PrototypeLoss, averaged_prototypes
from clove.data import ClientData
from clove.errors import CloveError, CloveWarning
from clove.federation import (
    Batch,
    Kept,
    LocalTraining,
    Sequential,
    Summaries,
    Summary,
    Train,
    Trained,
)
from clove.federation import parameters as stacks
from clove.federation.learner import NetworkLearner
from clove.federation.objectives import task_loss
from clove.federation.summaries import class_means
from clove.runs.loop import drive
from clove.tasks import classification

from .scripted import setup
from .simulated import SEEDS, digits

# The body doubles its two inputs, so that features are easy to follow; the head has three classes.
DOUBLE = {"0.weight": 2 * torch.eye(2), "1.weight": torch.zeros(3, 2), "1.bias": torch.zeros(3)}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 3))


small = classification(network)
X = np.array([[1.0, 0.0], [3.0, 2.0], [0.0, -1.0]])
Y = np.array([0, 0, 2])


def federation() -> Sequential:
    """Return two clients: one of two classes, one of a single class."""
    one = ClientData(train=(X, Y), test=(X, Y))
    other = ClientData(train=(X[:1] * 4, Y[:1]), test=(X[:1], Y[:1]))
    return Sequential([one, other], small, dtype=torch.float64)


def learner(engine: Sequential) -> NetworkLearner:
    return NetworkLearner(engine.network, small, None, "fp64", engine)


def known(*rows: list[float] | None) -> dict[str, torch.Tensor]:
    """Make prototypes; None stands for a class without one."""
    return {
        "prototypes": torch.tensor([row or [0.0, 0.0] for row in rows], dtype=torch.float64),
        "known": torch.tensor([row is not None for row in rows]),
    }


# ------------------------------------------------------------------------- prototypes, by hand


def test_class_means_are_the_mean_features_of_each_class():
    engine = federation()
    models = {name: t.double()[None] for name, t in DOUBLE.items()}
    found = engine.answer(Summary(class_means, np.arange(2), models, np.zeros(2, dtype=int)))
    # The first client's features are (2, 0) and (6, 4) of class 0, and (0, -2) of class 2.
    np.testing.assert_allclose(
        found.values["means"], [[[4, 2], [0, 0], [0, -2]], [[8, 0], [0, 0], [0, 0]]]
    )
    np.testing.assert_array_equal(found.values["counts"], [[2, 0, 1], [1, 0, 0]])


MEANS = np.array([[[4.0, 2], [0, 0], [0, -2]], [[8, 0], [0, 0], [0, 0]]])
COUNTS = np.array([[2, 0, 1], [1, 0, 0]])
TOLD = Summaries(np.arange(2), {"means": MEANS, "counts": COUNTS})


@pytest.mark.parametrize(
    ("by", "first"), [("samples", [(2 * 4 + 8) / 3, 2 * 2 / 3]), ("clients", [6, 1])]
)
def test_the_server_averages_over_the_clients_that_have_the_class(by, first):
    found = averaged_prototypes({}, TOLD, by)
    np.testing.assert_allclose(found["prototypes"][[0, 2]], [first, [0, -2]])
    assert found["known"].tolist() == [True, False, True]


def test_a_class_that_nobody_has_now_keeps_its_last_prototype():
    before = known([1.0, 1.0], [5.0, 6.0], None)
    found = averaged_prototypes(before, TOLD)
    assert found["prototypes"][1].tolist() == [5, 6]
    assert found["known"].all()
    assert averaged_prototypes(before, Summaries(np.arange(0), {})) == before


def test_features_that_are_not_finite_spoil_nobodys_prototypes():
    means = MEANS.copy()
    means[1, 0, 0] = np.inf
    told = Summaries(np.array([4, 7]), {"means": means, "counts": COUNTS})
    with pytest.warns(CloveWarning, match="client 7 sent features that are not finite"):
        found = averaged_prototypes({}, told)
    assert found["prototypes"][0].tolist() == [4, 2]


# ------------------------------------------------------------------------------ loss, by hand


def test_the_loss_adds_the_mean_squared_distance_to_the_prototype_of_the_class():
    batch = Batch(torch.tensor(X), torch.tensor(Y), torch.ones(3).double())
    extras = known([2.0, 2.0], None, None)
    model = {name: t.double() for name, t in DOUBLE.items()}
    value = PrototypeLoss(0.5)(learner(federation()), model, batch, extras)
    # Outputs are nought: the loss is ln 3. Features (2, 0) and (6, 4) are (0, -2) and (4, 2) away
    # from (2, 2): mean squares 2 and 10. Class 2 has no prototype.
    assert value.item() == pytest.approx(np.log(3) + 0.5 * (2 + 10 + 0) / 3)


def test_local_prototypes_may_be_drawn_instead_each_class_as_much_as_any():
    batch = Batch(torch.tensor(X), torch.tensor(Y), torch.ones(3).double())
    model = {name: t.double() for name, t in DOUBLE.items()}
    # Features (2, 0) and (6, 4) of class 0 have the mean (4, 2), which is (2, 0) away from (2, 2):
    # mean square 2. That of class 2 is (0, -2), (1, -2) away from (-1, 0): mean square 2.5. Class 1
    # has no samples in the batch, and in the second case class 2 no prototype.
    for extras, distance in [
        (known([2.0, 2.0], [9.0, 9.0], [-1.0, 0.0]), 2 + 2.5),
        (known([2.0, 2.0], [9.0, 9.0], None), 2),
    ]:
        value = LocalPrototypeLoss(0.5)(learner(federation()), model, batch, extras)
        assert value.item() == pytest.approx(np.log(3) + 0.5 * distance)


@pytest.mark.parametrize("loss", [PrototypeLoss, LocalPrototypeLoss])
def test_padding_does_not_count(loss):
    x = torch.cat([torch.tensor(X[:1]), torch.full((2, 2), 100.0).double()])
    batch = Batch(x, torch.tensor([0, 0, 1]), torch.tensor([1.0, 0, 0]).double())
    extras = known([2.0, 2.0], [1.0, 1.0], None)
    model = {name: t.double() for name, t in DOUBLE.items()}
    value = loss(1.0)(learner(federation()), model, batch, extras)
    assert value.item() == pytest.approx(np.log(3) + 2)


def test_a_class_without_a_prototype_is_never_predicted():
    model = {name: t.double() for name, t in DOUBLE.items()}
    x = torch.tensor(X)
    outputs = nearest_prototype(learner(federation()), model, x, known([2, 0], [6, 5], None))
    # Mean squared distances of (2, 0), (6, 4) and (0, -2).
    np.testing.assert_allclose(outputs[:, :2], [[0, -20.5], [-16, -0.5], [-4, -42.5]])
    assert outputs.argmax(1).tolist() == [0, 1, 0]
    assert (outputs[:, 2] < outputs[:, :2].amin(1)).all()


# ------------------------------------------------------------------------------------ the server


def test_models_stay_with_the_clients_and_only_prototypes_travel():
    method = FedProto(replace(setup(2), classes=3), prototype_weight=0.3)
    engine, asked = federation(), []

    def answer(question):
        asked.append(question)
        return engine.answer(question)

    state = method.begin()
    for number in (1, 2):
        engine.begin_round(number)
        outcome = drive(method.round(state, np.arange(2)), answer)
        state = outcome.state
    first, _, second, told = asked
    assert (first.objective, first.extras) == (task_loss, None)
    assert second.objective == PrototypeLoss(0.3)
    assert second.sent_part is None
    assert told == Summary(class_means, told.clients, Kept("model"))
    assert state.prototypes["known"].tolist() == [True, False, True]
    assert outcome.assignment.tolist() == [0, 1]


@pytest.mark.parametrize("predicts", ["prototypes", "head"])
def test_clients_predict_as_told(predicts):
    method = FedProto(replace(setup(2), classes=3), predicts=predicts)
    state = replace(method.begin(), prototypes=known([1, 1], None, [2, 2]))
    question = method.evaluation(state, np.arange(2))
    assert question.models == Kept("model")
    assert (question.predict is nearest_prototype) == (predicts == "prototypes")
    assert method.evaluation(method.begin(), np.arange(2)).predict is None


def test_without_weight_it_is_local_training():
    runs = {
        name: clove.run(dataset="digits", algorithm=name, rounds=3, engine="sequential", **options)
        for name, options in {
            "local": {},
            "fedproto": {"prototype_weight": 0.0, "predicts": "head"},
        }.items()
    }
    found, expected = (runs[name].history["test_loss"] for name in ("fedproto", "local"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prototype_average": "sample"}, "prototype_average 'sample': did you mean 'samples'"),
        ({"prototype_distance": "prototype"}, "prototype_distance .* did you mean 'prototypes'"),
        ({"predicts": "heads"}, "unknown predicts 'heads': did you mean 'head'"),
        ({"prototype_weight": -1.0}, "prototype_weight must not be negative"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        FedProto(setup(3), **options)


@pytest.mark.parametrize("algorithm", ["fedproto", "fedpac"])
def test_without_classes_it_says_what_to_use_instead(algorithm):
    with pytest.raises(CloveError, match=rf"{algorithm} compares .* no classes.*use clove, ifca"):
        clove.run(dataset="digits", task="reconstruction", algorithm=algorithm, rounds=1)


def test_a_network_without_a_head_is_refused():
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.T

    clients = [ClientData(train=(X, Y), test=(X, Y))]
    with pytest.raises(CloveError, match=r"no linear layer.*Task\(head="):
        clove.run(clients=clients, task=classification(Flat), algorithm="fedproto", rounds=1)


def test_what_is_drawn_is_as_told():
    engine, asked = federation(), []

    def answer(question):
        asked.append(question)
        return engine.answer(question)

    method = FedProto(
        replace(setup(2), classes=3), prototype_weight=0.3, prototype_distance="prototypes"
    )
    engine.begin_round(1)
    state = drive(method.round(method.begin(), np.arange(2)), engine.answer).state
    engine.begin_round(2)
    drive(method.round(state, np.arange(2)), answer)
    assert asked[0].objective == LocalPrototypeLoss(0.3)


def test_only_those_who_trained_tell_and_count_as_participants():
    """Who did not answer to the training is not asked what classes look like to it."""
    method, asked = FedProto(replace(setup(3), classes=3)), []
    means, counts = np.zeros((2, 3, 2)), np.ones((2, 3), dtype=int)

    def answer(question):
        asked.append(question)
        if isinstance(question, Train):
            return Trained(np.array([0, 2]), np.ones(2))
        return Summaries(question.clients, {"means": means, "counts": counts})

    outcome = drive(method.round(method.begin(), np.arange(3)), answer)
    assert asked[1].clients.tolist() == [0, 2]
    assert outcome.clients.tolist() == outcome.assignment.tolist() == [0, 2]


@pytest.mark.parametrize("distance", ["samples", "prototypes"])
@pytest.mark.parametrize("seed", SEEDS)
def test_on_clients_of_two_classes_each_it_does_far_better_than_one_model(seed, distance):
    assert digits("fedproto", seed, prototype_distance=distance).accuracy > 0.95
    assert digits("fedavg", seed).accuracy < 0.6


def test_the_pull_brings_the_features_of_clients_together():
    """Prototypes of the same class at different clients are nearer than without the pull."""
    apart = {}
    for weight in (0.0, 10.0):
        result = digits("fedproto", rounds=5, prototype_weight=weight)
        engine = result._progress.prepared.federation
        told = engine.answer(Summary(class_means, np.arange(25), Kept("model"))).values
        mean = result._progress.state.prototypes["prototypes"].numpy()
        has = told["counts"] > 0
        apart[weight] = np.square(told["means"] - mean)[has].mean()
    assert apart[10.0] < apart[0.0] / 2


def test_training_moves_along_the_gradient_of_both_terms():
    engine = federation()
    models = {name: t.double()[None] for name, t in DOUBLE.items()}
    extras = clove.federation.Extras(shared=known([2, 2], None, None))
    only = np.array([1])
    training = LocalTraining("sgd", 0.1, batch_size=1)
    question = Train(models, only * 0, only, training, PrototypeLoss(0.5), extras)
    trained = stacks.one(engine.answer(question).models, 0)
    # The sample (4, 0) has features (8, 0), which are (6, -2) away: the gradient of the mean square
    # by them is (6, -2), and by the body's weights that times (4, 0). The head is nought, so the
    # loss does not move the body; it moves the head's bias by (1, 0, 0) - 1/3.
    expected = torch.tensor([[2 - 0.1 * 0.5 * 24, 0], [0 + 0.1 * 0.5 * 8, 2]]).double()
    torch.testing.assert_close(trained["0.weight"], expected)
    torch.testing.assert_close(
        trained["1.bias"], 0.1 * torch.tensor([2 / 3, -1 / 3, -1 / 3]).double()
    )
