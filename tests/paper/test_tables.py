"""The paper's tables, from results made up by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clove.paper import EXPERIMENTS
from clove.paper.experiment import READINGS
from clove.paper.measured import Measured
from clove.paper.names import DATASETS, METHODS, MIXINGS
from clove.paper.notes import all_notes
from clove.paper.results import Results
from clove.paper.tables import PaperTable, Row, sign, tables_of, tidy
from tests.paper.made_up import cell, recorded, results

PLACE = {"dataset": "mnist", "mixing": "label-skew-1"}
CLOVE, IFCA, FEDAVG, LOCAL = (
    cell("E1", **PLACE, algorithm=name) for name in ("clove", "ifca", "fedavg", "local")
)
LOG = cell("E1", **PLACE, label="CLoVE, log losses")


@pytest.fixture
def first(tmp_path: Path) -> PaperTable:
    kept = results(
        tmp_path,
        (FEDAVG, [87.0, 88.0], "accuracy"),  # paper 87.4 ± 0.9
        (LOCAL, [80.0, 80.0], "accuracy"),  # 99.5 ± 0.1
        (IFCA, [99.9, 99.9], "accuracy"),  # 99.1 ± 0.5
        (CLOVE, [99.8, 99.96], "accuracy"),  # 99.8 ± 0.0
        (LOG, [100.0], "accuracy"),
    )
    return tables_of(EXPERIMENTS["E1"], "paper", kept)[0]


def entry(table: PaperTable, row: str, column: int = 0):
    return next(one for one in table.rows if one.name == row).entries[column]


def test_rows_are_methods_and_columns_data_in_the_papers_order(first: PaperTable) -> None:
    names = [row.name for row in first.rows]
    assert names[:2] == ["FedAvg", "Local-only"]
    assert names[-2:] == ["CLoVE", "CLoVE, log losses"]
    titles = [column.title for column in first.columns]
    assert titles[:2] == ["MNIST, label skew 1", "MNIST, label skew 2"]
    assert titles[-2:] == ["Amazon", "AG News, label skew 2"]


def test_each_figure_is_marked_by_how_it_compares(first: PaperTable) -> None:
    marks = {name: entry(first, name).mark for name in ("FedAvg", "Local-only", "IFCA", "FedALA")}
    assert marks == {"FedAvg": "within", "Local-only": "beyond", "IFCA": "better", "FedALA": None}
    assert [sign(entry(first, name)) for name in marks] == ["≈", "▼", "▲", ""]


def test_rows_beyond_the_paper_have_no_figure_of_the_papers(first: PaperTable) -> None:
    extra = first.rows[-1]
    assert extra.extra
    assert all(one is None or one.theirs is None for one in extra.entries)


def supervised(folder: Path, values: Mapping[str, float], rounds: int = 100) -> PaperTable:
    """Return the table of ARIs with these methods' in its first column."""
    kept = Results(folder)
    for name, value in values.items():
        one = cell("E2", dataset="mnist", mixing="label-skew-1", algorithm=name)
        kept.add([recorded(one, 0, ari=value, rounds=100 if name == "clove" else rounds)])
    [table] = tables_of(EXPERIMENTS["E2"], "paper", kept)
    return table


def best(table: PaperTable) -> list[str]:
    return [row.name for row in table.rows if table.is_best(_first(row))]


def _first(row: Row) -> Measured:
    assert row.entries[0] is not None
    return row.entries[0]


CLUSTERED = {"cfl-s": 0.5, "fesem": 0.0, "flexcfl": 0.9, "pacfl": 0.3, "ifca": 1.0, "clove": 0.999}


def test_the_best_of_the_papers_methods_is_known_and_ties_share_it(tmp_path: Path) -> None:
    assert best(supervised(tmp_path, CLUSTERED)) == ["IFCA", "CLoVE"]  # equal as printed


def test_while_a_method_is_missing_or_cut_short_nobody_is_best(tmp_path: Path) -> None:
    some = {name: value for name, value in CLUSTERED.items() if name != "pacfl"}
    assert best(supervised(tmp_path / "missing", some)) == []
    assert best(supervised(tmp_path / "short", CLUSTERED, rounds=2)) == []


def test_without_rivals_nobody_is_best(tmp_path: Path) -> None:
    part = cell("E16", participation=1.0)
    [table, *_] = tables_of(
        EXPERIMENTS["E16"], "paper", results(tmp_path, (part, [99.0], "accuracy"))
    )
    assert not any(table.is_best(one) for one in table.entries)


def test_the_least_loss_is_best(tmp_path: Path) -> None:
    names = ("clove", "ifca", "fedavg", "local")
    some = [cell("E4", dataset="mnist", algorithm=name) for name in names]
    kept = results(tmp_path, *((one, [0.01 * i], "test_loss") for i, one in enumerate(some, 1)))
    [table] = tables_of(EXPERIMENTS["E4"], "paper", kept)
    assert [one.cell.algorithm for one in table.entries if table.is_best(one)] == ["clove"]


def test_what_is_missing_is_said(first: PaperTable) -> None:
    told = "\n".join(first.missing())
    assert "on MNIST, label skew 1." in told
    assert "FedALA" in told.splitlines()[0]
    assert "No runs yet on" in told
    assert "Amazon" in told
    assert "rows beyond the paper: CLoVE, row losses" in told


def test_a_table_without_any_runs_says_just_that(tmp_path: Path) -> None:
    [table] = tables_of(EXPERIMENTS["E1"], "paper", Results(tmp_path))
    assert table.made_of == "no runs yet"
    assert table.missing() == []
    assert not any(row.extra for row in table.rows)
    assert all(one.theirs is not None for one in table.entries)


def test_the_number_of_seeds_and_the_kind_of_spread_are_named(first: PaperTable) -> None:
    assert first.made_of == "ours: mean ± population std over 2 seeds, 100 rounds"
    assert first.rows[-1].entries[0].remarks(first.seeds) == ["1 seed"]


def test_one_seed_has_no_spread_and_samples_are_named(tmp_path: Path) -> None:
    finch = cell("E24", dataset="mnist", clustering="finch")
    [one, *_] = tables_of(
        EXPERIMENTS["E24"], "paper", results(tmp_path / "1", (finch, [90], "accuracy"))
    )
    assert one.made_of == "ours: mean of 1 seed, 100 rounds"
    [two, *_] = tables_of(
        EXPERIMENTS["E24"], "paper", results(tmp_path / "2", (finch, [90, 92], "accuracy"))
    )
    assert two.made_of == "ours: mean ± sample std over 2 seeds, 100 rounds"


def test_part_of_a_table_keeps_the_numbers_of_its_notes(first: PaperTable) -> None:
    part = first.part(first.columns[:1])
    assert part.footnotes == first.footnotes
    assert [row.name for row in part.rows] == [row.name for row in first.rows]


# ------------------------------------------------------------------------------------------- notes


def test_a_note_stands_at_the_row_or_the_column_or_the_figure_it_is_about(
    first: PaperTable,
) -> None:
    texts = [note.text for note in first.footnotes]
    fedavg = first.rows[0]
    [number] = first.numbers("row", fedavg.entries)
    assert "training data" in texts[number - 1]
    rotation = [c.title for c in first.columns].index("CIFAR-10, feature skew")
    numbers = first.numbers("column", first.of_column(rotation))
    assert any("rotates no" in texts[number - 1] for number in numbers)
    assert not first.numbers("cell", fedavg.entries)


def test_a_note_to_one_figure(tmp_path: Path) -> None:
    [table] = tables_of(EXPERIMENTS["E4"], "paper", Results(tmp_path))
    local = next(row for row in table.rows if row.name == "Local-only")
    numbers = {
        c.dataset: table.numbers("cell", [e])
        for c, e in zip(table.columns, local.entries, strict=True)
    }
    assert numbers["mnist"] == numbers["cifar10"] == []
    [number] = numbers["fmnist"]
    assert "0.017" in table.footnotes[number - 1].text


def test_a_note_to_all_figures_has_no_number(first: PaperTable) -> None:
    assert any("one division of the data" in remark for remark in first.remarks)


def test_every_note_is_about_some_figure(tmp_path: Path) -> None:
    empty = Results(tmp_path)
    tables = [t for one in EXPERIMENTS.values() for t in tables_of(one, "paper", empty)]
    for note in all_notes():
        used = any(note.is_about(table.slug, one) for table in tables for one in table.entries)
        assert used, note.text


# --------------------------------------------------------------------------------------- throughout


@pytest.mark.parametrize("reading", READINGS)
def test_every_experiments_tables_can_be_made_of_nothing(tmp_path: Path, reading: str) -> None:
    for one in EXPERIMENTS.values():
        tables = tables_of(one, reading, Results(tmp_path))
        assert sum(len({e.metric for e in table.entries}) for table in tables) == len(one.tables)


def test_metrics_of_one_and_the_same_data_stand_side_by_side(tmp_path: Path) -> None:
    part = cell("E16", participation=0.1)
    kept = results(tmp_path, (part, [99.0], "accuracy"))
    [table] = tables_of(EXPERIMENTS["E16"], "paper", kept)
    assert [one.title for one in table.columns] == ["accuracy", "ARI", "ARI, round 10", "ARI ≥ 0.9"]
    assert [row.name for row in table.rows][-1] == "participation 0.1"
    assert table.title == "E16 (Table 14): MNIST, label skew 1"
    assert table.rows[-1].entries[0].ours_text() == "99.0"
    [number] = table.numbers("column", table.of_column(0))
    assert "learning rate" in table.footnotes[number - 1].text
    assert not table.numbers("column", table.of_column(1))
    assert set(tidy([table])["metric"]) == {e.metric.name for e in table.entries}


def test_everything_has_a_name_for_print() -> None:
    cells = [c for one in EXPERIMENTS.values() for c in one.cells("paper")]
    assert {c.algorithm for c in cells} <= set(METHODS)
    assert {c.dataset for c in cells} <= set(DATASETS)
    assert {c.mixing for c in cells} <= set(MIXINGS)


def test_tidy_figures_are_one_a_line(first: PaperTable) -> None:
    table = tidy([first])
    assert len(table) == len(first.entries)
    row = table[(table["row"] == "IFCA") & (table["dataset"] == "mnist")].iloc[0]
    assert (row["ours"], row["paper"], row["paper_std"], row["mark"]) == (99.9, 99.1, 0.5, "better")
    assert row["difference"] == pytest.approx(0.8)
    assert (row["seeds"], row["rounds"], row["wanted_rounds"]) == (2, 100, 100)
