from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity

from clove.algorithms import FlexCfl
from clove.algorithms.flexcfl import between_groups, decomposed_cosines
from clove.errors import CloveError
from clove.federation import Train, Trained

from .scripted import SAME, TRAINING, ScriptedClients, everybody, relaxed, setup, weights
from .simulated import SEEDS, digits

# All begin with SAME = 7.
TARGETS = [4.0, 5.0, 9.0, 10.0]
FOUR = everybody(4)


def begun(clients, **options):
    method = FlexCfl(setup(len(clients.targets), 2), **options)
    cohort = everybody(len(clients.targets))
    return method, clients.play(method.round(method.begin(), cohort), Train, Train)


# ------------------------------------------------------------------------------ decomposition


def test_cosines_with_singular_directions_by_hand():
    # Updates (3, 4), (4, 3), (0, 2): the inner products alone are known to the function.
    vectors = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 2.0]])
    found = decomposed_cosines(vectors @ vectors.T, 2)
    # AᵀA = [[25, 24], [24, 29]]: its eigenvectors are the directions.
    squared, directions = np.linalg.eigh(np.array([[25.0, 24.0], [24.0, 29.0]]))
    assert squared[1] > squared[0]
    expected = (vectors @ directions[:, ::-1]) / np.array([[5.0], [5.0], [2.0]])
    np.testing.assert_allclose(np.abs(found), np.abs(expected))


@given(clients=st.integers(4, 12), directions=st.integers(1, 3), seed=st.integers(0, 10**6))
@relaxed
def test_it_is_a_truncated_svd_of_the_updates(clients, directions, seed):
    updates = np.random.default_rng(seed).normal(size=(clients, 30))
    svd = TruncatedSVD(directions, algorithm="arpack", random_state=0)
    expected = cosine_similarity(updates, svd.fit_transform(updates.T).T)
    found = decomposed_cosines(updates @ updates.T, directions)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)


def test_a_client_that_did_not_move_is_along_no_direction():
    updates = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert decomposed_cosines(updates @ updates.T, 1)[1].tolist() == [0.0]


# ------------------------------------------------------------------------------------ grouping


def test_clients_are_grouped_by_direction_and_groups_begin_with_the_mean_of_their_models():
    clients = ScriptedClients(TARGETS)
    _, outcome = begun(clients)
    pretraining, training = clients.asked
    assert weights(pretraining.models) == [SAME]
    assert (pretraining.training.steps, pretraining.training.epochs) == (50, 50)
    assert pretraining.training.purpose != TRAINING.purpose
    one, other = outcome.assignment[0], outcome.assignment[2]
    assert outcome.assignment.tolist() == [one, one, other, other]
    assert one != other
    assert weights(training.models)[one] == 4.5
    assert weights(training.models)[other] == 9.5
    assert weights(outcome.state.directions)[one] == -2.5


def test_founders_belong_to_their_cluster_even_where_another_direction_is_nearer():
    """k-means looks at angles alone, while a long update turns its group's mean direction.

    Updates at 0, 10, 20 and 60 degrees are nearer to each other than to those at 110, 120 and 130.
    Of each group the first is a hundred times as long, so that the mean directions are near 0 and
    110 degrees: the one at 60 is nearer to the second.
    """
    angles = np.radians([0.0, 10.0, 20.0, 60.0, 110.0, 120.0, 130.0])
    lengths = np.array([100.0, 1.0, 1.0, 1.0, 100.0, 1.0, 1.0])
    updates = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def initial(number, how):
        return {"weight": torch.zeros(number, 2, dtype=torch.float64)}

    method = FlexCfl(replace(setup(7, 2), initial=initial))
    asking = method.round(method.begin(), everybody(7))
    pretraining = next(asking)
    found = Trained(pretraining.clients, np.ones(7), models={"weight": torch.tensor(updates)})
    training = asking.send(found)
    one, other = training.start[0], training.start[4]
    assert training.start.tolist() == [one] * 4 + [other] * 3
    started = training.models["weight"].numpy()
    np.testing.assert_allclose(started[one], updates[:4].mean(axis=0))
    cosines = started @ updates[3] / np.linalg.norm(started, axis=1)
    assert cosines[other] > cosines[one]


def test_groups_are_remembered_and_never_changed():
    clients = ScriptedClients(TARGETS)
    method, first = begun(clients)
    clients.targets = np.array([10.0, 9.0, 5.0, 4.0])
    second = clients.play(method.round(first.state, FOUR), Train)
    assert second.assignment.tolist() == first.assignment.tolist()


def test_only_some_are_clustered_and_the_others_join_by_direction():
    clients = ScriptedClients([4.0, 5.0, 9.0, 10.0, 12.0, 4.5])  # clients 1 and 4 are drawn
    _, outcome = begun(clients, pretrained_per_group=1)
    one, other = outcome.assignment[0], outcome.assignment[2]
    assert outcome.assignment.tolist() == [one, one, other, other, other, one]
    directions = weights(outcome.state.directions)
    assert (directions[one], directions[other]) == (5.0 - SAME, 12.0 - SAME)


def test_all_clients_found_the_groups_whoever_takes_part():
    """Two participants of one group: the other group has its founders, and its model, too."""
    clients = ScriptedClients(TARGETS, backwards=True)
    method, two = FlexCfl(setup(4, 2)), np.array([0, 1])
    first = clients.play(method.round(method.begin(), two), Train, Train)
    pretraining, training = clients.asked
    assert pretraining.clients.tolist() == [0, 1, 2, 3]
    assert training.clients.tolist() == [0, 1]
    assert sorted(first.clients) == [0, 1]
    assert first.assignment[0] == first.assignment[1]
    groups = first.state.group_of
    assert groups.tolist() == [groups[0], groups[0], groups[2], groups[2]]
    assert groups[0] != groups[2]
    assert weights(first.state.models)[groups[2]] == 9.5
    # They have a model from the start, and need no second pre-training to take part.
    question = method.evaluation(first.state, FOUR)
    assert (question.clients.tolist(), question.index.tolist()) == ([0, 1, 2, 3], groups.tolist())
    second = clients.play(method.round(first.state, np.array([1, 3])), Train)
    assert dict(zip(second.clients, second.assignment, strict=True)) == {1: groups[1], 3: groups[3]}


def test_only_those_drawn_and_those_taking_part_pretrain():
    clients = ScriptedClients([4.0, 5.0, 9.0, 10.0, 12.0, 4.5])  # clients 1 and 4 are drawn
    method = FlexCfl(setup(6, 2), pretrained_per_group=1)
    outcome = clients.play(method.round(method.begin(), np.array([3])), Train, Train)
    assert clients.asked[0].clients.tolist() == [1, 3, 4]
    assert outcome.assignment.tolist() == [outcome.state.group_of[4]]
    directions = weights(outcome.state.directions)
    assert sorted(directions) == [5.0 - SAME, 12.0 - SAME]  # client 3 founds nothing
    assert outcome.state.group_of[[0, 2, 5]].tolist() == [-1] * 3
    assert method.evaluation(outcome.state, everybody(6)).clients.tolist() == [1, 3, 4]


def test_participants_take_the_places_of_drawn_clients_that_are_away():
    clients = ScriptedClients([4.0, 5.0, 9.0, 10.0, 12.0, 4.5], missing={Train: [1, 4]})
    method = FlexCfl(setup(6, 2), pretrained_per_group=1)
    outcome = clients.play(method.round(method.begin(), np.array([0, 3])), Train, Train)
    assert sorted(weights(outcome.state.directions)) == [4.0 - SAME, 10.0 - SAME]
    assert outcome.state.group_of[[1, 4]].tolist() == [-1, -1]


def test_who_comes_later_pretrains_once_and_joins_by_direction():
    clients = ScriptedClients(TARGETS, backwards=True, missing={Train: [1]})
    method = FlexCfl(setup(4, 2))
    three = np.array([0, 2, 3])
    first = clients.play(method.round(method.begin(), three), Train, Train)
    clients.missing = {}
    second = clients.play(method.round(first.state, FOUR), Train, Train)
    assert clients.asked[0].clients.tolist() == [1]
    assert weights(clients.asked[0].models) == [SAME]
    found = dict(zip(second.clients, second.assignment, strict=True))
    assert found[1] == found[0] == first.state.group_of[0]
    clients.play(method.round(second.state, FOUR), Train)


def test_who_joins_the_federation_later_joins_a_group():
    clients = ScriptedClients([*TARGETS, 11.0])
    first = clients.play(
        FlexCfl(setup(4, 2)).round(FlexCfl(setup(4, 2)).begin(), FOUR), Train, Train
    )
    larger = FlexCfl(setup(5, 2))
    second = clients.play(larger.round(first.state, everybody(5)), Train, Train)
    assert clients.asked[0].clients.tolist() == [4]
    assert second.assignment[4] == first.assignment[3]


def test_fewer_clients_than_groups_have_one_each():
    clients = ScriptedClients([4.0, 9.0])
    method = FlexCfl(setup(2, 5))
    outcome = clients.play(method.round(method.begin(), everybody(2)), Train, Train)
    assert sorted(outcome.assignment.tolist()) == [0, 1]


def test_nobody_replying_puts_off_the_grouping():
    away = ScriptedClients(TARGETS, missing={Train: FOUR})
    method, outcome = begun(away)
    assert outcome.state.directions is None
    assert len(outcome.clients) == 0
    with pytest.raises(CloveError, match="nothing has been clustered yet"):
        next(method.newcomers(outcome.state, np.array([0])))


def test_a_newcomer_joins_by_direction():
    method, outcome = begun(ScriptedClients(TARGETS))
    newcomer = ScriptedClients([3.0])
    found = newcomer.play(method.newcomers(outcome.state, np.array([0])), Train)
    assert found.models.tolist() == [outcome.assignment[0]]
    assert sorted(found.distances[0]) == [0.0, 1.0]
    assert found.margins.tolist() == [1.0]


# ------------------------------------------------------------------------------ between groups


def test_groups_learn_from_each_others_normalised_models():
    stack = {"weight": torch.tensor([[3.0, 4.0], [0.0, 2.0], [9.0, 9.0]])}
    # Lengths 5 and 2; the third was not trained.
    moved = between_groups(stack, np.array([True, True, False]), 0.5, ())["weight"]
    expected = [[3.0, 4.0 + 0.5 * 1.0], [0.5 * 0.6, 2.0 + 0.5 * 0.8], [9.0, 9.0]]
    torch.testing.assert_close(moved, torch.tensor(expected))


def test_running_statistics_stay_a_groups_own():
    stack = {"weight": torch.tensor([[3.0], [4.0]]), "var": torch.tensor([[1.0], [2.0]])}
    moved = between_groups(stack, np.array([True, True]), 0.5, {"var"})
    assert moved["weight"].tolist() == [[3.5], [4.5]]
    assert moved["var"].tolist() == [[1.0], [2.0]]


def test_by_default_groups_are_on_their_own():
    groups = {}
    for eta_g in (0.0, 0.25):
        clients = ScriptedClients(TARGETS)
        _, outcome = begun(clients, eta_g=eta_g)
        groups[eta_g] = sorted(weights(outcome.state.models))
    assert groups == {0.0: [4.5, 9.5], 0.25: [4.75, 9.75]}


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"pretrained_per_group": 0}, "pretrained_per_group must be 1 or more"),
        ({"pretraining_steps": 0}, "pretraining_steps must be 1 or more"),
        ({"n_init": 0}, "n_init must be 1 or more"),
        ({"eta_g": -1.0}, "eta_g must not be negative"),
        ({"stable_rounds": 0}, "stable_rounds must be 1 or more"),
    ],
)
def test_bad_options_are_refused(wrong, words):
    with pytest.raises(CloveError, match=words):
        FlexCfl(setup(3), **wrong)


def test_the_number_of_groups_must_be_known():
    with pytest.raises(CloveError, match="flexcfl needs the number of models"):
        FlexCfl(setup(3)).begin()


# -------------------------------------------------------------------------------------- digits


@pytest.mark.parametrize("seed", SEEDS)
def test_on_digits_it_groups_at_once_and_is_far_more_accurate_than_fedavg(seed):
    result = digits("flexcfl", seed)
    assert result.history["ari"].tolist() == [1.0] * 20
    assert result.accuracy > digits("fedavg", seed).accuracy + 0.4


@pytest.mark.parametrize("seed", SEEDS)
def test_on_digits_with_three_participants_it_finds_all_five_groups(seed):
    result = digits("flexcfl", seed, rounds=25, participation=0.12)
    assert result.history["ari_seen"].tolist() == [1.0] * 25
    assert result.history["accuracy"].iloc[-1] > 0.95


def test_a_newcomer_joins_the_group_whose_digits_it_has():
    result = digits("flexcfl")
    clients = result._progress.prepared.clients.clients
    for number in range(0, 25, 6):
        found = result.assign(*clients[number].train)
        assert found.model == result.assignment[number]
        assert found.sure > 0.3
