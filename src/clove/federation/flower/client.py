"""The client's half: answers messages as a simulation of one client would, from its own data."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from clove.data import ClientData, holdout
from clove.errors import CloveError
from clove.federation.engines import find_device
from clove.federation.flower.codec import Reader, Writer
from clove.federation.flower.header import Header, read_header, refusal, say_forgotten
from clove.federation.flower.hello import introduce
from clove.federation.flower.memory import Keeper
from clove.federation.flower.parts import CLIENTS, Held, OneOf, Received, Whole
from clove.federation.precision import dtype_of, kernels_of
from clove.federation.questions import Question
from clove.federation.sequential import Sequential
from clove.tasks import Task

QUESTIONS: dict[str, type] = {one.__name__.lower(): one for one in get_args(Question)}
HELLO = "hello"
ALONE = np.array([0])
LoadData = Callable[[Context], ClientData]


def message_type(name: str) -> str:
    """Return Flower's name for the messages of a kind of question."""
    return f"query.{name}"


@dataclass(frozen=True)
class Client:
    """Whoever holds data: answers one message at a time, and remembers."""

    task: Task
    load_data: LoadData
    state_dir: Path | None = None
    device: str = "auto"
    know_functions: Callable[[], None] = lambda: None  # registers all that questions may name

    def app(self) -> ClientApp:
        """Return the client as Flower runs it, with a function for each kind of question."""
        app = ClientApp()
        for name in [HELLO, *QUESTIONS]:
            app.query(name)(self.reply)
        return app

    def reply(self, message: Message, context: Context) -> Message:
        """Answer a message; what the client cannot do it says, and why."""
        name = message.metadata.message_type.partition(".")[2]
        try:
            content = (
                self._hello(context)
                if name == HELLO
                else self._answer(QUESTIONS[name], message.content, context)
            )
        except CloveError as error:
            content = refusal(str(error))
        except Exception as error:  # the network, or a function, of the user's own
            content = refusal(_in_a_line(error, f"its answer to {name} failed"))
        return Message(content, reply_to=message)

    def _hello(self, context: Context) -> RecordDict:
        data = self._data(context)
        try:
            hello = introduce(data, self.task, context.node_config)
            # Who could never answer is found out now, and not in every round.
            self._engine(data, hello.number or 0, hello.outputs, find_device(self.device))
        except CloveError as error:
            raise CloveError(f"{_who(context)} cannot take part: {error}") from error
        return Writer().records(hello)

    def _answer(self, kind: type, content: RecordDict, context: Context) -> RecordDict:
        header = read_header(content)
        device = find_device(self.device)
        keeper = Keeper(context.state, self._folder(context, header), device)
        memory = keeper.load(header)
        reader = Reader(device, (Whole, Held, OneOf), memory.models, self.know_functions)
        question = reader.value(content, kind, {"clients": ALONE})
        if isinstance(getattr(question, "models", None), Received):
            models = {**memory.models, question.models.name: dict(question.models)}
            memory = replace(memory, models=models)
        engine = self._engine(
            self._data(context),
            header.client,
            header.outputs,
            device,
            seed=header.seed,
            precision=header.precision,
        )
        if memory.now is not None:
            engine.restore(memory.now)
        engine.begin_round(header.round, header.asked - 1)
        with kernels_of(engine.precision, engine.device):
            answer = engine.answer(question)
        keeper.store(replace(memory, now=engine.saved()), header)
        reply = Writer().records(answer if len(answer.clients) else None, without=CLIENTS)
        if memory.lacks(header):
            say_forgotten(reply)
        return reply

    def _data(self, context: Context) -> ClientData:
        try:
            data = self.load_data(context)
        except CloveError as error:
            raise CloveError(f"load_data of {_who(context)} failed: {error}") from error
        except Exception as error:  # the user's own
            raise CloveError(_in_a_line(error, f"load_data of {_who(context)} failed")) from error
        if not isinstance(data, ClientData):
            raise CloveError(
                f"load_data of {_who(context)} must return a ClientData, not {type(data).__name__}"
            )
        return data

    def _engine(
        self,
        data: ClientData,
        client: int,
        outputs: int,
        device: torch.device,
        seed: int = 0,
        precision: str = "fp32",
    ) -> Sequential:
        complete, _ = holdout([data], seed=seed, numbers=[client])
        inputs = tuple(data.train[0].shape[1:])
        return Sequential(
            complete,
            self.task.for_data(inputs, outputs),
            seed=seed,
            device=device,
            dtype=dtype_of(precision),
            precision=precision,
            numbers=[client],
        )

    def _folder(self, context: Context, header: Header) -> Path | None:
        """Return where the memory outlives Flower: as the node says, the app, or a simulation."""
        own = context.node_config.get("state-dir", self.state_dir)
        if own is None and header.folder and is_simulated():
            own = header.folder
        return None if own is None else Path(str(own))


def _who(context: Context) -> str:
    """Return what a client is called, by what its node was told."""
    words = context.node_config
    number = f"client {words['partition-id']}" if "partition-id" in words else "this client"
    return f"{number} ({words['name']})" if "name" in words else number


def _in_a_line(error: Exception, what: str) -> str:
    """Say in a line what failed and what to do; the whole story is for this node's own log."""
    logging.getLogger("flwr").error("%s", what, exc_info=error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = (str(error).strip() or "no more is known").splitlines()[0]
    return (
        f"{what}: {type(error).__name__}: {said} ({Path(where.filename).name}, line "
        f"{where.lineno}). Mend it on that node, whose log says more; it is asked again"
    )


def is_simulated() -> bool:
    """Tell whether this client is one of Flower's simulation, which runs them as actors of Ray.

    Only then may a server say where to write: they are on the same machine.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None
