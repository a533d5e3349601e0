"""A client that has lost its memory says so, is named, and begins anew."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, RecordDict

from clove.errors import CloveWarning
from clove.federation.flower import client as clients
from clove.federation.flower.memory import OVER
from clove.runs import Result, network

from .grid import FIRST_NODE, LocalGrid
from .runs import CLIENTS, COMMON, digits_app, serve, simulate
from .test_resume import Killed, killed_at, next_run_of_flower

WHO = 4
LOCAL = {**COMMON, "algorithm": "local", "rounds": 4}
CLOVE = {**COMMON, "algorithm": "clove", "stable_rounds": 2, "rounds": 5}


class Wiped(LocalGrid):
    """A grid on which one node loses its disk before a question of a kind in a round."""

    def lose(self, kind: str, number: int) -> None:
        self.when = kind, number

    def _push(self, message: Message) -> str:
        header = message.content.get("header")
        node = message.metadata.dst_node_id
        now = message.metadata.message_type, None if header is None else header["round"]
        if node == FIRST_NODE + WHO and now == getattr(self, "when", None):
            self.nodes[node].state = RecordDict()
            self.when = ("", 0)
        return super()._push(message)


def served(grid: LocalGrid, out: Path, **settings: Any) -> tuple[Result, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        result = serve(grid, out, **settings)
    return result, [str(one.message) for one in caught if one.category is CloveWarning]


def wiped(out: Path, kind: str, number: int, **settings: Any) -> tuple[Result, list[str]]:
    grid = Wiped.of(digits_app(), CLIENTS)
    grid.lose(kind, number)
    return served(grid, out, **settings)


LOST = rf"client {WHO}, node {FIRST_NODE + WHO}, has lost what it kept of this run"


@pytest.mark.parametrize("algorithm", ["local", "fedproto", "fedala"])
def test_a_lost_model_is_told_of_and_begun_anew(algorithm: str, tmp_path: Path) -> None:
    settings = {**LOCAL, "algorithm": algorithm}
    result, warned = wiped(tmp_path / "run", "query.train", 3, **settings)
    assert [text for text in warned if LOST in text] == warned
    assert [text[:8] for text in warned] == ["round 3:"], "it is said once"
    assert result.history["participants"].tolist() == [CLIENTS] * 4


def test_who_begins_anew_trains_as_a_newcomer_does(tmp_path: Path) -> None:
    """The lost client has two rounds of training behind it at the end, the others four."""
    result, _ = wiped(tmp_path / "run", "query.train", 3, **LOCAL)
    scores = result.client_scores.set_index("client")["loss"]
    whole = simulate(**LOCAL).client_scores.set_index("client")["loss"]
    others = [number for number in range(CLIENTS) if number != WHO]
    assert scores[others].tolist() == whole[others].tolist()
    assert scores[WHO] > whole[WHO]


def test_a_lost_history_is_told_of_and_stability_waits_for_a_new_one(tmp_path: Path) -> None:
    result, warned = wiped(tmp_path / "run", "query.losses", 3, **CLOVE)
    assert len(warned) == 1
    assert LOST in warned[0]
    assert simulate(**CLOVE).history["stable"].tolist() == [False, True, True, True, True]
    assert result.history["stable"].tolist() == [False, True, False, True, True]


def test_a_memory_lost_within_a_round_is_noticed_too(tmp_path: Path) -> None:
    """The models of the round are lost with it, so the client is set aside, and then begins."""
    _, warned = wiped(tmp_path / "run", "query.train", 3, **CLOVE)
    assert "models-1 of this round are not here" in warned[0]
    assert "round 3:" in warned[1]
    assert LOST in warned[1]
    assert len(warned) == 2


def test_a_model_lost_before_it_is_measured_is_told_of(tmp_path: Path) -> None:
    result, warned = wiped(tmp_path / "run", "query.evaluate", 4, **LOCAL)
    assert len(warned) == 1
    assert LOST in warned[0]
    assert WHO not in result.client_scores["client"].tolist()


def test_an_answer_that_is_lost_does_not_hide_what_was_forgotten(tmp_path: Path) -> None:
    grid = Wiped.of(digits_app(), CLIENTS)
    grid.lose("query.train", 3)
    lost = []

    def hang_once(question: Message, reply: Message) -> Message | None:
        if "forgotten" in reply.content and not lost:
            lost.append(question)
            return None
        return reply

    grid.nodes[FIRST_NODE + WHO].meddle = hang_once
    _, warned = served(grid, tmp_path / "run", **LOCAL, timeout=0.2)
    assert [LOST in text for text in warned] == [False, True]
    assert "round 3" in warned[0]
    assert "round 4" in warned[1]


def test_who_keeps_nothing_has_nothing_to_lose(tmp_path: Path) -> None:
    settings = {**COMMON, "algorithm": "fedavg"}
    result, warned = wiped(tmp_path / "run", "query.train", 2, **settings)
    assert warned == []
    assert result._story.records == simulate(**settings)._story.records


def test_clients_without_a_folder_say_on_resume_what_they_lost(tmp_path: Path) -> None:
    grid = killed_at("query.train", 13, tmp_path / "run", digits_app(), **LOCAL)
    next_run_of_flower(grid)
    result, warned = served(grid, tmp_path / "run", **LOCAL)
    assert sorted(int(text.split()[3].strip(",")) for text in warned) == list(range(CLIENTS))
    assert all("has lost what it kept" in text for text in warned)
    assert result.history["participants"].tolist() == [CLIENTS] * 4


def test_an_older_copy_of_a_memory_is_no_memory(tmp_path: Path) -> None:
    """Such as a disk that was restored from a backup."""
    memories = tmp_path / "clients"
    grid = killed_at(
        "query.train", 2 * CLIENTS, tmp_path / "run", digits_app(state_dir=memories), **LOCAL
    )
    (old,) = memories.glob(f"*-client-{WHO}.safetensors")
    copy = old.read_bytes()
    next_run_of_flower(grid)
    grid.dies_at("query.train", CLIENTS)
    with pytest.raises(Killed):
        serve(grid, tmp_path / "run", **LOCAL)
    old.write_bytes(copy)
    next_run_of_flower(grid)
    _, warned = served(grid, tmp_path / "run", **LOCAL)
    assert len(warned) == 1
    assert LOST in warned[0]


# ------------------------------------------------------------------------------------ simulation


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the grid here pass for that of Flower's simulation, on both sides."""
    monkeypatch.setattr("flwr.superlink.grid.InMemoryGrid", LocalGrid)
    monkeypatch.setattr(clients, "is_simulated", lambda: True)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("settings", [LOCAL, CLOVE], ids=["local", "clove"])
def test_a_simulation_that_is_resumed_finds_its_clients_memories(settings, tmp_path: Path) -> None:
    out = tmp_path / "run"
    grid = killed_at("query.train", 13, out, digits_app(), **settings)
    next_run_of_flower(grid)
    assert len(list((out / network.MEMORIES).iterdir())) == CLIENTS
    assert serve(grid, out, **settings)._story.records == simulate(**settings)._story.records
    assert len(list((out / network.MEMORIES).glob(f"*{OVER}"))) == CLIENTS


@pytest.mark.usefixtures("simulated")
def test_a_node_that_names_its_folder_keeps_to_it(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), 3, **{"state-dir": str(tmp_path / "own")})
    serve(grid, tmp_path / "run", **{**LOCAL, "rounds": 1}, outputs=10)
    assert len(list((tmp_path / "own").iterdir())) == 3
    assert not (tmp_path / "run" / network.MEMORIES).exists()


def test_on_a_network_no_server_says_where_to_write(tmp_path: Path, monkeypatch) -> None:
    grid = LocalGrid.of(digits_app(), 3)
    serve(grid, tmp_path / "run", **{**LOCAL, "rounds": 1}, outputs=10)
    said = {q.content["header"]["folder"] for q, _ in grid.log if "header" in q.content}
    assert said == {""}
    # Not even one that tries.
    monkeypatch.setattr(network, "_memories", lambda *_: str(tmp_path / "elsewhere"))
    serve(LocalGrid.of(digits_app(), 3), tmp_path / "two", **{**LOCAL, "rounds": 1}, outputs=10)
    assert not (tmp_path / "elsewhere").exists()


def test_this_process_is_no_simulation() -> None:
    assert not clients.is_simulated()
