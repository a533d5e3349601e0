from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clove.algorithms import FedGwc
from clove.algorithms.fedgwc import affinity, gaussian_rewards, split
from clove.errors import CloveError
from clove.federation import Losses, Train

from .answering import AnsweringClients
from .scripted import SAME, everybody, relaxed, setup, weights
from .simulated import SEEDS, digits

EIGHT = everybody(8)
# Losses at two steps: four clients whose losses are the cohort's mean, and four far from it.
TWO_KINDS = np.array([[5.0, 4.0]] * 4 + [[2.0, 1.0], [8.0, 7.0]] * 2)


# ------------------------------------------------------------------------------------- rewards


def test_rewards_worked_out_by_hand():
    # Mean 2, variance (1 + 0 + 1) / 2 = 1; then mean 4, variance (4 + 4 + 16) / 2 = 12.
    found = gaussian_rewards(np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 8.0]]))
    first, second = [exp(-1 / 2), 1, exp(-1 / 2)], [exp(-4 / 24), exp(-4 / 24), exp(-16 / 24)]
    np.testing.assert_allclose(found, (np.array(first) + second) / 2)


def test_a_step_that_only_some_clients_made_counts_for_those():
    found = gaussian_rewards(np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]]))
    both = (exp(-1 / 2) + exp(-1 / 4)) / 2  # the second step has mean 6 and variance 2
    np.testing.assert_allclose(found, [both, 1, both])


@relaxed
@given(arrays(float, (4, 3), elements=st.floats(0, 100)))
def test_rewards_are_above_zero_and_at_most_one(losses):
    found = gaussian_rewards(losses)
    assert ((found > 0) & (found <= 1)).all()


def test_where_all_lose_the_same_all_have_the_full_reward():
    np.testing.assert_allclose(gaussian_rewards(np.full((3, 2), 0.7)), 1.0)


# ------------------------------------------------------------------------------------- affinity


def test_affinity_leaves_out_the_two_clients_themselves():
    draw = np.random.default_rng(0)
    perceptions = draw.random((6, 6))
    scaled = (perceptions - perceptions.min()) / (perceptions.max() - perceptions.min())
    found = affinity(perceptions, kernel=0.7)
    for k in range(6):
        for j in range(6):
            others = [i for i in range(6) if i not in (k, j)]
            apart = sum((scaled[k, i] - scaled[j, i]) ** 2 for i in others)
            assert found[k, j] == pytest.approx(exp(-0.7 * apart) if k != j else 0.0)


@pytest.mark.parametrize("sizes", [(6, 6), (4, 9), (5, 5, 5)], ids=str)
def test_a_group_is_split_between_the_blocks_of_its_affinities(sizes):
    truth, draw = np.repeat(np.arange(len(sizes)), sizes), np.random.default_rng(0)
    noise = draw.uniform(-0.02, 0.02, size=(len(truth), len(truth)))
    alike = np.where(truth[:, None] == truth, 0.9, 0.05) + noise + noise.T
    np.fill_diagonal(alike, 0.0)
    labels = split(alike, most=4, seed=0)
    parts_of_block = [set(labels[truth == block]) for block in range(len(sizes))]
    assert all(len(parts) == 1 for parts in parts_of_block)
    assert len(set(labels)) >= 2


def test_a_group_without_blocks_or_of_too_few_stays_as_it_is():
    draw = np.random.default_rng(0)
    noise = draw.uniform(0.4, 0.6, size=(20, 20))
    assert set(split((noise + noise.T) / 2, most=4, seed=0)) == {0}
    assert split(draw.random((3, 3)), most=4, seed=0).tolist() == [0, 0, 0]
    assert set(split(1.0 - np.eye(9), most=4, seed=0)) == {0}


# --------------------------------------------------------------------------------------- rounds


def test_interactions_are_running_means_over_those_who_met():
    losses = [[1.0, 2.0], [2.0, 2.0], [3.0, 8.0], [9.0, 9.0]]
    clients, method = (
        AnsweringClients([0.0] * 4, step_losses=losses),
        FedGwc(setup(4), rewards="plain"),
    )
    state = clients.play(method.round(method.begin(), np.array([0, 1, 2])), Train).state
    rewards = gaussian_rewards(np.array(losses)[:3])
    expected = np.zeros((4, 4))
    expected[:3, :3] = 0.75 * rewards[:, None]  # three of four took part
    np.testing.assert_allclose(state.interactions, expected)
    assert state.seen.tolist() == [True, True, True, False]
    state = clients.play(method.round(state, np.array([0, 3])), Train).state
    again = gaussian_rewards(np.array(losses)[[0, 3]])
    for row, reward in ((0, again[0]), (3, again[1])):
        for column in (0, 3):
            expected[row, column] = 0.5 * expected[row, column] + 0.5 * reward
    np.testing.assert_allclose(state.interactions, expected)


def test_as_shares_the_rewards_of_a_round_sum_to_one():
    losses = [[1.0], [2.0], [3.0]]
    clients, method = (
        AnsweringClients([0.0] * 3, step_losses=losses),
        FedGwc(setup(3), weight_step=1.0),
    )
    state = clients.play(method.round(method.begin(), everybody(3)), Train).state
    shares = np.array([exp(-0.5), 1, exp(-0.5)]) / (1 + 2 * exp(-0.5))
    np.testing.assert_allclose(state.interactions, np.tile(shares[:, None], 3))


def test_once_settled_a_group_is_split_and_each_part_goes_on_with_a_copy():
    targets = [0.0] * 4 + [8.0] * 4
    clients, method = AnsweringClients(targets, step_losses=TWO_KINDS), FedGwc(setup(8))
    first = clients.play(method.round(method.begin(), EIGHT), Train)
    assert clients.asked[0].report_losses
    assert weights(clients.asked[0].models) == [SAME]
    assert weights(first.state.models) == [4.0]  # P has just moved from zero
    second = clients.play(method.round(first.state, EIGHT), Train)
    assert second.notes == {"clusters": 2}
    assert len(set(second.assignment[:4])) == len(set(second.assignment[4:])) == 1
    assert weights(second.state.models) == [4.0, 4.0]
    assert method.evaluation(second.state, EIGHT).index.tolist() == second.assignment.tolist()
    third = clients.play(method.round(second.state, EIGHT), Train)
    assert sorted(weights(third.state.models)) == [0.0, 8.0]


def test_a_group_waits_until_everybody_has_taken_part():
    clients, method = (
        AnsweringClients([0.0] * 8, step_losses=TWO_KINDS),
        FedGwc(setup(8), weight_step=1.0),
    )
    state = method.begin()
    for _ in range(4):
        state = clients.play(method.round(state, EIGHT[1:]), Train).state
        assert len(state.change) == 1
    assert state.calm[0] > 1
    state = clients.play(method.round(state, EIGHT), Train).state  # the eighth's rewards are new
    state = clients.play(method.round(state, EIGHT), Train).state
    assert len(state.change) == 2


def test_with_few_participants_it_waits_as_many_rounds_as_everybody_needs():
    clients, method = (
        AnsweringClients([0.0] * 8, step_losses=TWO_KINDS),
        FedGwc(setup(8), weight_step=1.0),
    )
    half, state = [np.array([0, 1, 4, 5]), np.array([2, 3, 6, 7])], method.begin()
    calm = []
    for number in range(5):
        state = clients.play(method.round(state, half[number % 2]), Train).state
        calm.append((int(state.calm[0]), len(state.change)))
    assert calm[:3] == [(0, 1), (0, 1), (1, 1)]
    assert calm[3][0] == 0  # two rounds in a row: it has looked for parts, and begins anew


def test_seen_by_columns_nothing_is_split_when_everybody_takes_part():
    clients = AnsweringClients([0.0] * 8, step_losses=TWO_KINDS)
    method = FedGwc(setup(8), perception="columns")
    state = method.begin()
    for _ in range(4):
        state = clients.play(method.round(state, EIGHT), Train).state
    assert len(state.change) == 1


def test_a_lone_participant_changes_nothing_but_the_model():
    clients, method = AnsweringClients([3.0] * 8, step_losses=TWO_KINDS), FedGwc(setup(8))
    state = clients.play(method.round(method.begin(), np.array([2])), Train).state
    assert not state.interactions.any()
    assert weights(state.models) == [3.0]


def test_a_round_in_which_nobody_answers_leaves_all_as_it_was():
    clients = AnsweringClients([0.0] * 8, step_losses=TWO_KINDS, missing={Train: EIGHT})
    method = FedGwc(setup(8))
    outcome = clients.play(method.round(method.begin(), EIGHT), Train)
    assert weights(outcome.state.models) == [SAME]
    assert outcome.clients.tolist() == []


def test_a_client_that_joins_later_trains_the_model_on_which_it_loses_least():
    targets = [0.0] * 4 + [8.0] * 4 + [7.0, 1.0]
    losses = np.concatenate([TWO_KINDS, TWO_KINDS[:2]])
    clients, state = AnsweringClients(targets, step_losses=losses), FedGwc(setup(8)).begin()
    for _ in range(3):
        state = clients.play(FedGwc(setup(8)).round(state, EIGHT), Train).state
    assert sorted(weights(state.models)) == [0.0, 8.0]
    larger = FedGwc(setup(10))
    outcome = clients.play(larger.round(state, everybody(9)), Losses, Train)
    assert clients.asked[0].clients.tolist() == [8]
    assert outcome.state.model_of[8] == state.model_of[4]
    assert outcome.state.model_of[9] == -1
    assert outcome.state.interactions.shape == (10, 10)
    assert outcome.state.seen.tolist() == [True] * 9 + [False]
    assert larger.evaluation(outcome.state, everybody(10)).clients.tolist() == list(range(9))


def test_a_newcomer_gets_the_model_of_least_loss():
    clients, method = AnsweringClients([0.0, 8.0]), FedGwc(setup(2))
    state = method.begin()
    assert clients.play(method.newcomers(state, everybody(2)), Losses).models.tolist() == [0, 0]
    assert method.server_models(state) is state.models


# -------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": "plane"}, "unknown rewards 'plane': did you mean 'plain'"),
        ({"perception": "row"}, "unknown perception 'row': did you mean 'rows'"),
        ({"kernel": 0.0}, "kernel must be above zero, not 0.0"),
        ({"tolerance": float("nan")}, "tolerance must be above zero"),
        ({"weight_step": 0.0}, r"weight_step must be in \(0, 1\], not 0.0"),
        ({"weight_step": 1.5}, r"weight_step must be in \(0, 1\], not 1.5"),
        ({"most_parts": 1}, "most_parts must be 2 or more"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        FedGwc(setup(6), **options)


# -------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("seed", SEEDS)
def test_its_groups_are_served_better_than_one_model_serves_all(seed):
    result = digits("fedgwc", seed)
    assert result.ari > 0.2
    assert result.accuracy > digits("fedavg", seed).accuracy + 0.2


def test_losses_of_all_steps_go_up():
    result, plain = digits("fedgwc", rounds=2), digits("fedavg", rounds=2)
    clients = result._progress.prepared.clients.clients
    steps = sum(-(-len(client.train[0]) // 10) for client in clients)
    extra = result.history["bytes_up"] - plain.history["bytes_up"]
    assert extra.tolist() == [8 * steps] * 2
