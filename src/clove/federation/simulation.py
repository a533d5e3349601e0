"""The simulated federation: what both engines share.

A simulation answers questions from clients' data held in memory. It keeps clients' memories, loses
stragglers' replies, sets aside clients whose training diverged, and counts bytes. The engines
below it differ only in how a group of clients trains and how models are run over samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clove import seeds
from clove.data import ClientData
from clove.errors import CloveError, TooLittleMemory
from clove.federation import parameters as stacks
from clove.federation.adapted import evaluate_adapted
from clove.federation.batches import Plans, batch_plans, split_by_share
from clove.federation.budget import is_out_of_memory
from clove.federation.fit import check_fit
from clove.federation.gathered import Gathered
from clove.federation.heads import find_head, part_names
from clove.federation.initial import seeded_model
from clove.federation.learner import NetworkLearner
from clove.federation.memory import ClientMemory
from clove.federation.norm import has_batch_norm
from clove.federation.objectives import Batch, Prediction, Preparation
from clove.federation.parameters import Indices, Parameters
from clove.federation.pool import Pool
from clove.federation.precision import draws_from
from clove.federation.questions import (
    Answer,
    Evaluate,
    Extras,
    Filled,
    Floats,
    Gradients,
    Kept,
    Losses,
    LossVectors,
    Part,
    Question,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Summary,
    Train,
    Trained,
    Values,
)
from clove.federation.settling import settled
from clove.federation.summarise import one_by_one, summarised
from clove.federation.wire import Ledger
from clove.federation.work import Told, Updated, Work
from clove.tasks import Task


class Simulation(ABC):
    """Clients in memory that answer a server's questions."""

    name: ClassVar[str]
    prepares_sizes = False  # whether the first group of its size takes far longer than others

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
        numbers: Sequence[int] | None = None,
    ) -> None:
        if not 0 <= stragglers < 1:
            raise CloveError(f"stragglers must be a share in [0, 1), not {stragglers}")
        self.task, self.seed = task, seed
        self.names = [client.name for client in clients]
        # Chance depends on a client's number in its federation, of which we may hold a part only.
        self.numbers = np.arange(len(clients)) if numbers is None else np.array(numbers)
        self.true_groups = _known_groups(clients)
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
        tried = check_fit(self)
        self.writes_on_input, self._output_size = tried.writes_on_input, tried.output_size

    # ------------------------------------------------------------------ what an engine provides

    @abstractmethod
    def train_group(self, work: Work) -> Updated:
        """Train each client of a group from its start; return the trained stack."""

    @abstractmethod
    def gradient_group(self, work: Work) -> Updated:
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

    @property
    def present(self) -> Indices:
        """All clients: none is away."""
        return np.arange(self.clients)

    def begin_round(self, number: int, asked: int = 0) -> None:
        """Tell the federation that a round begins (from 1), or goes on after some questions."""
        self.round, self._asked = number, asked
        self.ledger.begin_round()

    def end_round(self, participants: int) -> None:
        """Go on, however many took part: those missing were lost on purpose."""
        return

    def answer(self, question: Question) -> Answer:
        """Answer a question as the clients would."""
        return self.begin_answer(question)()

    def begin_answer(self, question: Question) -> Callable[[], Answer]:
        """Set to work on a question; return what waits for the device and gives the answer."""
        self.ask()
        with self.draws():
            rest = self._answer(question)

        def finish() -> Answer:
            answer = rest()
            self.ledger.count(question, answer)
            return answer

        return finish

    def draws(self, *client: int) -> AbstractContextManager[None]:
        """Let dropout draw from a named seed, that of the question or of one client's part in it.

        It draws from torch's global generator, so this makes it repeat and resume.
        """
        seed = seeds.integer(self.seed, "dropout", self.round, self._asked, *client)
        return draws_from(seed, self.device)

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
        if isinstance(question, Summary):
            summaries = summarised(self, question, replying)
            return lambda: summaries
        trained = self._train(question, replying)
        return lambda: trained

    def summaries(self, question: Summary, places: Indices) -> dict[str, Tensor]:
        """Return the parts of the summaries of the clients at these places, a row a client."""
        return one_by_one(self, question, places)

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
        return stacks.move(seeded_model(self.task, seed, number), self.device, self.dtype)

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
            number = int(self.numbers[client])
            _, held_back = split_by_share(self.seed, number, len(own), question.unseen.share)
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
        raise TooLittleMemory(
            f"training {len(places)} client{'s' if len(places) > 1 else ''} at once does not fit "
            "in memory: use smaller batches, or a smaller network"
        )

    def run_work(self, work: Work) -> Updated:
        """Train a group, or measure its gradients."""
        if isinstance(work.question, Gradients):
            return self.gradient_group(work)
        return self.train_group(work) if work.question.settle is None else settled(self, work)

    def work(self, question: Train | Gradients, places: Indices) -> Work:
        """Return what the clients at these places have to do."""
        clients, starts = question.clients[places], self._starts(question, places)
        told = self._told(question, places, starts)
        trained, changing, first_time = self.trainable, self.state_names, None
        if isinstance(question, Train):
            if question.prepare is not None:
                starts = self._prepared(question.prepare, starts, told)
                told = replace(told, sent=starts if told.sent else {})
            part = self.part(question.only)
            trained, changing = [n for n in trained if n in part], part
            if question.trains is not None:
                first_time = ~self.memory.has(question.trains.name, clients)
                starts = self.own(question.trains, clients, starts)
                trained = changing = [n for n in starts if n in self.trainable]
        return Work(
            clients=clients,
            starts=starts,
            plans=self.plans(clients, question),
            question=question,
            trained=tuple(trained),
            changing=frozenset(changing),
            told=told,
            first_time=first_time,
            momentum=self._momentum(question, clients, {name: starts[name] for name in trained}),
        )

    def _momentum(
        self, question: Train | Gradients, clients: Indices, trained: Parameters
    ) -> Parameters | None:
        """Return the momentum of clients that keep theirs: noughts at first."""
        if isinstance(question, Gradients) or not question.training.keep_momentum:
            return None
        none_yet = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
        return self.own(Kept(question.training.momentum_name), clients, none_yet)

    def _starts(self, question: Train | Gradients, places: Indices) -> Parameters:
        models = question.models
        if not isinstance(models, Kept):
            return stacks.pick(models, question.start[places])
        return self.own(models, question.clients[places])

    def _prepared(self, prepare: Preparation, sent: Parameters, told: Told) -> Parameters:
        """Let clients make their starts of the models sent and of what they keep."""
        made = self.for_each(prepare, sent, dict(told.kept))
        state = self.network.state_dict()
        if made.keys() != state.keys():
            wrong = sorted(made.keys() ^ state.keys())
            raise CloveError(
                f"a preparation must return all parameters of the network and no others: see "
                f"{', '.join(wrong)}"
            )
        return {name: made[name].to(tensor.dtype) for name, tensor in state.items()}

    def _told(self, question: Train | Gradients, places: Indices, sent: Parameters) -> Told:
        """Return what the clients at these places may look at beside their samples."""
        extras = question.extras or Extras()
        reads = question.reads if isinstance(question, Train) else ()
        looks = getattr(question.objective, "uses_start", False)
        looks = looks or (isinstance(question, Train) and question.trains is not None)
        return Told(
            extras=stacks.pick(self.tensors(extras.per_client), places),
            shared=self.tensors(extras.shared),
            sent=sent if looks else {},
            kept={one.name: self.own(one, question.clients[places], sent) for one in reads},
        )

    def tensors(self, values: Values) -> dict[str, Tensor]:
        """Return arrays and tensors as this federation's devices have them."""
        return stacks.move(
            {name: torch.as_tensor(value) for name, value in values.items()},
            self.device,
            self.dtype,
        )

    def own(self, kept: Kept, clients: Indices, sent: Parameters | None = None) -> Parameters:
        """Return what each client keeps under a name, or takes as long as it keeps nothing."""
        has = self.memory.has(kept.name, clients)
        if has.all() and len(clients):
            return self.memory.kept(kept.name, clients)
        new = np.flatnonzero(~has)
        made = self._otherwise(kept, clients, new, sent)
        if not has.any():
            return made
        old = np.flatnonzero(has)
        mine = self.memory.kept(kept.name, clients[old])
        both = stacks.concatenate([mine, {name: made[name] for name in mine}])
        return stacks.pick(both, np.argsort(np.concatenate([old, new])))

    def _otherwise(
        self, kept: Kept, clients: Indices, new: Indices, sent: Parameters | None
    ) -> Parameters:
        if isinstance(kept.otherwise, Seeded):
            return stacks.repeat(self.seeded(kept.otherwise.seed, 0), len(new))
        if isinstance(kept.otherwise, Filled):
            state, value = self.network.state_dict(), kept.otherwise.value
            names = [n for n in self.part(kept.otherwise.part) if n in self.trainable]
            return {n: state[n].new_full((len(new), *state[n].shape), value) for n in names}
        if sent is None:
            raise CloveError(
                f"client {self.numbers[clients[new[0]]]} keeps nothing named {kept.name!r} yet, "
                "and the question does not say what to take instead"
            )
        return stacks.pick(sent, new)

    def for_each(self, function: Callable[..., Parameters], *stacked: Any) -> Parameters:
        """Do something for each client of stacks, one after the other."""
        number = stacks.count(stacked[0])
        return stacks.stack(
            [function(*(_one(stack, place) for stack in stacked)) for place in range(number)]
        )

    # ------------------------------------------------------------------- parts of the network

    @cached_property
    def head(self) -> str:
        """The name of the network's head: its last linear layer, or what the task says."""
        return find_head(self.network, self.train_pool.x[:1].clone(), self.task.head)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        if self.task.correct is None or self.train_pool.y is None:
            raise CloveError(
                f"this method needs classes, but the task is {self.task.name}: "
                "run it with labels and task=classification"
            )
        return self._output_size

    @property
    def state_names(self) -> list[str]:
        """The names of all parameters and buffers."""
        return [*self.trainable, *self.buffers]

    def part(self, which: Part) -> list[str]:
        """Return the names of the parameters and buffers of a part of the network."""
        return part_names(which, self.state_names, lambda: self.head)

    def plans(self, clients: Indices, question: Train | Gradients) -> Plans:
        """Plan the batches of these clients."""
        training, parts = question.training, getattr(question.objective, "parts", 1)
        if isinstance(question, Gradients):  # the parameters stand still: once is enough
            training = replace(training, epochs=1, steps=0)
        rows = [self._training_rows(int(client), question) for client in clients]
        numbers = self.numbers[clients]
        plans = batch_plans(self.seed, self.round, numbers, rows, training, self.normalises, parts)
        last = (plans.used - 1) % plans.batch_size + 1
        if self.normalises and last.min() < 2 * parts:
            least = "two" if parts == 1 else f"two in each of {parts} parts"
            raise CloveError(
                f"client {numbers[last.argmin()]} would train on a batch of "
                f"{'one sample' if last.min() == 1 else f'{last.min()} samples'}, but the "
                f"network's batch normalisation needs at least {least}; use larger batches, or "
                "drop the layer"
            )
        return plans

    def _training_rows(self, client: int, question: Train | Gradients) -> Indices:
        own = self.train_pool.rows(client)
        if isinstance(question, Gradients) or question.share >= 1:
            return own
        index = (self.round,) if question.share_anew else ()
        number = int(self.numbers[client])
        part, _ = split_by_share(self.seed, number, len(own), question.share, *index)
        return own[part]

    # ------------------------------------------------------------------------------ evaluation

    def _evaluate(self, question: Evaluate) -> Callable[[], Scores]:
        pool = self.test_pool if question.split == "test" else self.train_pool
        if question.prepare or question.adapt or question.predict:
            return evaluate_adapted(self, question, pool)
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
        scores = self.scores(clients[order], rows, parts)
        return lambda: scores().pick(np.argsort(order))

    def run_own(
        self, models: Parameters, rows: list[list[Indices]], pool: Pool
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Run each model of a stack over its own clients' rows; return what comes of each."""
        return [
            self.run_samples(stacks.one(models, place), own, pool) for place, own in enumerate(rows)
        ]

    @torch.no_grad()
    def run_predictions(
        self,
        predict: Prediction,
        models: Parameters,
        rows: list[Indices],
        pool: Pool,
        told: Told,
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Let each client predict its rows in a way of its own; return losses and correctness."""
        self.network.eval()
        found = []
        for place, own in enumerate(rows):
            index = torch.as_tensor(own, device=self.device)
            batch = self.batch(index, pool.x.new_ones(len(own), dtype=self.dtype), pool)
            mine = told.of(place)
            learner = NetworkLearner(self.network, self.task, None, self.precision, self, mine)
            outputs = predict(
                learner, stacks.one(models, place), batch.x, {**mine.shared, **mine.extras}
            )
            found.append(self.judged(outputs, batch.y))
        return found

    def judged(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss and, where there is right and wrong, the correctness of each sample."""
        right = None if self.task.correct is None else self.task.correct(outputs, y)
        return self.task.loss(outputs, y), right

    def scores(
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

    def batch(self, rows: Tensor | slice, weight: Tensor, pool: Pool) -> Batch:
        """Gather samples by row."""
        x = pool.x[rows]
        if self.task.target == "x":
            return Batch(x, x.flatten(1 if isinstance(rows, slice) else rows.dim()), weight)
        assert pool.y is not None
        return Batch(x, pool.y[rows], weight)

    def kept_models(self, name: str) -> Parameters:
        """Return the models that clients keep under a name."""
        everyone = np.arange(self.clients)
        if not self.memory.has(name, everyone).any():
            raise CloveError("no client has a model: none replied in any round")
        return self.memory.kept(name, everyone)

    def saved(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return self.memory.saved()

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` returned."""
        self.memory.restore(saved)


def _known_groups(clients: Sequence[ClientData]) -> Indices | None:
    groups = [client.group for client in clients]
    return None if None in groups else np.array(groups)


def _one(stack: Any, place: int) -> Any:
    """Return one client's part of a stack, or of a mapping of stacks."""
    if isinstance(stack, Tensor):
        return stack[place]
    return {name: _one(part, place) for name, part in stack.items()}


def segment_means(values: NDArray[Any], rows: list[Indices]) -> Floats:
    """Return the mean over each client's samples (the last axis), added up in double precision."""
    sizes = np.array([len(own) for own in rows])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.add.reduceat(values, starts, axis=-1, dtype=np.float64)
    return np.asarray(sums / sizes, dtype=np.float64)
