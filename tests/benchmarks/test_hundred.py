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
    once = {"repeats": 1, "least": per_round, "most": per_round}
    return {"part": "slow", "work": work, "per_round": per_round, **once, **made, "date": date}


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


def test_of_repeated_runs_the_median_counts_with_the_least_and_the_most() -> None:
    times = iter([0.3, 0.1, 0.2])
    found = hundred.median(lambda: timed(next(times)), 3)
    assert found == {**timed(0.2), "least": 0.1, "most": 0.3, "repeats": 3}
    text = hundred.table(pd.DataFrame([row("first", 0.2, "2026-01-01") | found]))
    assert "| first | 200.0 (100.0–300.0) | 20.00 |" in text


def test_slow_runs_are_not_repeated() -> None:
    times = iter([0.6])
    found = hundred.median(lambda: timed(next(times)), 3)
    assert (found["per_round"], found["repeats"]) == (0.6, 1)


def timed(per_round: float) -> dict[str, float]:
    return {"seconds": 100 * per_round, "per_round": per_round}


def test_every_part_is_measured() -> None:
    known = {part for part, _, _ in hundred.parts(Namespace(rounds=1), "cpu")}
    assert known == {*hundred.PARTS}
