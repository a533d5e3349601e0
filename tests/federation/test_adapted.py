"""Evaluation of models that clients make their own first, or that predict in another way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from clove.federation import Evaluate, Extras, Kept, Seeded, Sequential, Train
from clove.federation import parameters as stacks

from .worlds import ASSIGNMENT, ENGINES, SGD, everyone, models_for, on_both, some_clients, world

ADAPT = replace(SGD, epochs=2, steps=2, purpose="adaptation")
COHORT = np.array([3, 0, 4])
INDEX = np.array([1, 0, 1])


def assert_same_scores(left, right):
    np.testing.assert_array_equal(left.clients, right.clients)
    np.testing.assert_allclose(left.loss, right.loss, rtol=1e-6)
    assert (left.accuracy is None) == (right.accuracy is None)
    if right.accuracy is not None:
        np.testing.assert_allclose(left.accuracy, right.accuracy)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm", "autoencoder"])
def test_a_client_may_train_a_copy_before_it_is_measured(name, split):
    def ask(engine):
        engine.begin_round(1)
        models = models_for(engine)
        before = {n: t.clone() for n, t in models.items()}
        adapted = engine.answer(Evaluate(models, COHORT, INDEX, split, adapt=ADAPT))
        assert all(torch.equal(models[n], t) for n, t in before.items())
        assert (engine.ledger.up, engine.ledger.down) == (0, 0)
        # The same by hand: train, then measure.
        trained = engine.answer(Train(models, INDEX, COHORT, ADAPT)).models
        by_hand = engine.answer(Evaluate(trained, COHORT, np.arange(3), split))
        plain = engine.answer(Evaluate(models, COHORT, INDEX, split))
        return adapted, by_hand, plain

    task, clients = world(name)
    alone, together = on_both(ask, clients, task, dtype=torch.float64)
    for one, other in zip(alone, together, strict=True):
        assert_same_scores(other, one)
    assert_same_scores(alone[0], alone[1])
    assert not np.allclose(alone[0].loss, alone[2].loss)


@pytest.mark.parametrize("engine_type", ENGINES)
def test_models_that_clients_keep_may_be_adapted_too(engine_type):
    engine = engine_type(some_clients(), world("mlp")[0])
    own, cohort = Kept("own", Seeded(9)), np.array([1, 3])
    engine.answer(Train(own, cohort, cohort, SGD, keep="own"))
    kept = engine.memory.kept("own", cohort)
    scores = engine.answer(Evaluate(own, everyone(engine), adapt=ADAPT))
    assert scores.clients.tolist() == [1, 3]
    assert torch.equal(engine.memory.kept("own", cohort)["1.weight"], kept["1.weight"])


@pytest.mark.parametrize("engine_type", ENGINES)
def test_clients_never_assigned_have_nothing_to_adapt(engine_type):
    engine = engine_type(some_clients(), world("mlp")[0])
    models = models_for(engine)
    assert len(engine.answer(Evaluate(models, COHORT, adapt=ADAPT)).clients) == 0
    engine.answer(Train(models, INDEX, COHORT, SGD, assigns=True))
    scores = engine.answer(Evaluate(models, everyone(engine), adapt=ADAPT))
    assert scores.clients.tolist() == [0, 3, 4]


@dataclass(frozen=True)
class Own:
    """Use the kept model instead of the one sent."""

    def __call__(self, sent, kept):
        return dict(kept["own"])


def test_a_client_may_prepare_the_model_it_is_measured_with():
    def ask(engine):
        kept = Kept("own", Seeded(9))
        engine.answer(Train(kept, ASSIGNMENT * 0, everyone(engine), SGD, keep="own"))
        first = np.zeros(5, dtype=np.int64)
        models = models_for(engine, 1)
        question = Evaluate(models, everyone(engine), first, prepare=Own(), reads=(kept,))
        return engine.answer(question), engine.answer(Evaluate(kept, everyone(engine)))

    alone, together = on_both(ask, some_clients(), world("mlp")[0], dtype=torch.float64)
    assert_same_scores(together[0], alone[0])
    assert_same_scores(alone[0], alone[1])


@dataclass(frozen=True)
class NearestCentre:
    """Predict the class of the nearest centre, in the space of features."""

    scale: float = 1.0

    def __call__(self, learner, parameters, x, extras):
        features = learner.features(parameters, x).flatten(1)
        apart = (features[:, None] - extras["centres"]).square().sum(2)
        return -self.scale * apart * extras["sharpness"]


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
def test_a_client_may_predict_in_a_way_of_its_own(name):
    def ask(engine):
        models = models_for(engine)
        draw = np.random.default_rng(0)
        width = models[engine.part("head")[0]].shape[-1]
        centres = draw.normal(size=(3, 3, width))
        extras = Extras({"sharpness": np.array(2.0)}, {"centres": centres})
        engine.begin_round(1)
        question = Evaluate(models, COHORT, INDEX, predict=NearestCentre(), extras=extras)
        return engine.answer(question), centres, models, engine.ledger.evaluation_down

    task, clients = world(name)
    alone, together = on_both(ask, clients, task, dtype=torch.float64)
    assert_same_scores(together[0], alone[0])
    scores, centres, models, down = alone
    # Each of three clients gets its model, which one that is, and what it predicts with.
    sharpness = 3 * 8
    assert down == 3 * stacks.model_bytes(models) + 3 * 8 + sharpness + centres.nbytes
    expected = by_hand(task, clients, centres, models)
    np.testing.assert_allclose(scores.accuracy, expected)


def by_hand(task, clients, centres, models):
    """Return the share of each client's test samples nearest to the centre of their class."""
    engine, found = Sequential(clients, task, dtype=torch.float64), []
    for place, client in enumerate(COHORT):
        network = task.build().double().eval()
        network.load_state_dict(stacks.one(models, int(INDEX[place])))
        met = []
        head = network.get_submodule(engine.head)
        head.register_forward_pre_hook(lambda _, x, met=met: met.append(x[0]))
        x, y = clients[client].test
        network(torch.as_tensor(x))
        apart = torch.cdist(met[0].detach(), torch.as_tensor(centres[place]))
        found.append((apart.argmin(1).numpy() == y).mean())
    return found
