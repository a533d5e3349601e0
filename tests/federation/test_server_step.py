from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.federation import LocalTraining, Trained, averaged, descended

from .worlds import assert_identical

MODELS = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "seen": torch.tensor([5, 6])}
BEFORE = {name: tensor.clone() for name, tensor in MODELS.items()}
ANSWER = {"weight": torch.tensor([[0.0, 0.0], [2.0, -10.0]]), "seen": torch.tensor([0, 9])}
TRAINING = LocalTraining("adam", learning_rate=0.1, momentum=0.9, weight_decay=0.5)


@pytest.fixture(autouse=True)
def untouched():
    """Whatever a server step does, it does to a new stack."""
    yield
    assert_identical(MODELS, BEFORE)


def answer(weights=(0.0, 7.0), models=ANSWER) -> Trained:
    return Trained(
        clients=np.array([3]),
        samples=np.array([7.0]),
        models=models,
        weights=None if weights is None else np.array(weights),
        values=frozenset({"seen"}),
    )


def test_a_group_takes_the_mean_of_what_it_trained_and_others_keep_theirs():
    result = averaged(MODELS, answer())
    assert result["weight"].tolist() == [[1.0, 2.0], [2.0, -10.0]]
    assert result["seen"].tolist() == [5, 9]


def test_an_answer_for_the_first_groups_only_leaves_the_rest():
    first = {name: tensor[1:] for name, tensor in ANSWER.items()}
    result = averaged(MODELS, answer((4.0,), first))
    assert result["weight"].tolist() == [[2.0, -10.0], [3.0, 4.0]]


def test_a_gradient_moves_its_group_by_the_learning_rate():
    result = descended(MODELS, answer(), TRAINING)
    np.testing.assert_allclose(result["weight"], [[1.0, 2.0], [2.8, 5.0]], rtol=1e-6)


def test_a_fresh_adam_moves_by_the_sign_of_the_gradient():
    result = descended(MODELS, answer(), TRAINING, "adam")
    np.testing.assert_allclose(result["weight"], [[1.0, 2.0], [2.9, 4.1]], rtol=1e-6)


def test_values_in_a_gradient_answer_are_taken_as_they_are():
    assert descended(MODELS, answer(), TRAINING)["seen"].tolist() == [5, 9]


@pytest.mark.parametrize("step", [averaged, lambda m, t: descended(m, t, TRAINING)])
@pytest.mark.parametrize("nothing", [{"models": None}, {"weights": None}, {"weights": (0.0, 0.0)}])
def test_without_an_answer_by_group_models_stay(step, nothing):
    assert_identical(step(MODELS, answer(**nothing)), MODELS)
