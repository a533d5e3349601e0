"""Summaries of clients' data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation import (
    Kept,
    Seeded,
    Sequential,
    Summary,
    Train,
    class_means,
    label_counts,
    summarise,
)

from .worlds import ENGINES, SGD, dense, everyone, models_for, some_clients, world

COHORT = np.array([3, 0, 4])
START = np.array([1, 0, 1])


@pytest.mark.parametrize("engine_type", ENGINES)
def test_each_client_counts_its_own_labels(engine_type):
    clients = some_clients()
    engine = engine_type(clients, dense)
    engine.begin_round(1)
    found = engine.answer(Summary(label_counts, COHORT))
    np.testing.assert_array_equal(found.clients, COHORT)
    expected = [np.bincount(clients[c].train[1], minlength=3) for c in COHORT]
    np.testing.assert_array_equal(found.values["counts"], expected)
    assert (engine.ledger.down, engine.ledger.up) == (0, 3 * 3 * 8)


@pytest.mark.parametrize("engine_type", ENGINES)
@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
def test_class_means_are_those_of_the_features_of_each_class(name, engine_type, monkeypatch):
    monkeypatch.setattr(summarise, "AT_ONCE", 6)  # so that a client's samples are several parts
    task, clients = world(name)
    engine = engine_type(clients, task, dtype=torch.float64)
    models = models_for(engine)
    engine.begin_round(1)
    found = engine.answer(Summary(class_means, COHORT, models, START))
    for row, (client, start) in enumerate(zip(COHORT, START, strict=True)):
        features, y = features_of(engine, models, start, clients[client])
        for label in range(3):
            mine = features[y == label]
            assert found.values["counts"][row, label] == len(mine)
            expected = mine.mean(0) if len(mine) else np.zeros(features.shape[1])
            np.testing.assert_allclose(found.values["means"][row, label], expected, rtol=1e-9)
    model = sum(t[0].numel() * t.element_size() for t in models.values())
    assert engine.ledger.down == 3 * (model + 8)
    assert engine.ledger.up == 3 * 3 * 8 * (features.shape[1] + 1)


def features_of(engine, models, start, client):
    met = []
    network = engine.task.build().double().eval()
    network.load_state_dict({name: t[start] for name, t in models.items()})
    network.get_submodule(engine.head).register_forward_pre_hook(lambda _, x: met.append(x[0]))
    network(torch.as_tensor(client.train[0]))
    return met[0].detach().numpy(), client.train[1]


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_summary_may_be_made_with_the_model_a_client_keeps(engine_type):
    engine = engine_type(some_clients(), dense, dtype=torch.float64)
    own, cohort = Kept("own", Seeded(9)), np.array([1, 3])
    engine.answer(Train(own, cohort, cohort, SGD, keep="own"))
    found = engine.answer(Summary(class_means, everyone(engine), own))
    assert found.clients.tolist() == [1, 3]
    models = engine.memory.kept("own", cohort)
    expected = engine.answer(Summary(class_means, cohort, models, np.arange(2)))
    np.testing.assert_allclose(found.values["means"], expected.values["means"])


@pytest.mark.parametrize("engine_type", ENGINES)
def test_what_is_random_in_a_summary_is_the_clients_own(engine_type):
    def drawn(learner, model, data, seed):
        return {"draw": torch.as_tensor(np.random.default_rng(seed).random(2))}

    def ask(seed, number, cohort):
        engine = engine_type(some_clients(), dense, seed=seed)
        engine.begin_round(number)
        return engine.answer(Summary(drawn, np.array(cohort))).values["draw"]

    many, one = ask(0, 1, [0, 1, 2]), ask(0, 1, [2])
    np.testing.assert_array_equal(many[2:], one)
    assert not np.array_equal(many[0], many[1])
    assert not np.array_equal(one, ask(1, 1, [2]))
    assert not np.array_equal(one, ask(0, 2, [2]))


def test_stragglers_send_no_summary():
    engine = Sequential(some_clients(), dense, stragglers=0.5)
    engine.begin_round(1)
    found = engine.answer(Summary(label_counts, everyone(engine)))
    assert 0 < len(found.clients) < 5
    assert len(found.values["counts"]) == len(found.clients)
    nobody = engine.answer(Summary(label_counts, np.zeros(0, dtype=np.int64)))
    assert dict(nobody.values) == {}


@pytest.mark.parametrize("name", ["autoencoder", "regression"])
def test_a_summary_of_classes_needs_classes(name):
    task, clients = world(name)
    with pytest.raises(CloveError, match=f"needs classes, but the task is {task.name}"):
        Sequential(clients, task).answer(Summary(label_counts, COHORT))


def test_a_summary_that_needs_models_says_so():
    engine = Sequential(some_clients(), dense)
    with pytest.raises(CloveError, match="class-means are means of a network's features"):
        engine.answer(Summary(class_means, COHORT))
    with pytest.raises(CloveError, match="needs to know which: give start"):
        engine.answer(Summary(class_means, COHORT, models_for(engine)))


def test_a_summary_has_one_shape():
    def all_of_it(learner, model, data, seed):
        return {"x": data.x}

    with pytest.raises(CloveError, match="'x' of a summary must have one shape"):
        Sequential(some_clients(), dense).answer(Summary(all_of_it, COHORT))
