"""Evaluation of models that clients make their own first, or that predict in another way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from clove.federation.parameters import Indices
from clove.federation.pool import Pool
from clove.federation.questions import Evaluate, Kept, LocalTraining, Scores, Train

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


def evaluate_adapted(engine: Simulation, question: Evaluate, pool: Pool) -> Callable[[], Scores]:
    """Let clients prepare, adapt, and predict as the question says; measure what comes of it."""
    clients, (there, index) = question.clients, _models_of(engine, question)
    adapt = replace(question.adapt or LocalTraining(), keep_momentum=False)  # it is of a copy
    asked = Train(
        question.models,
        index,
        clients,
        adapt,
        extras=question.extras,
        reads=question.reads,
        prepare=question.prepare,
    )
    parts: list[tuple[Tensor, Tensor | None]] = []
    order: list[Indices] = [there[:0]]
    for places in engine.groups(there, engine.train_pool.sizes[clients[there]]):
        work = engine.work(asked, places)
        models = work.starts if question.adapt is None else engine.train_group(work).models
        rows = [pool.rows(client) for client in clients[places]]
        if question.predict is None:
            parts += engine.run_own(models, [[own] for own in rows], pool)
        else:
            parts += engine.run_predictions(question.predict, models, rows, pool, work.told)
        order.append(places)
    found = np.concatenate(order)
    rows = [pool.rows(client) for client in clients[found]]
    scores = engine.scores(clients[found], rows, parts)
    return lambda: scores().pick(np.argsort(found))


def _models_of(engine: Simulation, question: Evaluate) -> tuple[Indices, Indices]:
    """Return the places of the clients that have a model, and which one everybody has."""
    clients, index = question.clients, question.index
    if isinstance(question.models, Kept):
        has = engine.memory.has(question.models.name, clients)
        return np.flatnonzero(has), np.zeros(len(clients), dtype=np.int64)
    index = engine.memory.assignments(clients) if index is None else index
    return np.flatnonzero(index >= 0), index
