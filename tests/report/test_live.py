"""The live view: bars in a terminal, a plain line elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clove.report.live import Live, news, strip

REASON = "the network cannot be stacked: [batch, classes] was expected"
RECORD: dict[str, Any] = {
    "accuracy": 0.5,
    "test_loss": 0.1,
    "ari": 1.0,
    "clusters": 5,
    "stable": True,
    "assignment": [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, -1],
}


def progress(round_: int) -> Any:
    """Return a run of twenty rounds as far as it has come."""
    return SimpleNamespace(
        round=round_,
        records=[RECORD] * round_,
        timings=[{"seconds": 0.25}] * round_,
        choice=SimpleNamespace(engine="vectorized", reason=REASON),
        settings=SimpleNamespace(device="cpu", rounds=20),
    )


def shown(*, terminal: bool, quiet: bool = False) -> str:
    """Return what is shown of two runs of two rounds."""
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    with Live(console, quiet=quiet) as live:
        for seed in (0, 1):
            watch = live.watch("clove", seed)
            watch(progress(1))
            watch(progress(2))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_a_terminal_shows_a_bar_for_each_run() -> None:
    text = shown(terminal=True)
    assert "clove 0" in text
    assert "clove 1" in text
    assert "2/20" in text
    assert "\x1b[" in text


def test_a_bar_with_all_its_news_fits_a_terminal() -> None:
    text = shown(terminal=True)
    assert "accuracy 50.0 %  ARI 1.00  5 groups, stable" in text
    assert "…" not in text


def test_no_terminal_shows_only_which_engine_and_why_once() -> None:
    assert shown(terminal=False) == f"vectorized engine on cpu: {REASON}\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_nothing(terminal: bool) -> None:
    assert shown(terminal=terminal, quiet=True) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "accuracy 50.0 %  ARI 1.00  5 groups, stable"),
        ({"stable": False}, "accuracy 50.0 %  ARI 1.00  5 groups"),
        ({"accuracy": None, "ari": None, "stable": False}, "loss 0.1  5 groups"),
        ({"accuracy": None, "test_loss": None, "stable": False}, "ARI 1.00  5 groups"),
    ],
)
def test_the_news_of_a_round(changed: dict[str, Any], words: str) -> None:
    assert news({**RECORD, **changed}) == words


def test_a_method_without_groups_has_less_to_tell() -> None:
    record = {name: value for name, value in RECORD.items() if name != "clusters"}
    assert news({**record, "ari": None}) == "accuracy 50.0 %"


def test_the_round_time_and_the_sizes_of_clusters_stand_below_the_bars() -> None:
    text = shown(terminal=True)
    assert "250 ms a round" in text
    assert strip(RECORD).plain.split() == ["6", "2", "1", "1", "1"]
    assert len("250 ms a round  ") + len(strip(RECORD)) <= 80


@pytest.mark.parametrize(
    "record",
    [
        {**RECORD, "clusters": 30, "assignment": list(range(30))},
        {name: value for name, value in RECORD.items() if name != "clusters"},
    ],
)
def test_there_is_no_strip_of_very_many_clusters_or_of_none(record: dict[str, Any]) -> None:
    assert strip(record).plain == ""


@given(st.lists(st.integers(0, 15), min_size=1, max_size=200))
def test_every_cluster_has_room_for_its_size_in_the_strip(assignment: list[int]) -> None:
    found = strip({"clusters": 1, "assignment": assignment})
    assert sum(map(int, found.plain.split())) == len(assignment)
    assert len(found) <= 48 + 16 * 5
