"""The vectorized engine: clients are a batch dimension.

All clients of a group train at once: their parameters are one stack, a step is one run of the
stacked network and one gradient of the sum of all losses (a client's parameters enter its own loss
only), the optimiser acts on the stack as a whole. Clients of fewer batches come last in the stack,
so those still training are always its first rows. Short batches are padded, and padding has no
weight in any loss or batch statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import parameters as stacks
from clove.federation.batches import consecutive
from clove.federation.forwards import Forwards, Found
from clove.federation.learner import NetworkLearner
from clove.federation.norm import Tape, always_by_batch, taped
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.precision import networks_in
from clove.federation.questions import Objective, Train
from clove.federation.simulation import Simulation, StepBatch, Work, is_out_of_memory
from clove.federation.stacked import OneOfStack, StackedNetwork
from clove.federation.steps import GroupTraining, client_extras
from clove.tasks import Task

EVALUATION_BATCH = {"cpu": 512, "cuda": 16384}  # what the caches like, and a GPU
LEAST_CHUNK = 256
KEPT_TRAININGS = 3  # sizes of group whose captured steps are kept


class Vectorized(Simulation):
    """Clients train side by side, as one stack."""

    name = "vectorized"

    def __init__(
        self, clients: Sequence[ClientData], task: Task, *, group_size: int = 0, **options: Any
    ) -> None:
        """Take `group_size` clients at once; 0: as many as fit."""
        super().__init__(clients, task, **options)
        self.one, self.tape = taped(self.network)
        self.stack = StackedNetwork(self.one, self.tape)
        self.axis = self.stack.client_axis
        self.by_batch = always_by_batch(self.network)
        self.group_size = group_size
        self.most_at_once = 0  # what fits in memory, where that is known
        self.forwards = Forwards(self)
        self._trainings: dict[Any, GroupTraining] = {}

    def groups(self, places: Indices, sizes: Indices) -> Iterator[Indices]:
        """Cut the clients into groups, of like size so that little is padding."""
        order = places[np.argsort(-sizes, kind="stable")]
        size = self.group_size or len(places)
        for at in range(0, len(order), max(size, 1)):
            yield np.sort(order[at : at + size])

    def halves(self, places: Indices) -> list[Indices]:
        """Halve a group that did not fit in memory, and make groups no larger from now on."""
        if len(places) == 1:
            return super().halves(places)
        self.forget_steps()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.group_size = -(-len(places) // 2)
        return [places[: self.group_size], places[self.group_size :]]

    # -------------------------------------------------------------------------------- training

    def train_group(self, work: Work) -> Parameters:
        """Train all clients of a group at once."""
        assert isinstance(work.question, Train)
        with self.said_plainly():
            return self._training(work).train(work)

    def _training(self, work: Work) -> GroupTraining:
        """Return the tensors and captured steps for a group of this size, the last used first."""
        if self.device.type != "cuda":  # nothing is captured: no need to hold the memory
            return GroupTraining(self, work)
        key = GroupTraining.key(work)
        training = self._trainings.pop(key, None) or GroupTraining(self, work)
        self._trainings[key] = training
        while len(self._trainings) > KEPT_TRAININGS:
            self._trainings.pop(next(iter(self._trainings)))
        return training

    def forget_steps(self) -> None:
        """Forget captured steps and runs: what they consist of has changed."""
        self._trainings.clear()
        self.forwards.forget()

    def gradient_group(self, work: Work) -> Parameters:
        """Add up gradients over all batches, each weighted by its samples."""
        order = np.argsort(-work.plans.steps, kind="stable")
        steps = work.plans.steps[order]
        stack = stacks.pick(work.starts, order)
        total = {name: torch.zeros_like(stack[name]) for name in self.trainable}
        samples = torch.zeros(len(order), device=self.device, dtype=self.dtype)
        per_client, shared = client_extras(work, order)
        self.one.train()
        for step in range(int(steps.max())):
            active = int(np.sum(steps > step))
            rows, sizes = work.plans.stacked(order[:active], step)
            own = {name: t[:active] for name, t in stack.items()}
            batch = self.stacked_batch(
                torch.as_tensor(rows, device=self.device), torch.as_tensor(sizes).to(self.device)
            )
            extras = {name: t[:active] for name, t in per_client.items()}
            with self.said_plainly():
                gradients, updates = self.gradients(
                    work.question.objective, own, batch, extras, shared, padded=True
                )
            size = torch.as_tensor(sizes).to(samples)
            samples[:active] += size
            for name, part in gradients.items():
                total[name][:active] += part * _like(size, part)
            for name, update in updates.items():
                stack[name][:active] = update
        means = {name: part / _like(samples, part) for name, part in total.items()}
        return stacks.pick(stack | means, np.argsort(order))

    def stacked_batch(self, rows: Tensor, sizes: Tensor) -> StepBatch:
        """Gather rows `[clients, batch]`, of which the first `sizes` count, clients on `axis`."""
        weight = (torch.arange(rows.shape[1], device=rows.device) < sizes[:, None]).to(self.dtype)
        if self.axis == 1:
            rows, weight = rows.T, weight.T
        return self.batch(rows, weight, self.train_pool)

    def gradients(
        self,
        objective: Objective,
        own: Parameters,
        batch: StepBatch,
        extras: Parameters,
        shared: Parameters,
        *,
        padded: bool,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return gradients and new buffers of the stacked clients for one step."""
        tape, at = self.tape, self.axis
        fixed = {name: t for name, t in own.items() if name not in self.trainable}
        free = {name: own[name].detach().requires_grad_() for name in self.trainable}

        def loss(
            free: Parameters, fixed: Parameters, parts: Sequence[Tensor], extras: Parameters
        ) -> Tensor:
            batch = StepBatch(*parts)
            learner = StackLearner(self, fixed, batch.weight)
            return objective(learner, free, batch, {**shared, **extras})

        tape.weight, tape.at, tape.padded, tape.updates = batch.weight, at, padded, {}
        try:
            losses = vmap(loss, in_dims=(0, 0, at, 0), randomness="different")(
                free, fixed, (batch.x, batch.y, batch.weight), dict(extras)
            )
            found = torch.autograd.grad(
                losses.sum(), list(free.values()), allow_unused=True, materialize_grads=True
            )
            return dict(zip(free, found, strict=True)), dict(tape.updates)
        finally:
            tape.weight, tape.updates = None, {}

    # ------------------------------------------------------------------------------ evaluation

    def run_models(
        self, models: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> Tensor:
        """Run all models over all samples, several models at a time where that is faster."""
        if batch_statistics or self.by_batch:
            return super().run_models(models, rows, pool, batch_statistics)
        number = stacks.count(models)
        at_once = number if self.models_at_once is None else min(self.models_at_once, number)
        parts = [
            self._run_stack(
                stacks.pick(models, np.arange(at, min(at + at_once, number))), rows, pool
            )
            for at in range(0, number, at_once)
        ]
        return torch.cat([losses for losses, _ in parts])

    @torch.no_grad()
    def run_samples(
        self, model: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """Run the model over the pooled samples of all clients, in large chunks."""
        self.one.eval()
        if batch_statistics:
            return self._run_by_batches(model, rows, pool, batch_statistics)
        losses, correct = self._run_stack({n: t.unsqueeze(0) for n, t in model.items()}, rows, pool)
        return losses[0], None if correct is None else correct[0]

    @torch.no_grad()
    def _run_stack(
        self, models: Parameters, rows: list[Indices], pool: Pool
    ) -> tuple[Tensor, Tensor | None]:
        """Run models over samples they share; return losses and correctness, a row a model."""
        if self.device.type == "cuda" and not self.by_batch:
            return self.forwards.shared(models, np.concatenate(rows), pool)
        parts = [
            self.measure(models, self._rows(part), pool)
            for part in self._chunks(rows, stacks.count(models))
        ]
        correct = [right for _, right in parts if right is not None]
        return torch.cat([loss for loss, _ in parts], 1), torch.cat(correct, 1) if correct else None

    def run_own(self, models: Parameters, rows: list[list[Indices]], pool: Pool) -> list[Found]:
        """Run each model over its own clients' rows; on a GPU captured, without waiting."""
        if self.device.type == "cuda" and not self.by_batch and rows:
            return self.forwards.own(models, [np.concatenate(own) for own in rows], pool)
        return super().run_own(models, rows, pool)

    @torch.no_grad()
    def measure(self, models: Parameters, rows: Tensor | slice, pool: Pool) -> Found:
        """Run models over rows they share, or over a row of rows each."""
        self.one.eval()
        at = self.axis if isinstance(rows, Tensor) and rows.dim() == 2 else None
        if isinstance(rows, Tensor) and at == 1:
            rows = rows.T
        batch = self.batch(rows, pool.x.new_ones(1), pool)
        with self.said_plainly(), networks_in(self.precision, self.device):
            outputs = self.stack(models, batch.x, at).front().to(self.dtype)
        several, y = outputs.shape[:2], batch.y
        y = y.expand(len(outputs), *y.shape) if at is None else y.movedim(at, 0)
        outputs, targets = outputs.flatten(0, 1), y.flatten(0, 1)
        losses = self.task.loss(outputs, targets).view(several)
        if self.task.correct is None:
            return losses, None
        return losses, self.task.correct(outputs, targets).view(several)

    def _rows(self, part: Indices) -> Tensor | slice:
        """Return rows as an index; where they follow each other a slice, which copies nothing."""
        first, last = int(part[0]), int(part[-1])
        if last - first + 1 == len(part) and bool(np.all(np.diff(part) == 1)):
            return slice(first, last + 1)
        return torch.as_tensor(part, device=self.device)

    def _chunks(self, rows: list[Indices], models: int = 1) -> list[Indices]:
        """Cut samples into chunks, across clients unless a sample's neighbours matter."""
        if self.by_batch:
            return [part for own in rows for part in consecutive(own, EVALUATION_BATCH["cpu"])]
        size = max(EVALUATION_BATCH["cpu"] // models, LEAST_CHUNK)
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
            with self.said_plainly(), networks_in(self.precision, self.device):
                outputs = vmap(self._one_batch(model))(batch.x, weight).to(self.dtype)
            real = weight.bool()
            outputs, targets = outputs[real], batch.y[real]
            losses.append(self.task.loss(outputs, targets))
            if self.task.correct is not None:
                correct.append(self.task.correct(outputs, targets))
        return torch.cat(losses), torch.cat(correct) if correct else None

    def _one_batch(self, model: Parameters) -> Callable[[Tensor, Tensor], Tensor]:
        def run(x: Tensor, weight: Tensor) -> Tensor:
            return run_one(self.one, self.tape, model, x, weight)

        return run

    def _padded(self, batches: Sequence[Indices]) -> tuple[Tensor, Tensor]:
        """Return batches as one index and the weight of each sample; padding repeats a sample."""
        sizes = np.array([len(batch) for batch in batches])
        real = np.arange(sizes.max()) < sizes[:, None]
        index = np.repeat(np.array([batch[0] for batch in batches])[:, None], sizes.max(), 1)
        index[real] = np.concatenate(batches)
        return (
            torch.as_tensor(index, device=self.device),
            torch.as_tensor(real, device=self.device).to(self.dtype),
        )

    @contextmanager
    def said_plainly(self) -> Iterator[None]:
        """Turn torch's error for a network that cannot be stacked into one that says what to do."""
        try:
            yield
        except (RuntimeError, NotImplementedError) as error:
            if is_out_of_memory(error):
                raise
            raise CloveError(
                "the vectorized engine cannot run this network or objective: "
                f"{str(error).splitlines()[0]} Use --engine sequential."
            ) from error


class StackLearner(NetworkLearner):
    """What objectives see under vmap: a network for one client, which runs for all at once."""

    def __init__(self, engine: Vectorized, fixed: Parameters, weight: Tensor) -> None:
        super().__init__(engine.one, engine.task, fixed, engine.precision)
        self.engine, self.weight = engine, weight

    def outputs(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network with these parameters."""
        engine, own = self.engine, {**self.fixed, **parameters}
        with networks_in(engine.precision, x.device):
            if torch._C._functorch.maybe_current_level() == 1:
                outputs: Tensor = OneOfStack.apply(  # type: ignore[no-untyped-call]
                    engine.stack, tuple(own), x, *own.values()
                )
            else:  # an objective that differentiates by itself: the rule above is not for it
                weight = self.weight if len(x) == len(self.weight) else x.new_ones(len(x))
                outputs = run_one(engine.one, engine.tape, own, x, weight)
        return outputs.to(engine.dtype)


def run_one(
    network: torch.nn.Module, tape: Tape, model: Parameters, x: Tensor, weight: Tensor
) -> Tensor:
    """Run one model with batch statistics of the samples that count, and leave no trace."""
    before = tape.weight, tape.updates
    tape.weight, tape.updates = weight, {}
    try:
        outputs: Tensor = functional_call(network, dict(model), (x,))
        return outputs
    finally:
        tape.weight, tape.updates = before


def _like(values: Tensor, stack: Tensor) -> Tensor:
    return values.view(-1, *[1] * (stack.dim() - 1))
