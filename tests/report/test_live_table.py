"""The live table of a comparison: a row a method in a terminal, a plain line elsewhere."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from clove.report.live_table import LiveTable

METHODS = ["clove", "per-fedavg", "local"]


def run(round_: int, accuracy: float | None = 0.5, ari: float | None = None) -> Any:
    """Return a run of twenty rounds as far as it has come."""
    record = {"accuracy": accuracy, "test_loss": 0.25, "ari": ari}
    return SimpleNamespace(
        round=round_,
        records=[record] * round_,
        choice=SimpleNamespace(engine="vectorized", reason="[batch] was expected"),
        settings=SimpleNamespace(device="cpu", rounds=20),
    )


def summary(algorithm: str, seed: int) -> dict[str, Any]:
    return {
        **{"algorithm": algorithm, "seed": seed, "rounds": 20},
        **{"accuracy": 0.7, "test_loss": 0.1, "ari": None},
    }


def drawn(live: LiveTable, width: int = 80) -> dict[str, list[str]]:
    """Return the rows as they stand, by their first word, the titles under "algorithm"."""
    console = Console(file=StringIO(), width=width)
    console.print(live._rows.make_tasks_table(live._rows.tasks))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    rows = [line.replace(" ± ", "±").split() for line in text.splitlines()]
    return {row[0]: [w for w in row[1:] if set(w) - set("━╸╺ ")] for row in rows if row}


@pytest.fixture
def live() -> LiveTable:
    """A table of three methods, two seeds, of which one run was done before."""
    table = LiveTable(Console(file=StringIO(), force_terminal=True, width=80))
    table.begin(METHODS, 2, 20, [summary("local", 0)])
    return table


def test_every_method_has_a_row_from_the_beginning(live: LiveTable) -> None:
    rows = drawn(live)
    assert [name for name in rows if name in METHODS] == METHODS
    assert rows["clove"] == ["0/40", "waiting"]
    assert rows["local"] == ["20/40", "70.0", "waiting"]


def test_a_row_is_the_mean_over_seeds_as_far_as_they_have_come(live: LiveTable) -> None:
    live.update("clove", 0, run(4, accuracy=0.5, ari=1.0))
    assert drawn(live)["clove"][:3] == ["4/40", "50.0", "1.00"]
    live.update("clove", 1, run(4, accuracy=0.7, ari=0.5))
    rows = drawn(live)
    assert rows["algorithm"] == ["rounds", "accuracy", "%", "ARI", "time"]
    assert rows["clove"][:3] == ["8/40", "60.0±10.0", "0.75±0.25"]


def test_a_round_that_was_not_measured_leaves_the_last_that_was(live: LiveTable) -> None:
    half_way = run(2, accuracy=0.5)
    half_way.records[1] = {"accuracy": None, "test_loss": None, "ari": None}
    live.update("clove", 0, half_way)
    assert drawn(live)["clove"][:2] == ["2/40", "50.0"]


def test_the_loss_stands_in_where_there_is_no_accuracy() -> None:
    live = LiveTable(Console(file=StringIO(), force_terminal=True))
    live.begin(["clove"], 1, 20, [])
    live.update("clove", 0, run(1, accuracy=None))
    rows = drawn(live)
    assert rows["algorithm"][:3] == ["rounds", "test", "loss"]
    assert rows["clove"][1] == "0.25"


def test_what_failed_and_what_is_done_is_said(live: LiveTable) -> None:
    live.update("clove", 0, run(3))
    live.failed("clove")
    assert drawn(live)["clove"][-1] == "failed"
    done = LiveTable(Console(file=StringIO()))
    done.begin(["local"], 1, 20, [summary("local", 0)])
    assert drawn(done)["local"] == ["20/20", "70.0", "done"]


def shown(*, terminal: bool, quiet: bool = False) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    with LiveTable(console, quiet=quiet) as live:
        live.begin(METHODS, 1, 2, [])
        for method in METHODS:
            live.update(method, 0, run(1))
            live.update(method, 0, run(2))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_a_terminal_shows_a_table_that_is_cleared_at_the_end() -> None:
    text = shown(terminal=True)
    assert "per-fedavg" in text
    assert "2/2" in text
    assert text.endswith("\x1b[1A\x1b[2K")  # up a line, and clear it


def test_no_terminal_shows_only_which_engine_and_why_once() -> None:
    assert shown(terminal=False) == "vectorized engine on cpu: [batch] was expected\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_nothing(terminal: bool) -> None:
    assert shown(terminal=terminal, quiet=True) == ""


def test_fourteen_methods_fit_a_terminal() -> None:
    live = LiveTable(Console(file=StringIO(), force_terminal=True, width=80))
    names = [f"centralized-{n}" for n in range(14)]
    live.begin(names, 3, 100, [])
    for name in names:
        for seed in range(3):
            live.update(name, seed, run(99, accuracy=0.1 + 0.4 * seed, ari=0.1 * seed))
    assert len(drawn(live)) == 16
