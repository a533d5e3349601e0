"""The sequential engine: one client after the other, one model in use at a time.

Takes any torch module. It is the reference the vectorized engine is held against, and the one for
networks that cannot be stacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from clove.federation import parameters as stacks
from clove.federation.batches import consecutive
from clove.federation.learner import NetworkLearner
from clove.federation.optimizer import Optimizer
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.simulation import Simulation, StepBatch, Work

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

    def train_group(self, work: Work) -> Parameters:
        """Train the clients of a group in turn."""
        return stacks.stack([self._train_client(work, place) for place in range(len(work.clients))])

    def gradient_group(self, work: Work) -> Parameters:
        """Add up the gradients over each client's batches."""
        return stacks.stack(
            [self._client_gradient(work, place) for place in range(len(work.clients))]
        )

    def _load(self, model: Parameters) -> dict[str, Tensor]:
        self.network.load_state_dict(dict(model))
        self.network.train()
        return {name: p for name, p in self.network.named_parameters() if p.requires_grad}

    def _train_client(self, work: Work, place: int) -> dict[str, Tensor]:
        own = self._load(stacks.one(work.starts, place))
        optimizer = Optimizer([p.detach() for p in own.values()], work.question.training)
        for loss, _ in self._losses_of_steps(work, place, own):
            optimizer.step(
                torch.autograd.grad(
                    loss, list(own.values()), allow_unused=True, materialize_grads=True
                )
            )
        return {name: t.detach().clone() for name, t in self.network.state_dict().items()}

    def _client_gradient(self, work: Work, place: int) -> dict[str, Tensor]:
        own = self._load(stacks.one(work.starts, place))
        total = {name: torch.zeros_like(p) for name, p in own.items()}
        samples = 0
        for loss, size in self._losses_of_steps(work, place, own):
            gradients = torch.autograd.grad(
                loss, list(own.values()), allow_unused=True, materialize_grads=True
            )
            for name, part in zip(own, gradients, strict=True):
                total[name] += size * part
            samples += size
        state = {name: t.detach().clone() for name, t in self.network.state_dict().items()}
        return state | {name: part / samples for name, part in total.items()}

    def _losses_of_steps(
        self, work: Work, place: int, own: Mapping[str, Tensor]
    ) -> Iterator[tuple[Tensor, int]]:
        learner = NetworkLearner(self.network, self.task, precision=self.precision)
        extras = self._extras(work, place)
        for rows in work.plans.of(place):
            batch = self._batch(rows, self.train_pool)
            yield work.question.objective(learner, own, batch, extras), len(rows)

    def _extras(self, work: Work, place: int) -> dict[str, Tensor]:
        extras = work.question.extras
        if extras is None:
            return {}
        return {**extras.shared, **stacks.one(extras.per_client, int(work.places[place]))}

    def _batch(self, rows: Indices, pool: Pool) -> StepBatch:
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
