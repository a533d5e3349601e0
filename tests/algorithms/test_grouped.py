from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clove.algorithms import Setup
from clove.algorithms.grouped import Averaging, number_of_models, random_assignment, train_groups
from clove.errors import CloveError
from clove.federation import Gradients, Train, Trained
from clove.runs.loop import drive

from .scripted import TRAINING, ScriptedClients, everybody, models, relaxed, weights

START = np.array([0, 0, 1, 1])
EVERYBODY = everybody(4)
both_ways = pytest.mark.parametrize(
    ("what", "question"), [("models", Train), ("gradients", Gradients)], ids=str
)


def federation(**options):
    return ScriptedClients([1.0, 5.0, 2.0, 4.0], samples=[3, 1, 1, 1], **options)


def trained_groups(clients, averaging, *expected, stack=None, stable_rounds=0):
    stack = models(10.0, 20.0, 30.0) if stack is None else stack
    asking = train_groups(stack, START, EVERYBODY, TRAINING, averaging, stable_rounds)
    return clients.play(asking, *expected)


# ------------------------------------------------------------------------------------- averaging


def test_each_model_becomes_the_mean_of_its_clients_weighted_by_their_samples():
    new, _ = trained_groups(federation(), Averaging(), Train)
    assert weights(new)[:2] == [2.0, 3.0]  # (3·1 + 1·5) / 4 and (2 + 4) / 2


@both_ways
def test_a_model_nobody_trains_stays_as_it_is(what, question):
    new, _ = trained_groups(federation(), Averaging(what), question)
    assert weights(new)[2] == 30.0


@both_ways
def test_when_nobody_replies_every_model_stays_as_it_is(what, question):
    clients = federation(missing={question: EVERYBODY})
    new, trained = trained_groups(clients, Averaging(what), question)
    assert weights(new) == [10.0, 20.0, 30.0]
    assert len(trained.clients) == 0


@both_ways
def test_clients_train_where_they_start_and_are_averaged_with_those_who_start_there(what, question):
    clients = federation()
    trained_groups(clients, Averaging(what), question)
    asked = clients.asked[0]
    assert asked.start is START
    assert asked.reduce is START
    assert asked.clients is EVERYBODY
    assert asked.training is TRAINING


@pytest.mark.parametrize("stable_rounds", [0, 3])
def test_only_methods_with_stability_have_clients_note_their_assignment(stable_rounds):
    clients = federation()
    trained_groups(clients, Averaging(), Train, stable_rounds=stable_rounds)
    assert clients.asked[0].assigns == (stable_rounds > 0)
    assert clients.asked[0].stable_rounds == stable_rounds


def test_the_servers_plain_step_goes_along_the_mean_gradient():
    new, _ = trained_groups(federation(), Averaging("gradients", "sgd"), Gradients)
    # Step 0.5; mean gradients 10 − 2 and 20 − 3, weighted by samples as above.
    assert weights(new) == [6.0, 11.5, 30.0]


def test_the_servers_adam_step_has_one_size_in_the_gradients_direction():
    stack = models(10.0, -20.0, 30.0)
    new, _ = trained_groups(federation(), Averaging("gradients", "adam"), Gradients, stack=stack)
    assert weights(new) == pytest.approx([9.5, -19.5, 30.0])


def test_buffers_that_come_with_gradients_are_taken_as_values():
    stack = models(10.0, 20.0) | {
        "mean": torch.zeros(2, 1),
        "seen": torch.tensor([5, 6]),
    }
    answer = Trained(
        EVERYBODY,
        np.ones(4),
        models(2.0, 4.0) | {"mean": torch.tensor([[0.3], [0.7]]), "seen": torch.tensor([8, 9])},
        weights=np.array([2.0, 2.0]),
        values=frozenset({"mean", "seen"}),
    )
    asking = train_groups(stack, START, EVERYBODY, TRAINING, Averaging("gradients"))
    new, _ = drive(asking, lambda question: answer)
    assert weights(new) == [9.0, 18.0]
    assert new["mean"][:, 0].tolist() == pytest.approx([0.3, 0.7])
    assert new["seen"].tolist() == [8, 9]
    assert weights(stack) == [10.0, 20.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"what": "gradient"}, "unknown averaging 'gradient': did you mean 'gradients'"),
        ({"server_optimizer": "adan"}, "unknown server_optimizer 'adan': did you mean 'adam'"),
    ],
    ids=str,
)
def test_an_unknown_way_to_average_is_refused_with_the_nearest(options, message):
    with pytest.raises(CloveError, match=message):
        Averaging(**options)


# ------------------------------------------------------------------------------ number of models


def knowing(groups: int | None) -> Setup:
    return Setup(10, groups, TRAINING, 0, lambda count, how: {})


def test_the_number_of_models_is_as_told_else_that_of_the_true_groups():
    assert number_of_models("m", 1, knowing(groups=5)) == 1
    assert number_of_models("m", None, knowing(groups=5)) == 5


def test_without_any_number_the_error_says_what_to_set():
    with pytest.raises(CloveError, match=r"ifca needs the number of models.*Set models=K"):
        number_of_models("ifca", None, knowing(groups=None))


def test_no_models_at_all_are_refused():
    with pytest.raises(CloveError, match="at least one model, not 0"):
        number_of_models("ifca", 0, knowing(groups=5))


def test_a_few_more_models_than_clients_are_fine_and_millions_are_not():
    assert number_of_models("ifca", 12, knowing(groups=5)) == 12
    with pytest.raises(CloveError, match="1000000 models are far more than the 10 clients can use"):
        number_of_models("ifca", 10**6, knowing(groups=5))


# ---------------------------------------------------------------------------- random assignment

seeds, sizes = st.integers(0, 2**32 - 1), st.integers(1, 12)


@relaxed
@given(seeds, sizes, sizes)
def test_at_random_no_model_is_empty_where_clients_suffice_and_else_none_is_shared(
    seed, clients, number
):
    drawn = random_assignment(seed, everybody(clients), number)
    assert len(drawn) == clients
    assert ((drawn >= 0) & (drawn < number)).all()
    assert len(np.unique(drawn)) == min(clients, number)


@relaxed
@given(seeds, sizes, sizes)
def test_a_random_assignment_is_repeated_by_its_seed(seed, clients, number):
    drawn = [random_assignment(seed, everybody(clients), number) for _ in range(2)]
    assert np.array_equal(*drawn)


def test_random_assignments_of_different_seeds_differ():
    drawn = {tuple(random_assignment(seed, everybody(20), 4)) for seed in range(10)}
    assert len(drawn) == 10
