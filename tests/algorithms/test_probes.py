"""A first grouping by probe models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.algorithms import Clove
from clove.algorithms.probes import Probes, cluster_starts
from clove.errors import CloveWarning
from clove.federation import Losses, LossVectors, Recall, Seeded, Train

from .scripted import (
    SAME,
    TRAINING,
    ScriptedClients,
    everybody,
    models,
    relaxed,
    setup,
    weights,
)

TARGETS = [0.0, 1.0, 2.0, 9.0, 10.0, 11.0]
GROUPS = [0, 0, 0, 1, 1, 1]
SIX = everybody(6)
KINDS = {"trained": (Train, Losses, Train), "random": (Losses, Train)}
each_kind = pytest.mark.parametrize(("probes", "questions"), KINDS.items(), ids=KINDS)


def first_round(clients, probes, groups=2, seed=0, cohort=None, **options):
    clove = Clove(setup(len(clients.targets), groups, seed), probes=probes, **options)
    cohort = everybody(len(clients.targets)) if cohort is None else cohort
    return clients.play(clove.round(clove.begin(), cohort), *KINDS[probes])


# ---------------------------------------------------------------------------------- both kinds


@each_kind
def test_probes_serve_the_first_round_only(probes, questions):
    clove, clients = Clove(setup(6, 2), probes=probes), ScriptedClients(TARGETS)
    first = clients.play(clove.round(clove.begin(), SIX), *questions)
    assert first.assignment.tolist() == GROUPS
    assert first.notes["clusters"] == 2
    second = clients.play(clove.round(first.state, SIX), Losses, Train)
    assert clients.asked[0].models is first.state.models
    assert second.assignment.tolist() == GROUPS


@each_kind
def test_probes_come_before_a_random_first_round(probes, questions):
    clove = Clove(setup(6, 2), probes=probes, first_round="random")
    ScriptedClients(TARGETS).play(clove.round(clove.begin(), SIX), *questions)


@each_kind
def test_where_it_is_unknown_probes_settle_the_number_of_groups_for_good(probes, questions):
    clove = Clove(setup(6), probes=probes, max_models=5)
    clients = ScriptedClients(TARGETS)
    first = clients.play(clove.round(clove.begin(), SIX), *questions)
    assert first.notes["clusters"] == first.state.clusters == 2
    assert len(weights(first.state.models)) == 2
    clients.targets = np.array([0.0, 0.0, 5.0, 5.0, 10.0, 10.0])  # three groups, too late
    second = clients.play(clove.round(first.state, SIX), Losses, Train)
    assert second.notes == {"clusters": 2}


@each_kind
def test_newcomers_right_after_the_probes_are_measured_on_these(probes, questions):
    clove = Clove(setup(6, 2), probes=probes, early_stopping=True, stable_rounds=1)
    clients = ScriptedClients(TARGETS)
    first = clients.play(clove.round(clove.begin(), np.array([0, 1, 3, 4])), *questions)
    probed = clients.asked[-2].models
    second = clients.play(clove.round(first.state, SIX), Recall, Losses, Train)
    assert clients.asked[1].clients.tolist() == [2, 5]
    assert clients.asked[1].models == probed
    assert second.assignment.tolist() == GROUPS
    found = clients.play(clove.newcomers(first.state, np.array([5, 2])), Losses)
    assert found.models.tolist() == [1, 0]


@each_kind
def test_after_another_clustering_newcomers_are_measured_on_its_models(probes, questions):
    clove, clients = Clove(setup(6, 2), probes=probes), ScriptedClients(TARGETS)
    state = clients.play(clove.round(clove.begin(), SIX), *questions).state
    before = state.models
    state = clients.play(clove.round(state, SIX), Losses, Train).state
    clients.play(clove.newcomers(state, SIX), Losses)
    assert clients.asked[0].models is before


@each_kind
def test_batch_statistics_are_used_on_probes_as_well(probes, questions):
    clients = ScriptedClients(TARGETS)
    first_round(clients, probes, batch_norm="batch")
    assert clients.asked[-2].batch_statistics == TRAINING.batch_size


@each_kind
def test_a_client_whose_losses_on_probes_are_not_finite_sits_the_round_out(probes, questions):
    clients = ScriptedClients(TARGETS, losses=[[k, 1.0] for k in [0.0, 0.1, np.nan, 8.0, 8.1, 8.2]])
    with pytest.warns(CloveWarning, match="client 2 "):
        outcome = first_round(clients, probes, probe_models=2)
    assert outcome.notes["set_aside"] == [2]
    assert outcome.clients.tolist() == [0, 1, 3, 4, 5]
    assert outcome.assignment.tolist() == [0, 0, 1, 1, 1]


@each_kind
def test_a_single_participant_is_one_group(probes, questions):
    outcome = first_round(ScriptedClients(TARGETS), probes, cohort=np.array([4]))
    assert outcome.assignment.tolist() == [0]
    assert outcome.state.clusters == len(weights(outcome.state.models)) == 2


@each_kind
def test_after_a_round_in_which_nobody_answers_the_probes_are_tried_again(probes, questions):
    clove = Clove(setup(6), probes=probes, max_models=5)
    clients = ScriptedClients(TARGETS, missing={Train: SIX, Losses: SIX})
    nothing = (Train, Train) if probes == "trained" else (Losses, Train)
    state = clients.play(clove.round(clove.begin(), SIX), *nothing).state
    clients.missing = {}
    outcome = clients.play(clove.round(state, SIX), *questions)
    assert outcome.state.clusters == 2


# ------------------------------------------------------------------------------- random probes


def test_random_probes_travel_as_a_seed():
    clients = ScriptedClients(TARGETS)
    first_round(clients, "random")
    assert isinstance(clients.asked[0].models, Seeded)
    assert clients.asked[0].models.count == 100
    first_round(clients, "random", probe_models=12, seed=1)
    assert clients.asked[0].models.count == 12


def test_every_run_has_random_probes_of_its_own():
    clients, seeds = ScriptedClients(TARGETS), []
    for seed in (0, 0, 1):
        first_round(clients, "random", seed=seed)
        seeds.append(clients.asked[0].models.seed)
    assert seeds[0] == seeds[1] != seeds[2]


def test_after_random_probes_groups_train_the_initial_models():
    clients = ScriptedClients(TARGETS)
    first_round(clients, "random")
    assert weights(clients.asked[1].models) == [0.0, 10.0]
    assert clients.asked[1].start.tolist() == GROUPS


# ------------------------------------------------------------------------------ trained probes


def test_a_probe_is_the_same_initial_model_trained_on_a_share_of_one_clients_data():
    clients = ScriptedClients(TARGETS)
    first_round(clients, "trained", probe_models=4, probe_epochs=9, probe_share=0.6)
    probing, losses, train = clients.asked
    assert weights(probing.models) == [SAME]
    assert probing.start.tolist() == [0, 0, 0, 0]
    assert probing.share == 0.6
    assert probing.training.epochs == 9
    assert probing.training.learning_rate == TRAINING.learning_rate
    assert probing.training.purpose != train.training.purpose
    assert not probing.assigns
    assert probing.reduce is None
    assert weights(losses.models) == [TARGETS[prober] for prober in probing.clients]
    assert losses.clients.tolist() == SIX.tolist()
    assert train.training is TRAINING


@relaxed
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sets(st.integers(0, 9), min_size=1))
def test_probers_are_drawn_from_the_participants_each_once(seed, number, cohort):
    clients, cohort = ScriptedClients(np.arange(10.0)), np.array(sorted(cohort))
    first_round(clients, "trained", seed=seed, cohort=cohort, probe_models=number)
    probers = clients.asked[0].clients.tolist()
    assert set(probers) <= set(cohort.tolist())
    assert len(set(probers)) == len(probers) == min(number, len(cohort))


def test_who_probes_is_drawn_by_the_seed():
    clients, drawn = ScriptedClients(np.arange(20.0)), []
    for seed in (0, 0, 1):
        first_round(clients, "trained", seed=seed)
        drawn.append(clients.asked[0].clients.tolist())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("options", "number"),
    [({"groups": 3}, 9), ({"groups": None, "max_models": 7}, 7), ({"probe_models": 5}, 5)],
    ids=str,
)
def test_there_are_thrice_as_many_probes_as_groups_or_as_many_as_groups_may_be(options, number):
    clients = ScriptedClients(np.arange(20.0))
    first_round(clients, "trained", **options)
    assert len(weights(clients.asked[1].models)) == number


def test_only_probers_measure_one_entry_on_data_held_back_their_own():
    clients = ScriptedClients(TARGETS)
    first_round(clients, "trained", probe_models=3, probe_share=0.6)
    probing, losses, _ = clients.asked
    own = {int(prober): place for place, prober in enumerate(probing.clients)}
    assert losses.unseen.model.tolist() == [own.get(client, -1) for client in range(6)]
    assert losses.unseen.share == 0.6


def test_probes_trained_on_all_data_leave_nothing_to_hold_back():
    clients = ScriptedClients(TARGETS)
    first_round(clients, "trained", probe_share=1.0)
    assert clients.asked[0].share == 1.0
    assert clients.asked[1].unseen is None


def test_groups_start_from_the_weighted_mean_of_their_own_members_probes():
    clients = ScriptedClients(TARGETS, samples=[1, 1, 2, 2, 1, 1])
    first_round(clients, "trained")
    assert weights(clients.asked[2].models) == [5 / 4, 39 / 4]


def test_models_beyond_the_groups_found_stay_as_they_began():
    clients = ScriptedClients([4.0, 4.0, 4.0, 6.0])
    first_round(clients, "trained", groups=4)
    assert weights(clients.asked[2].models) == [4.0, 6.0, 20.0, 30.0]


def test_probers_that_do_not_reply_are_left_out():
    clients = ScriptedClients(TARGETS, missing={Train: [1, 4]})
    outcome = first_round(clients, "trained", groups=2)
    assert weights(clients.asked[1].models) == [0.0, 2.0, 9.0, 11.0]
    assert clients.asked[1].unseen.model.tolist() == [0, -1, 1, 2, -1, 3]
    assert outcome.clients.tolist() == [0, 2, 3, 5]


def test_with_replies_in_any_order_everybody_gets_its_own_groups_model():
    clients = ScriptedClients(TARGETS, backwards=True)
    outcome = first_round(clients, "trained")
    new = np.array(weights(outcome.state.models))[outcome.assignment]
    assert dict(zip(outcome.clients.tolist(), new, strict=True)) == dict(
        zip(range(6), [1.0] * 3 + [10.0] * 3, strict=True)
    )


# ----------------------------------------------------------------------------- where groups start

PROBES = Probes(models(1.0, 2.0, 3.0), np.array([5, 6, 7]), np.array([1.0, 1.0, 2.0]))


def test_a_group_without_probers_starts_from_the_probe_it_loses_least_on():
    vectors = LossVectors(
        np.array([5, 6, 8, 9]),
        np.array([[0.0, 0.0, 9.0], [0.0, 0.0, 9.0], [4.0, 1.0, 2.0], [4.0, 9.0, 2.0]]),
    )
    starts = cluster_starts(PROBES, vectors, np.array([0, 0, 1, 1]))
    assert weights(starts) == [1.5, 3.0]  # by the sum: 8, 10 and 4


def test_the_probe_of_a_client_that_was_not_grouped_is_no_ones_own():
    vectors = LossVectors(np.array([5, 7]), np.zeros((2, 3)))
    assert weights(cluster_starts(PROBES, vectors, np.array([0, 1]))) == [1.0, 3.0]


def test_two_groups_may_start_from_the_same_probe():
    vectors = LossVectors(np.array([1, 2]), np.array([[3.0, 0.0, 3.0]] * 2))
    assert weights(cluster_starts(PROBES, vectors, np.array([0, 1]))) == [2.0, 2.0]
