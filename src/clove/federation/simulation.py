"""The simulated federation: what both engines share.

A simulation answers questions from clients' data held in memory. It keeps clients' memories, loses
stragglers' replies, sets aside clients whose training diverged, and counts bytes. The engines
below it differ only in how a group of clients trains and how models are run over samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clove import seeds
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import parameters as stacks
from clove.federation.batches import Plans, batch_plans, split_by_share
from clove.federation.gathered import Gathered
from clove.federation.memory import ClientMemory
from clove.federation.norm import has_batch_norm
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.precision import draws_from
from clove.federation.questions import (
    Answer,
    Evaluate,
    Floats,
    Gradients,
    Kept,
    Losses,
    LossVectors,
    Question,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Train,
    Trained,
)
from clove.federation.wire import Ledger
from clove.tasks import Task, initial_parameters


@dataclass(frozen=True)
class StepBatch:
    """Samples of one step, for one client or a stack of clients."""

    x: Tensor
    y: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Work:
    """A group of clients to train: where each starts, and its batches step by step."""

    clients: Indices
    starts: Parameters
    plans: Plans
    question: Train | Gradients
    places: Indices  # where these clients stand in the question


class Simulation(ABC):
    """Clients in memory that answer a server's questions."""

    name: ClassVar[str]

    def __init__(
        self,
        clients: Sequence[ClientData],
        task: Task,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        precision: str = "",
        stragglers: float = 0.0,
    ) -> None:
        if not 0 <= stragglers < 1:
            raise CloveError(f"stragglers must be a share in [0, 1), not {stragglers}")
        self.task, self.seed = task, seed
        self.names = [client.name for client in clients]
        self.device, self.dtype = torch.device(device), dtype
        self.precision = precision or ("fp64" if dtype == torch.float64 else "fp32")
        self.models_at_once: int | None = 1  # in loss vectors; None: all
        self.stragglers = stragglers
        self.train_pool = Pool.of([client.train for client in clients], self.device, dtype)
        tests = [client.test for client in clients if client.test is not None]
        if len(tests) < len(clients):
            raise CloveError("every client needs test data; hold some back with clove.data.holdout")
        self.test_pool = Pool.of(tests, self.device, dtype)
        self.network = task.build().to(self.device, dtype)
        self.trainable = [n for n, p in self.network.named_parameters() if p.requires_grad]
        self.buffers = [n for n in self.network.state_dict() if n not in self.trainable]
        self.normalises = has_batch_norm(self.network)
        self.memory = ClientMemory(len(clients))
        self.ledger = Ledger()
        self.round = 0
        self._asked = 0
        self._check()

    def _check(self) -> None:
        if self.task.target == "y" and self.train_pool.y is None:
            raise CloveError(
                f"task {self.task.name!r} needs labels, but the clients have none; "
                "use clove.reconstruction for unsupervised data"
            )
        lone = np.flatnonzero(self.train_pool.sizes < 2)
        if self.normalises and len(lone):
            raise CloveError(
                f"client {lone[0]} has a single training sample, but the network's batch "
                "normalisation needs at least two; drop that client or the layer"
            )
        if len(list(self.network.parameters())) < len(
            list(self.network.named_parameters(remove_duplicate=False))
        ):
            raise CloveError(
                "the network uses one parameter under two names (tied weights), which cannot be "
                "averaged; register it once and use it twice in forward"
            )
        self._try_network()

    def _try_network(self) -> None:
        """Run two samples through the network, so that a misfit is said before any round."""
        rows = torch.arange(min(2, len(self.train_pool.x)), device=self.device)
        batch = self.batch(rows, torch.ones(len(rows)), self.train_pool)
        try:
            with torch.no_grad():
                outputs = self.network.eval()(batch.x)
        except Exception as error:
            if not batch.x.is_floating_point():
                raise CloveError(
                    "the network cannot take whole numbers: convert the features to float32 "
                    "(images of bytes: divide them by 255)"
                ) from error
            raise CloveError(
                f"the network cannot take samples of shape {tuple(batch.x.shape[1:])}: {error}"
            ) from error
        if self.task.correct is not None:
            for pool in (self.train_pool, self.test_pool):
                self._check_labels(pool, outputs.shape[-1])
        self._try_loss(outputs, batch)

    def _try_loss(self, outputs: Tensor, batch: StepBatch) -> None:
        """Take the loss of a few samples, so that one of the user's own fails before any round."""
        try:
            losses = self.task.loss(outputs, batch.y)
        except CloveError:
            raise
        except Exception as error:
            raise CloveError(
                f"the loss cannot be taken of outputs of shape {tuple(outputs.shape)} and targets "
                f"of shape {tuple(batch.y.shape)}: {type(error).__name__}: {error}"
            ) from error
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        if shape != (len(batch.y),):
            raise CloveError(
                f"the loss must give one number for each of {len(batch.y)} samples, shape "
                f"({len(batch.y)},), but gives {shape}: with torch's losses use reduction='none'"
            )

    def _check_labels(self, pool: Pool, logits: int) -> None:
        """Refuse labels that are no outputs of the network, and name the first client with some."""
        labels = pool.y
        if labels is None:
            return
        low, high = labels.min().item(), labels.max().item()
        if not labels.is_floating_point() and low >= 0 and high < logits:
            return
        if labels.is_floating_point():
            raise CloveError(
                "labels are floating-point numbers, but classification needs whole ones: convert "
                "them with .astype(int), or use regression"
            )
        if logits < 2:
            raise CloveError("the network has one output, but classification needs one a class")
        wrong = (labels < 0) | (labels >= logits) | (labels != labels.floor())
        first = int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0]) if wrong.any() else 0
        client = int(np.searchsorted(pool.offsets, first, side="right")) - 1
        name = "" if self.names[client] is None else f" ({self.names[client]})"
        raise CloveError(
            f"labels run from {low} to {high}, but the network has {logits} outputs; "
            f"classification needs whole labels 0 to {logits - 1}: see client {client}{name}"
        )

    # ------------------------------------------------------------------ what an engine provides

    @abstractmethod
    def train_group(self, work: Work) -> Parameters:
        """Train each client of a group from its start; return the trained stack."""

    @abstractmethod
    def gradient_group(self, work: Work) -> Parameters:
        """Return each client's mean gradient over its batches (buffers: updated values)."""

    @abstractmethod
    def run_samples(
        self, model: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> tuple[Tensor, Tensor | None]:
        """Run one model over each client's rows; return loss and correctness of each sample."""

    @abstractmethod
    def groups(self, places: Indices, sizes: Indices) -> Iterator[Indices]:
        """Cut places of clients into groups that are trained at once; `sizes` are their samples."""

    # ------------------------------------------------------------------------------- answering

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.memory.clients

    def begin_round(self, number: int) -> None:
        """Tell the federation that a round begins (from 1)."""
        self.round, self._asked = number, 0
        self.ledger.begin_round()

    def answer(self, question: Question) -> Answer:
        """Answer a question as the clients would."""
        return self.begin_answer(question)()

    def begin_answer(self, question: Question) -> Callable[[], Answer]:
        """Set to work on a question; return what waits for the device and gives the answer."""
        self.ask()
        # Dropout draws from torch's global generator: a named seed makes it repeat and resume.
        with draws_from(seeds.integer(self.seed, "dropout", self.round, self._asked), self.device):
            rest = self._answer(question)

        def finish() -> Answer:
            answer = rest()
            self.ledger.count(question, answer)
            return answer

        return finish

    def ask(self) -> None:
        """Count a question, on whose number in the round chance depends."""
        self._asked += 1

    def _answer(self, question: Question) -> Callable[[], Answer]:
        if isinstance(question, Evaluate):
            return self._evaluate(question)
        replying = self.replying(question.clients)
        if isinstance(question, Losses):
            return self._losses(question, replying)
        if isinstance(question, Recall):
            clients = question.clients[replying]
            return partial(Recalled, clients, self.memory.assignments(clients))
        trained = self._train(question, replying)
        return lambda: trained

    def replying(self, clients: Indices) -> Indices:
        """Return the places of the clients that reply: stragglers are left out."""
        if not self.stragglers:
            return np.arange(len(clients))
        draw = seeds.stream(self.seed, "stragglers", self.round, self._asked).random(self.clients)
        return np.flatnonzero(draw[clients] >= self.stragglers)

    # --------------------------------------------------------------------------------- losses

    def _losses(self, question: Losses, replying: Indices) -> Callable[[], LossVectors]:
        clients = question.clients[replying]
        rows = [self.train_pool.rows(client) for client in clients]
        matrix = self._loss_matrix(question, rows)

        def finish() -> LossVectors:
            losses = matrix()
            if question.unseen is not None:
                self._measure_unseen(question, replying, losses)
            return LossVectors(clients, losses)

        return finish

    def _loss_matrix(self, question: Losses, rows: list[Indices]) -> Callable[[], Floats]:
        """Begin to measure the mean loss of each model on each client's rows."""
        models, statistics = question.models, question.batch_statistics
        if isinstance(models, Seeded):  # each is made when its turn comes, and then forgotten
            made = (self.seeded(models.seed, number) for number in range(models.count))
            means = [self._mean_losses(model, rows, statistics) for model in made]
            return lambda: np.stack(means, axis=1)
        if not rows:
            return partial(np.zeros, (0, stacks.count(models)))
        losses = stacks.download(self.run_models(models, rows, self.train_pool, statistics))
        return lambda: segment_means(losses(), rows).T

    def run_models(
        self, models: Parameters, rows: list[Indices], pool: Pool, batch_statistics: int = 0
    ) -> Tensor:
        """Return the loss of each model of a stack on each sample, `[models, samples]`."""
        return torch.stack(
            [
                self.run_samples(stacks.one(models, number), rows, pool, batch_statistics)[0]
                for number in range(stacks.count(models))
            ]
        )

    def seeded(self, seed: int, number: int) -> dict[str, Tensor]:
        """Return the model every client makes from this seed and number."""
        model = initial_parameters(self.task, seeds.integer(seed, "seeded", number))
        return stacks.move(model, self.device, self.dtype)

    def _mean_losses(
        self, model: Parameters, rows: list[Indices], batch_statistics: int = 0
    ) -> Floats:
        if not rows:
            return np.zeros(0)
        losses, _ = self.run_samples(model, rows, self.train_pool, batch_statistics)
        return segment_means(losses.cpu().numpy(), rows)

    def _measure_unseen(self, question: Losses, replying: Indices, losses: Floats) -> None:
        """Measure a client's loss on its own probe again, on data the probe has not seen."""
        assert question.unseen is not None
        assert not isinstance(question.models, Seeded)
        for row, place in enumerate(replying):
            model, client = question.unseen.model[place], int(question.clients[place])
            if model < 0:
                continue
            own = self.train_pool.rows(client)
            _, held_back = split_by_share(self.seed, client, len(own), question.unseen.share)
            # A single sample has no batch statistics: its client keeps the loss on all of its data.
            if len(held_back) >= (2 if self.normalises and question.batch_statistics else 1):
                losses[row, model] = self._mean_losses(
                    stacks.one(question.models, int(model)),
                    [own[held_back]],
                    question.batch_statistics,
                )[0]

    # -------------------------------------------------------------------------------- training

    def _train(self, question: Train | Gradients, replying: Indices) -> Trained:
        gathered = Gathered(self, question)
        waiting = list(self.groups(replying, self.train_pool.sizes[question.clients[replying]]))
        while waiting:
            places = waiting.pop(0)
            try:
                gathered.add(places, self.run_work(self.work(question, places)))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                waiting = [*self.halves(places), *waiting]
        return gathered.answer()

    def halves(self, places: Indices) -> list[Indices]:
        """Return a group that did not fit in memory as two, for this round and those to come."""
        raise CloveError(
            f"training {len(places)} client{'s' if len(places) > 1 else ''} at once does not fit "
            "in memory: use smaller batches, or a smaller network"
        )

    def run_work(self, work: Work) -> Parameters:
        """Train a group, or measure its gradients."""
        run = self.train_group if isinstance(work.question, Train) else self.gradient_group
        return run(work)

    def work(self, question: Train | Gradients, places: Indices) -> Work:
        """Return what the clients at these places have to do."""
        clients = question.clients[places]
        share = question.share if isinstance(question, Train) else 1.0
        return Work(
            clients=clients,
            starts=self._starts(question, places),
            plans=self._plans(clients, share, question),
            question=question,
            places=places,
        )

    def _starts(self, question: Train | Gradients, places: Indices) -> Parameters:
        models = question.models
        if not isinstance(models, Kept):
            return stacks.pick(models, question.start[places])
        clients = question.clients[places]
        new = np.flatnonzero(~self.memory.has(models.name, clients))
        if len(new):
            made = stacks.repeat(self.seeded(models.otherwise.seed, 0), len(new))
            self.memory.keep(models.name, clients[new], made)
        return self.memory.kept(models.name, clients)

    def _plans(self, clients: Indices, share: float, question: Train | Gradients) -> Plans:
        training = question.training
        if isinstance(question, Gradients):
            training = replace(training, epochs=1)  # the parameters stand still: once is enough
        rows = [self._training_rows(int(client), share) for client in clients]
        plans = batch_plans(self.seed, self.round, clients, rows, training, self.normalises)
        last = (plans.used - 1) % plans.batch_size + 1
        if self.normalises and last.min() < 2:
            raise CloveError(
                f"client {clients[last.argmin()]} would train on a batch of one sample, but the "
                "network's batch normalisation needs at least two; use larger batches, or drop the "
                "layer"
            )
        return plans

    def _training_rows(self, client: int, share: float) -> Indices:
        own = self.train_pool.rows(client)
        if share >= 1:
            return own
        part, _ = split_by_share(self.seed, client, len(own), share)
        return own[part]

    # ------------------------------------------------------------------------------ evaluation

    def _evaluate(self, question: Evaluate) -> Callable[[], Scores]:
        pool = self.test_pool if question.split == "test" else self.train_pool
        clients, index, models = question.clients, question.index, question.models
        if isinstance(models, Kept):
            clients = clients[self.memory.has(models.name, clients)]
            index = np.arange(len(clients))
            models = self.memory.kept(models.name, clients) if len(clients) else {}
        elif index is None:
            index = self.memory.assignments(clients)
            clients, index = clients[index >= 0], index[index >= 0]
        assert index is not None
        order = np.argsort(index, kind="stable")
        rows = [pool.rows(client) for client in clients[order]]
        used, first = np.unique(index[order], return_index=True)
        own = [rows[a:b] for a, b in pairwise([*first, len(rows)])]
        parts = self.run_own(stacks.pick(models, used), own, pool)
        scores = self._scores(clients[order], rows, parts)
        return lambda: scores().pick(np.argsort(order))

    def run_own(
        self, models: Parameters, rows: list[list[Indices]], pool: Pool
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Run each model of a stack over its own clients' rows; return what comes of each."""
        return [
            self.run_samples(stacks.one(models, place), own, pool) for place, own in enumerate(rows)
        ]

    def _scores(
        self, clients: Indices, rows: list[Indices], parts: list[tuple[Tensor, Tensor | None]]
    ) -> Callable[[], Scores]:
        """Make scores of what came of the clients' samples, in one trip from the device."""
        rated = self.task.correct is not None
        if not parts:
            return partial(Scores, clients, np.zeros(0), np.zeros(0) if rated else None)
        found = torch.cat([loss for loss, _ in parts])[None]
        if rated:
            right = torch.cat([correct for _, correct in parts if correct is not None])
            found = torch.cat([found, right.to(found.dtype)[None]])
        coming = stacks.download(found)

        def finish() -> Scores:
            means = segment_means(coming(), rows)
            return Scores(clients, means[0], means[1] if rated else None)

        return finish

    # -------------------------------------------------------------------------------- samples

    def batch(self, rows: Tensor | slice, weight: Tensor, pool: Pool) -> StepBatch:
        """Gather samples by row."""
        x = pool.x[rows]
        if self.task.target == "x":
            return StepBatch(x, x.flatten(1 if isinstance(rows, slice) else rows.dim()), weight)
        assert pool.y is not None
        return StepBatch(x, pool.y[rows], weight)

    def saved(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return self.memory.saved()

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` returned."""
        self.memory.restore(saved)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Say whether memory ran out, on the device or on the host."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def segment_means(values: NDArray[Any], rows: list[Indices]) -> Floats:
    """Return the mean over each client's samples (the last axis), added up in double precision."""
    sizes = np.array([len(own) for own in rows])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(values, starts, axis=-1, dtype=np.float64)
    return np.asarray(sums / sizes, dtype=np.float64)
