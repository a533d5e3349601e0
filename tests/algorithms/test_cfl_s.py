from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import clove
from clove.algorithms import CflS
from clove.algorithms.cfl_s import bipartition
from clove.algorithms.updates import Updates
from clove.errors import CloveError
from clove.federation import Evaluate, Train

from .scripted import SAME, ScriptedClients, everybody, models, relaxed, setup, weights
from .simulated import digits

# All begin with SAME = 7. Of the first updates -4, -3, -2, 1, 4, 4 the mean is 0; the halves go to
# 4 and to 10. The second half's updates are then -2, 1, 1, again of mean 0; the first half's are
# -1, 0, 1, none of them long.
TARGETS = [3.0, 4.0, 5.0, 8.0, 11.0, 11.0]
SIX = everybody(6)


def play(rounds, clients=None, **options):
    clients = clients or ScriptedClients(TARGETS)
    method = CflS(setup(6), **options)
    state, outcomes = method.begin(), []
    for _ in range(rounds):
        outcomes.append(clients.play(method.round(state, SIX), Train))
        state = outcomes[-1].state
    return method, state, outcomes


def own_weights(state):
    return [weights(state.models)[model] for model in state.model_of]


# ------------------------------------------------------------------------------ the bipartition


def test_the_largest_similarity_between_the_halves_is_as_small_as_can_be():
    # 0-1 and 2-3 are most alike; 1-2 (0.6) ties them to each other more than 4 is tied to any.
    alike = np.array(
        [
            [1.0, 0.9, 0.1, 0.0, 0.2],
            [0.9, 1.0, 0.6, 0.1, 0.1],
            [0.1, 0.6, 1.0, 0.8, 0.3],
            [0.0, 0.1, 0.8, 1.0, 0.4],
            [0.2, 0.1, 0.3, 0.4, 1.0],
        ]
    )
    assert bipartition(alike).tolist() == [False, False, False, False, True]
    # Complete linkage looks at the least alike of two clusters: 4 is nearer to {2, 3} (0.3) than
    # those to {0, 1} (0.0).
    assert bipartition(alike, "complete").tolist() == [False, False, True, True, True]


@given(number=st.integers(3, 7), seed=st.integers(0, 10**6))
@relaxed
def test_no_other_bipartition_has_halves_less_alike(number, seed):
    vectors = np.random.default_rng(seed).normal(size=(number, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = vectors @ vectors.T

    def between(half):
        return alike[np.ix_(half, np.setdiff1d(np.arange(number), half))].max()

    halves = [c for size in range(1, number // 2 + 1) for c in combinations(range(number), size)]
    found = np.flatnonzero(bipartition(alike))
    assert between(found) == pytest.approx(min(between(np.array(half)) for half in halves))


# ------------------------------------------------------------------------------------ splitting


def test_a_cluster_whose_updates_cancel_is_split_by_their_directions():
    _, state, (first, second) = play(2)
    assert first.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    assert weights(first.state.models) == [4.0, 10.0]
    assert second.assignment.tolist() == [0, 0, 0, 1, 2, 2]
    assert weights(state.models) == pytest.approx([4.0, 8.0, 11.0])
    assert [one.notes["clusters"] for one in (first, second)] == [2, 3]


@pytest.mark.parametrize(
    "options", [{"eps1": 0.0}, {"eps2": 4.1}, {"split_after": 1}], ids=lambda o: next(iter(o))
)
def test_it_is_not_split_while_it_still_learns_or_when_all_are_content(options):
    _, state, (outcome,) = play(1, **options)
    assert outcome.assignment.tolist() == [0] * 6
    assert weights(state.models) == [SAME]


def test_it_is_split_once_the_first_rounds_are_over():
    _, _, outcomes = play(2, split_after=1)
    assert [one.notes["clusters"] for one in outcomes] == [1, 2]


def test_two_clients_stay_together():
    clients = ScriptedClients([5.0, 9.0])
    method = CflS(setup(2))
    outcome = clients.play(method.round(method.begin(), everybody(2)), Train)
    assert outcome.assignment.tolist() == [0, 0]


def test_halves_that_are_too_much_alike_stay_together():
    alike = np.array([[1.0, 0.9, 0.5], [0.9, 1.0, 0.4], [0.5, 0.4, 1.0]])
    # sqrt((1 - 0.5) / 2) = 0.5
    assert CflS(setup(3), gamma_max=0.49)._second_half(alike).tolist() == [False, False, True]
    assert CflS(setup(3), gamma_max=0.51)._second_half(alike) is None


def test_clients_count_the_same_or_by_their_samples():
    clients = ScriptedClients([5.0, 5.0, 9.0, 9.0], samples=[1, 3, 1, 1])
    for weighting, mean in (("equal", 7.0), ("samples", 38 / 6)):
        method = CflS(setup(4), weighting=weighting, eps1=0.0)
        outcome = clients.play(method.round(method.begin(), everybody(4)), Train)
        assert weights(outcome.state.models) == pytest.approx([mean])


def test_running_statistics_are_averaged_but_have_no_direction():
    changes = {"weight": torch.tensor([[3.0], [4.0]]), "mean": torch.tensor([[9.0], [-9.0]])}
    two = np.arange(2)
    found = Updates(two, np.ones(2), changes, changes, frozenset({"mean"}))
    assert found.products(two).tolist() == [[9.0, 12.0], [12.0, 16.0]]
    assert found.similarities(two).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    state = CflS(setup(2)).begin()
    state = CflS(setup(2))._averaged(type(state)(**vars(state) | {"models": one_of(0.0)}), found)
    assert {name: tensor.tolist() for name, tensor in state.models.items()} == {
        "weight": [[3.5]],
        "mean": [[0.0]],
    }


def one_of(value):
    return {"weight": torch.full((1, 1), value), "mean": torch.full((1, 1), value)}


# -------------------------------------------------------------------------- indices as published


def test_as_published_the_second_split_takes_places_for_clients():
    _, state, (first, second) = play(2, indices="as-published")
    assert first.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    # Clients 3, 4, 5 fall into places {0} and {1, 2}, which become clusters of clients 0, 1, 2.
    assert state.members.astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
    ]
    # From 4, client 0 moves by 0 and by -1, clients 1 and 2 by 0 and by 1/2; the others stay.
    assert own_weights(state) == pytest.approx([3.0, 4.5, 4.5, 10.0, 10.0, 10.0])
    assert len({second.assignment[0], second.assignment[1], second.assignment[3]}) == 3


def test_a_client_of_two_clusters_takes_both_mean_updates_and_one_of_none_stands_still():
    method = CflS(setup(4), indices="as-published")
    state = method.begin()
    members = np.array([[1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)
    state = type(state)(**vars(state) | {"members": members})
    changes = models(2.0, 4.0, 10.0, 100.0)
    found = Updates(everybody(4), np.ones(4), changes, changes, frozenset())
    after = own_weights(method._averaged(state, found))
    assert after == [SAME + 3, SAME + 3 + 7, SAME + 7, SAME]


def test_as_published_there_are_no_newcomers():
    method, state, _ = play(1, indices="as-published")
    with pytest.raises(CloveError, match="use corrected"):
        next(method.newcomers(state, np.array([0])))


# --------------------------------------------------------------------- those who come later


def test_who_missed_a_split_joins_the_half_it_pulls_with():
    # Without client 5 the first updates' mean is 0: its missing one is like client 4's.
    targets = [4.0, 4.0, 7.5, 9.0, 10.5, 11.0]
    method, state, (outcome,) = play(1, ScriptedClients(targets, missing={Train: [5]}))
    assert outcome.clients.tolist() == [0, 1, 2, 3, 4]
    assert outcome.assignment.tolist() == [0, 0, 1, 1, 1]
    assert state.model_of[5] == 0
    clients = ScriptedClients(targets)
    outcome = clients.play(method.round(state, SIX), Train, Train)
    again, training = clients.asked
    assert again.clients.tolist() == [5]
    assert weights(again.models) == [SAME]  # the model that was split
    assert training.start.tolist() == [0, 0, 1, 1, 1, 1]
    assert outcome.state.model_of[5] == outcome.state.model_of[4]
    clients.play(method.round(outcome.state, SIX), Train)  # and is asked no more


def test_who_does_not_reply_then_is_asked_again():
    targets = [4.0, 4.0, 7.5, 9.0, 10.5, 11.0]
    away = ScriptedClients(targets, missing={Train: [5]})
    method, state, _ = play(1, away)
    assert state.model_of[5] == 0, "it stays in the first half, unasked"
    state = away.play(method.round(state, SIX), Train, Train).state
    assert state.model_of[5] == 0
    after = ScriptedClients(targets).play(method.round(state, SIX), Train, Train).state
    assert after.model_of[5] == after.model_of[4], "its update is more like theirs"


def test_a_newcomer_comes_down_fork_by_fork():
    method, state, _ = play(2)
    newcomers = ScriptedClients([2.0, 8.0, 12.0], backwards=True)
    found = newcomers.play(method.newcomers(state, everybody(3)), Train, Train)
    assert [question.clients.tolist() for question in newcomers.asked] == [[0, 1, 2], [1, 2]]
    assert found.models.tolist() == [0, 1, 2]
    assert found.distances.tolist() == [[0, 1, np.inf], [1, 0, 1], [1, 1, 0]]
    assert found.margins.tolist() == [1.0, 1.0, 1.0]


def test_before_any_split_a_newcomer_gets_the_one_model():
    method, state, _ = play(1, eps1=0.0)
    found = ScriptedClients([2.0]).play(method.newcomers(state, np.array([0])))
    assert found.models.tolist() == [0]


def test_nobody_replying_leaves_all_as_it_was():
    _, state, (outcome,) = play(1, ScriptedClients(TARGETS, missing={Train: range(6)}))
    assert len(outcome.clients) == 0
    assert weights(state.models) == [SAME]


def test_everybody_is_measured_with_its_clusters_model():
    method, state, _ = play(2)
    question = method.evaluation(state, np.array([5, 0]))
    assert isinstance(question, Evaluate)
    assert question.index.tolist() == [2, 0]


# ------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"eps1": -0.1}, "eps1 must not be negative"),
        ({"eps2": float("nan")}, "eps2 must not be negative"),
        ({"split_after": -1}, "split_after must not be negative"),
        ({"gamma_max": 1.0}, r"gamma_max must be in \[0, 1\)"),
        ({"linkage": "singel"}, "did you mean 'single'"),
        ({"weighting": "sample"}, "did you mean 'samples'"),
        ({"indices": "published"}, "as-published"),
    ],
)
def test_bad_options_are_refused(wrong, words):
    with pytest.raises(CloveError, match=words):
        CflS(setup(3), **wrong)


# -------------------------------------------------------------------------------------- digits

# As in the authors' notebook; the run's own batches are smaller.
NOTEBOOK = {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.1, "batch_size": 10}


def on_digits(algorithm, seed):
    return clove.run(
        **{"dataset": "digits", "mixing": "label-skew-1", "algorithm": algorithm, "rounds": 20},
        **{"seed": seed, "engine": "vectorized", "device": "cpu", **NOTEBOOK},
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_with_the_published_thresholds_it_is_better_than_fedavg(seed):
    split = on_digits("cfl-s", seed)
    assert split.ari > 0.5
    assert split.accuracy > on_digits("fedavg", seed).accuracy + 0.03


def test_with_adam_it_finds_the_true_groups_at_thresholds_of_its_own():
    result = digits("cfl-s", eps2=0.6)
    assert result.ari == 1.0
    assert result.summary()["models"] == 5


def test_a_newcomer_joins_the_group_whose_digits_it_has():
    result = digits("cfl-s", eps2=0.6)
    clients = result._progress.prepared.clients.clients
    for number in range(0, 25, 6):
        assert result.assign(*clients[number].train).model == result.assignment[number]
