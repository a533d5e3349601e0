"""The tables of results: what is added stays, is replaced by newer runs, and is read as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from clove.errors import CloveError
from clove.paper.results import Results, outcome
from tests.paper.made_up import cell, recorded, results

ONE = cell("E2", dataset="mnist", algorithm="clove")
OTHER = cell("E2", dataset="mnist", algorithm="ifca")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    kept = results(tmp_path, (ONE, [0.1 + 0.2, 1.0], "ari"), (OTHER, [0.5, None], "ari"))
    again = Results(tmp_path)
    assert again.of(ONE)["ari"].tolist() == [0.1 + 0.2, 1.0]
    assert again.of(OTHER)["ari"].isna().tolist() == [False, True]
    assert len(again.rounds_of(ONE)) == len(kept.rounds_of(ONE)) == 24
    written = (tmp_path / "runs.csv").read_bytes()
    again.write()
    assert (tmp_path / "runs.csv").read_bytes() == written


def test_a_newer_run_takes_the_place_of_the_older(tmp_path: Path) -> None:
    kept = results(tmp_path, (ONE, [0.5, 0.6], "ari"), (OTHER, [0.1], "ari"))
    kept.add([recorded(ONE, 1, ari=0.9)])
    assert sorted(kept.of(ONE)["ari"]) == [0.5, 0.9]
    assert kept.of(OTHER)["ari"].tolist() == [0.1]
    assert len(kept.rounds_of(ONE)) == 24


def test_the_order_in_which_runs_are_added_does_not_show(tmp_path: Path) -> None:
    results(tmp_path / "a", (ONE, [0.5], "ari"), (OTHER, [0.1], "ari"))
    results(tmp_path / "b", (OTHER, [0.1], "ari"), (ONE, [0.5], "ari"))
    for name in ("runs.csv", "rounds.csv"):
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()


def test_a_run_is_there_only_with_all_its_rounds(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    assert not kept.has(ONE.key, 0, 100)
    kept.add([recorded(ONE, 0, ari=1.0)])
    assert kept.has(ONE.key, 0, 100)
    assert not kept.has(ONE.key, 0, 99)
    assert not kept.has(ONE.key, 1, 100)


def test_merging_takes_over_the_runs_of_another_folder(tmp_path: Path) -> None:
    mine = results(tmp_path / "mine", (ONE, [0.5, 0.6], "ari"))
    mine.merge(results(tmp_path / "theirs", (ONE, [0.7], "ari"), (OTHER, [0.1], "ari")))
    assert sorted(Results(tmp_path / "mine").of(ONE)["ari"]) == [0.6, 0.7]
    assert Results(tmp_path / "mine").of(OTHER)["ari"].tolist() == [0.1]
    mine.merge(Results(tmp_path / "nothing"))
    assert len(mine.runs) == 3


@pytest.mark.parametrize("content", [b"", b'key,seed\n"a', b"\xff\xfe\x00"])
def test_a_damaged_table_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runs.csv").write_bytes(content)
    with pytest.raises(CloveError, match=r"runs\.csv is (damaged|no table)"):
        Results(tmp_path)


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rounds.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CloveError, match="no table of results: it has no column 'key'"):
        Results(tmp_path)


def test_an_empty_folder_has_no_results(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    assert kept.of(ONE).empty
    assert kept.rounds_of(ONE).empty


def record(number: int, ari: float | None, assignment: list[int]) -> dict[str, object]:
    known = {"round": number, "accuracy": 0.5, "test_loss": 1.0, "ari": ari, "ari_seen": ari}
    return {**known, "assignment": assignment, "bytes_up": 10, "bytes_down": 1, "stable": False}


def test_figures_of_a_run_come_from_its_rounds() -> None:
    records = [record(r, 0.1 * r, [0, 0, 2, -1]) for r in range(1, 12)]
    found = outcome(records)
    assert found["accuracy"] == 50.0
    assert found["ari"] == pytest.approx(1.1)
    assert found["ari_at_10_rounds"] == pytest.approx(1.0)
    assert found["first_round_ari_0.9"] == 9
    assert found["models_used"] == 2
    assert (found["bytes_up"], found["bytes_down"]) == (110, 11)


def test_a_short_run_has_no_ari_at_ten_rounds() -> None:
    found = outcome([record(1, None, [0])])
    assert found["ari_at_10_rounds"] is None
    assert found["first_round_ari_0.9"] is None


def test_two_commands_may_add_to_one_folder(tmp_path: Path) -> None:
    one, other = Results(tmp_path), Results(tmp_path)
    one.add([recorded(ONE, 1)])
    other.add([recorded(OTHER, 2)])
    again = Results(tmp_path)
    assert len(again.of(ONE)) == len(again.of(OTHER)) == len(other.of(ONE)) == 1
