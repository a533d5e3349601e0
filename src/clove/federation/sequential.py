"""The sequential engine: one client after the other, one model in use at a time.

Takes any torch module. It is the reference the vectorized engine is held against, and the one for
networks that cannot be stacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from clove.federation import parameters as stacks
from clove.federation.batches import consecutive
from clove.federation.learner import NetworkLearner, gradients_of
from clove.federation.objectives import Batch
from clove.federation.optimizer import Optimizer
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.questions import Train
from clove.federation.simulation import Simulation
from clove.federation.work import Updated, Work, joined_losses

EVALUATION_BATCH = 1024


class Sequential(Simulation):
    """Clients take turns on one network."""

    name = "sequential"

    @classmethod
    def over(cls, other: Simulation) -> Sequential:
        """Return a sequential engine over the clients of another, sharing their data and memory."""
        engine = cls.__new__(cls)
        engine.__dict__.update(other.__dict__)
        return engine

    def groups(self, places: Indices, sizes: Indices) -> Iterator[Indices]:
        """Hand out one client at a time."""
        for place in places:
            yield np.array([place])

    def train_group(self, work: Work) -> Updated:
        """Train the clients of a group in turn."""
        found = [self._train_client(work, place) for place in range(len(work.clients))]
        losses = [torch.stack(one)[None] for _, one, _ in found] if work.reports else []
        return Updated(
            stacks.stack([model for model, _, _ in found]),
            joined_losses(losses) if losses else None,
            work.momentum and stacks.stack([momentum for _, _, momentum in found]),
        )

    def gradient_group(self, work: Work) -> Updated:
        """Add up the gradients over each client's batches."""
        return Updated(
            stacks.stack([self._client_gradient(work, place) for place in range(len(work.clients))])
        )

    def _own_draws(self, work: Work, place: int) -> AbstractContextManager[None]:
        """Let dropout draw for this client as it would if the client were alone."""
        return self.draws(int(self.numbers[work.clients[place]]))

    def _train_client(self, work: Work, place: int) -> tuple[Parameters, list[Tensor], Parameters]:
        """Return the trained model, the loss of every step, and the momentum if it is kept."""
        assert isinstance(work.question, Train)
        project, losses = work.question.project, []
        start, state, own = self._begin(work, place)
        moving = {name: p.detach() for name, p in own.items()}
        optimizer = Optimizer(moving.values(), work.question.training)
        optimizer.begin(self.round, work.momentum_of(place))
        with self._own_draws(work, place):
            for loss, _ in self._losses_of_steps(work, place, state, own):
                optimizer.step(list(gradients_of(loss, own).values()))
                for name, moved in project(moving).items() if project is not None else ():
                    moving[name].copy_(moved)
                losses.append(loss.detach())
        state = {name: t.detach() for name, t in state.items()}
        trained = {n: state[n] if n in work.changing else t for n, t in start.items()}
        kept = {} if work.momentum is None else dict(zip(own, optimizer.momentum, strict=True))
        return trained, losses, kept

    def _client_gradient(self, work: Work, place: int) -> Parameters:
        _, state, own = self._begin(work, place)
        total = {name: torch.zeros_like(p) for name, p in own.items()}
        samples = 0
        with self._own_draws(work, place):
            for loss, size in self._losses_of_steps(work, place, state, own):
                for name, part in gradients_of(loss, own).items():
                    total[name] += size * part
                samples += size
        values = {name: t.detach() for name, t in state.items()}
        return values | {name: part / samples for name, part in total.items()}

    def _begin(
        self, work: Work, place: int
    ) -> tuple[Parameters, dict[str, Tensor], dict[str, Tensor]]:
        """Return where a client starts, a copy that training changes, and the trained part of it.

        Running statistics in the copy are moved on by the network itself.
        """
        start = stacks.one(work.starts, place)
        state = {name: tensor.clone() for name, tensor in start.items()}
        own = {name: state[name].requires_grad_() for name in work.trained}
        return start, state, own

    def _losses_of_steps(
        self, work: Work, place: int, state: Parameters, own: Parameters
    ) -> Iterator[tuple[Tensor, int]]:
        self.network.train()
        told = work.told.of(place)
        sent = {name: tensor.clone() for name, tensor in told.sent.items() if name not in state}
        fixed = sent | {name: t for name, t in state.items() if name not in own}
        learner = NetworkLearner(self.network, self.task, fixed, self.precision, self, told)
        extras = {**told.shared, **told.extras}
        for rows in work.plans.of(place):
            batch = self._batch(rows, self.train_pool)
            yield work.question.objective(learner, own, batch, extras), len(rows)

    def _batch(self, rows: Indices, pool: Pool) -> Batch:
        index = torch.as_tensor(rows, device=self.device)
        return self.batch(index, pool.x.new_ones(len(rows), dtype=self.dtype), pool)

    @torch.no_grad()
    def run_samples(
        self, model: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model over each client's samples, client by client."""
        self.network.eval()
        if batch_statistics:
            for layer in self.network.modules():
                layer.train(isinstance(layer, _BatchNorm))
        losses, correct = [], []
        for own in rows:
            for part in consecutive(own, batch_statistics or EVALUATION_BATCH):
                batch = self._batch(part, pool)
                # Copies of the buffers: normalising by batch must not move running statistics.
                state = {n: t.clone() for n, t in model.items()} if batch_statistics else model
                learner = NetworkLearner(self.network, self.task, precision=self.precision)
                outputs = learner.outputs(state, batch.x)
                losses.append(self.task.loss(outputs, batch.y))
                if self.task.correct is not None:
                    correct.append(self.task.correct(outputs, batch.y))
        return torch.cat(losses), torch.cat(correct) if correct else None
