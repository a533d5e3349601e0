"""A node that hangs costs one timeout, not one for each question; when it wakes, it is back."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from flwr.app import Message

from clove.federation.flower import exchange, roster

from .grid import FIRST_NODE, LocalGrid, node
from .runs import CLIENTS, COMMON, digits_app, serve

HANGING = FIRST_NODE + 4
pytestmark = pytest.mark.filterwarnings("ignore:round 1. client 4.*no answer in 0.2 s")


def asked(grid: LocalGrid) -> list[str]:
    """Return the kinds of messages that the hanging node was sent."""
    return [
        question.metadata.message_type
        for question, _ in grid.log
        if question.metadata.dst_node_id == HANGING
    ]


def run_with(meddle, out: Path) -> tuple[LocalGrid, list[int]]:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    grid.nodes[HANGING].meddle = meddle
    result = serve(grid, out, **COMMON, algorithm="fedavg", timeout=0.2)
    return grid, result.history["participants"].tolist()


def test_who_hangs_is_asked_nothing_more(tmp_path: Path) -> None:
    woken = []

    def hang(question: Message, reply: Message) -> Message | None:
        woken.append(question)
        return reply if len(woken) == 1 else None  # it is there at first

    grid, participants = run_with(hang, tmp_path / "run")
    assert asked(grid) == ["query.hello", "query.train", "query.hello"]
    assert participants == [CLIENTS - 1] * 3


def test_who_answers_a_greeting_is_back(tmp_path: Path) -> None:
    trained = []

    def hang_once(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != "query.train":
            return reply
        trained.append(question)
        return reply if len(trained) > 1 else None

    grid, participants = run_with(hang_once, tmp_path / "run")
    again = ["query.train", "query.evaluate"] * 2
    assert asked(grid) == ["query.hello", "query.train", "query.hello", *again]
    assert participants == [CLIENTS - 1, CLIENTS, CLIENTS]


class Busy(LocalGrid):
    """A grid on which a node is busy while it is greeted, and answers all greetings at once."""

    waiting: ClassVar[dict[str, Message]] = {}

    def _push(self, message: Message) -> str:
        name = super()._push(message)
        if message.metadata.dst_node_id == HANGING and len(self.waiting) < 3:
            self.waiting[name] = self._replies.pop(name)
            if len(self.waiting) == 3:
                self._replies |= self.waiting
        return name


@pytest.mark.filterwarnings("error:node .* is client 4 already")
@pytest.mark.filterwarnings("ignore:node .* is left out. no answer in 0.2 s")
def test_who_answers_several_greetings_at_once_is_one_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "AGAIN", 0.0)
    monkeypatch.setattr(Busy, "waiting", {})
    grid = Busy.of(digits_app(), CLIENTS)
    result = serve(grid, tmp_path / "run", **COMMON, algorithm="fedavg", timeout=0.2, wait=5)
    assert result.history["participants"].tolist() == [CLIENTS] * 3


@pytest.mark.filterwarnings("ignore:node .* is left out. no answer in 0.2 s")
def test_a_late_node_that_is_silent_holds_up_no_round_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "MOMENT", 0.2)
    late = node(digits_app(), CLIENTS - 1)
    late.meddle = lambda question, reply: None

    class Filling(LocalGrid):
        """A grid that the late node joins when training begins."""

        def _push(self, message: Message) -> str:
            if message.metadata.message_type == "query.train":
                self.nodes[late.id] = late
            return super()._push(message)

    grid = Filling.of(digits_app(), CLIENTS - 1)
    waited: list[float] = []
    pause = exchange.time.sleep
    monkeypatch.setattr(exchange.time, "sleep", lambda s: (waited.append(s), pause(s)))
    result = serve(grid, tmp_path / "run", **COMMON, algorithm="fedavg", timeout=60)
    assert result.history["participants"].tolist() == [CLIENTS - 1] * 3
    assert "query.hello" in [
        question.metadata.message_type
        for question, _ in grid.log
        if question.metadata.dst_node_id == late.id
    ]
    assert 0 < sum(waited) < 1, "once a moment, and never until the timeout"
