from __future__ import annotations

import numpy as np
import pytest

from clove.federation import (
    Evaluate,
    Gradients,
    Kept,
    Losses,
    Recall,
    Seeded,
    Train,
    Unseen,
    averaged,
    descended,
)

from .worlds import (
    ASSIGNMENT,
    ENGINES,
    SGD,
    assert_identical,
    assert_same_models,
    dense,
    everyone,
    models_for,
    some_clients,
)

pytestmark = pytest.mark.parametrize("engine_type", ENGINES)


def make(engine_type, stragglers, seed=0, number=20):
    engine = engine_type(some_clients([6] * number), dense, seed=seed, stragglers=stragglers)
    engine.begin_round(1)
    return engine


def replying(engine, cohort=None, round_number=1):
    engine.begin_round(round_number)
    return engine.answer(Recall(everyone(engine) if cohort is None else cohort)).clients.tolist()


def test_some_clients_do_not_reply(engine_type):
    assert 2 <= len(replying(make(engine_type, 0.5))) <= 18


def test_without_stragglers_everybody_replies(engine_type):
    assert replying(make(engine_type, 0.0)) == list(range(20))


def test_who_fails_depends_on_seed_and_round_only(engine_type):
    engine = make(engine_type, 0.5)
    assert replying(engine) == replying(make(engine_type, 0.5))
    assert replying(engine) != replying(engine, round_number=2)
    assert replying(engine) != replying(make(engine_type, 0.5, seed=1))


def test_the_engine_has_no_say_in_who_fails(engine_type):
    assert replying(make(engine_type, 0.5)) == replying(make(ENGINES[0], 0.5))


def test_a_client_fails_whoever_else_is_asked(engine_type):
    engine = make(engine_type, 0.5)
    some = np.array([19, 3, 7, 0, 12])
    assert replying(engine, some) == [client for client in some if client in replying(engine)]


def test_a_client_may_fail_at_one_question_and_reply_to_the_next(engine_type):
    engine = make(engine_type, 0.5)
    first, second = (engine.answer(Recall(everyone(engine))).clients for _ in range(2))
    assert first.tolist() != second.tolist()


def test_answers_are_those_of_the_others(engine_type):
    engine, whole = make(engine_type, 0.5), make(engine_type, 0.0)
    models, cohort, start = models_for(engine), everyone(engine), everyone(engine) % 2
    losses = engine.answer(Losses(models, cohort))
    expected = whole.answer(Losses(models, cohort))
    np.testing.assert_allclose(losses.losses, expected.losses[losses.clients], rtol=1e-6)

    trained = engine.answer(Train(models, start, cohort, SGD))
    some = trained.clients
    assert 0 < len(some) < 20
    expected = whole.answer(Train(models, start[some], some, SGD))
    assert_same_models(trained.models, expected.models, 1e-6)


def test_means_are_over_those_that_reply(engine_type):
    engine, whole = make(engine_type, 0.5), make(engine_type, 0.0)
    models, cohort, start = models_for(engine), everyone(engine), everyone(engine) % 2
    trained = engine.answer(Train(models, start, cohort, SGD, reduce=start))
    some = trained.clients
    expected = whole.answer(Train(models, start[some], some, SGD, reduce=start[some]))
    np.testing.assert_array_equal(trained.weights, 6 * np.bincount(start[some]))
    assert_same_models(trained.models, expected.models, 1e-6)


def test_evaluation_loses_nobody(engine_type):
    engine = make(engine_type, 0.5)
    scores = engine.answer(Evaluate(models_for(engine), everyone(engine), everyone(engine) * 0))
    assert len(scores.clients) == 20


def test_nobody_replying_is_an_empty_answer(engine_type):
    engine = make(engine_type, 0.999, number=5)
    models, cohort = models_for(engine), everyone(engine)
    for question in (
        Losses(models, cohort),
        Losses(models, cohort, unseen=Unseen(ASSIGNMENT, 0.5)),
        Losses(models, cohort, batch_statistics=4),
        Losses(Seeded(3, 2), cohort),
    ):
        vectors = engine.answer(question)
        assert (vectors.clients.shape, vectors.losses.shape) == ((0,), (0, 2))
    for question in (
        Train(models, ASSIGNMENT, cohort, SGD),
        Train(models, ASSIGNMENT, cohort, SGD, reduce=ASSIGNMENT),
        Train(models, ASSIGNMENT, cohort, SGD, keep="own"),
        Train(Kept("own", Seeded(1)), ASSIGNMENT * 0, cohort, SGD, keep="own"),
        Train(models, ASSIGNMENT, cohort, SGD, share=0.5, assigns=True, stable_rounds=2),
        Gradients(models, ASSIGNMENT, cohort, SGD),
        Gradients(models, ASSIGNMENT, cohort, SGD, reduce=ASSIGNMENT),
    ):
        trained = engine.answer(question)
        assert trained.clients.shape == trained.samples.shape == (0,)
        assert trained.models is None
        assert trained.stable is None or trained.stable.shape == (0,)
        assert_identical(averaged(models, trained), models)
        assert_identical(descended(models, trained, SGD), models)
    assert engine.answer(Recall(cohort)).models.shape == (0,)
    assert engine.answer(Evaluate(models, cohort)).loss.shape == (0,)
    assert engine.answer(Evaluate(Kept("own", Seeded(1)), cohort)).loss.shape == (0,)
    assert engine.ledger.up == 0


def test_asking_nobody_is_an_empty_answer(engine_type):
    engine = make(engine_type, 0.0)
    models, nobody = models_for(engine), np.zeros(0, dtype=np.int64)
    assert engine.answer(Losses(models, nobody)).losses.shape == (0, 2)
    assert engine.answer(Train(models, nobody, nobody, SGD, reduce=nobody)).models is None
    assert engine.answer(Gradients(models, nobody, nobody, SGD)).models is None
    assert engine.answer(Evaluate(models, nobody, nobody)).accuracy.shape == (0,)
    assert engine.answer(Recall(nobody)).models.shape == (0,)
