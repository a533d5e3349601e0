from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import orth, subspace_angles

from clove.algorithms import Pacfl, pacfl
from clove.algorithms.pacfl import ANGLES, PrincipalVectors, mutual_proximity, proximity
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Sequential, Summary, Train
from clove.tasks import classification
from clove.tasks.models import mlp
from tests.federation.worlds import dense, some_clients, world

from .answering import AnsweringClients
from .scripted import SAME, everybody, relaxed, setup
from .simulated import SEEDS, digits

plane = classification(partial(mlp, (2,), 3, 4))


def line(degrees):
    """Return the one vector of a client whose data lie on a line in the plane, as rows."""
    turn = np.radians(degrees)
    return [[np.cos(turn), np.sin(turn)]]


def lines(*degrees):
    return np.array([line(turn) for turn in degrees])


def groups_of(sent, **options):
    """Return the groups of clients that send these vectors."""
    number = len(sent)
    clients = AnsweringClients([0.0] * number, {"vectors": sent})
    method = Pacfl(setup(number, 2), vectors=1, **options)
    asking = method.round(method.begin(), everybody(number))
    return clients.play(asking, Summary, Train).state.model_of.tolist()


# ------------------------------------------------------------------------------ what clients send


def test_a_client_sends_the_directions_in_which_its_data_are_largest():
    # Along (3, 4) / 5 with lengths 10 and 20, and across it with length 1.
    x = np.array([[6.0, 8.0], [12.0, 16.0], [-0.8, 0.6]])
    y = np.array([0, 1, 2])
    engine = Sequential([ClientData(train=(x, y), test=(x, y))], plane, dtype=torch.float64)
    found = engine.answer(Summary(PrincipalVectors(2), np.array([0]))).values["vectors"][0]
    expected = np.array([[0.6, 0.8], [-0.8, 0.6]])
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1.0)


def test_vectors_of_each_class_are_those_of_its_samples_and_zeros_where_there_are_none():
    clients = some_clients((9,))
    x, y = clients[0].train
    y = np.where(y == 2, 0, y)
    engine = Sequential([ClientData(train=(x, y), test=(x, y))], dense, dtype=torch.float64)
    found = engine.answer(Summary(PrincipalVectors(1, per_class=True), np.array([0])))
    vectors = found.values["vectors"][0]
    assert vectors.shape == (3, 4)
    for label in (0, 1):
        first = np.linalg.svd(x[y == label].T)[0][:, 0]
        assert abs(first @ vectors[label]) == pytest.approx(1.0)
    assert not vectors[2].any()


def test_no_classes_are_needed():
    task, clients = world("autoencoder")
    found = Sequential(clients, task).answer(Summary(PrincipalVectors(3), np.array([0])))
    assert found.values["vectors"].shape == (1, 3, 16)


# ------------------------------------------------------------------------------------- the angles


def test_angles_of_planes_worked_out_by_hand():
    x, y, z = np.eye(3)
    turned = [x, (y + np.sqrt(3) * z) / 2]  # the plane of x and y, turned by 60 degrees around x
    one, other = np.array([[x, y]]), np.array([turned, turned[::-1]])
    expected = {"smallest": [0, 0], "sum": [60, 60], "ordered": [60, 180], "vectors": [0, 0]}
    for angle, value in expected.items():
        np.testing.assert_allclose(proximity(one, other, angle)[0], value, atol=1e-4)


@relaxed
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_angles_are_the_principal_angles_between_subspaces(seed, number):
    draw = np.random.default_rng(seed)
    bases = [orth(draw.normal(size=(7, number))) for _ in range(5)]
    stack = np.stack([basis.T for basis in bases])
    angles = [[np.degrees(subspace_angles(one, two)) for two in bases] for one in bases]
    for name, pick in (("smallest", np.min), ("sum", np.sum)):
        expected = [[pick(pair) for pair in row] for row in angles]
        np.testing.assert_allclose(proximity(stack, stack, name), expected, atol=1e-4)


@pytest.mark.parametrize("angle", ANGLES)
def test_angles_are_the_same_whatever_the_sign_of_vectors_and_however_many_at_once(
    angle, monkeypatch
):
    draw = np.random.default_rng(0)
    stack = np.stack([orth(draw.normal(size=(6, 2))).T for _ in range(7)])
    expected = proximity(stack, stack[:3], angle)
    np.testing.assert_allclose(proximity(-stack, stack[:3], angle), expected, atol=1e-4)
    monkeypatch.setattr(pacfl, "AT_ONCE", 5)
    np.testing.assert_allclose(proximity(stack, stack[:3], angle), expected, atol=1e-4)
    monkeypatch.setattr(pacfl, "BLOCK", 3)
    np.testing.assert_allclose(mutual_proximity(stack, angle)[:, :3], expected, atol=1e-4)


# ------------------------------------------------------------------------------------- the groups


@pytest.mark.parametrize(
    ("threshold", "groups"),
    [
        (4.9, [0, 1, 2, 3]),
        (5.1, [0, 1, 2, 2]),
        (10.1, [0, 0, 1, 1]),
        (47.4, [0, 0, 1, 1]),  # on average the pairs are (50 + 55 + 40 + 45) / 4 = 47.5 apart
        (47.6, [0, 0, 0, 0]),
    ],
)
def test_groups_farther_apart_than_the_threshold_stay_apart(threshold, groups):
    found = groups_of(lines(0, 10, 50, 55), threshold=threshold)
    assert same_groups(found, groups)


def test_linkages_differ_in_how_they_take_the_sizes_of_groups():
    # 0 and 2 merge, then 5; from there to 60 it is (60 + 58 + 55) / 3, or ((60 + 58) / 2 + 55) / 2.
    apart = lines(0, 2, 5, 60)
    for linkage, height in (
        ("average", 173 / 3),
        ("weighted", 57),
        ("single", 55),
        ("complete", 60),
    ):
        for threshold, groups in ((height - 0.1, [0, 0, 0, 1]), (height + 0.1, [0] * 4)):
            found = groups_of(apart, threshold=threshold, linkage=linkage)
            assert same_groups(found, groups), linkage


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_where_k_is_known_the_tree_is_cut_there(number):
    assert len(set(groups_of(lines(0, 10, 50, 55), models=number))) == number


def test_clients_exactly_alike_are_still_as_many_groups_as_asked_for():
    assert sorted(set(groups_of(lines(20, 20, 20), models=2))) == [0, 1]


def test_one_client_is_a_group():
    assert groups_of(lines(30), threshold=1.0) == [0]


def test_a_late_client_joins_the_group_of_least_average_angle():
    degrees = [0, 10, 50, 55, 29]  # 29 and 19 away from the first two, 21 and 26 from the others
    clients = AnsweringClients([0.0] * 5, {"vectors": lines(*degrees)}, missing={Summary: [4]})
    method, all_five = Pacfl(setup(5, 2), vectors=1), everybody(5)
    first = clients.play(method.round(method.begin(), all_five), Summary, Train)
    clients.missing = {}
    second = clients.play(method.round(first.state, all_five), Summary, Train)
    assert second.state.model_of[4] == first.state.model_of[3]
    found = clients.play(method.newcomers(first.state, np.array([4])), Summary)
    by_group = found.distances[0][first.state.model_of[[0, 3]]]
    np.testing.assert_allclose(by_group, [24, 23.5], atol=1e-4)


def same_groups(found, expected):
    return len({*zip(found, expected, strict=True)}) == len(set(found)) == len(set(expected))


# ------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"angle": "smalest"}, "unknown angle 'smalest': did you mean 'smallest'"),
        ({"linkage": "averag"}, "unknown linkage 'averag': did you mean 'average'"),
        ({"vectors": 0}, "vectors must be 1 or more"),
        ({"threshold": -1.0}, "threshold must not be negative"),
        ({"threshold": float("nan")}, "threshold must not be negative"),
        ({"threshold": 3.0, "models": 2}, "set threshold .* or models .*, not both"),
        ({"per_class": True}, "per_class needs angle=vectors"),
        ({"per_class": True, "angle": "vectors"}, "pacfl with per_class needs labels"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        Pacfl(setup(6, 2), **options).begin()


def test_without_a_number_of_models_the_error_says_what_to_set():
    with pytest.raises(CloveError, match=r"Set models=K, or threshold \(in degrees\)"):
        Pacfl(setup(6)).begin()
    assert Pacfl(setup(6), threshold=5.0).begin().models["weight"][0] == SAME


# -------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("seed", SEEDS)
def test_it_finds_the_groups_of_label_skewed_digits_and_serves_them_better_than_fedavg(seed):
    result = digits("pacfl", seed, rounds=10)
    assert result.ari == 1.0
    assert result.accuracy > digits("fedavg", seed, rounds=10).accuracy + 0.4


@pytest.mark.parametrize("options", [{"per_class": True}, {}], ids=str)
def test_so_does_the_angle_of_the_authors_code(options):
    assert digits("pacfl", rounds=1, angle="vectors", linkage="weighted", **options).ari == 1.0


def test_it_needs_no_labels():
    result = digits("pacfl", rounds=1, task="reconstruction")
    assert result.ari == 1.0


def test_a_newcomer_joins_the_group_whose_digits_it_has():
    result = digits("pacfl", rounds=10)
    clients = result._progress.prepared.clients.clients
    for number in range(0, 25, 6):
        assert result.assign(*clients[number].test).model == result.assignment[number]


def test_vectors_travel_once():
    result = digits("pacfl", rounds=2)
    first, second = result.history["bytes_up"]
    assert first - second == 25 * 3 * 64 * 4  # three vectors of 64 numbers, of four bytes
    assert result.history["bytes_down"].nunique() == 1


# ------------------------------------------------- clients of few samples, and short samples


@pytest.mark.parametrize("angle", ANGLES)
def test_directions_that_a_client_has_not_count_for_nothing(angle):
    x, y, z = np.eye(3)
    few, many, other = (np.array([one]) for one in ([x, 0 * x], [x, y], [z, 0 * x]))
    assert proximity(few, few, angle) == pytest.approx(0.0, abs=1e-4)
    assert proximity(few, many, angle) == pytest.approx(0.0, abs=1e-4)
    assert proximity(few, other, angle) == pytest.approx(90.0, abs=1e-4)


@pytest.mark.parametrize("angle", ANGLES)
def test_who_has_no_directions_at_all_is_near_nobody(angle):
    nothing, many = np.zeros((1, 2, 3)), np.eye(3)[None, :2]
    assert proximity(nothing, many, angle) == pytest.approx(90.0, abs=1e-4)


def test_as_many_vectors_as_there_are_numbers_in_a_sample_are_too_many():
    sent = np.concatenate([lines(0, 30), np.zeros((2, 1, 2))], axis=1)[:, :1]
    clients = AnsweringClients([0.0] * 2, {"vectors": sent})
    method = Pacfl(setup(2, 2), vectors=3)
    with pytest.raises(CloveError, match="vectors=3, but a sample has 2 numbers"):
        clients.play(method.round(method.begin(), everybody(2)), Summary, Train)


def test_what_clients_make_of_their_groups_model_is_measured_where_that_is_asked():
    """With everybody in one group the average serves badly, and a round on one's own data well."""
    averaged, trained = (
        digits("pacfl", models=1, measured=what) for what in ("averaged", "trained")
    )
    assert averaged.accuracy + 0.1 < trained.accuracy
    assert averaged.assignment.tolist() == trained.assignment.tolist()
