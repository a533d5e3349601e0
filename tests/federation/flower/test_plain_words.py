"""What a server says in Flower's log: errors and warnings in a line, and what it waits for."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
from flwr.app import Message

import clove
from clove.errors import CloveWarning

from .grid import LocalGrid
from .runs import COMMON, digits_app, serve

ONE = {**COMMON, "rounds": 1, "algorithm": "fedavg"}
FLOWER = logging.getLogger("flwr")


def as_flower_does(error: BaseException) -> None:
    """Log an error that has ended an app."""
    FLOWER.error("%s raised an exception", "ServerApp", exc_info=error)


def test_what_is_wrong_is_logged_in_a_line(tmp_path: Path, caplog) -> None:
    with pytest.raises(clove.CloveError) as failed:
        serve(LocalGrid.of(digits_app(), 2), tmp_path / "run", **{**ONE, "rounds": 0})
    as_flower_does(failed.value)
    last = caplog.records[-1]
    assert last.getMessage().startswith("error: rounds must be 1 or more")
    assert last.exc_info is None


def test_how_an_error_of_anybody_elses_came_about_is_logged(tmp_path: Path, caplog) -> None:
    serve(LocalGrid.of(digits_app(), 2), tmp_path / "run", **ONE)
    as_flower_does(ValueError("no such table"))
    assert caplog.records[-1].exc_info is not None


def test_a_warning_is_a_line(tmp_path: Path) -> None:
    grid, seen = LocalGrid.of(digits_app(), 2), []

    def look(question: Message, reply: Message) -> Message:
        seen.append(warnings.formatwarning("it is late", CloveWarning, "roster.py", 7))
        return reply

    before = warnings.formatwarning
    next(iter(grid.nodes.values())).meddle = look
    serve(grid, tmp_path / "run", **ONE)
    assert set(seen) == {"warning: it is late\n"}
    assert warnings.formatwarning is before


def test_it_is_said_once_what_is_waited_for(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO, "flwr")
    with pytest.raises(clove.CloveError, match="only 4 of 5 nodes were there"):
        serve(LocalGrid.of(digits_app(), 4), tmp_path / "run", min_nodes=5, wait=0.1, **ONE)
    said = [one.getMessage() for one in caplog.records]
    assert said.count("4 of 5 nodes are here, waiting up to 0.1 s") == 1
