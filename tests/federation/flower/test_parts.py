"""One client's part of a question, and answers put together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation.flower.collected import Collected
from clove.federation.flower.parts import Held, OneOf, Whole, for_client, joined
from clove.federation.questions import (
    Evaluate,
    Extras,
    LocalTraining,
    Losses,
    LossVectors,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Train,
    Trained,
    Unseen,
)

COHORT = np.array([2, 5, 7])
START = np.array([0, 3, 1])
TRAINING = LocalTraining()


def stack(models: int, value: float = 0.0) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((models, 4), value), "seen": torch.zeros(models).long()}


def test_a_client_gets_its_own_entries_and_the_rest_as_it_is():
    extras = Extras({"all": torch.ones(3)}, {"own": torch.arange(6).reshape(3, 2)})
    models = stack(5)
    whole = Train(models, START, COHORT, TRAINING, extras=extras, reduce=START, stable_rounds=3)
    own = for_client(whole, 1)
    assert own.clients.tolist() == [5]
    assert own.start.tolist() == [3]
    assert own.reduce is None, "averaging is the server's business"
    assert own.extras.per_client["own"].tolist() == [[2, 3]]
    assert own.extras.shared is extras.shared
    assert own.models is models
    assert own.stable_rounds == 3


def test_an_entry_to_measure_apart_goes_to_those_that_have_one():
    whole = Losses(stack(2), COHORT, unseen=Unseen(np.array([1, -1, 0]), 0.7))
    assert for_client(whole, 0).unseen.model.tolist() == [1]
    assert for_client(whole, 1).unseen is None


def test_a_model_of_a_stack_stands_for_the_stack():
    found = OneOf(5, stack(1, 7.0)).unfold({})
    assert found["weight"].shape == (5, 4)
    assert found["weight"][3].tolist() == [7.0] * 4
    with pytest.raises(CloveError, match="something else was sent"):
        OneOf(5, stack(2)).unfold({})


def test_a_stack_that_is_held_is_found_by_its_name():
    models = stack(2)
    assert Held("models-1").unfold({"models-1": models}) is models
    assert dict(Whole("models-1", models).unfold({})) == models
    with pytest.raises(CloveError, match="models-2 of this round are not here"):
        Held("models-2").unfold({"models-1": models})


def test_answers_are_joined_in_order():
    answers = [LossVectors(COHORT[i : i + 1], np.full((1, 2), float(i))) for i in range(3)]
    whole = joined(answers)
    assert whole.clients.tolist() == COHORT.tolist()
    assert whole.losses.tolist() == [[0, 0], [1, 1], [2, 2]]


def trained(client: int, value: float, samples: float = 1.0) -> Trained:
    return Trained(
        np.array([client]), np.array([samples]), stack(1, value), stable=np.array([True])
    )


def test_means_do_not_depend_on_the_order_of_arrival():
    question = Train(stack(2), START, COHORT, TRAINING, reduce=np.array([0, 1, 0]))
    values = [0.1, 0.7, 0.3]
    found = []
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        collected = Collected(question, rated=True)
        for place in order:
            collected.add(place, trained(COHORT[place], values[place], 3.0 + place))
        found.append(collected.answer())
    for one in found:
        assert one.clients.tolist() == COHORT.tolist()
        assert one.weights.tolist() == [8.0, 4.0]
        assert torch.equal(one.models["weight"], found[0].models["weight"])
    torch.testing.assert_close(found[0].models["weight"][0, 0].item(), (0.1 * 3 + 0.3 * 5) / 8)


def test_early_answers_wait_and_then_are_let_go():
    question = Train(stack(2), START, COHORT, TRAINING, reduce=np.array([0, 1, 0]))
    collected = Collected(question, rated=True)
    collected.add(2, trained(7, 1.0))
    assert collected._answers[2].models is not None
    collected.add(0, None)
    collected.add(1, trained(5, 2.0))
    assert all(one.models is None for one in collected._answers.values())
    answer = collected.answer()
    assert answer.clients.tolist() == [5, 7]
    assert answer.models["weight"][:, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("question", "empty"),
    [
        (Losses(stack(4), COHORT), LossVectors(COHORT[:0], np.zeros((0, 4)))),
        (Losses(Seeded(1, 9), COHORT), LossVectors(COHORT[:0], np.zeros((0, 9)))),
        (Recall(COHORT), Recalled(COHORT[:0], COHORT[:0])),
        (Evaluate(stack(1), COHORT), Scores(COHORT[:0], np.zeros(0), np.zeros(0))),
        (
            Train(stack(1), START, COHORT, TRAINING, reduce=START, assigns=True, stable_rounds=2),
            Trained(COHORT[:0], np.zeros(0), None, np.zeros(4), np.zeros(0, dtype=bool)),
        ),
    ],
)
def test_a_question_nobody_answers_has_an_empty_answer(question, empty):
    collected = Collected(question, rated=True)
    for place in range(3):
        collected.add(place, None)
    answer = collected.answer()
    assert type(answer) is type(empty)
    for name, value in vars(empty).items():
        np.testing.assert_array_equal(getattr(answer, name), value)
