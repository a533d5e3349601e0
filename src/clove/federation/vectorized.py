"""The vectorized engine: clients are a batch dimension.

All clients of a group train at once: their parameters are one stack, a step is one call of the
gradient mapped over that stack (torch.func), the optimiser acts on the stack as a whole. Clients
of fewer batches come last in the stack, so those still training are always its first rows. Short
batches are padded, and padding has no weight in any loss or batch statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import parameters as stacks
from clove.federation.batches import consecutive
from clove.federation.learner import NetworkLearner, make_optimizer
from clove.federation.norm import always_by_batch, taped
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.questions import LocalTraining
from clove.federation.simulation import Simulation, StepBatch, Work
from clove.tasks import Task

EVALUATION_BATCH = {"cpu": 512, "cuda": 65536}  # what the caches like, and a GPU
GROUP_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}  # what one group of clients may take in training


class Vectorized(Simulation):
    """Clients train side by side, as one stack."""

    name = "vectorized"

    def __init__(
        self, clients: Sequence[ClientData], task: Task, *, group_size: int = 0, **options: Any
    ) -> None:
        """Take `group_size` clients at once; 0: as many as fit."""
        super().__init__(clients, task, **options)
        self.stacked, self.tape = taped(self.network)
        self.by_batch = always_by_batch(self.network)
        self.group_size = group_size

    def groups(self, places: Indices, sizes: Indices) -> Iterator[Indices]:
        """Cut the clients into groups, of like size so that little is padding."""
        order = places[np.argsort(-sizes, kind="stable")]
        size = self.group_size or len(places)
        for at in range(0, len(order), max(size, 1)):
            yield np.sort(order[at : at + size])

    # -------------------------------------------------------------------------------- training

    def train_group(self, work: Work) -> Parameters:
        """Train all clients of a group at once."""
        steps = StackedSteps(self, work)
        stack = {name: t[steps.order].clone() for name, t in work.starts.items()}
        optimizer = ShrinkingOptimizer(
            {name: stack[name] for name in self.trainable}, work.question.training
        )
        self.stacked.train()
        for active, batch, extras in steps:
            own = {name: t[:active] for name, t in stack.items()}
            gradients, updates = self._gradients(work, own, batch, extras)
            optimizer.step(active, gradients)
            for name, update in updates.items():
                stack[name][:active] = update
        return {name: t[steps.back] for name, t in stack.items()}

    def gradient_group(self, work: Work) -> Parameters:
        """Add up gradients over all batches, each weighted by its samples."""
        steps = StackedSteps(self, work)
        stack = {name: t[steps.order].clone() for name, t in work.starts.items()}
        total = {name: torch.zeros_like(stack[name]) for name in self.trainable}
        samples = torch.zeros(len(work.clients), device=self.device, dtype=self.dtype)
        self.stacked.train()
        for active, batch, extras in steps:
            own = {name: t[:active] for name, t in stack.items()}
            gradients, updates = self._gradients(work, own, batch, extras)
            size = batch.weight.sum(1)
            samples[:active] += size
            for name, part in gradients.items():
                total[name][:active] += part * _like(size, part)
            for name, update in updates.items():
                stack[name][:active] = update
        means = {name: part / _like(samples, part) for name, part in total.items()}
        return {name: t[steps.back] for name, t in (stack | means).items()}

    def _gradients(
        self, work: Work, own: Mapping[str, Tensor], batch: StepBatch, extras: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return gradients and new buffers of the stacked clients for one step."""
        shared = {} if work.question.extras is None else dict(work.question.extras.shared)
        fixed = {name: t for name, t in own.items() if name not in self.trainable}
        inputs = (
            {name: own[name] for name in self.trainable},
            fixed,
            (batch.x, batch.y, batch.weight),
            dict(extras),
        )
        with _said_plainly():
            return vmap(self._one_gradient(work, shared), randomness="different")(*inputs)

    def _one_gradient(
        self, work: Work, shared: Mapping[str, Tensor]
    ) -> Callable[..., tuple[dict[str, Tensor], dict[str, Tensor]]]:
        objective, tape = work.question.objective, self.tape

        def loss(
            own: dict[str, Tensor],
            fixed: dict[str, Tensor],
            parts: tuple[Tensor, Tensor, Tensor],
            extras: dict[str, Tensor],
        ) -> tuple[Tensor, dict[str, Tensor]]:
            batch = StepBatch(*parts)
            tape.weight, tape.updates = batch.weight, {}
            learner = NetworkLearner(self.stacked, self.task, fixed)
            try:
                value = objective(learner, own, batch, {**shared, **extras})
                return value, dict(tape.updates)
            finally:
                tape.weight, tape.updates = None, {}

        return grad(loss, has_aux=True)

    # ------------------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def run_samples(
        self, model: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model over the pooled samples of all clients, in large chunks."""
        self.stacked.eval()
        if batch_statistics:
            return self._run_by_batches(model, rows, pool, batch_statistics)
        losses, correct = [], []
        for part in self._chunks(rows):
            index = torch.as_tensor(part, device=self.device)
            batch = self.batch(index, pool.x.new_ones(1), pool)
            outputs = functional_call(self.stacked, dict(model), (batch.x,))
            losses.append(self.task.loss(outputs, batch.y))
            if self.task.correct is not None:
                correct.append(self.task.correct(outputs, batch.y))
        return torch.cat(losses), torch.cat(correct) if correct else None

    def _chunks(self, rows: list[Indices]) -> list[Indices]:
        """Cut samples into large chunks, across clients unless a sample's neighbours matter."""
        if self.by_batch:
            return [part for own in rows for part in consecutive(own, EVALUATION_BATCH["cpu"])]
        size = EVALUATION_BATCH[self.device.type]
        return consecutive(np.concatenate(rows), size)

    def _run_by_batches(
        self, model: Parameters, rows: list[Indices], pool: Pool, size: int
    ) -> tuple[Tensor, Tensor | None]:
        """Run consecutive batches of each client, each normalised by its own statistics."""
        cut = [part for own in rows for part in consecutive(own, size)]
        losses, correct = [], []
        chunk = max(EVALUATION_BATCH[self.device.type] // size, 1)
        for at in range(0, len(cut), chunk):
            index, weight = self._padded(cut[at : at + chunk])
            batch = self.batch(index, weight, pool)
            with _said_plainly():
                outputs = vmap(self._one_batch(model))(batch.x, weight)
            real = weight.bool()
            outputs, targets = outputs[real], batch.y[real]
            losses.append(self.task.loss(outputs, targets))
            if self.task.correct is not None:
                correct.append(self.task.correct(outputs, targets))
        return torch.cat(losses), torch.cat(correct) if correct else None

    def _one_batch(self, model: Parameters) -> Callable[[Tensor, Tensor], Tensor]:
        def run(x: Tensor, weight: Tensor) -> Tensor:
            self.tape.weight = weight
            try:
                outputs: Tensor = functional_call(self.stacked, dict(model), (x,))
                return outputs
            finally:
                self.tape.weight, self.tape.updates = None, {}

        return run

    def _padded(self, batches: Sequence[Indices]) -> tuple[Tensor, Tensor]:
        """Return batches as one index and the weight of each sample; padding repeats a sample."""
        width = max(len(batch) for batch in batches)
        index = np.zeros((len(batches), width), dtype=np.int64)
        weight = np.zeros((len(batches), width))
        for row, batch in enumerate(batches):
            index[row, : len(batch)] = batch
            index[row, len(batch) :] = batch[0]
            weight[row, : len(batch)] = 1
        return (
            torch.as_tensor(index, device=self.device),
            torch.as_tensor(weight, device=self.device, dtype=self.dtype),
        )


class StackedSteps:
    """The steps of a group: at each, how many clients still train, and their batches."""

    def __init__(self, engine: Vectorized, work: Work) -> None:
        lengths = np.array([len(plan) for plan in work.plans])
        by_length = np.argsort(-lengths, kind="stable")
        self._engine, self._work, self._by_length = engine, work, by_length
        self._active = [int(np.sum(lengths > step)) for step in range(lengths.max())]
        self.order = torch.as_tensor(by_length, device=engine.device)
        self.back = torch.as_tensor(np.argsort(by_length), device=engine.device)

    def __iter__(self) -> Iterator[tuple[int, StepBatch, dict[str, Tensor]]]:
        engine, plans = self._engine, self._work.plans
        extras = self._extras()
        for step, active in enumerate(self._active):
            batches = [plans[place][step] for place in self._by_length[:active]]
            index, weight = engine._padded(batches)
            batch = engine.batch(index, weight, engine.train_pool)
            yield active, batch, {name: t[:active] for name, t in extras.items()}

    def _extras(self) -> dict[str, Tensor]:
        extras = self._work.question.extras
        if extras is None:
            return {}
        return stacks.pick(extras.per_client, self._work.places[self._by_length])


class ShrinkingOptimizer:
    """An optimiser over a stack of clients that can go on with the first rows only."""

    def __init__(self, stack: Mapping[str, Tensor], training: LocalTraining) -> None:
        self._stack, self._training = stack, training
        self._active = len(next(iter(stack.values())))
        self._views = dict(stack)
        self._optimizer = make_optimizer(self._views.values(), training)

    def step(self, active: int, gradients: Mapping[str, Tensor]) -> None:
        """Move the first `active` clients by their gradients; the others are done."""
        if active < self._active:
            self._shrink(active)
        for name, view in self._views.items():
            view.grad = gradients[name]
        self._optimizer.step()

    def _shrink(self, active: int) -> None:
        old, before = self._optimizer, self._views
        self._active = active
        self._views = {name: t[:active] for name, t in self._stack.items()}
        self._optimizer = make_optimizer(self._views.values(), self._training)
        for name, view in self._views.items():
            self._optimizer.state[view] = {
                key: value[:active] if torch.is_tensor(value) and value.dim() else value
                for key, value in old.state[before[name]].items()
            }


def fitting_group(engine: Vectorized, training: LocalTraining) -> int:
    """Return how many clients fit in memory at once, by what a client takes in training."""
    numbers = sum(t.numel() for t in engine.network.state_dict().values())
    activations = _activations(engine) * min(
        training.batch_size, int(engine.train_pool.sizes.max())
    )
    # Parameters, gradients, two moments and scratch; outputs are kept for the way back.
    per_client = (6 * numbers + 3 * activations) * torch.finfo(engine.dtype).bits // 8
    return max(1, int(GROUP_BYTES.get(engine.device.type, 1 << 30) // per_client))


def _activations(engine: Vectorized) -> int:
    """Return how many numbers the network's layers put out for one sample."""
    total = 0

    def add(_module: object, _inputs: object, output: object) -> None:
        nonlocal total
        if torch.is_tensor(output):
            total += output.numel()

    layers = [m for m in engine.network.modules() if not list(m.children())]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    try:
        with torch.no_grad():
            engine.network.eval()(engine.train_pool.x[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return total


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Turn torch's error for a network that cannot be stacked into one that says what to do."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        raise CloveError(
            "the vectorized engine cannot run this network or objective: "
            f"{str(error).splitlines()[0]} Use --engine sequential."
        ) from error


def _like(values: Tensor, stack: Tensor) -> Tensor:
    return values.view(-1, *[1] * (stack.dim() - 1))
