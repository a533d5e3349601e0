"""The bare loop that clove is timed against does the same work as clove."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.loop import Client, Round, Training, average, rounds
from sklearn.metrics import adjusted_rand_score

import clove
from clove.data import load_dataset, mix
from clove.federation import initial_models

LEARNING = {"learning_rate": 3e-3, "batch_size": 10}
ROUNDS = 5


@pytest.fixture(scope="module")
def clients() -> list[clove.ClientData]:
    return mix(load_dataset("digits", None, 0), "label-skew-1", 0).clients


def last_round(clients: list[clove.ClientData], models: int) -> Round:
    """Run the loop from the models clove starts from."""
    task = clove.classification("mlp").for_data(clients[0].train[0].shape[1:], 10)
    stack = initial_models(task, models, "different", seed=0)
    states = [{name: tensor[k] for name, tensor in stack.items()} for k in range(models)]
    loaded = [Client(client.train, client.test, LEARNING["batch_size"]) for client in clients]
    torch.manual_seed(0)
    return list(rounds(task.build(), states, loaded, Training(**LEARNING), ROUNDS))[-1]


@pytest.mark.parametrize(("algorithm", "models"), [("clove", 5), ("fedavg", 1)])
def test_the_loop_reaches_what_the_sequential_engine_reaches(clients, algorithm, models):
    result = clove.run(
        clients=clients,
        task=clove.classification("mlp"),
        algorithm=algorithm,
        engine="sequential",
        rounds=ROUNDS,
        **LEARNING,
        **({"models": models} if algorithm == "clove" else {}),
    )
    last = last_round(clients, models)
    assert np.mean(last.accuracy) == pytest.approx(result.accuracy, abs=0.03)
    assert np.mean(last.loss) == pytest.approx(result.test_loss, rel=0.1)
    assert adjusted_rand_score(result.assignment, last.assignment) == 1.0


def test_averages_are_weighted_by_points():
    mean = average([{"w": torch.tensor([1.0])}, {"w": torch.tensor([4.0])}], [2, 1])
    assert mean["w"].item() == pytest.approx(2.0)
