"""CLoVE's round, without any engine: what it asks, and what it makes of the answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove.algorithms import Clove
from clove.clustering import LossVectorClustering
from clove.errors import CloveWarning
from clove.federation import Evaluate, Gradients, Losses, Recall, Train

from .scripted import TRAINING, ScriptedClients, everybody, relaxed, setup, weights

# Two groups, whose targets lie near the initial models 0 and 10.
TARGETS = [0.0, 1.0, 2.0, 9.0, 10.0, 11.0]
SIX = everybody(6)


def method(clients: int = 6, groups: int | None = 2, **options) -> Clove:
    return Clove(setup(clients, groups), **options)


def first_round(clients: ScriptedClients, *expected: type, groups: int | None = 2, **options):
    clove = method(len(clients.targets), groups, **options)
    asking = clove.round(clove.begin(), everybody(len(clients.targets)))
    return clients.play(asking, *(expected or (Losses, Train)))


# --------------------------------------------------------------------------------- the questions


def test_it_asks_everybodys_losses_on_all_models_and_then_trains_as_assigned():
    clove, clients = method(groups=3), ScriptedClients(TARGETS)
    state, cohort = clove.begin(), np.array([0, 2, 3, 5])
    outcome = clients.play(clove.round(state, cohort), Losses, Train)
    losses, train = clients.asked
    assert losses.models is train.models is state.models
    assert weights(losses.models) == [0.0, 10.0, 20.0]
    assert losses.clients.tolist() == train.clients.tolist() == cohort.tolist()
    assert losses.batch_statistics == 0
    assert losses.unseen is None
    assert train.start.tolist() == train.reduce.tolist() == outcome.assignment.tolist()
    assert train.training is TRAINING
    assert train.assigns
    assert train.stable_rounds == 3


def test_batch_normalisation_may_use_the_batches_own_statistics_in_loss_vectors():
    clients = ScriptedClients(TARGETS)
    first_round(clients, batch_norm="batch")
    assert clients.asked[0].batch_statistics == TRAINING.batch_size


@pytest.mark.parametrize("options", [{}, {"models": 4}, {"max_models": 4}], ids=str)
def test_it_begins_with_as_many_models_as_there_are_or_may_be_groups(options):
    clove = method(groups=2, **options)
    models = clove.server_models(clove.begin())
    assert weights(models) == [0.0, 10.0, 20.0, 30.0][: 4 if options else 2]


def test_initial_models_are_made_the_way_one_says():
    assert weights(method(initial_models="same").begin().models) == [7.0, 7.0]


def test_everybody_is_judged_by_the_model_it_was_last_assigned_to():
    clove = method()
    state = clove.begin()
    assert clove.evaluation(state, SIX) == Evaluate(state.models, SIX, index=None)


# ----------------------------------------------------------------------- grouping and matching


@relaxed
@given(
    st.permutations(range(4)),
    st.lists(st.integers(0, 3), min_size=5, max_size=20),
    st.integers(0, 2**32 - 1),
)
def test_groups_that_do_well_on_one_model_each_get_just_that_model(models, groups, seed):
    groups = np.array([0, 1, 2, 3, *groups])
    losses = np.full((len(groups), 4), 2.0)
    losses[np.arange(len(groups)), np.array(models)[groups]] = 0.5
    losses += 0.05 * np.random.default_rng(seed).random(losses.shape)
    outcome = first_round(ScriptedClients(groups, losses=losses), groups=4)
    assert outcome.assignment.tolist() == np.array(models)[groups].tolist()
    assert outcome.loss_vectors.losses.tolist() == losses.tolist()
    assert outcome.notes == {"clusters": 4}


def test_new_models_are_means_over_the_groups_found():
    outcome = first_round(ScriptedClients(TARGETS, samples=[1, 1, 2, 2, 1, 1]))
    assert outcome.assignment.tolist() == [0, 0, 0, 1, 1, 1]
    assert weights(outcome.state.models) == [5 / 4, 39 / 4]


# Both groups lose least on model 0, the second by far; the first client is of the first group.
GREEDY = [[4.0, 5.0], [4.1, 5.1], [1.0, 8.0], [1.1, 8.1]]


def test_two_groups_never_share_a_model_even_if_both_like_it_best():
    outcome = first_round(ScriptedClients([0, 0, 1, 1], losses=GREEDY))
    assert outcome.assignment.tolist() == [1, 1, 0, 0]


def test_without_matching_the_first_group_gets_the_first_model():
    outcome = first_round(ScriptedClients([0, 0, 1, 1], losses=GREEDY), matching="in-order")
    assert outcome.assignment.tolist() == [0, 0, 1, 1]


def test_matching_by_overlap_asks_what_clients_had_and_lets_them_keep_it():
    clients = ScriptedClients([0, 0, 1, 1], losses=GREEDY)
    clients.memory.note_assignments(np.array([0, 1, 2]), np.array([0, 0, 1]))
    outcome = first_round(clients, Losses, Recall, Train, matching="overlap")
    assert clients.asked[1].clients.tolist() == [0, 1, 2, 3]
    assert outcome.assignment.tolist() == [0, 0, 1, 1]


def test_matching_by_overlap_takes_clients_that_do_not_recall_for_new_ones():
    clients = ScriptedClients([0, 0, 1, 1], losses=GREEDY, missing={Recall: [0, 1, 2, 3]})
    clients.memory.note_assignments(np.array([0, 1]), np.array([0, 0]))
    outcome = first_round(clients, Losses, Recall, Train, matching="overlap")
    assert outcome.assignment.tolist() == [1, 1, 0, 0]


# Who finds the first model easier, and who the second; and half of them have harder data.
HARD = [[1.0, 2.0], [2.0, 1.0], [101.0, 102.0], [102.0, 101.0]]
# Ratios tell groups apart that differ little in size beside a third.
SMALL = [[1e-6, 1.0], [2e-6, 1.0], [1e-2, 1.0], [2e-2, 1.0]]


@pytest.mark.parametrize(
    ("losses", "transform", "together"),
    [
        (HARD, "identity", [0, 0, 1, 1]),
        (HARD, "row", [0, 1, 0, 1]),
        (SMALL, "log", [0, 0, 1, 1]),
        ([[0.0, 1.0], [1.0, 1.0], [2.2, 1.0]], "identity", [0, 0, 1]),
        ([[0.0, 1.0], [1.0, 1.0], [2.2, 1.0]], "sqrt", [0, 1, 1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_clustered_are_the_losses_as_transformed(losses, transform, together):
    clients = ScriptedClients(np.zeros(len(losses)), losses=losses)
    outcome = first_round(clients, transform=transform, matching="in-order")
    assert outcome.assignment.tolist() == together


def test_matching_uses_the_losses_as_they_are_whatever_is_clustered():
    # 3 + 10 is less than 1 + 13, though by logarithms it is more.
    losses = [[1.0, 3.0], [1.0, 3.0], [10.0, 13.0], [10.0, 13.0]]
    outcome = first_round(ScriptedClients([0, 0, 1, 1], losses=losses), transform="log")
    assert outcome.assignment.tolist() == [1, 1, 0, 0]


# Where to cut these in two is a matter of taste.
TASTES = {
    "kmeans": [0, 0, 1, 1, 1, 1],
    "agglomerative": [0, 1, 1, 1, 1, 1],
    "finch": [0, 0, 0, 0, 1, 1],
}


@pytest.mark.parametrize(("clustering", "together"), TASTES.items(), ids=TASTES)
def test_clients_are_grouped_by_the_clustering_one_names(clustering, together):
    losses = [[loss, 0.0] for loss in (1.0, 8.0, 13.0, 15.0, 19.0, 21.0)]
    clients = ScriptedClients(TARGETS, losses=losses)
    outcome = first_round(clients, clustering=clustering, matching="in-order")
    assert outcome.assignment.tolist() == together


def test_what_k_means_draws_comes_from_the_runs_seed_alone():
    losses = np.random.default_rng(0).random((40, 9))  # no groups at all: any start ends elsewhere
    found = []
    for elsewhere in range(5):
        np.random.seed(elsewhere)
        clients = ScriptedClients(np.zeros(40), losses=losses)
        found.append(first_round(clients, groups=9, n_init=1).assignment.tolist())
    assert found == found[:1] * 5


# --------------------------------------------------------------------- few, or all alike


def test_fewer_participants_than_models_get_a_model_each_and_the_rest_stay():
    outcome = first_round(ScriptedClients([19.0, 1.0]), groups=4)
    assert outcome.assignment.tolist() == [2, 0]
    assert weights(outcome.state.models) == [1.0, 10.0, 19.0, 30.0]
    assert outcome.notes["clusters"] == 2


def test_a_single_participant_gets_the_model_it_likes_best():
    outcome = first_round(ScriptedClients([12.0]), groups=3)
    assert outcome.assignment.tolist() == [1]
    assert weights(outcome.state.models) == [0.0, 12.0, 20.0]
    assert outcome.state.round == 1


@pytest.mark.parametrize("options", [{"groups": 3}, {"max_models": 3}], ids=str)
def test_clients_that_nothing_tells_apart_are_one_group(options):
    outcome = first_round(ScriptedClients([21.0] * 5), **options)
    assert outcome.assignment.tolist() == [2] * 5
    assert outcome.notes["clusters"] == 1


# ----------------------------------------------------------------------------- unknown number


def test_where_their_number_is_unknown_groups_are_counted_anew_each_round():
    clove = method(9, None, max_models=6)
    clients = ScriptedClients([0.0, 0.5, 1.0, 20.0, 20.5, 21.0, 40.0, 40.5, 41.0])
    first = clients.play(clove.round(clove.begin(), everybody(9)), Losses, Train)
    assert first.notes["clusters"] == 3
    assert first.assignment.tolist() == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    clients.targets = clients.targets.clip(max=20.5)  # now the last two groups are one
    second = clients.play(clove.round(first.state, everybody(9)), Losses, Train)
    assert second.notes["clusters"] == 2
    assert second.state.round == 2


def test_there_are_never_more_groups_than_models():
    clients = ScriptedClients([0.0, 1.0, 20.0, 21.0, 40.0, 41.0])
    assert first_round(clients, groups=None, max_models=2).notes["clusters"] == 2


@pytest.mark.parametrize(("selection", "clusters"), [("merge-ratio", 1), ("silhouette", 2)])
def test_how_the_number_is_chosen_decides_whether_there_may_be_but_one_group(selection, clusters):
    clients = ScriptedClients([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    outcome = first_round(clients, groups=None, max_models=2, selection=selection)
    assert outcome.notes["clusters"] == clusters


def test_models_without_a_group_are_left_alone():
    outcome = first_round(ScriptedClients(TARGETS), groups=None, max_models=4)
    assert weights(outcome.state.models) == [1.0, 10.0, 20.0, 30.0]


def test_the_next_best_number_of_groups_is_told():
    outcome = first_round(
        ScriptedClients(TARGETS), groups=None, max_models=4, selection="merge-ratio"
    )
    assert outcome.notes["clusters"] == 2
    assert outcome.notes["runner_up"] in (3, 4)


def test_a_clustering_that_began_with_a_sample_is_noted(monkeypatch):
    # Six clients stand for more than can all be compared with each other.
    whole = LossVectorClustering.__init__.__kwdefaults__
    monkeypatch.setitem(whole, "exact_limit", 4)
    assert first_round(ScriptedClients(TARGETS)).notes["clustering_sample"] == 4
    monkeypatch.setitem(whole, "exact_limit", 6)
    assert "clustering_sample" not in first_round(ScriptedClients(TARGETS)).notes


# --------------------------------------------------------------------------- who does not reply

some = st.sets(st.integers(0, 5))


@relaxed
@given(some, some, st.booleans())
def test_who_sends_no_losses_does_not_train_and_who_does_not_train_does_not_count(
    silent, idle, backwards
):
    missing = {Losses: silent, Train: idle}
    clients = ScriptedClients(TARGETS, missing=missing, backwards=backwards)
    outcome = first_round(clients)
    assert set(clients.asked[1].clients.tolist()) == set(range(6)) - silent
    assert set(outcome.clients.tolist()) == set(range(6)) - silent - idle
    asked = dict(zip(clients.asked[1].clients.tolist(), clients.asked[1].start, strict=True))
    assert outcome.assignment.tolist() == [asked[client] for client in outcome.clients]
    assert outcome.assignment.tolist() == clients.memory.assignments(outcome.clients).tolist()


def test_models_are_averaged_over_those_who_replied():
    outcome = first_round(ScriptedClients(TARGETS, missing={Losses: [0], Train: [5]}))
    assert weights(outcome.state.models) == [1.5, 9.5]


@pytest.mark.parametrize("probes", ["none", "random", "trained"])
def test_a_round_in_which_nobody_answers_leaves_all_as_it_was(probes):
    clove = method(probes=probes)
    silent = ScriptedClients(TARGETS, missing={Losses: SIX, Train: SIX})
    expected = (Train, Train) if probes == "trained" else (Losses, Train)
    state = clove.begin()
    outcome = silent.play(clove.round(state, SIX), *expected)
    assert outcome.state == state
    assert outcome.clients.tolist() == outcome.assignment.tolist() == []
    assert not outcome.stable
    assert outcome.notes == {}
    assert outcome.loss_vectors is None


def test_when_nobody_sends_trained_models_only_the_clustering_is_kept():
    outcome = first_round(ScriptedClients(TARGETS, missing={Train: SIX}))
    assert weights(outcome.state.models) == [0.0, 10.0]
    assert outcome.state.centroids.shape == (2, 2)
    assert not outcome.stable


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_client_whose_losses_are_not_finite_sits_the_round_out(bad):
    losses = (np.array(TARGETS)[:, None] - [0.0, 10.0]) ** 2
    losses[4, 0] = bad
    clients = ScriptedClients(TARGETS, losses=losses)
    with pytest.warns(CloveWarning, match="client 4 sent losses that are not finite"):
        outcome = first_round(clients)
    assert outcome.notes["set_aside"] == [4]
    assert outcome.clients.tolist() == clients.asked[1].clients.tolist() == [0, 1, 2, 3, 5]
    assert outcome.assignment.tolist() == [0, 0, 0, 1, 1]
    assert clients.memory.assignments(np.array([4])) == [-1]


@pytest.mark.parametrize(
    ("probes", "questions"),
    [("none", (Losses, Train)), ("random", (Losses, Train)), ("trained", (Train, Losses, Train))],
    ids=str,
)
def test_when_nobodys_losses_are_finite_the_round_passes_without_training(probes, questions):
    clients = ScriptedClients(TARGETS, losses=np.full((6, 2), np.nan))
    with pytest.warns(CloveWarning, match="client 0, 1, 2, 3, 4, 5 "):
        outcome = first_round(clients, *questions, probes=probes)
    assert clients.asked[-1].clients.tolist() == []
    assert outcome.notes == {"set_aside": [0, 1, 2, 3, 4, 5]}
    assert weights(outcome.state.models) == [0.0, 10.0]


# ------------------------------------------------------------------------- a random first round


def test_a_random_first_round_asks_no_losses_and_uses_every_model():
    clients = ScriptedClients(TARGETS)
    outcome = first_round(clients, Train, groups=3, first_round="random")
    assert set(outcome.assignment) == {0, 1, 2}
    assert outcome.loss_vectors is None
    assert clients.asked[0].assigns


def test_with_more_models_than_clients_a_random_first_round_shares_none():
    outcome = first_round(ScriptedClients([1.0, 2.0]), Train, groups=5, first_round="random")
    assert len(set(outcome.assignment)) == 2


def test_after_a_random_first_round_clients_are_clustered():
    clove, clients = method(first_round="random"), ScriptedClients(TARGETS)
    first = clients.play(clove.round(clove.begin(), SIX), Train)
    clients.play(clove.round(first.state, SIX), Losses, Train)


# ---------------------------------------------------------------------------- gradient averaging


def test_gradient_averaging_takes_one_step_per_group():
    outcome = first_round(ScriptedClients(TARGETS), Losses, Gradients, averaging="gradients")
    # From 0 and 10, half the way to the groups' means.
    assert weights(outcome.state.models) == [0.5, 10.0]


def test_with_adam_at_the_server_the_step_has_a_fixed_size():
    options = {"averaging": "gradients", "server_optimizer": "adam"}
    outcome = first_round(ScriptedClients([1.0, 3.0, 8.0, 9.5]), Losses, Gradients, **options)
    assert weights(outcome.state.models) == pytest.approx([0.5, 9.5])
