from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.federation import (
    Evaluate,
    Extras,
    Gradients,
    Kept,
    LocalTraining,
    Losses,
    LossVectors,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Summaries,
    Summary,
    Train,
    Trained,
    Unseen,
    class_means,
    label_counts,
)
from clove.federation.wire import Ledger

from .worlds import ENGINES, SGD, dense, everyone, models_for, some_clients

COHORT = np.array([2, 5, 7])
START = np.array([0, 3, 1])
MODEL = 15 * 4  # fifteen numbers in single precision
TRAINING = LocalTraining()


def stack(models: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.zeros(models, 4, 3), "bias": torch.zeros(models, 3)}


def vectors(models: int, clients: np.ndarray = COHORT) -> LossVectors:
    return LossVectors(clients, np.zeros((len(clients), models)))


def trained(clients: np.ndarray = COHORT, **parts: object) -> Trained:
    return Trained(clients, np.ones(len(clients)), **{"models": stack(len(clients)), **parts})


def scores() -> Scores:
    return Scores(COHORT, np.zeros(3), np.zeros(3))


def counted(*exchanges: tuple[object, object]) -> tuple[int, int]:
    """Return the bytes down and up of questions and their answers within one round."""
    ledger = Ledger()
    for question, answer in exchanges:
        ledger.count(question, answer)
    return ledger.down, ledger.up


def test_losses_take_all_models_down_and_a_number_for_each_up():
    assert counted((Losses(stack(5), COHORT), vectors(5))) == (3 * 5 * MODEL, 3 * 5 * 8)


def test_seeded_models_take_two_integers_down():
    assert counted((Losses(Seeded(7, 100), COHORT), vectors(100))) == (3 * 16, 3 * 100 * 8)


def test_an_unseen_entry_takes_a_number_to_each_client_that_has_one():
    unseen = Unseen(np.array([1, -1, 0]), 0.7)
    down = 3 * 5 * MODEL + 2 * 8
    assert counted((Losses(stack(5), COHORT, unseen=unseen), vectors(5))) == (down, 3 * 5 * 8)


@pytest.mark.parametrize("kind", [Train, Gradients])
@pytest.mark.parametrize("groups", [None, START], ids=["by client", "by group"])
def test_training_takes_a_model_and_a_number_each_way(kind, groups):
    question = kind(stack(5), START, COHORT, TRAINING, reduce=groups)
    answer = trained(weights=None if groups is None else np.ones(4))
    assert counted((question, answer)) == (3 * (MODEL + 8), 3 * (MODEL + 8))


def test_a_report_of_stability_takes_one_number_more():
    question = Train(stack(5), START, COHORT, TRAINING, assigns=True, stable_rounds=3)
    answer = trained(stable=np.ones(3, dtype=bool))
    assert counted((question, answer)) == (3 * (MODEL + 8), 3 * (MODEL + 16))


def test_models_that_stay_with_the_clients_do_not_travel():
    question = Train(Kept("own", Seeded(0)), START * 0, COHORT, TRAINING, keep="own")
    assert counted((question, trained(models=None))) == (3 * (16 + 8), 3 * 8)


def test_extras_go_to_every_client_or_a_row_to_each():
    extras = Extras({"anchor": torch.zeros(10)}, {"pull": torch.zeros(3, 2)})
    question = Train(stack(5), START, COHORT, TRAINING, extras=extras)
    down = 3 * (MODEL + 8) + 3 * 40 + 3 * 2 * 4
    assert counted((question, trained())) == (down, 3 * (MODEL + 8))


def test_extras_that_are_arrays_count_as_they_are():
    extras = Extras({"anchor": np.zeros(10)}, {"pull": np.zeros((3, 2), dtype=np.float32)})
    question = Train(stack(5), START, COHORT, TRAINING, extras=extras)
    assert counted((question, trained()))[0] == 3 * (MODEL + 8) + 3 * 80 + 3 * 2 * 4


def test_a_client_that_keeps_its_model_may_send_it_too():
    question = Train(stack(5), START, COHORT, TRAINING, keep="own", send="all")
    assert counted((question, trained())) == (3 * (MODEL + 8), 3 * (MODEL + 8))


def test_losses_of_steps_take_a_number_each():
    question = Train(stack(5), START, COHORT, TRAINING, report_losses=True)
    losses = np.array([[1.0, 2.0], [1.0, np.nan], [1.0, 2.0]])
    assert counted((question, trained(losses=losses)))[1] == 3 * (MODEL + 8) + 5 * 8


def test_a_summary_takes_up_what_it_holds_and_down_the_model_it_is_made_with():
    values = {"means": np.zeros((3, 10, 4), dtype=np.float32), "counts": np.zeros((3, 10), int)}
    answer = Summaries(COHORT, values)
    up = 3 * (10 * 4 * 4 + 10 * 8)
    assert counted((Summary(label_counts, COHORT), answer)) == (0, up)
    with_models = Summary(class_means, COHORT, stack(5), START)
    assert counted((with_models, answer)) == (3 * (MODEL + 8), up)
    kept = Summary(class_means, COHORT, Kept("own", Seeded(0)))
    assert counted((kept, answer)) == (3 * 16, up)


def test_numbers_are_counted_in_the_precision_they_have():
    models = {"weight": torch.zeros(2, 5, dtype=torch.float64), "seen": torch.zeros(2).long()}
    assert counted((Losses(models, COHORT), vectors(2))) == (3 * 2 * (5 * 8 + 8), 3 * 2 * 8)


def test_recalling_takes_a_number_up_from_those_never_told_a_model():
    assert counted((Recall(COHORT), Recalled(COHORT, START))) == (0, 0)
    assert counted((Recall(COHORT), Recalled(COHORT, np.array([-1, 3, -1])))) == (0, 2 * 8)


def test_evaluation_is_kept_apart():
    ledger = Ledger()
    ledger.count(Evaluate(stack(5), COHORT), scores())
    assert (ledger.down, ledger.up) == (0, 0)
    assert (ledger.evaluation_down, ledger.evaluation_up) == (3 * (MODEL + 8), 3 * 16)


def test_a_score_without_accuracy_is_one_number():
    ledger = Ledger()
    ledger.count(Evaluate(stack(1), COHORT, START * 0), Scores(COHORT, np.zeros(3), None))
    assert ledger.evaluation_up == 3 * 8


def test_only_clients_that_have_a_model_are_asked_how_good_it_is():
    ledger, some = Ledger(), COHORT[:2]
    ledger.count(Evaluate(stack(5), COHORT), Scores(some, np.zeros(2), np.zeros(2)))
    assert (ledger.evaluation_down, ledger.evaluation_up) == (2 * (MODEL + 8), 2 * 16)


def test_evaluation_does_not_make_training_look_cheaper():
    models = stack(1)
    training = (Train(models, START * 0, COHORT, TRAINING), trained())
    assert counted((Evaluate(models, COHORT), scores()), training) == counted(training)


def test_a_stack_goes_to_each_client_at_most_once_a_round():
    models = stack(5)
    losses = (Losses(models, COHORT), vectors(5))
    training = (Train(models, START, COHORT, TRAINING), trained())
    assert counted(losses, training)[0] == 3 * 5 * MODEL + 3 * 8
    assert counted(losses, losses)[0] == 3 * 5 * MODEL


def test_clients_not_asked_before_get_their_copy():
    models, more = stack(5), np.array([2, 5, 8])
    losses = (Losses(models, COHORT), vectors(5))
    training = (Train(models, START, more, TRAINING), trained(more))
    assert counted(losses, training)[0] == 3 * 5 * MODEL + MODEL + 3 * 8


def test_one_model_of_several_is_not_the_stack():
    models = stack(5)
    training = (Train(models, START, COHORT, TRAINING), trained())
    losses = (Losses(models, COHORT), vectors(5))
    assert counted(training, losses)[0] == 3 * (MODEL + 8) + 3 * 5 * MODEL


def test_another_stack_is_sent_again_however_alike():
    losses = [(Losses(stack(5), COHORT), vectors(5)) for _ in range(2)]
    assert counted(*losses)[0] == 2 * 3 * 5 * MODEL


def test_a_new_round_starts_from_nothing():
    ledger, models = Ledger(), stack(5)
    for _ in range(2):
        ledger.begin_round()
        ledger.count(Losses(models, COHORT), vectors(5))
        ledger.count(Evaluate(stack(1), COHORT), scores())
        assert (ledger.down, ledger.up) == (3 * 5 * MODEL, 3 * 5 * 8)
        assert (ledger.evaluation_down, ledger.evaluation_up) == (3 * (MODEL + 8), 3 * 16)


def test_stragglers_are_sent_the_question_and_send_no_answer():
    replied = COHORT[:2]
    losses = (Losses(stack(5), COHORT), vectors(5, replied))
    training = (Train(stack(5), START, COHORT, TRAINING), trained(replied))
    assert counted(losses) == (3 * 5 * MODEL, 2 * 5 * 8)
    assert counted(training) == (3 * (MODEL + 8), 2 * (MODEL + 8))


@pytest.mark.parametrize("engine_type", ENGINES)
def test_engines_count_what_they_answer(engine_type):
    engine = engine_type(some_clients(), dense)
    models, cohort = models_for(engine, 2), everyone(engine)
    numbers = (4 * 8 + 8) + (8 * 3 + 3)
    engine.begin_round(1)
    engine.answer(Losses(models, cohort))
    engine.answer(Train(models, cohort % 2, cohort, SGD, reduce=cohort % 2))
    engine.answer(Evaluate(models, cohort, cohort % 2))
    ledger = engine.ledger
    assert ledger.down == 5 * 2 * numbers * 4 + 5 * 8
    assert ledger.up == 5 * 2 * 8 + 5 * (numbers * 4 + 8)
    assert (ledger.evaluation_down, ledger.evaluation_up) == (5 * 8, 5 * 16)
