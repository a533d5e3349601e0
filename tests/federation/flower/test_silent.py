"""A node that hangs costs one timeout, not one for each question; when it wakes, it is back."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from flwr.app import Message

from clove.federation.flower import roster

from .grid import FIRST_NODE, LocalGrid
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


@pytest.mark.filterwarnings("error::clove.errors.CloveWarning")
@pytest.mark.filterwarnings("ignore:node .* is left out. no answer in 0.2 s")
def test_who_answers_several_greetings_at_once_is_one_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "AGAIN", 0.0)
    monkeypatch.setattr(Busy, "waiting", {})
    grid = Busy.of(digits_app(), CLIENTS)
    result = serve(grid, tmp_path / "run", **COMMON, algorithm="fedavg", timeout=0.2, wait=5)
    assert result.history["participants"].tolist() == [CLIENTS] * 3
