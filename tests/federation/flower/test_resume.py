"""Servers and clients that are killed go on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, RecordDict

import clove
from clove.federation.flower.memory import OVER

from .grid import FIRST_NODE, LocalGrid
from .runs import CLIENTS, COMMON, digits_app, serve, simulate

CLOVE = {**COMMON, "algorithm": "clove", "early_stopping": True, "stable_rounds": 2, "rounds": 5}


class Killed(BaseException):
    """The server's process is gone."""


class DyingGrid(LocalGrid):
    """A grid whose server dies when it is about to send its n-th message of a kind."""

    def dies_at(self, kind: str, number: int) -> None:
        self.kind, self.left = kind, number

    def _push(self, message: Message) -> str:
        if message.metadata.message_type == self.kind:
            self.left -= 1
            if self.left < 0:
                raise Killed
        return super()._push(message)


def killed_at(kind: str, number: int, out: Path, app: Any, **settings: Any) -> DyingGrid:
    grid = DyingGrid.of(app, CLIENTS)
    grid.dies_at(kind, number)
    with pytest.raises(Killed):
        serve(grid, out, **settings)
    return grid


def next_run_of_flower(grid: DyingGrid) -> None:
    """Start Flower's run again: it has forgotten what it kept for the clients."""
    grid.dies_at("", 0)
    for node in grid.nodes.values():
        node.state = RecordDict()


@pytest.mark.parametrize(
    ("algorithm", "kind", "number"),
    [
        ("clove", "query.losses", 3),  # in the first round
        ("clove", "query.train", 13),  # some noted the assignment of a round that comes again
        ("clove", "query.train", 10 * 3 + 5),  # after stability
        ("clove", "query.evaluate", 20),
        ("local", "query.train", 13),  # some trained their own model in a round that comes again
        ("local", "query.evaluate", 20),
    ],
)
def test_a_server_killed_at_any_moment_goes_on(algorithm, kind, number, tmp_path: Path) -> None:
    settings = CLOVE if algorithm == "clove" else {**COMMON, "algorithm": "local", "rounds": 5}
    out, app = tmp_path / "run", digits_app(state_dir=tmp_path / "clients")
    grid = killed_at(kind, number, out, app, **settings)
    next_run_of_flower(grid)
    resumed = serve(grid, out, **settings)
    assert resumed._story.records == simulate(**settings)._story.records


def test_a_client_remembers_while_flower_does(tmp_path: Path) -> None:
    """Without a folder of its own: through restarts of the server within one run of Flower."""
    out = tmp_path / "run"
    grid = killed_at("query.train", 13, out, digits_app(), **CLOVE)
    grid.dies_at("", 0)
    assert serve(grid, out, **CLOVE)._story.records == simulate(**CLOVE)._story.records


def test_a_node_says_where_its_client_remembers(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS, **{"state-dir": str(tmp_path / "own")})
    serve(grid, tmp_path / "run", **{**COMMON, "rounds": 1})
    names = sorted(path.name.partition("-")[2] for path in (tmp_path / "own").iterdir())
    assert names == sorted(f"client-{number}{OVER}" for number in range(CLIENTS))


def test_runs_do_not_mix_in_a_clients_memory(tmp_path: Path) -> None:
    app = digits_app(state_dir=tmp_path / "clients")
    settings = {**COMMON, "algorithm": "local", "rounds": 2}
    for name in ("first", "second"):
        result = serve(LocalGrid.of(app, CLIENTS), tmp_path / name, **settings)
        assert result._story.records == simulate(**settings)._story.records


def test_a_run_begun_anew_finds_clients_that_begin_anew(tmp_path: Path) -> None:
    out, app = tmp_path / "run", digits_app(state_dir=tmp_path / "clients")
    grid = killed_at("query.train", 25, out, app, **CLOVE)
    next_run_of_flower(grid)
    for name in ("checkpoint.safetensors", "metrics.jsonl", "timings.jsonl"):
        (out / name).unlink()
    assert serve(grid, out, **CLOVE)._story.records == simulate(**CLOVE)._story.records


def test_the_folder_says_how_a_run_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "run"
    killed_at("query.train", 13, out, digits_app(), **CLOVE)
    with pytest.raises(clove.CloveError, match="is on Flower: start its server again"):
        clove.resume(out)
    with pytest.raises(clove.CloveError, match="has rounds=5, not 7"):
        serve(LocalGrid.of(digits_app(), CLIENTS), out, **{**CLOVE, "rounds": 7})


def test_a_finished_run_is_refused(tmp_path: Path) -> None:
    grid, settings = LocalGrid.of(digits_app(), CLIENTS), {**COMMON, "rounds": 1}
    serve(grid, tmp_path / "run", **settings)
    with pytest.raises(clove.CloveError, match="is finished: choose another folder"):
        serve(grid, tmp_path / "run", **settings)


def test_clients_that_are_away_at_the_restart_keep_their_numbers(tmp_path: Path) -> None:
    out, app = tmp_path / "run", digits_app(state_dir=tmp_path / "clients")
    grid = killed_at("query.train", 13, out, app, **CLOVE)
    next_run_of_flower(grid)
    del grid.nodes[FIRST_NODE + CLIENTS - 1]
    result = serve(grid, out, **CLOVE)
    assert len(result.assignment) == CLIENTS
    assert result.history["participants"].tolist() == [CLIENTS] + [CLIENTS - 1] * 4
    assert result.ari == 1.0
