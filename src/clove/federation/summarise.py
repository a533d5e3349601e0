"""How simulated clients make summaries of their data: one by one, or side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from clove import seeds
from clove.errors import CloveError
from clove.federation import parameters as stacks
from clove.federation.learner import NetworkLearner
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Kept, Summaries, Summary

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation

AT_ONCE = 4096  # samples that run through the network together


class SummaryLearner(NetworkLearner):
    """What a summary sees: a network that takes all samples of a client, in parts."""

    def outputs(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the network over all samples."""
        return torch.cat([super(SummaryLearner, self).outputs(parameters, p) for p in _parts(x)])

    def outputs_and_features(
        self, parameters: Parameters, x: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs and features of all samples."""
        run = super().outputs_and_features
        outputs, features = zip(*(run(parameters, part) for part in _parts(x)), strict=True)
        return torch.cat(outputs), torch.cat(features)


def _parts(x: Tensor) -> list[Tensor]:
    return [x[at : at + AT_ONCE] for at in range(0, len(x), AT_ONCE)]


@torch.no_grad()
def summarised(engine: Simulation, question: Summary, replying: Indices) -> Summaries:
    """Let each client that replies make its summary."""
    if isinstance(question.models, Kept):
        clients = question.clients[replying]
        replying = replying[engine.memory.has(question.models.name, clients)]
    values = engine.summaries(question, replying) if len(replying) else {}
    found = {name: value.cpu().numpy() for name, value in values.items()}
    return Summaries(question.clients[replying], found)


def one_by_one(engine: Simulation, question: Summary, places: Indices) -> dict[str, Tensor]:
    """Make the summaries of clients one after the other, and return each part of all as a stack."""
    engine.network.eval()
    made = [_summary(engine, question, int(place)) for place in places]
    for name in made[0]:
        if len({one[name].shape for one in made}) > 1:
            raise CloveError(f"{name!r} of a summary must have one shape for all clients")
    return {name: torch.stack([one[name] for one in made]) for name in made[0]}


def _summary(engine: Simulation, question: Summary, place: int) -> dict[str, Tensor]:
    client, pool = int(question.clients[place]), engine.train_pool
    rows = torch.as_tensor(pool.rows(client), device=engine.device)
    data = engine.batch(rows, pool.x.new_ones(len(rows), dtype=engine.dtype), pool)
    learner = SummaryLearner(engine.network, engine.task, None, engine.precision, engine)
    seed = seeds.integer(engine.seed, "summary", engine.round, int(engine.numbers[client]))
    own = summary_models(engine, question, np.array([place]))
    return question.of(learner, None if own is None else stacks.one(own, 0), data, seed)


def summary_models(engine: Simulation, question: Summary, places: Indices) -> Parameters | None:
    """Return the models that clients make their summaries with."""
    models = question.models
    if models is None:
        return None
    if isinstance(models, Kept):
        return engine.own(models, question.clients[places])
    if question.start is None:
        raise CloveError("a summary made with models needs to know which: give start")
    return stacks.pick(models, question.start[places])
