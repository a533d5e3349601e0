from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import clove
from clove.algorithms import FedPac
from clove.algorithms.combining import combining_weights, feature_statistics
from clove.algorithms.fedpac import FedPacState, models_for
from clove.algorithms.prototypes import PrototypeLoss, averaged_prototypes
from clove.data import ClientData
from clove.errors import CloveError, CloveWarning
from clove.federation import Sequential, Summaries, Summary, Trained, Vectorized
from clove.federation import parameters as stacks
from clove.federation.objectives import task_loss
from clove.federation.parameters import combined
from clove.runs.loop import drive
from clove.tasks import classification
from tests.federation.worlds import dense, some_clients
from tests.federation.worlds import models_for as initial_for

from .scripted import TRAINING, everybody, setup
from .simulated import SEEDS, digits

# ------------------------------------------------------------------------- statistics, by hand


def test_feature_statistics_by_hand():
    task = classification(lambda: nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 3)))
    x, y = np.array([[1.0, 0.0], [3.0, 2.0], [0.0, -1.0], [2.0, 1.0]]), np.array([0, 0, 2, 0])
    engine = Sequential([ClientData(train=(x, y), test=(x, y))], task, dtype=torch.float64)
    models = initial_for(engine, 1) | {"0.weight": torch.eye(2).double()[None]}
    only = np.array([0])
    found = engine.answer(Summary(feature_statistics, only, models, only)).values
    # Class 0 is three quarters of the samples, its mean is (2, 1); class 2 a quarter, at (0, -1).
    np.testing.assert_allclose(found["shares"], [[[1.5, 0.75], [0, 0], [0, -0.25]]])
    # Squared lengths are 1, 13, 1 and 5: 5 in the mean. Those of the rows are 2.8125 and 0.0625.
    np.testing.assert_allclose(found["variance"], [(5 - 2.875) / 4])


# ---------------------------------------------------------------------- the quadratic program


def error(weights, variances, shares, client):
    """Return what the program minimises, as it is written: variance, and squared bias."""
    bias = sum(a * (shares[client] - h) for a, h in zip(weights, shares, strict=True))
    return float(np.sum(weights**2 * variances) + np.sum(bias**2))


@pytest.mark.parametrize("seed", range(5))
def test_no_point_of_a_fine_grid_promises_less_error(seed):
    draw = np.random.default_rng(seed)
    variances, shares = draw.uniform(0.1, 1, 3), draw.normal(size=(3, 4, 2)) / 3
    steps = 100
    grid = [(a, b, steps - a - b) for a, b in product(range(steps + 1), repeat=2) if a + b <= steps]
    found = combining_weights(variances, shares)
    for client in range(3):
        values = [error(np.array(p) / steps, variances, shares, client) for p in grid]
        assert error(found[client], variances, shares, client) <= min(values) + 1e-12
        nearest = np.array(grid[int(np.argmin(values))]) / steps
        assert np.abs(found[client] - nearest).max() < 0.05


def test_clients_that_are_alike_share_their_heads_equally():
    found = combining_weights(np.full(4, 0.3), np.tile(np.arange(6.0).reshape(1, 3, 2), (4, 1, 1)))
    np.testing.assert_allclose(found, np.full((4, 4), 1 / 4))


def test_alike_but_with_fewer_samples_counts_less():
    found = combining_weights(np.array([1.0, 3.0]), np.ones((2, 2, 2)))
    np.testing.assert_allclose(found, [[0.75, 0.25]] * 2)


def test_clients_without_anything_in_common_use_their_own():
    shares = np.eye(3).reshape(3, 3, 1)
    np.testing.assert_allclose(combining_weights(np.zeros(3), shares), np.eye(3), atol=1e-5)
    # With variance v and squared distance 2 to each of the two others, between which the angle is
    # 60°: (1 - 2b)² v + 2 b² v + 6 b² is least at b = 2 v / (6 v + 6), and so is each of theirs.
    v = 0.5
    b = 2 * v / (6 * v + 6)
    expected = np.where(np.eye(3), 1 - 2 * b, b)
    np.testing.assert_allclose(combining_weights(np.full(3, v), shares), expected)


def test_groups_of_clients_mix_within_themselves():
    shares = np.repeat(10 * np.eye(2).reshape(2, 2, 1), 3, axis=0)
    found = combining_weights(np.full(6, 0.01), shares)
    within = np.kron(np.eye(2), np.full((3, 3), 1 / 3))
    np.testing.assert_allclose(found, within, atol=1e-4)


def test_small_weights_are_cut_off_and_the_rest_sums_to_one():
    variances = np.array([1.0, 3.0, 96.0])
    plain = combining_weights(variances, np.ones((3, 2, 2)))
    cut = combining_weights(variances, np.ones((3, 2, 2)), least=0.05)
    assert (plain > 0).all()
    np.testing.assert_allclose(cut, [[0.75, 0.25, 0]] * 3)
    # Where all are below, the largest stays.
    only = combining_weights(variances, np.ones((3, 2, 2)), least=0.999)
    np.testing.assert_allclose(only, [[1, 0, 0]] * 3)


def test_mixtures_are_weighted_sums():
    heads = {"weight": torch.tensor([[[1.0, 2]], [[3, 6]]]), "bias": torch.tensor([[4.0], [8]])}
    found = combined(heads, np.array([[0.5, 0.5], [0, 1.0]]))
    assert found["weight"].tolist() == [[[2, 4]], [[3, 6]]]
    assert found["bias"].tolist() == [[6], [8]]


# ---------------------------------------------------------------------------------- the server


def play(engine, method, cohorts):
    """Play rounds; return the questions of each with their answers, and all states."""
    state = FedPacState(initial_for(engine, 1))
    told, states = [], [state]
    for number, cohort in enumerate(cohorts, 1):
        engine.begin_round(number)
        told.append([])

        def answer(question, told=told):
            told[-1].append((question, engine.answer(question)))
            return told[-1][-1][1]

        state = drive(method.round(state, np.array(cohort)), answer).state
        states.append(state)
    return told, states


@pytest.mark.parametrize("engine_type", [Sequential, Vectorized])
def test_a_round_trains_heads_then_bodies_and_mixes_heads(engine_type):
    engine = engine_type(some_clients(), dense)
    method = FedPac(setup(5), alignment_weight=0.7, head_learning_rate=0.2, head_epochs=2)
    told, states = play(engine, method, [[0, 1, 2], [1, 3]])
    (head, heads), (_, statistics), (body, bodies), _ = told[0]
    assert (head.only, head.send, body.only, body.send) == ("head", "head", "body", "body")
    assert head.training == replace(TRAINING, learning_rate=0.2, epochs=2, purpose="head-batches")
    assert body.training == TRAINING
    assert body.objective is task_loss
    kept = engine.memory.kept("model", np.array([0, 2]))  # these train in the first round only
    for name in heads.models:
        torch.testing.assert_close(kept[name], stacks.pick(heads.models, np.array([0, 2]))[name])
    # Every head is a mixture of all by the weights of the program.
    values = statistics.values
    weights = combining_weights(values["variance"], values["shares"])
    for name, stack in heads.models.items():
        expected = torch.einsum("ij,j...->i...", torch.tensor(weights).to(stack), stack)
        torch.testing.assert_close(states[1].heads[name], expected)
    # The body is averaged by sample counts; the head of the shared model stays.
    for name, mean in bodies.models.items():
        torch.testing.assert_close(states[1].models[name], mean)
    for name in heads.models:
        assert torch.equal(states[1].models[name], states[0].models[name])


@pytest.mark.parametrize("by", ["samples", "clients"])
def test_centroids_count_by_samples_or_by_clients(by):
    engine = Sequential(some_clients([6, 3, 4]), dense)
    told, states = play(engine, FedPac(setup(3), prototype_average=by), [[0, 1, 2]])
    means = told[0][-1][1]
    assert (
        states[1].prototypes["prototypes"].equal(averaged_prototypes({}, means, by)["prototypes"])
    )
    other = averaged_prototypes({}, means, "clients" if by == "samples" else "samples")
    assert not states[1].prototypes["prototypes"].equal(other["prototypes"])


def test_clients_that_do_not_take_part_keep_their_heads():
    engine = Sequential(some_clients(), dense)
    told, states = play(engine, FedPac(setup(5), alignment_weight=0.7), [[0, 1, 2], [1, 3]])
    first, second = states[1:]
    assert first.owners.tolist() == [0, 1, 2]
    assert second.owners.tolist() == [0, 1, 2, 3]
    for name, stack in first.heads.items():
        assert torch.equal(second.heads[name][[0, 2]], stack[[0, 2]])
        assert not torch.equal(second.heads[name][1], stack[1])
    (head, _), _, (body, _), _ = told[1]
    assert body.objective == PrototypeLoss(0.7)
    assert body.extras.shared.keys() == {"prototypes", "known"}
    # Client 1 is sent its own head, client 3 the one that the model was made with.
    assert torch.equal(head.models["3.weight"][0], first.heads["3.weight"][1])
    assert torch.equal(head.models["3.weight"][1], first.models["3.weight"][0])
    assert torch.equal(head.models["1.weight"][1], first.models["1.weight"][0])


@pytest.mark.parametrize("spoilt", ["missing", "not finite"])
@pytest.mark.parametrize("whose", [0, 1])
def test_heads_go_to_whom_they_belong_where_one_client_tells_no_statistics(spoilt, whose):
    """Of three, one sends a head and nothing (usable) to mix it by: the others' go their way."""
    told = np.array([1, 2, 4])
    heads = {"weight": torch.tensor([[10.0], [20.0], [40.0]])}
    # Clients without anything in common and of no variance use their own heads.
    values = {"variance": np.zeros(3), "shares": np.eye(3).reshape(3, 3, 1)}
    kept = np.arange(3) != whose
    if spoilt == "missing":
        statistics = Summaries(told[kept], {name: value[kept] for name, value in values.items()})
    else:
        values["shares"][whose] = np.nan
        statistics = Summaries(told, values)

    def answer(question):
        if isinstance(question, Summary) and question.of is feature_statistics:
            return statistics
        if isinstance(question, Summary):
            return Summaries(told[:0], {})
        if question.only == "head":
            return Trained(told, np.ones(3), models=heads)
        return Trained(told[:0], np.ones(0))

    method, state = FedPac(setup(5)), FedPacState({"weight": torch.zeros(1, 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CloveWarning)
        after = drive(method.round(state, told), answer).state
    assert after.owners.tolist() == told[kept].tolist()
    expected = heads["weight"][torch.tensor(kept)]
    torch.testing.assert_close(after.heads["weight"], expected, atol=1e-3, rtol=0)


def test_everybodys_model_is_the_shared_body_with_its_head():
    engine = Sequential(some_clients(), dense)
    _, states = play(engine, FedPac(setup(5)), [[1, 3]])
    models = models_for(states[-1], everybody(5))
    assert stacks.count(models) == 5
    assert len(models["1.weight"].unique(dim=0)) == 1
    assert len(models["3.weight"].unique(dim=0)) == 3


def test_a_round_without_replies_changes_nothing():
    engine = Sequential(some_clients(), dense, stragglers=0.999)
    _, states = play(engine, FedPac(setup(5)), [[0, 1, 2]])
    assert states[1].models == states[0].models
    assert (states[1].heads, states[1].prototypes) == ({}, {})


def test_a_stored_run_gives_back_the_models_that_were_measured(tmp_path):
    result = digits("fedpac", rounds=3)
    loaded = clove.load(result.save(tmp_path / "run"))
    clients = result._progress.prepared.clients.clients
    for found in (result, loaded):
        x, y = clients[7].test
        with torch.no_grad():
            right = found.model(7)(torch.as_tensor(x)).argmax(1).numpy() == y
        assert right.mean() == pytest.approx(result.client_scores["accuracy"][7])
    assert len(list((tmp_path / "run" / "models").iterdir())) == 25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alignment_weight": -1.0}, "alignment_weight must not be negative"),
        ({"head_epochs": 0}, "head_epochs must be 1 or more"),
        ({"head_learning_rate": 0.0}, "head_learning_rate must be above zero"),
        ({"least_weight": 1.0}, r"least_weight must be in \[0, 1\)"),
        ({"measured": "combine"}, "unknown measured 'combine': did you mean 'combined'"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        FedPac(setup(3), **options)


@pytest.mark.parametrize("measured", ["combined", "trained"])
@pytest.mark.parametrize("seed", SEEDS)
def test_on_clients_of_two_classes_each_it_does_far_better_than_one_model(seed, measured):
    assert digits("fedpac", seed, measured=measured).accuracy > 0.95
    assert digits("fedavg", seed).accuracy < 0.6


def test_heads_are_mixed_within_groups_of_like_clients():
    result = digits("fedpac")
    prepared, models = result._progress.prepared, models_for(result._progress.state, everybody(25))
    engine, groups = prepared.federation, prepared.clients.groups
    told = engine.answer(Summary(feature_statistics, everybody(25), models, everybody(25))).values
    weights = combining_weights(told["variance"], told["shares"])
    within = (weights * (groups[:, None] == groups)).sum(axis=1)
    assert within.min() > 0.95
