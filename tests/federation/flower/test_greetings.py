"""Nodes are greeted together: one that hangs holds up neither the others nor the beginning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

import clove
from clove.errors import CloveWarning
from clove.federation.flower import roster
from clove.federation.flower.roster import Roster
from clove.runs import network

from .grid import FIRST_NODE, LocalGrid, Node, node
from .runs import CLIENTS, COMMON, digits, digits_app, serve

HANGING, LATE = FIRST_NODE + 3, FIRST_NODE + 5
ONE: dict[str, Any] = {**COMMON, "rounds": 1, "algorithm": "fedavg"}


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (roster, network):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(roster, "PAUSE", 0.5)
    return clock


def silent(question: Message, reply: Message) -> Message | None:
    return None if question.metadata.message_type == "query.hello" else reply


class Arriving(LocalGrid):
    """A grid whose nodes come when they are to come."""

    is_there: Callable[[int], bool] = staticmethod(lambda node_id: True)

    def get_node_ids(self) -> list[int]:
        return [number for number in super().get_node_ids() if self.is_there(number)]


def arriving(is_there: Callable[[int], bool]) -> Arriving:
    grid = Arriving.of(digits_app(), CLIENTS)
    grid.is_there = is_there
    grid.nodes[HANGING].meddle = silent
    return grid


def test_while_one_hangs_others_that_come_are_let_in(clock: Clock, tmp_path: Path) -> None:
    grid = arriving(lambda number: number != LATE or clock.now >= 104)
    with pytest.warns(CloveWarning, match=rf"node {HANGING} is left out: no answer in 10 s"):
        result = serve(grid, tmp_path / "run", **ONE, min_nodes=9, wait=12, timeout=600)
    assert result.history["participants"].tolist() == [CLIENTS - 1]
    assert clock.now <= 112


def test_a_run_with_enough_nodes_waits_for_no_other_but_a_moment(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = arriving(lambda number: True)
    with (
        caplog.at_level(logging.INFO, "flwr"),
        pytest.warns(CloveWarning, match=rf"node {HANGING} is left out"),
    ):
        serve(grid, tmp_path / "run", **ONE, min_nodes=2, wait=300, timeout=600)
    assert 100 < clock.now <= 100 + roster.MOMENT + 1
    said = "9 nodes are here, 1 more are being greeted, waiting a moment for others"
    assert caplog.text.count(said) == 1


def test_a_run_waits_no_longer_than_it_was_told(clock: Clock, tmp_path: Path) -> None:
    serve(arriving(lambda number: True), tmp_path / "run", **ONE, min_nodes=2, wait=1, timeout=600)
    assert clock.now <= 102


def test_what_is_waited_for_is_said_before_and_who_hangs_after(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = arriving(lambda number: True)
    said = rf"only 9 of 10 nodes were there after 8 s \(no answer .* from 1 more: node {HANGING}\)"
    with caplog.at_level(logging.INFO, "flwr"), pytest.raises(clove.CloveError, match=said):
        serve(grid, tmp_path / "run", **ONE, min_nodes=10, wait=8, timeout=600)
    assert "9 of 10 nodes are here, 1 more are being greeted, waiting up to 8 s" in caplog.text
    assert clock.now <= 109


def test_whoever_answers_first_gets_nobody_elses_number(clock: Clock) -> None:
    app = clove.flower.client(clove.classification("mlp"), lambda context: digits()[4])
    grid = Arriving([Node(app, 7, {}), *(node(digits_app(), number) for number in range(3))])
    grid.is_there = lambda number: number == 7 or clock.now >= 102
    everybody = Roster(grid, timeout=600)
    everybody.wait(4, 10)
    found = {number: member.node for number, member in everybody.members.items()}
    assert found == {0: FIRST_NODE, 1: FIRST_NODE + 1, 2: FIRST_NODE + 2, 3: 7}
