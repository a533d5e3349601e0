"""The vectorized engine: clients are a batch dimension.

All clients of a group train at once: their parameters are one stack, a step is one run of the
stacked network and one gradient of the sum of all losses (a client's parameters enter its own loss
only), the optimiser acts on the stack as a whole. Clients of fewer batches come last in the stack,
so those still training are always its first rows. Short batches are padded, and padding has no
weight in any loss or batch statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import parameters as stacks
from clove.federation.batches import consecutive
from clove.federation.budget import is_machine_error
from clove.federation.forwards import Forwards, Found
from clove.federation.heads import noting_input
from clove.federation.layers import Spread
from clove.federation.learner import NetworkLearner, gradients_of
from clove.federation.norm import Tape, always_by_batch, taped
from clove.federation.objectives import Batch, Objective, Prediction, task_loss
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.precision import networks_in
from clove.federation.questions import Summary, Train
from clove.federation.simulation import Simulation
from clove.federation.stacked import OneOfStack, StackedNetwork
from clove.federation.steps import GroupTraining
from clove.federation.summaries import is_side_by_side
from clove.federation.summarise import summary_models
from clove.federation.work import Told, Updated, Work
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
        self.prepares_sizes = self.device.type == "cuda"
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

    def train_group(self, work: Work) -> Updated:
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

    def gradient_group(self, work: Work) -> Updated:
        """Add up gradients over all batches, each weighted by its samples."""
        order = np.argsort(-work.plans.steps, kind="stable")
        steps = work.plans.steps[order]
        stack, told = stacks.pick(work.starts, order), work.told.pick(order)
        total = {name: torch.zeros_like(stack[name]) for name in work.trained}
        samples = torch.zeros(len(order), device=self.device, dtype=self.dtype)
        self.one.train()
        for step in range(int(steps.max())):
            active = int(np.sum(steps > step))
            rows, sizes = work.plans.stacked(order[:active], step)
            own = {name: t[:active] for name, t in stack.items()}
            batch = self.stacked_batch(
                torch.as_tensor(rows, device=self.device), torch.as_tensor(sizes).to(self.device)
            )
            with self.said_plainly():
                found = self.gradients(
                    work.question.objective,
                    work.trained,
                    own,
                    batch,
                    told.first(active),
                    padded=True,
                )
            size = torch.as_tensor(sizes).to(samples)
            samples[:active] += size
            for name, part in found.gradients.items():
                total[name][:active] += part * _like(size, part)
            for name, update in found.updates.items():
                stack[name][:active] = update
        means = {name: part / _like(samples, part) for name, part in total.items()}
        return Updated(stacks.pick(stack | means, np.argsort(order)))

    def stacked_batch(self, rows: Tensor, sizes: Tensor) -> Batch:
        """Gather rows `[clients, batch]`, of which the first `sizes` count, clients on `axis`."""
        weight = (torch.arange(rows.shape[1], device=rows.device) < sizes[:, None]).to(self.dtype)
        if self.axis == 1:
            rows, weight = rows.T, weight.T
        return self.batch(rows, weight, self.train_pool)

    def gradients(
        self,
        objective: Objective,
        trained: Sequence[str],
        own: Parameters,
        batch: Batch,
        told: Told,
        *,
        padded: bool,
    ) -> Step:
        """Return gradients, new buffers and losses of the stacked clients for one step."""
        tape, at = self.tape, self.axis
        fixed = {name: t for name, t in own.items() if name not in trained}
        free = {name: own[name].detach().requires_grad_() for name in trained}

        def loss(
            free: Parameters,
            fixed: Parameters,
            parts: Sequence[Tensor],
            extras: Parameters,
            sent: Parameters,
            kept: Mapping[str, Parameters],
        ) -> Tensor:
            batch = Batch(*parts)
            mine = Told({**told.shared, **extras}, {}, sent, kept)
            learner = StackLearner(self, {**sent, **fixed}, batch.weight, mine)
            return objective(learner, free, batch, mine.extras)

        with tape.recording(batch.weight, at, padded), torch.enable_grad():
            losses = vmap(loss, in_dims=(0, 0, at, 0, 0, 0), randomness="different")(
                free,
                fixed,
                (batch.x, batch.y, batch.weight),
                dict(told.extras),
                dict(told.sent),
                dict(told.kept),
            )
            updates = {name: t for name, t in tape.updates.items() if name in own}
            return Step(gradients_of(losses.sum(), free), updates, losses.detach())

    def for_each(self, function: Callable[..., Parameters], *stacks: Any) -> Parameters:
        """Do something for each client, all at once."""
        with self.said_plainly():
            found: Parameters = vmap(function, randomness="different")(*stacks)
            return found

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
        """Return rows as an index; where they follow each other a slice, which copies nothing.

        A network that writes on its input (`inplace=True` in its first layer) gets a copy.
        """
        first, last = int(part[0]), int(part[-1])
        whole = last - first + 1 == len(part) and bool(np.all(np.diff(part) == 1))
        if whole and not self.writes_on_input:
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

    @torch.no_grad()
    def run_predictions(
        self,
        predict: Prediction,
        models: Parameters,
        rows: list[Indices],
        pool: Pool,
        told: Told,
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Let all clients predict their rows in a way of their own, side by side."""
        self.one.eval()
        index, weight = self._padded(rows)
        chunk = max(EVALUATION_BATCH[self.device.type] // len(rows), 1)
        parts = []
        for some in torch.split(index, chunk, dim=1):
            batch = self.batch(some, weight[:, :1], pool)
            with self.said_plainly():
                outputs = self._predicted(predict, models, batch.x, told)
            losses, right = self.judged(outputs.flatten(0, 1), batch.y.flatten(0, 1))
            parts.append([found.view(some.shape) for found in (losses, right) if found is not None])
        whole = [torch.cat(some, 1) for some in zip(*parts, strict=True)]
        own = [[found[at, : len(mine)] for found in whole] for at, mine in enumerate(rows)]
        return [(losses, right[0] if right else None) for losses, *right in own]

    def _predicted(self, predict: Prediction, models: Parameters, x: Tensor, told: Told) -> Tensor:
        """Return what each client of a stack predicts for its samples `[clients, samples, ...]`."""

        def one(
            model: Parameters, x: Tensor, extras: Parameters, kept: Mapping[str, Parameters]
        ) -> Tensor:
            mine = Told({**told.shared, **extras}, {}, {}, kept)
            learner = StackLearner(self, {}, None, mine)
            return predict(learner, model, x, mine.extras)

        found: Tensor = vmap(one, randomness="different")(
            dict(models), x, dict(told.extras), dict(told.kept)
        )
        return found

    def summaries(self, question: Summary, places: Indices) -> dict[str, Tensor]:
        """Make the summaries of many clients at once, where they can be made so."""
        longest = int(self.train_pool.sizes[question.clients[places]].max())
        most = EVALUATION_BATCH[self.device.type] // longest
        if most < 2 or not is_side_by_side(question.of):
            return super().summaries(question, places)
        self.one.eval()
        parts = [
            self._summaries(question, places[at : at + most]) for at in range(0, len(places), most)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _summaries(self, question: Summary, places: Indices) -> dict[str, Tensor]:
        rows = [self.train_pool.rows(client) for client in question.clients[places]]
        batch = self.batch(*self._padded(rows), self.train_pool)

        def one(model: Parameters, x: Tensor, y: Tensor, weight: Tensor) -> dict[str, Tensor]:
            learner = StackLearner(self, {}, None, Told())
            return question.of(learner, model or None, Batch(x, y, weight), 0)

        models = summary_models(self, question, places) or {}
        with self.said_plainly():
            found: dict[str, Tensor] = vmap(one)(dict(models), batch.x, batch.y, batch.weight)
        return found

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
            if is_machine_error(error):
                raise
            raise CloveError(
                "the vectorized engine cannot run this network or objective: "
                f"{str(error).splitlines()[0]} Use --engine sequential."
            ) from error


@dataclass(frozen=True)
class Step:
    """What a step of stacked clients comes to: gradients, new buffers, and a loss for each."""

    gradients: dict[str, Tensor]
    updates: dict[str, Tensor]
    losses: Tensor


class StackLearner(NetworkLearner):
    """What objectives see under vmap: a network for one client, which runs for all at once.

    `weight` are the samples of the batch that count; None: this is an evaluation.
    """

    engine: Vectorized

    def __init__(
        self, engine: Vectorized, fixed: Parameters, weight: Tensor | None, told: Told
    ) -> None:
        super().__init__(engine.one, engine.task, fixed, engine.precision, engine, told)
        self.weight = weight

    def outputs(self, parameters: Parameters, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """Run the network with these parameters."""

        def run(own: Parameters, x: Spread, *weight: Spread) -> tuple[Spread]:
            with self._weighing(own, *weight):
                return (self.engine.stack(own, x.tensor, x.at),)

        if _alone():
            return self._run(run, parameters, x, weight)[0]
        return self._plainly(parameters, x, weight)

    def outputs_and_features(
        self, parameters: Parameters, x: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs and features, from one pass."""
        head = self.engine.head

        def run(own: Parameters, x: Spread, *weight: Spread) -> tuple[Spread, Spread]:
            with self._weighing(own, *weight):
                return self.engine.stack.with_features(own, x.tensor, x.at, head)

        if _alone():
            outputs, features = self._run(run, parameters, x, weight)
            return outputs, features
        met: list[Tensor] = []
        with noting_input(self.head, met.append):
            outputs = self._plainly(parameters, x, weight)
        return outputs, met[-1].to(self.engine.dtype)

    def gradient(self, parameters: Parameters, batch: Batch) -> dict[str, Tensor]:
        """Return the gradient of the task's loss, as numbers, and leave no trace in statistics."""
        if not _alone():
            raise CloveError("learner.gradient cannot be called where something differentiates it")
        engine, names = self.engine, tuple(parameters)
        fixed = {name: t for name, t in self.fixed.items() if name not in parameters}

        def run(own: Parameters, *samples: Spread) -> tuple[Spread, ...]:
            clients = len(next(iter(own.values())))
            parts = (one.placed(clients, engine.axis) for one in samples)
            found = engine.gradients(
                task_loss, names, own, Batch(*parts), Told(), padded=engine.tape.padded
            )
            return tuple(Spread(found.gradients[name], 0) for name in names)

        own = {**parameters, **fixed}
        samples = (batch.x, batch.y, batch.weight)
        found = OneOfStack.apply(  # type: ignore[no-untyped-call]
            run, tuple(own), *own.values(), *samples
        )
        return dict(zip(names, found, strict=True))

    def _run(
        self,
        run: Callable[..., tuple[Spread, ...]],
        parameters: Parameters,
        x: Tensor,
        weight: Tensor | None,
    ) -> list[Tensor]:
        """Run something for all clients at once, with the samples of this one that count."""
        own, weight = {**self.fixed, **parameters}, self._counting(x, weight)
        weights = () if weight is None else (weight,)
        with networks_in(self.precision, x.device):
            found = OneOfStack.apply(  # type: ignore[no-untyped-call]
                run, tuple(own), *own.values(), x, *weights
            )
        return [tensor.to(self.engine.dtype) for tensor in found]

    def _weighing(self, own: Parameters, *weight: Spread) -> AbstractContextManager[None]:
        tape, clients = self.engine.tape, len(next(iter(own.values())))
        if not weight:
            return tape.weighing(None, 0)
        return tape.weighing(weight[0].placed(clients, self.engine.axis), self.engine.axis)

    def _counting(self, x: Tensor, weight: Tensor | None) -> Tensor | None:
        """Return which samples count: as told, as in the batch, or all where there are others."""
        if weight is not None or self.weight is None or len(x) == len(self.weight):
            return self.weight if weight is None else weight
        return x.new_ones(len(x), dtype=self.engine.dtype)

    def _plainly(self, parameters: Parameters, x: Tensor, weight: Tensor | None) -> Tensor:
        """Run for this client alone: an objective differentiates by itself."""
        own, counting = {**self.fixed, **parameters}, self._counting(x, weight)
        with networks_in(self.precision, x.device):
            outputs = run_one(self.engine.one, self.engine.tape, own, x, counting)
        return outputs.to(self.engine.dtype)


def _alone() -> bool:
    """Say whether vmap over clients is all that is going on."""
    return bool(torch._C._functorch.maybe_current_level() == 1)


def run_one(
    network: torch.nn.Module, tape: Tape, model: Parameters, x: Tensor, weight: Tensor | None
) -> Tensor:
    """Run one model with batch statistics of the samples that count, and leave no trace."""
    with tape.recording(weight, 0, padded=True):
        outputs: Tensor = functional_call(network, dict(model), (x,))
        return outputs


def _like(values: Tensor, stack: Tensor) -> Tensor:
    return values.view(-1, *[1] * (stack.dim() - 1))
