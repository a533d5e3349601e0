"""Grouping once, by summaries: who is asked when, and who trains what."""

from __future__ import annotations

import numpy as np
import pytest

from clove.algorithms import KFed
from clove.errors import CloveError
from clove.federation import Evaluate, Summary, Train

from .answering import AnsweringClients
from .scripted import SAME, everybody, setup, weights

TARGETS = [0.0, 1.0, 2.0, 9.0, 10.0, 11.0]
SIX = everybody(6)


def clients_at(targets, **options):
    """Clients whose data are one point, at their target."""
    centres = np.asarray(targets, dtype=float)[:, None, None]
    return AnsweringClients(
        targets, {"centres": centres, "counts": centres[:, :, 0] * 0 + 1}, **options
    )


def method(clients=6, groups=2):
    return KFed(setup(clients, groups))


def test_everybody_is_asked_before_training_whoever_takes_part():
    clients, few = clients_at(TARGETS), np.array([1, 4])
    outcome = clients.play(method().round(method().begin(), few), Summary, Train)
    asked, train = clients.asked
    assert asked.clients.tolist() == SIX.tolist()
    assert train.clients.tolist() == [1, 4]
    assert outcome.clients.tolist() == [1, 4]
    assert outcome.state.model_of.tolist() == [0, 0, 0, 1, 1, 1]
    assert outcome.notes == {"clusters": 2}


def test_groups_start_from_the_same_model_and_train_their_own():
    clients = clients_at(TARGETS, samples=[1, 1, 2, 1, 1, 1])
    outcome = clients.play(method().round(method().begin(), SIX), Summary, Train)
    assert weights(clients.asked[1].models) == [SAME, SAME]
    assert weights(outcome.state.models) == [5 / 4, 10.0]
    assert outcome.assignment.tolist() == [0, 0, 0, 1, 1, 1]


def test_nobody_is_asked_a_second_time():
    clients = clients_at(TARGETS)
    first = clients.play(method().round(method().begin(), SIX), Summary, Train)
    clients.play(method().round(first.state, SIX), Train)


@pytest.mark.parametrize("backwards", [False, True])
def test_who_did_not_answer_is_asked_when_it_next_takes_part(backwards):
    clients = clients_at(TARGETS, missing={Summary: [2, 3]}, backwards=backwards)
    first = clients.play(method().round(method().begin(), SIX), Summary, Train)
    assert sorted(first.clients) == [0, 1, 4, 5]
    groups = first.state.model_of
    assert groups[[2, 3]].tolist() == [-1, -1]
    clients.missing = {}
    second = clients.play(method().round(first.state, np.array([0, 3])), Summary, Train)
    assert clients.asked[0].clients.tolist() == [3]
    assert second.state.model_of[3] == groups[4]
    assert second.state.model_of[2] == -1


def test_a_client_without_a_group_is_not_measured():
    clients = clients_at(TARGETS, missing={Summary: [2]})
    first = clients.play(method().round(method().begin(), SIX), Summary, Train)
    question = method().evaluation(first.state, SIX)
    assert isinstance(question, Evaluate)
    assert question.clients.tolist() == [0, 1, 3, 4, 5]
    assert question.index.tolist() == [0, 0, 1, 1, 1]


def test_where_nobody_answers_the_model_stays_and_all_are_asked_again():
    clients = clients_at(TARGETS, missing={Summary: SIX})
    first = clients.play(method().round(method().begin(), SIX), Summary, Train)
    assert weights(first.state.models) == [SAME]
    assert first.clients.tolist() == []
    clients.missing = {}
    again = clients.play(method().round(first.state, SIX), Summary, Train)
    assert again.state.model_of.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_client_that_joins_the_federation_later_joins_a_group():
    clients = clients_at([*TARGETS, 8.0, 3.0])
    first = clients.play(method().round(method().begin(), SIX), Summary, Train)
    larger = method(clients=8)
    second = clients.play(larger.round(first.state, np.array([0, 6])), Summary, Train)
    assert clients.asked[0].clients.tolist() == [6]
    assert second.state.model_of.tolist() == [0, 0, 0, 1, 1, 1, 1, -1]
    assert larger.evaluation(second.state, everybody(8)).clients.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_newcomer_is_placed_with_as_much_certainty_as_the_next_group_is_farther():
    clients = clients_at([*TARGETS, 3.0, 10.0, 5.5])
    grouped = clients.play(KFed(setup(6, 2)).round(method().begin(), SIX), Summary, Train).state
    found = clients.play(method().newcomers(grouped, np.array([6, 7, 8])), Summary)
    assert found.models.tolist() == [0, 1, 0]
    np.testing.assert_allclose(found.distances, [[2, 7], [9, 0], [4.5, 4.5]])
    np.testing.assert_allclose(found.margins, [1 - 2 / 7, 1, 0])


def test_the_only_group_there_is_is_certain():
    clients, one = clients_at(TARGETS), KFed(setup(6, 1))
    grouped = clients.play(one.round(one.begin(), SIX), Summary, Train).state
    assert clients.play(one.newcomers(grouped, SIX), Summary).margins.tolist() == [1.0] * 6


def test_before_the_grouping_a_newcomer_cannot_be_placed():
    with pytest.raises(CloveError, match="nothing has been clustered yet"):
        clients_at(TARGETS).play(method().newcomers(method().begin(), SIX), Summary)
