from __future__ import annotations

import numpy as np
import pytest

from clove.algorithms import Fesem
from clove.algorithms.fesem import FesemState
from clove.errors import CloveError
from clove.federation import Train

from .scripted import ScriptedClients, everybody, models, setup, weights
from .simulated import SEEDS, digits

# The initial model has weight 0, the centres begin at 10 and 20.
TARGETS = [1.0, 2.0, 9.0, 10.0]
FOUR = everybody(4)


def play(clients=None, state=None, groups=2, **options):
    clients = clients or ScriptedClients(TARGETS)
    method = Fesem(setup(4, groups), **options)
    outcome = clients.play(method.round(state or method.begin(), FOUR), Train)
    return outcome, clients.asked[0]


def at(centres, centre_of, round=1):
    """A state in the middle of a run."""
    return FesemState(models(*centres), models(0.0), np.array(centre_of), round)


def test_in_the_first_round_all_train_one_model_and_its_clusters_are_the_centres():
    outcome, asked = play()
    trained = [weights(asked.models)[model] for model in asked.start]
    assert trained == [0.0] * 4
    assert sorted(weights(outcome.state.models)) == [1.5, 9.5]
    first, second = outcome.assignment[0], outcome.assignment[2]
    assert outcome.assignment.tolist() == [first, first, second, second]
    assert weights(outcome.state.models)[first] == 1.5


@pytest.mark.parametrize("backwards", [False, True])
def test_all_clients_make_the_first_centres_whoever_takes_part(backwards):
    clients, method = ScriptedClients(TARGETS, backwards=backwards), Fesem(setup(4, 2))
    first = clients.play(method.round(method.begin(), np.array([0, 1])), Train)
    assert clients.asked[0].clients.tolist() == [0, 1, 2, 3]
    assert sorted(weights(first.state.models)) == [1.5, 9.5]
    centres = first.state.centre_of
    assert centres.tolist() == [centres[0], centres[0], centres[2], centres[2]]
    assert sorted(first.clients) == [0, 1]
    assert first.assignment.tolist() == [centres[0]] * 2
    # From then on, only participants are asked.
    second = clients.play(method.round(first.state, np.array([1, 2])), Train)
    assert clients.asked[0].clients.tolist() == [1, 2]
    assert clients.asked[0].start.tolist() == centres[[1, 2]].tolist()
    assert sorted(weights(second.state.models)) == [2.0, 9.0]


def test_who_did_not_answer_when_the_centres_were_made_begins_later():
    clients, method = ScriptedClients(TARGETS, missing={Train: [1, 2]}), Fesem(setup(4, 2))
    first = clients.play(method.round(method.begin(), FOUR), Train)
    assert first.state.centre_of[[1, 2]].tolist() == [-1, -1]
    clients.missing = {}
    second = clients.play(method.round(first.state, np.array([2])), Train)
    assert [weights(clients.asked[0].models)[k] for k in clients.asked[0].start] == [0.0]
    assert second.state.centre_of[2] == first.state.centre_of[3]


def test_a_client_that_joins_the_federation_later_joins_a_centre():
    outcome, _ = play()
    clients, larger = ScriptedClients([*TARGETS, 8.0]), Fesem(setup(5, 2))
    later = clients.play(larger.round(outcome.state, np.array([0, 4])), Train)
    assert later.state.centre_of[4] == outcome.state.centre_of[3]


@pytest.mark.parametrize("initial_centres", ["random", "one-model"])
def test_random_centres_need_none_but_the_participants(initial_centres):
    clients = ScriptedClients(TARGETS)
    method = Fesem(setup(4, 2), initial_centres=initial_centres)
    clients.play(method.round(method.begin(), np.array([0, 1])), Train)
    assert clients.asked[0].clients.tolist() == [0, 1]


def test_a_client_is_assigned_to_the_centre_nearest_to_its_model_and_centres_are_means():
    outcome, asked = play(state=at((0.0, 10.0), [0, 0, 0, 1]))
    assert asked.start.tolist() == [0, 0, 0, 1]
    assert outcome.assignment.tolist() == [0, 0, 1, 1]
    assert weights(outcome.state.models) == [1.5, 9.5]


def test_centres_may_be_averaged_before_clients_are_assigned():
    outcome, _ = play(state=at((0.0, 10.0), [0, 0, 0, 1]), order="average-assign")
    assert outcome.assignment.tolist() == [0, 0, 1, 1]
    assert weights(outcome.state.models) == [4.0, 10.0]  # (1 + 2 + 9) / 3


def test_means_may_be_by_samples():
    clients = ScriptedClients(TARGETS, samples=[1, 3, 1, 1], backwards=True)
    outcome, _ = play(clients, at((0.0, 10.0), [0, 0, 1, 1]), weighting="samples")
    assert weights(outcome.state.models) == [1.75, 9.5]


def test_a_centre_without_clients_stays():
    outcome, _ = play(state=at((0.0, 10.0, 99.0), [0, 0, 1, 1]), groups=3)
    assert weights(outcome.state.models) == [1.5, 9.5, 99.0]
    assert outcome.notes == {"clusters": 2}


def test_who_has_no_centre_yet_trains_the_initial_model_and_joins_the_nearest():
    outcome, asked = play(state=at((2.0, 9.0), [0, -1, 1, -1]))
    assert [weights(asked.models)[model] for model in asked.start] == [2.0, 0.0, 9.0, 0.0]
    assert outcome.state.centre_of.tolist() == [0, 0, 1, 1]


def test_who_trained_no_centre_has_no_part_in_its_mean_before_it_is_assigned():
    outcome, _ = play(state=at((2.0, 9.0), [0, -1, 1, -1]), order="average-assign")
    assert weights(outcome.state.models) == [1.0, 9.0]
    assert outcome.assignment.tolist() == [0, 0, 1, 1]


def test_random_centres_are_begun_with_at_random():
    outcome, asked = play(initial_centres="random")
    assert set(asked.start.tolist()) <= {0, 1}
    assert weights(asked.models)[:2] == [10.0, 20.0]
    assert outcome.assignment.tolist() == [0, 0, 0, 0]  # all targets are nearest to 10


def test_from_one_model_all_begin_with_the_same_centre():
    _, asked = play(initial_centres="one-model")
    assert asked.start.tolist() == [0, 0, 0, 0]  # of 10 and 20, 10 is nearer to 0


def test_fewer_clients_than_centres_have_one_each():
    outcome, _ = play(groups=6)
    assert len(set(outcome.assignment.tolist())) == 4


def test_nobody_replying_leaves_all_as_it_was():
    outcome, _ = play(ScriptedClients(TARGETS, missing={Train: FOUR}))
    assert len(outcome.clients) == 0
    assert outcome.state.round == 0
    assert weights(outcome.state.models) == [10.0, 20.0]


def test_only_those_with_a_centre_are_measured():
    method = Fesem(setup(4, 2))
    question = method.evaluation(at((0.0, 10.0), [1, -1, 0, -1]), FOUR)
    assert question.clients.tolist() == [0, 2]
    assert question.index.tolist() == [1, 0]


def test_a_newcomer_trains_the_initial_model_and_joins_the_nearest_centre():
    method, newcomers = Fesem(setup(4, 2)), ScriptedClients([3.0, 9.0])
    state = at((2.0, 10.0), [0, 0, 1, 1])
    found = newcomers.play(method.newcomers(state, everybody(2)), Train)
    assert weights(newcomers.asked[0].models) == [0.0]
    assert found.models.tolist() == [0, 1]
    assert found.distances.tolist() == [[1.0, 7.0], [7.0, 1.0]]
    assert found.margins == pytest.approx([6 / 7, 6 / 7])


def test_newcomers_who_do_not_reply_cannot_be_assigned():
    away = ScriptedClients([3.0], missing={Train: [0]})
    with pytest.raises(CloveError, match="no newcomer replied"):
        away.play(Fesem(setup(4, 2)).newcomers(at((2.0, 10.0), [0] * 4), everybody(1)), Train)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"initial_centres": "kmeans"}, "did you mean 'k-means'"),
        ({"order": "average"}, "average-assign"),
        ({"weighting": "equals"}, "did you mean 'equal'"),
        ({"n_init": 0}, "n_init must be 1 or more"),
    ],
)
def test_bad_options_are_refused(wrong, words):
    with pytest.raises(CloveError, match=words):
        Fesem(setup(3), **wrong)


def test_the_number_of_centres_must_be_known():
    with pytest.raises(CloveError, match="fesem needs the number of models"):
        Fesem(setup(3)).begin()


@pytest.mark.parametrize("seed", SEEDS)
def test_on_digits_it_finds_the_groups_and_is_far_more_accurate_than_fedavg(seed):
    result = digits("fesem", seed)
    assert result.ari == 1.0
    assert result.accuracy > digits("fedavg", seed).accuracy + 0.4


@pytest.mark.parametrize("seed", SEEDS)
def test_on_digits_with_three_participants_it_finds_all_five_groups(seed):
    result = digits("fesem", seed, rounds=25, participation=0.12)
    assert result.history["ari_seen"].iloc[-1] == 1.0
    assert result.accuracy > 0.9


def test_from_one_model_the_first_centre_is_never_left():
    result = digits("fesem", rounds=5, initial_centres="one-model")
    assert result.history["clusters"].tolist() == [1] * 5
