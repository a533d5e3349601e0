from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import clove
from clove.algorithms import KFed
from clove.algorithms.k_fed import (
    LocalCentres,
    awasthi_sheffet_means,
    cores,
    farthest_first,
    plain_means,
)
from clove.errors import CloveError
from clove.federation import Sequential, Summary, Train
from tests.federation.worlds import dense, some_clients, world

from .answering import AnsweringClients
from .scripted import everybody, relaxed, setup
from .simulated import SEEDS, digits


def play(centres, counts=None, groups=2, **options):
    """Return what comes of centres on a line, a row a client."""
    centres = np.asarray(centres, dtype=float)[:, :, None]
    counts = np.ones(centres.shape[:2]) if counts is None else np.asarray(counts, dtype=float)
    number = len(centres)
    clients = AnsweringClients([0.0] * number, {"centres": centres, "counts": counts})
    method = KFed(setup(number, groups), local_clusters=centres.shape[1], **options)
    return clients.play(method.round(method.begin(), everybody(number)), Summary, Train).state


# ------------------------------------------------------------------------------------- k-means


def blobs(seed=0):
    """Return points around three places in ten dimensions, and whose each is."""
    draw = np.random.default_rng(seed)
    places, whose = 8 * np.eye(10)[:3], np.repeat(np.arange(3), (12, 20, 7))
    return places[whose] + draw.normal(size=(39, 10)) * 0.3, whose


def test_cores_are_the_points_three_times_as_near():
    points, centres = np.array([[0.0], [2.0], [3.0], [9.0]]), np.array([[0.0], [8.0]])
    assert cores(points, centres).tolist() == [[True, True, False, False], [False] * 3 + [True]]
    assert cores(points, centres[:1]).all()


def test_the_steps_of_awasthi_and_sheffet_find_clusters_well_apart():
    points, whose = blobs()
    found = awasthi_sheffet_means(points, 3, seed=1)
    for label in range(3):
        (mine,) = set(found.labels_[whose == label])
        np.testing.assert_allclose(found.cluster_centers_[mine], points[whose == label].mean(0))


@relaxed
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_farthest_first_takes_the_point_farthest_from_those_taken(seed, number):
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(8, 2))
    taken = farthest_first(centres, centres[:1], number)
    for place in range(1, number):
        away = [min(np.linalg.norm(one - two) for two in taken[:place]) for one in centres]
        np.testing.assert_array_equal(taken[place], centres[int(np.argmax(away))])


# ------------------------------------------------------------------------------ what clients send


@pytest.mark.parametrize("local", ["awasthi-sheffet", "plain"])
def test_a_client_with_one_centre_sends_its_mean(local):
    clients = some_clients((9, 5))
    engine = Sequential(clients, dense, dtype=torch.float64)
    found = engine.answer(Summary(LocalCentres(1, local), np.arange(2))).values
    np.testing.assert_allclose(found["centres"][:, 0], [c.train[0].mean(0) for c in clients])
    assert found["counts"].tolist() == [[9], [5]]


@pytest.mark.parametrize("local", ["awasthi-sheffet", "plain"])
def test_one_centre_is_what_either_k_means_would_find_and_takes_none(local, monkeypatch):
    clients = some_clients((9, 5))
    cluster = {"awasthi-sheffet": awasthi_sheffet_means, "plain": plain_means}[local]
    expected = [cluster(client.train[0].astype(float), 1, seed=0) for client in clients]
    monkeypatch.setattr("clove.algorithms.k_fed._means", None)  # would not be found
    engine = Sequential(clients, dense, dtype=torch.float64)
    found = engine.answer(Summary(LocalCentres(1, local), np.arange(2))).values
    np.testing.assert_allclose(found["centres"], [one.cluster_centers_ for one in expected])
    assert found["counts"].tolist() == [[len(one.labels_)] for one in expected]


@pytest.mark.parametrize("local", ["awasthi-sheffet", "plain"])
def test_a_client_with_several_clusters_sends_their_centres_and_sizes(local):
    points, whose = blobs()
    client = clove.ClientData(train=(points, whose), test=(points, whose))
    task = clove.classification(lambda: torch.nn.Linear(10, 3))
    engine = Sequential([client], task, dtype=torch.float64)
    found = engine.answer(Summary(LocalCentres(3, local), np.array([0]))).values
    order = np.argsort(found["counts"][0])
    assert found["counts"][0, order].tolist() == [7, 12, 20]
    expected = [points[whose == label].mean(0) for label in (2, 0, 1)]
    np.testing.assert_allclose(found["centres"][0, order], expected)


def test_centres_a_client_has_no_points_for_count_none():
    engine = Sequential(some_clients((2, 9)), dense)
    counts = engine.answer(Summary(LocalCentres(4), np.arange(2))).values["counts"]
    assert (counts[0] > 0).sum() == 2
    assert counts.sum(axis=1).tolist() == [2, 9]


@pytest.mark.parametrize("name", ["mlp", "regression"])
def test_points_may_be_inputs_with_their_targets(name):
    task, clients = world(name)
    engine = Sequential(clients, task, dtype=torch.float64)
    summary = LocalCentres(1, clustered="inputs-and-targets")
    found = engine.answer(Summary(summary, np.array([1]))).values["centres"][0, 0]
    x, y = clients[1].train
    targets = np.eye(3)[y] if name == "mlp" else y
    np.testing.assert_allclose(found, np.concatenate([x, targets], axis=1).mean(0))


# ------------------------------------------------------------------------------------ the server


def test_one_step_worked_out_by_hand():
    # From the first client's centre 0, the farthest is 20; then all go to the nearer of the two.
    state = play([[0], [3], [9], [20], [13]])
    assert state.model_of.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(state.marks[:, 0], [(0 + 3 + 9) / 3, (20 + 13) / 2])


def test_until_it_converges_the_centres_move_on():
    # From 0 and 29 the first three are nearer to 0; to the means, 5 and 22.5, 14 is not.
    centres = [[0], [1], [14], [16], [29]]
    assert play(centres).model_of.tolist() == [0, 0, 0, 1, 1]
    assert play(centres, central="converged").model_of.tolist() == [0, 0, 1, 1, 1]


def test_with_several_centres_the_first_clients_all_count_as_initial():
    # 0 and 1 are the first client's own, and so different kinds, however near; then comes 9.
    state = play([[0, 1], [0.2, 9], [1.2, 8]], groups=3)
    np.testing.assert_allclose(state.marks[:, 0], [0.1, 1.1, 8.5])


def test_a_client_belongs_where_most_of_its_points_are():
    centres, counts = [[0, 9], [0, 9], [0, 9]], [[5, 4], [3, 7], [1, 0]]
    state = play(centres, counts)
    assert state.model_of.tolist() == [0, 1, 0]
    np.testing.assert_allclose(state.marks[:, 0], [0, 9])


def test_a_newcomer_goes_with_the_majority_of_its_points():
    method = KFed(setup(3, 2), local_clusters=2)
    values = {"centres": np.array([[[1.0], [9.0]]]), "counts": np.array([[1.0, 3.0]])}
    groups, distances = method.place(values, np.array([[0.0], [8.0]]), np.arange(2))
    assert groups.tolist() == [1]
    np.testing.assert_allclose(distances, [[(1 + 3 * 9) / 4, (7 + 3 * 1) / 4]])


def test_fewer_different_centres_than_models_are_as_many_groups():
    state = play([[4], [4], [7]], groups=3)
    assert len(state.marks) == len(state.models["weight"]) == 2


@pytest.mark.parametrize("central", ["one-step", "converged", "awasthi-sheffet"])
def test_all_ways_find_groups_well_apart(central):
    state = play([[0], [100], [1], [101], [50], [51]], groups=3, central=central)
    assert len({*zip(state.model_of, [0, 1, 0, 1, 2, 2], strict=True)}) == 3


# -------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local": "plane"}, "unknown local 'plane': did you mean 'plain'"),
        ({"central": "one-stop"}, "unknown central 'one-stop': did you mean 'one-step'"),
        ({"clustered": "input"}, "unknown clustered 'input': did you mean 'inputs'"),
        ({"local_clusters": 0}, "local_clusters must be 1 or more"),
        ({"local_clusters": 3}, "local_clusters must be at most the number of models, 2, but is 3"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        KFed(setup(6, 2), **options).begin()


def test_without_a_number_of_models_the_error_says_what_to_set():
    with pytest.raises(CloveError, match=r"k-fed needs the number of models.*Set models=K"):
        KFed(setup(6)).begin()


# -------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("seed", SEEDS)
def test_it_finds_the_groups_of_label_skewed_digits_and_serves_them_better_than_fedavg(seed):
    result = digits("k-fed", seed, rounds=10)
    assert result.ari == 1.0
    assert result.accuracy > digits("fedavg", seed, rounds=10).accuracy + 0.4


def test_it_needs_no_labels():
    assert digits("k-fed", rounds=1, task="reconstruction").ari == 1.0


def test_it_cannot_tell_linear_regressions_apart_as_clove_can():
    options = {"dataset": "linear", "mixing": "none", "rounds": 1, "local_epochs": 1}
    for central in ("converged", "awasthi-sheffet"):
        chosen = {"clustered": "inputs-and-targets", "central": central}
        assert clove.run(**options, algorithm="k-fed", **chosen).ari < 0.3


def test_centres_and_counts_travel_once():
    first, second = digits("k-fed", rounds=2).history["bytes_up"]
    assert first - second == 25 * (64 + 1) * 4
