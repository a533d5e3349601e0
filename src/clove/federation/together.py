"""Several federations of one shape, whose clients train as one stack: seeds, or settings.

Each federation keeps its own clients, memories and counts, and gets the answers it would get by
itself (but for rounding, and for dropout, which draws for the whole stack).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from clove.federation import parameters as stacks
from clove.federation.batches import joined
from clove.federation.budget import is_out_of_memory
from clove.federation.federation import Federation
from clove.federation.gathered import Gathered
from clove.federation.parameters import Indices
from clove.federation.pool import Pool
from clove.federation.questions import Answer, Extras, Question, Train
from clove.federation.vectorized import Vectorized
from clove.federation.work import Told, Updated, Work


def can_join(federations: Sequence[Federation]) -> bool:
    """Say whether the clients of all these can be one stack."""
    vectorized = [one for one in federations if isinstance(one, Vectorized)]
    if len(vectorized) < len(federations):
        return False
    first = vectorized[0]
    return all(
        one.device == first.device
        and one.precision == first.precision
        and (one.task.name, one.task.target) == (first.task.name, first.task.target)
        and one.task.loss is first.task.loss
        and one.train_pool.x.shape[1:] == first.train_pool.x.shape[1:]
        and repr(one.network) == repr(first.network)
        for one in vectorized
    )


def join(federations: Sequence[Vectorized]) -> None:
    """Put the samples of all federations into one pool, so that their batches are one index.

    A federation that takes all its clients at once takes all of everybody's, as far as they fit.
    """
    for one in federations:
        one.forget_steps()  # which were captured on samples of its own
        if one.group_size >= one.clients:
            one.group_size = max(one.group_size, one.most_at_once)
    for which in ("train_pool", "test_pool"):
        pools: list[Pool] = [getattr(one, which) for one in federations]
        x = torch.cat([pool.x for pool in pools])
        ys = [pool.y for pool in pools if pool.y is not None]
        y = torch.cat(ys) if ys else None
        first = 0
        for one, pool in zip(federations, pools, strict=True):
            setattr(one, which, Pool(x, y, pool.offsets - pool.offsets[0] + first))
            first += int(pool.sizes.sum())


def begin_answers(
    federations: Sequence[Vectorized], questions: Sequence[Question]
) -> list[Callable[[], Answer]]:
    """Set to work on a question of each federation; where all ask for training, as one stack.

    What is returned waits for the device and gives each its answer: while one run's server works on
    its answer, the device works on the others'.
    """
    if len(questions) > 1 and _alike(questions):
        return _trained(federations, [q for q in questions if isinstance(q, Train)])
    return [one.begin_answer(q) for one, q in zip(federations, questions, strict=True)]


def _alike(questions: Sequence[Question]) -> bool:
    """Say whether all are for training of the same kind."""
    first = questions[0]
    return isinstance(first, Train) and all(
        isinstance(one, Train)
        and _kind(one) == _kind(first)
        and one.settle is None  # which clients go on for how long depends on the run
        for one in questions
    )


def _kind(question: Train) -> Any:
    """Name what a stack of clients must have in common."""
    extras = question.extras or Extras()
    shapes = [
        {name: tuple(value.shape[rows:]) for name, value in values.items()}
        for values, rows in ((extras.shared, 0), (extras.per_client, 1))
    ]
    functions = (question.objective, question.project, question.report_losses)
    read = [one.name for one in question.reads]
    return question.training, functions, question.only, question.trains, read, shapes


@dataclass(frozen=True)
class Part:
    """Some clients of one of the federations."""

    number: int
    places: Indices


def _trained(
    federations: Sequence[Vectorized], questions: Sequence[Train]
) -> list[Callable[[], Answer]]:
    lead = federations[0]
    for one in federations:
        one.ask()
    gathered = [Gathered(one, q) for one, q in zip(federations, questions, strict=True)]
    with lead.draws():
        waiting = _groups(federations, questions)
        while waiting:
            parts = waiting.pop(0)
            try:
                works = [federations[p.number].work(questions[p.number], p.places) for p in parts]
                trained = lead.train_group(_merged(works))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                waiting = [*_halved(lead, parts), *waiting]
                continue
            for part, own in zip(parts, _split(trained, works), strict=True):
                gathered[part.number].add(part.places, own)
    return [
        partial(_counted, one, question, own)
        for one, question, own in zip(federations, questions, gathered, strict=True)
    ]


def _counted(federation: Vectorized, question: Train, gathered: Gathered) -> Answer:
    answer = gathered.answer()
    federation.ledger.count(question, answer)
    return answer


def _groups(federations: Sequence[Vectorized], questions: Sequence[Train]) -> list[list[Part]]:
    """Cut all clients into groups, of like size so that little is padding."""
    whose, places, sizes = [], [], []
    for number, (one, question) in enumerate(zip(federations, questions, strict=True)):
        replying = one.replying(question.clients)
        whose.append(np.full(len(replying), number))
        places.append(replying)
        sizes.append(one.train_pool.sizes[question.clients[replying]])
    numbers, all_places = np.concatenate(whose), np.concatenate(places)
    groups = federations[0].groups(np.arange(len(numbers)), np.concatenate(sizes))
    return [_parts(numbers[group], all_places[group]) for group in groups]


def _parts(numbers: Indices, places: Indices) -> list[Part]:
    return [Part(int(n), places[numbers == n]) for n in np.unique(numbers)]


def _halved(lead: Vectorized, parts: list[Part]) -> list[list[Part]]:
    numbers = np.concatenate([np.full(len(part.places), part.number) for part in parts])
    places = np.concatenate([part.places for part in parts])
    return [_parts(numbers[half], places[half]) for half in lead.halves(np.arange(len(places)))]


def _merged(works: Sequence[Work]) -> Work:
    told = [work.told.rows_of_shared(len(work.clients)) for work in works]
    momenta = [work.momentum for work in works if work.momentum is not None]
    return replace(
        works[0],
        clients=np.concatenate([work.clients for work in works]),
        starts=stacks.concatenate([work.starts for work in works]),
        plans=joined([work.plans for work in works]),
        momentum=stacks.concatenate(momenta) if momenta else None,
        told=Told(
            extras=stacks.concatenate([one.extras for one in told]),
            sent=stacks.concatenate([one.sent for one in told]),
            kept={
                name: stacks.concatenate([one.kept[name] for one in told]) for name in told[0].kept
            },
        ),
    )


def _split(updated: Updated, works: Sequence[Work]) -> list[Updated]:
    ends = np.cumsum([len(work.clients) for work in works])
    return [updated.pick(slice(start, end)) for start, end in pairwise([0, *ends])]
