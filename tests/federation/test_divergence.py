from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clove.data import ClientData
from clove.errors import CloveWarning
from clove.federation import Gradients, Recall, Train, averaged
from clove.tasks import regression

from .worlds import (
    ENGINES,
    SGD,
    assert_identical,
    assert_same_models,
    models_for,
    some_clients,
)

COHORT = np.array([4, 2, 0, 1])
START = np.array([1, 0, 0, 1])
OTHERS = COHORT != 2

pytestmark = pytest.mark.parametrize("engine_type", ENGINES)


def make(engine_type, diverging):
    """Give some clients numbers so large that single precision cannot hold what follows."""
    clients = some_clients(classes=1)
    for client in diverging:
        x, y = clients[client].train
        clients[client] = ClientData((1e30 * x, y), clients[client].test)
    engine = engine_type(clients, regression().for_data((4,), 1))
    engine.begin_round(1)
    return engine


@pytest.mark.parametrize("kind", [Train, Gradients])
@pytest.mark.parametrize("reduced", [False, True], ids=["by client", "by group"])
def test_a_client_that_diverges_is_named_and_left_out(engine_type, kind, reduced):
    engine = make(engine_type, [2])
    models = models_for(engine)

    def ask(some):
        start = START[some]
        return engine.answer(
            kind(models, start, COHORT[some], SGD, reduce=start if reduced else None)
        )

    with pytest.warns(CloveWarning, match="round 1: training diverged on client 2;"):
        answer = ask(np.full(4, True))
    without = ask(OTHERS)
    np.testing.assert_array_equal(answer.clients, [4, 0, 1])
    np.testing.assert_array_equal(answer.samples, [17, 7, 20])
    if reduced:
        np.testing.assert_array_equal(answer.weights, [7, 37])
    assert_same_models(answer.models, without.models, 1e-6)


def test_a_client_that_diverges_keeps_what_it_had(engine_type):
    engine = make(engine_type, [2])
    with pytest.warns(CloveWarning, match="client 2;"):
        engine.answer(Train(models_for(engine), START, COHORT, SGD, keep="own", assigns=True))
    np.testing.assert_array_equal(engine.memory.has("own", COHORT), OTHERS)
    np.testing.assert_array_equal(engine.answer(Recall(COHORT)).models, [1, -1, 0, 1])


@pytest.mark.parametrize("reduce", [None, START], ids=["by client", "by group"])
def test_a_client_that_diverges_keeps_the_momentum_it_had(engine_type, reduce):
    engine = make(engine_type, [2])
    training = replace(SGD, momentum=0.9, keep_momentum=True)
    with pytest.warns(CloveWarning, match="client 2;"):
        engine.answer(Train(models_for(engine), START, COHORT, training, reduce=reduce))
    np.testing.assert_array_equal(engine.memory.has("momentum of batches", COHORT), OTHERS)


def test_every_client_that_diverges_is_named(engine_type):
    engine = make(engine_type, [0, 2])
    with pytest.warns(CloveWarning) as caught:
        answer = engine.answer(Train(models_for(engine), START, COHORT, SGD, reduce=START))
    named = " ".join(str(warning.message) for warning in caught)
    assert "client 2" in named
    assert "0;" in named
    np.testing.assert_array_equal(answer.weights, [0, 37])


@pytest.mark.parametrize("kind", [Train, Gradients])
@pytest.mark.parametrize("groups", [None, START], ids=["by client", "by group"])
def test_all_clients_diverging_leaves_the_server_as_it_was(engine_type, kind, groups):
    engine = make(engine_type, range(5))
    models = models_for(engine)
    with pytest.warns(CloveWarning, match="diverged"):
        answer = engine.answer(kind(models, START, COHORT, SGD, reduce=groups))
    assert len(answer.clients) == 0
    assert answer.models is None
    assert_identical(averaged(models, answer), models)
