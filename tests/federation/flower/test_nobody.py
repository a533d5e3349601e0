"""A run that nobody takes part in is a failure, and goes on when they are back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, RecordDict

import clove
from clove.federation.flower.server import EMPTY_ROUNDS

from .grid import LocalGrid, Node
from .runs import CLIENTS, COMMON, digits, digits_app, serve, simulate

pytestmark = pytest.mark.filterwarnings("ignore:.*client .* is set aside:UserWarning")
SETTINGS: dict[str, Any] = {**COMMON, "algorithm": "fedavg", "timeout": 0.05, "rounds": 8}


def unless(spoilt: Callable[[int], bool]) -> Callable[[Message, Message], Message]:
    """Return what a node does that sends nothing of use in some rounds."""

    def meddle(question: Message, reply: Message) -> Message:
        header = question.content.get("header")
        if header is not None and spoilt(header["round"]):
            return Message(RecordDict(), reply_to=question)
        return reply

    return meddle


def grid_that(spoilt: Callable[[int], bool]) -> LocalGrid:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    for node in grid.nodes.values():
        node.meddle = unless(spoilt)
    return grid


def mend(grid: LocalGrid) -> None:
    for node in grid.nodes.values():
        node.meddle = None


@pytest.mark.parametrize("algorithm", ["fedavg", "clove", "local", "k-fed", "fedala"])
def test_a_run_of_one_round_that_nobody_answers_has_failed(algorithm: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "algorithm": algorithm, "rounds": 1}
    with pytest.raises(clove.CloveError, match=r"nobody took part in round 1: mend the nodes"):
        serve(grid_that(lambda _: True), tmp_path / "run", **settings)


def test_a_run_gives_up_when_nobody_has_answered_for_some_rounds(tmp_path: Path) -> None:
    grid = grid_that(lambda number: number > 2)
    said = f"nobody took part in round {2 + EMPTY_ROUNDS}, nor in the {EMPTY_ROUNDS - 1} before it"
    with pytest.raises(clove.CloveError, match=said):
        serve(grid, tmp_path / "run", **SETTINGS)
    # It gives up again for the same reason, and goes on when that is mended.
    with pytest.raises(clove.CloveError, match=said):
        serve(grid, tmp_path / "run", **SETTINGS)
    mend(grid)
    result = serve(grid, tmp_path / "run", **SETTINGS)
    assert result.history["participants"].tolist() == [10, 10, 0, 0, 10, 10, 10, 10]


def test_a_run_that_failed_in_its_only_round_can_begin_again(tmp_path: Path) -> None:
    grid, settings = grid_that(lambda _: True), {**SETTINGS, "rounds": 1}
    with pytest.raises(clove.CloveError, match="nobody took part"):
        serve(grid, tmp_path / "run", **settings)
    mend(grid)
    result = serve(grid, tmp_path / "run", **settings)
    assert result._story.records == simulate(algorithm="fedavg", rounds=1)._story.records


def test_some_rounds_without_anybody_do_no_harm(tmp_path: Path) -> None:
    result = serve(grid_that(lambda n: n in (2, 3, 5, 6)), tmp_path / "run", **SETTINGS)
    assert result.history["participants"].tolist() == [10, 0, 0, 10, 0, 0, 10, 10]


def test_who_is_away_is_not_drawn(tmp_path: Path) -> None:
    """Half of those that are there take part, however many numbers there have ever been."""
    grid = LocalGrid.of(digits_app(), 4)
    app = clove.flower.client(clove.classification("mlp"), lambda _: digits()[4])
    grid.nodes[99] = Node(app, 99, {"partition-id": 900})
    settings = {**SETTINGS, "participation": 0.4, "rounds": 3}
    result = serve(grid, tmp_path / "run", outputs=10, **settings)
    assert result.history["participants"].tolist() == [2] * 3


class Leaving(LocalGrid):
    """A grid that all nodes leave in a round, and come back to after some looks."""

    gone, looks = 0, 0

    def leave(self, number: int, looks: int) -> None:
        self.gone, self.looks = number, looks

    def _push(self, message: Message) -> str:
        header = message.content.get("header")
        self.away = getattr(self, "away", False) or (
            header is not None and header["round"] == self.gone
        )
        return super()._push(message)

    def get_node_ids(self) -> list[int]:
        if getattr(self, "away", False) and self.looks:
            self.looks -= 1
            return []
        return super().get_node_ids()


def test_where_all_nodes_are_gone_they_are_waited_for(tmp_path: Path) -> None:
    """Else the rounds that are left would be over in no time, and with nobody."""
    grid = Leaving.of(digits_app(), CLIENTS)
    grid.leave(2, looks=3)
    result = serve(grid, tmp_path / "run", **{**SETTINGS, "rounds": 4})
    assert result.history["participants"].tolist() == [10] * 4


def test_where_none_comes_back_the_run_fails_and_can_go_on(tmp_path: Path) -> None:
    grid, settings = Leaving.of(digits_app(), CLIENTS), {**SETTINGS, "rounds": 4}
    grid.leave(2, looks=10**9)
    with pytest.raises(clove.CloveError, match=r"only 0 of 1 nodes fit this run after 0.1 s"):
        serve(grid, tmp_path / "run", **settings, wait=0.1)
    grid.looks = 0
    result = serve(grid, tmp_path / "run", **settings)
    assert result.history["participants"].tolist() == [10] * 4
