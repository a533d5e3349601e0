"""Whose key was registered under a name is its client, and nobody else can be, in the same run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

import clove
from clove.errors import CloveWarning
from clove.federation.flower.roster import Roster
from clove.runs.network import agreed

from .grid import FIRST_NODE, LocalGrid, Node, node
from .runs import COMMON, digits, digits_app, serve
from .test_resume import killed_at, next_run_of_flower
from .test_terms import small_images

STRANGER = 77
FOREIGN = "client 3 of this run is a node with another key"


def registered(grid: LocalGrid) -> LocalGrid:
    """Let all nodes of a grid have keys that were registered under a name."""
    for one in grid.nodes.values():
        register(one)
    return grid


def register(one: Node) -> Node:
    one.info.public_key, one.info.name = f"key {one.id}".encode(), f"node-{one.id}"
    return one


def stranger(known: bool = True, **config: Any) -> Node:
    one = Node(digits_app(), STRANGER, {"partition-id": 3, **config})
    if known:
        register(one)
    else:  # it made a key when it was started
        one.info.public_key = b"of its own"
    return one


def roster_of(grid: LocalGrid) -> Roster:
    roster = Roster(grid, timeout=1)
    roster.refresh()
    roster.settle(lambda hellos: agreed({}, hellos, 10))
    return roster


def refreshed(roster: Roster) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        roster.refresh()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("known", [True, False], ids=["registered", "not registered"])
def test_nobody_else_takes_the_number_of_a_registered_node_that_is_away(known: bool) -> None:
    grid = registered(LocalGrid.of(digits_app(), 5))
    roster = roster_of(grid)
    away = grid.nodes.pop(FIRST_NODE + 3)
    grid.nodes[STRANGER] = stranger(known)
    (said,) = refreshed(roster)
    assert f"node {STRANGER} (client 3) is left out: {FOREIGN}" in said
    assert sorted(roster.members) == [0, 1, 2, 4]
    # Its own node is welcome back, even as another node of Flower's: it has its key.
    away.id = away.info.node_id = 4242
    grid.nodes[away.id] = away
    assert refreshed(roster) == []
    assert roster.members[3].node == 4242


def test_nor_does_its_name_help() -> None:
    grid = registered(LocalGrid.of(digits_app(), 5))
    for number, one in enumerate(grid.nodes.values()):
        del one.config["partition-id"]
        one.config["name"] = f"ward {number}"
        one.app = digits_app_of(number)
    roster = roster_of(grid)
    assert roster.members[3].hello.name == "ward 3"
    del grid.nodes[FIRST_NODE + 3]
    thief = Node(digits_app_of(3), STRANGER, {"name": "ward 3"})
    grid.nodes[STRANGER] = register(thief)
    (said,) = refreshed(roster)
    assert FOREIGN in said


def digits_app_of(number: int) -> Any:
    return clove.flower.client(clove.classification("mlp"), lambda context: digits()[number])


@pytest.mark.filterwarnings("ignore:node .* is left out. its samples")
def test_who_does_not_fit_keeps_nobody_from_its_number() -> None:
    grid = registered(LocalGrid.of(digits_app(), 5))
    grid.nodes[FIRST_NODE + 3].app = small_app()
    roster = roster_of(grid)
    assert sorted(roster.members) == [0, 1, 2, 4]
    grid.nodes[STRANGER] = stranger()
    assert refreshed(roster) == []
    assert roster.members[3].node == STRANGER


def small_app() -> Any:
    return clove.flower.client(clove.classification("mlp"), small_images)


def test_a_registered_node_cannot_be_another_client_than_it_was() -> None:
    grid = registered(LocalGrid.of(digits_app(), 5))
    roster = roster_of(grid)
    del grid.nodes[FIRST_NODE + 3]
    turncoat = grid.nodes.pop(FIRST_NODE + 2)
    assert refreshed(roster) == []
    turncoat.config["partition-id"] = 3
    grid.nodes[turncoat.id] = turncoat
    (said,) = refreshed(roster)
    assert "it is client 2 of this run, and now says it is client 3" in said


def test_a_node_of_an_unknown_key_gives_way_to_another_once_it_is_gone() -> None:
    """Flower has such a node make a new key at every start: it may be the same one."""
    grid = LocalGrid.of(digits_app(), 5)
    roster = roster_of(grid)
    grid.nodes[STRANGER] = stranger(known=False)
    (said,) = refreshed(roster)
    assert f"node {FIRST_NODE + 3} is client 3 already" in said
    del grid.nodes[FIRST_NODE + 3]
    assert refreshed(roster) == []
    assert roster.members[3].node == STRANGER


def test_names_cannot_be_taken_for_numbers() -> None:
    grid = LocalGrid.of(digits_app(), 3)
    odd = Node(digits_app_of(4), 99, {"name": "number 1"})
    grid.nodes[99] = odd
    assert roster_of(grid).members[3].node == 99


def test_who_is_who_outlives_the_server(tmp_path: Path) -> None:
    settings = {**COMMON, "algorithm": "fedavg", "outputs": 10}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tests.federation.flower.test_resume.DyingGrid.of",
            classmethod(lambda cls, app, n: registered(cls(node(app, k) for k in range(n)))),
        )
        grid = killed_at("query.train", 13, tmp_path / "run", digits_app(), **settings)
    next_run_of_flower(grid)
    del grid.nodes[FIRST_NODE + 3]
    grid.nodes[STRANGER] = stranger()
    with pytest.warns(CloveWarning, match=FOREIGN):
        result = serve(grid, tmp_path / "run", min_nodes=9, **settings)
    assert result.history["participants"].tolist() == [10, 9, 9]


def test_a_node_that_takes_over_says_that_it_remembers_nothing(tmp_path: Path) -> None:
    """Where keys are not registered: the new node is named, and its client begins anew."""
    grid = LocalGrid.of(digits_app(), 5)

    def leave(question: Message, reply: Message) -> Message:
        header = question.content.get("header")
        last = question.metadata.message_type == "query.evaluate"
        if header is not None and header["round"] == 2 and last:
            grid.nodes.pop(FIRST_NODE + 3, None)
            grid.nodes[STRANGER] = stranger(known=False)
        return reply

    grid.nodes[FIRST_NODE + 4].meddle = leave
    settings = {**COMMON, "algorithm": "local", "rounds": 4, "outputs": 10}
    with pytest.warns(CloveWarning, match=f"client 3, node {STRANGER}, has lost what it kept"):
        result = serve(grid, tmp_path / "run", **settings)
    assert result.history["participants"].tolist() == [5, 5, 5, 5]
