"""One client alone answers as it does among all: what a client on a network relies on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from clove.federation import (
    Evaluate,
    Gradients,
    LocalTraining,
    Losses,
    Seeded,
    Sequential,
    Train,
    Unseen,
)
from clove.tasks import classification

from .worlds import assert_identical, dropping, everyone, models_for, some_clients, world

TRAINING = LocalTraining(batch_size=8, epochs=2)
START = np.array([0, 1, 0, 1, 1])
KINDS = [
    "mlp",
    "mlp with batch norm",
    "cnn with batch norm",
    "autoencoder",
    "regression",
    "dropout",
]


def engines(kind: str) -> tuple[Sequential, list[Sequential]]:
    """Return an engine over all clients, and one for each by itself."""
    task, clients = (classification(dropping), some_clients()) if kind == "dropout" else world(kind)
    make = partial(Sequential, task=task, seed=3)
    return make(clients), [make([one], numbers=[number]) for number, one in enumerate(clients)]


def ask(engine: Sequential, question):
    engine.begin_round(2, asked=1)
    return engine.answer(question)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_a_client_trains_alone_as_among_others(kind: str, share: float) -> None:
    together, alone = engines(kind)
    models = models_for(together)
    among = ask(together, Train(models, START, everyone(together), TRAINING, share=share))
    for number, engine in enumerate(alone):
        own = Train(models, START[number : number + 1], np.array([0]), TRAINING, share=share)
        trained = ask(engine, own)
        assert trained.samples[0] == among.samples[number]
        expected = {name: t[number : number + 1] for name, t in among.models.items()}
        assert_identical(trained.models, expected)


@pytest.mark.parametrize("kind", ["mlp", "dropout"])
def test_a_clients_gradient_is_its_own(kind: str) -> None:
    together, alone = engines(kind)
    models = models_for(together)
    among = ask(together, Gradients(models, START, everyone(together), TRAINING))
    for number, engine in enumerate(alone):
        own = ask(engine, Gradients(models, START[number : number + 1], np.array([0]), TRAINING))
        for name, tensor in own.models.items():
            assert torch.equal(tensor[0], among.models[name][number])


def test_losses_and_scores_are_a_clients_own() -> None:
    together, alone = engines("mlp")
    models, own = models_for(together, 3), np.array([-1, 2, 0, -1, 1])
    among = ask(together, Losses(models, everyone(together), unseen=Unseen(own, 0.7)))
    random = ask(together, Losses(Seeded(5, 4), everyone(together)))
    scores = ask(together, Evaluate(models, everyone(together), START))
    for number, engine in enumerate(alone):
        one, unseen = np.array([0]), Unseen(own[number : number + 1], 0.7)
        vectors = ask(engine, Losses(models, one, unseen=unseen))
        np.testing.assert_array_equal(vectors.losses[0], among.losses[number])
        vectors = ask(engine, Losses(Seeded(5, 4), one))
        np.testing.assert_array_equal(vectors.losses[0], random.losses[number])
        found = ask(engine, Evaluate(models, one, START[number : number + 1]))
        assert found.loss[0] == scores.loss[number]
        assert found.accuracy[0] == scores.accuracy[number]


def test_errors_name_a_client_by_its_number_in_the_federation() -> None:
    from clove.errors import CloveError

    clients = some_clients(sizes=(1,))
    with pytest.raises(CloveError, match="client 41 has a single training sample"):
        Sequential(clients, world("mlp with batch norm")[0], numbers=[41])
