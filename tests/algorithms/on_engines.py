"""Rounds of a method on an engine, to compare engines with."""

from __future__ import annotations

from typing import Any

import numpy as np

from clove.algorithms import Algorithm, Setup
from clove.federation import LocalTraining, Simulation
from clove.runs.loop import drive
from tests.federation.worlds import everyone, models_for

SGD = LocalTraining("sgd", learning_rate=0.1, batch_size=6, epochs=2)


def play_rounds(
    engine: Simulation,
    method: type[Algorithm[Any]],
    rounds: int = 3,
    groups: int | None = 2,
    training: LocalTraining = SGD,
    **options: Any,
) -> tuple[Any, Any, list[Any]]:
    """Run some rounds; return the last state, scores, and each round's assignment and bytes."""

    def initial(number: int, how: str) -> Any:
        return models_for(engine, number, how)

    classes = engine.classes if engine.task.correct is not None else None
    setup = Setup(engine.clients, groups, training, engine.seed, initial, classes)
    playing = method(setup, **options)
    state, told = playing.begin(), []
    cohort = everyone(engine)
    scores = None
    for number in range(1, rounds + 1):
        engine.begin_round(number)
        outcome = drive(playing.round(state, cohort[number % 2 :]), engine.answer)
        state = outcome.state
        scores = engine.answer(playing.evaluation(state, cohort))
        told.append((np.asarray(outcome.assignment).tolist(), engine.ledger.up, engine.ledger.down))
    return state, scores, told
