"""Training again and again, until losses settle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clove.federation import parameters as stacks
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Floats, Settle, Train
from clove.federation.work import Updated, Work

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


def settled(engine: Simulation, work: Work) -> Updated:
    """Train; those who never did so before, again until their losses settle.

    Every time has batches and an optimiser of its own. Losses told are those of the first time.
    Where a group of another size needs preparing (steps captured, kernels chosen), who is done goes
    on beside the others, to no effect, until half of a group are.
    """
    question = work.question
    assert isinstance(question, Train)
    assert question.settle is not None
    assert work.first_time is not None
    first = engine.train_group(work)
    models, means = first.models, [_means(first)]
    together = going = np.flatnonzero(work.first_time)
    for number in range(1, question.settle.most):
        going = going[[not _calm([m[place] for m in means], question.settle) for place in going]]
        if not len(going):
            break
        if not engine.prepares_sizes or 2 * len(going) <= len(together):
            together = going
        found = engine.train_group(_again(engine, work, models, together, number))
        of_these = np.flatnonzero(np.isin(together, going))
        models = stacks.replace_rows(models, going, stacks.pick(found.models, of_these))
        latest = means[-1].copy()
        latest[going] = _means(found)[of_these]
        means.append(latest)
    return Updated(models, first.losses)


def _again(
    engine: Simulation, work: Work, models: Parameters, places: Indices, number: int
) -> Work:
    """Return the work of those who are not done, from where they are, with batches anew."""
    question, training = work.question, work.question.training
    anew = replace(question, training=replace(training, purpose=f"{training.purpose} {number}"))
    part = work.pick(places, engine.plans(work.clients[places], anew))
    return replace(part, starts=stacks.pick(models, places))


def _means(found: Updated) -> Floats:
    """Return each client's mean loss over its steps."""
    assert found.losses is not None
    return np.asarray(np.nanmean(found.losses.double().cpu().numpy(), axis=1))


def _calm(means: list[float], settle: Settle) -> bool:
    """Say whether the latest mean losses hardly differ; what is not finite will not get better."""
    latest = means[-settle.window :]
    if not np.isfinite(latest).all():
        return True
    return len(means) >= settle.window and float(np.std(latest)) < settle.threshold
