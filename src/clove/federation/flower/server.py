"""The server's half: a federation that answers questions by asking nodes over Flower."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
import torch
from flwr.app import RecordDict

from clove.errors import CloveError, CloveWarning
from clove.federation import parameters as stacks
from clove.federation.flower.checks import (
    Outgrown,
    Wanted,
    check_answer,
    check_samples,
    check_size,
    most_bytes,
)
from clove.federation.flower.client import message_type
from clove.federation.flower.codec import Misread, Reader, payload
from clove.federation.flower.collected import Collected
from clove.federation.flower.exchange import Reply, exchange
from clove.federation.flower.forms import Form, expected_form
from clove.federation.flower.header import Header, reason_of, says_forgotten
from clove.federation.flower.letters import Letters
from clove.federation.flower.parts import for_clients
from clove.federation.flower.roster import Roster
from clove.federation.flower.words import plain
from clove.federation.heads import find_head, part_names
from clove.federation.parameters import Indices, Parameters
from clove.federation.precision import dtype_of
from clove.federation.questions import (
    ANSWER_TO,
    Answer,
    Evaluate,
    Gradients,
    Kept,
    Question,
    Recall,
    Recalled,
    Summary,
    Train,
)
from clove.federation.summaries import Summariser
from clove.federation.wire import Ledger, Stacks
from clove.tasks import Task, initial_parameters

EMPTY_ROUNDS = 3  # in a row, that nobody takes part in, until a run gives up


@dataclass
class FlowerFederation:
    """Clients on a network that answer a server's questions.

    It keeps nothing of the clients but who they are, the model each was last told to train, which
    it need not ask them for, and when it last heard that a client keeps something. `wait` is how
    long it waits for a node where there is none, `folder` where simulated clients remember.
    """

    roster: Roster
    task: Task
    seed: int
    precision: str
    timeout: float
    inputs: tuple[int, ...]
    outputs: int
    rounds: int
    wait: float
    folder: str = ""
    run: str = field(default_factory=lambda: uuid4().hex)
    session: str = field(default_factory=lambda: uuid4().hex)

    name: ClassVar[str] = "flower"
    device: ClassVar[torch.device] = torch.device("cpu")

    def __post_init__(self) -> None:
        self.dtype = dtype_of(self.precision)
        self.ledger = Ledger()
        self.round = self._asked = 0
        self.told = np.zeros(0, dtype=np.int64)  # the model each client trained last, -1: none
        self.heard = np.zeros(0, dtype=np.int64)  # when it was last known to keep something, 0: not
        self.empty = 0  # rounds that nobody took part in, since somebody did
        self._stacks = Stacks()
        self._forms: dict[Summariser, Form | None] = {}
        self._template = stacks.move(
            stacks.repeat(initial_parameters(self.task, 0), 1), self.device, self.dtype
        )
        parameters = self.task.build().named_parameters()
        self._values = frozenset(self._template) - {n for n, p in parameters if p.requires_grad}
        self._make_room()

    @property
    def clients(self) -> int:
        """How many clients there are, counting those that are away."""
        return len(self.told)

    @property
    def present(self) -> Indices:
        """The clients that are there, of whom participants are drawn."""
        return np.array(sorted(self.roster.members), dtype=np.int64)

    @property
    def true_groups(self) -> Indices | None:
        """The clients' true groups, where all say theirs."""
        return self.roster.groups()

    def begin_round(self, number: int) -> None:
        """Begin a round: see who is there, and wait for somebody where nobody is."""
        self.round, self._asked = number, 0
        self.ledger.begin_round()
        self._stacks = Stacks()
        self.roster.wait(1, self.wait)
        self._make_room()

    def end_round(self, participants: int) -> None:
        """Give up where nobody takes part any more: such rounds would only look like a run."""
        self.empty = 0 if participants else self.empty + 1
        if self.empty >= min(EMPTY_ROUNDS, self.rounds):
            raise CloveError(
                f"nobody took part in round {self.round}"
                + (f", nor in the {self.empty - 1} before it" if self.empty > 1 else "")
                + ": mend the nodes, by what is said above of them, and start the run again; it "
                "goes on with this round"
            )

    def _make_room(self) -> None:
        new = max(0, self.roster.size - len(self.told))
        self.told = np.concatenate([self.told, np.full(new, -1, dtype=np.int64)])
        self.heard = np.concatenate([self.heard, np.zeros(new, dtype=np.int64)])

    # ------------------------------------------------------------------------------- answering

    def answer(self, question: Question) -> Answer:
        """Ask the clients, and wait for their answers."""
        self._asked += 1
        if isinstance(question, Recall):
            return self._recalled(question)
        if isinstance(question, Evaluate) and not isinstance(question.models, Kept):
            question = self._with_index(question)
        answer = self._ask(question)
        if isinstance(question, Train | Gradients) and question.assigns:
            replied = np.isin(question.clients, answer.clients)
            self.told[question.clients[replied]] = question.start[replied]
        return answer

    def _recalled(self, question: Recall) -> Recalled:
        """Ask those clients only that the server never told a model."""
        unknown = question.clients[self.told[question.clients] < 0]
        models = self.told.copy()
        heard = self._ask(replace(question, clients=unknown))
        assert isinstance(heard, Recalled)
        models[heard.clients] = heard.models
        known = np.isin(question.clients, heard.clients) | (self.told[question.clients] >= 0)
        clients = question.clients[known & self._present(question.clients)]
        return Recalled(clients, models[clients])

    def _present(self, clients: Indices) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.array([int(client) in self.roster.members for client in clients], dtype=np.bool_)

    def _with_index(self, question: Evaluate) -> Evaluate:
        """Name the model of each client, and leave out those that have none."""
        if question.index is not None:
            return question
        own = for_clients(question, np.flatnonzero(self.told[question.clients] >= 0))
        return replace(own, index=self.told[own.clients])

    def _ask(self, question: Question) -> Answer:
        collected = Collected(question, self.task.correct is not None)
        place_of: dict[int, int] = {}
        contents: dict[int, RecordDict] = {}
        letters = Letters(question, self._stacks, f"models-{self._asked}")
        for place, client in enumerate(question.clients):
            member = self.roster.members.get(int(client))
            if member is None:
                collected.add(place, None)
                continue
            place_of[member.node] = place
            contents[member.node] = letters.write(place, self._header(member.number))
        down = sum(map(payload, contents.values()))
        up = 0
        kind = message_type(type(question).__name__.lower())
        for reply in exchange(self.roster.grid, kind, contents, self.timeout):
            place = place_of[reply.node]
            answer, size = self._read(question, place, reply)
            collected.add(place, answer)
            up += size
            if reply.silent:
                self.roster.miss(int(question.clients[place]))
        self.ledger.note(question, down, up)
        return collected.answer()

    # -------------------------------------------------------------------------------- messages

    def _header(self, client: int) -> Header:
        return Header(
            run=self.run,
            session=self.session,
            round=self.round,
            asked=self._asked,
            client=client,
            seed=self.seed,
            precision=self.precision,
            outputs=self.outputs,
            rounds=self.rounds,
            heard=int(self.heard[client]),
            folder=self.folder,
        )

    def _note_memory(self, question: Question, client: int, content: RecordDict) -> None:
        """Note that a client keeps something now, or that it has lost what it kept."""
        if says_forgotten(content):
            self.heard[client] = 0
            _warn(
                f"round {self.round}: {self._who(client)} has lost what it kept of this run, its "
                "assignments or a model of its own, and begins anew (is its state-dir still there?)"
            )
        if isinstance(question, Train | Gradients) and question.is_remembered:
            self.heard[client] = self._header(client).moment

    def _read(self, question: Question, place: int, reply: Reply) -> tuple[Answer | None, int]:
        """Return a client's answer and its size, or set the client aside for this question."""
        client = question.clients[place : place + 1]
        try:
            if reply.content is None:
                raise Misread(str(reply.problem))
            reason = reason_of(reply.content)
            if reason is not None:
                raise Misread(reason)
            wanted = self._wanted(question)
            check_size(reply.content, most_bytes(self._template, wanted.summary))
            kind = ANSWER_TO[type(question)] | None
            answer = Reader().value(reply.content, kind, {"clients": client})
            if answer is None and isinstance(question, Train | Gradients):
                raise Misread("its training diverged (try a smaller learning rate)")
            if answer is None and not isinstance(getattr(question, "models", None), Kept):
                raise Misread("its answer is empty")
            if answer is not None:  # else it has no model of its own yet
                check_answer(question, answer, wanted)
                self._check_known(int(client[0]), answer)
            self._note_memory(question, int(client[0]), reply.content)
            return answer, payload(reply.content)
        except CloveError as error:
            self._set_aside(int(client[0]), question, str(error))
            if isinstance(error, Outgrown):
                self.roster.miss(int(client[0]))
            return None, 0

    def _check_known(self, client: int, answer: Answer) -> None:
        """Refuse what contradicts what a client said before, or was told."""
        member = self.roster.members.get(client)
        if member is not None:
            check_samples(answer, member.hello.samples)
        if isinstance(answer, Recalled) and answer.models[0] > self.told.max(initial=-1):
            raise Misread(f"it remembers model {answer.models[0]}, which nobody was given")

    def _wanted(self, question: Question) -> Wanted:
        """Return what an answer must be like."""
        part = question.sent_part if isinstance(question, Train) else "all"
        names = [] if part is None else part_names(part, list(self._template), lambda: self._head)
        model = None if part is None else {name: self._template[name] for name in names}
        form = self._form(question) if isinstance(question, Summary) else None
        return Wanted(model, self._values, self.task.correct is not None, form)

    def _form(self, question: Summary) -> Form | None:
        """Return what a summary must look like; it is found out once."""
        if question.of not in self._forms:
            self._forms[question.of] = expected_form(
                question, self.task, self._template, self.inputs, self.outputs, self.precision
            )
        return self._forms[question.of]

    @cached_property
    def _head(self) -> str:
        """The name of the network's head, found with a sample of noughts."""
        network, features = self.task.build(), torch.zeros(1, *self.inputs)
        try:
            return find_head(network, features, self.task.head)
        except RuntimeError:  # it takes whole numbers: words
            return find_head(network, features.long(), self.task.head)

    def _set_aside(self, client: int, question: Question, problem: str) -> None:
        self._stacks.forget(client)
        kind = type(question).__name__
        _warn(f"round {self.round}: {self._who(client)} is set aside in {kind}: {plain(problem)}")

    def _who(self, client: int) -> str:
        member = self.roster.members.get(client)
        return f"client {client}" if member is None else f"{member.who}, node {member.node},"

    # ------------------------------------------------------------------------------------ disk

    def kept_models(self, name: str) -> Parameters:
        """Return none: what clients keep stays with them."""
        return {}

    def saved(self) -> dict[str, Any]:
        """Return what must survive a restart of the server."""
        return {
            "run": self.run,
            "told": self.told,
            "heard": self.heard,
            "empty": self.empty,
            "numbers": self.roster.numbers,
            "bound": self.roster.bound,
            "kept": {},
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` returned."""
        self.run, self.told, self.heard = saved["run"], saved["told"], saved["heard"]
        self.empty = saved["empty"]
        self.roster.restore(saved)
        self._make_room()


def _warn(text: str) -> None:
    warnings.warn(text, CloveWarning, stacklevel=3)
