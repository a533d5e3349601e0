"""The file of a hundred rounds: rows of earlier runs stay, nothing in it is by hand."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import hundred

ORDER = ["first", "second", "third"]


def row(work: str, per_round: float, date: str) -> dict[str, object]:
    made = {"machine": "a machine", "torch": "2", "clove": "0.1", "commit": "abc", "cpu": "Some 9"}
    return {"part": "slow", "work": work, "per_round": per_round, **made, "date": date}


def test_rows_that_are_not_measured_again_stay_with_their_dates(tmp_path: Path) -> None:
    out = str(tmp_path / "hundred")
    hundred.write([row("third", 3.0, "2026-01-01"), row("first", 1.0, "2026-01-01")], ORDER, out)
    hundred.write([row("second", 2.0, "2026-02-02"), row("third", 4.0, "2026-02-02")], ORDER, out)
    rows = pd.read_csv(f"{out}.csv")
    assert rows["work"].tolist() == ORDER
    assert rows["per_round"].tolist() == [1.0, 2.0, 4.0]
    assert rows["date"].tolist() == ["2026-01-01", "2026-02-02", "2026-02-02"]
    text = Path(f"{out}.md").read_text(encoding="utf-8")
    assert "| first | 1000.0 | 100.00 |  |  | Some 9, commit abc, 2026-01-01 |" in text
    hundred.write([], ORDER, out)
    assert Path(f"{out}.md").read_text(encoding="utf-8") == text, "the table is of the rows alone"


def test_the_table_in_the_repository_is_of_its_rows() -> None:
    rows = pd.read_csv(hundred.RESULTS / "hundred.csv")
    text = (hundred.RESULTS / "hundred.md").read_text(encoding="utf-8")
    assert text == hundred.table(rows)


def test_nothing_measured_and_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nothing was measured"):
        hundred.write([], ORDER, str(tmp_path / "hundred"))


@pytest.mark.parametrize(
    ("parts", "compiled", "measured"),
    [
        (None, False, {*hundred.PARTS}),
        (None, True, {*hundred.PARTS, "compiled"}),
        (["slow"], False, {"slow"}),
        ([], True, {"compiled"}),
        ([], False, set()),
    ],
)
def test_compiled_steps_are_measured_where_they_are_asked_for(
    parts: list[str] | None, compiled: bool, measured: set[str]
) -> None:
    given = Namespace(
        parts=parts, compiled=compiled, rounds=1, kernels="auto", compiled_kernels="auto"
    )
    known = {part for part, _, _ in hundred.parts(given, "cpu")}
    assert known == {*hundred.PARTS, "compiled"}
    assert {part for part in known if hundred.wanted(part, given)} == measured
