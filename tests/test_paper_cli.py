"""`clove paper`: list, run, status, tables, docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from clove.cli import app
from clove.paper.experiment import EXPERIMENTS
from clove.paper.pace import Pace
from clove.paper.results import Results
from tests.paper.made_up import TINY, cell, results

HERE = ["--out", "runs", "--results", "results"]
QUICK = ["--device", "cpu", "--set", "engine=vectorized"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own, where a tiny experiment is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, TINY.number, TINY)
    return tmp_path


def paper(*words: str) -> Any:
    return CliRunner().invoke(app, ["paper", *words])


def works(*words: str) -> str:
    outcome = paper(*words)
    assert outcome.exit_code == 0, outcome.output
    return str(outcome.stdout)


def refuses(*words: str) -> str:
    outcome = paper(*words)
    assert outcome.exit_code == 1, outcome.output
    assert outcome.stderr.startswith("error: ")
    return " ".join(outcome.stderr.split())


def test_the_list_names_every_experiment_and_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXPERIMENTS, TINY.number)
    shown = works("list")
    for one in EXPERIMENTS.values():
        assert one.number in shown
        assert one.name in shown
    assert "cifar10" in shown


def test_the_list_says_how_long_runs_take_at_the_pace_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Path] = []

    def here(device: object, results: Results) -> Pace:
        asked.append(results.folder)
        return Pace(lambda cell: 3600.0)

    monkeypatch.setattr(Pace, "here", here)
    shown = works("list", "--results", "mine")
    [row] = [line for line in shown.splitlines() if "E99" in line]
    assert row.split()[-3:] == ["9", "9", "h"]  # three cells of three seeds, an hour each
    assert asked == [Path("mine")]


def test_run_then_status_then_nothing_is_missing(here: Path) -> None:
    shown = works("run", "tiny", "--seeds", "1", *HERE, *QUICK)
    assert "3 of 3 cells are done" in shown
    assert len(Results(here / "results").runs) == 3
    row = next(
        line for line in works("status", "E99", "--seeds", "1", *HERE).splitlines() if "E99" in line
    )
    assert row.split()[2:6] == ["3", "3", "3", "0"]
    again = works("run", "E99", "--seeds", "1", "--missing", *HERE, *QUICK)
    assert "nothing to run" in again
    more = works("run", "E99", "--seeds", "2", "--missing", "--no-extras", *HERE, *QUICK)
    assert "2 of 2 cells are done" in more
    assert "CLoVE, log losses" in works("tables", "E99", "--results", "results")


def test_some_rows_are_made_by_their_names(here: Path) -> None:
    row = ("--row", "CLoVE, log losses")
    assert "1 of 1 cells are done" in works("run", "tiny", "--seeds", "1", *row, *HERE, *QUICK)
    assert "did you mean 'CLoVE, log losses'?" in refuses(
        "run", "tiny", "--row", "CLoVE log losses"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.AcceleratorError("CUDA error: unknown error\nCompile with DSA"), "the GPU failed"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "the GPU failed"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "memory does not suffice"),
        (torch.AcceleratorError("CUDA error: out of memory"), "memory does not suffice"),
    ],
    ids=str,
)
def test_what_the_machine_fails_in_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError, said: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("clove.paper.experiment.find_experiments", fail)
    told = refuses("run", "tiny")
    assert said in told
    assert told.endswith(str(error).splitlines()[0])


def test_what_there_is_no_time_for_is_counted_and_no_failure(here: Path) -> None:
    shown = works("run", "tiny", "--seeds", "1", "--minutes", "0.00001", *HERE, *QUICK)
    assert "0 of 3 cells are done" in shown
    assert "no time for 3 cells: the same command goes on with them" in shown
    later = works("run", "tiny", "--seeds", "1", "--minutes", "60", *HERE, *QUICK)
    assert "3 of 3 cells are done" in later


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "ablatoin"], "did you mean 'ablation'? `clove paper list` shows them all"),
        (["run", "E99", "--settings", "autors"], "did you mean 'authors'"),
        (["run", "E99", "--seeds", "0"], "seeds must be 1 or more, not 0"),
        (["run", "E99", "--minutes", "0"], "minutes must be more than 0, not 0"),
        (["run", "E99", "--set", "learning_rate=1"], "--set takes settings of the machine"),
        (["run", "E99", "--set", "device"], "--set takes KEY=VALUE"),
        (["run", "E99", "--data", "mnits"], "did you mean 'mnist'"),
        (["run", "E99", "--algorithm", "clov"], "did you mean 'clove'"),
        (["status", "E100"], "unknown experiment 'E100'"),
        (["tables", "E100"], "unknown experiment 'E100'"),
        (["tables", "E1", "--format", "htm"], "did you mean 'html'"),
        (["tables", "E1", "--settings", "ours"], "unknown settings 'ours'"),
        (["tables", "E5"], "E5: figures only, no tables"),
        (["tables"], "no results with the settings of 'paper' in results/paper"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_can(words: list[str], said: str) -> None:
    assert said in refuses(*words)


def test_tables_say_which_settings_have_results() -> None:
    one = cell("E2", "authors", dataset="mnist", algorithm="clove")
    results(Path("results/paper"), (one, [1.0], "ari"))
    assert "there are some with `--settings authors`" in refuses("tables")
    shown = works("tables", "--settings", "authors")
    assert "E2 (Table 2): ARI" in shown
    assert "E4 (Table 4)" not in shown


def test_a_damaged_table_of_results_is_named() -> None:
    Path("results/paper").mkdir(parents=True)
    Path("results/paper/runs.csv").write_text("a,b\n1,2\n")
    assert "runs.csv is no table of results" in refuses("tables", "E1")


def test_named_experiments_are_shown_with_the_papers_figures_alone() -> None:
    shown = works("tables", "ablation")
    assert "no runs yet" in shown
    assert "58.3 ± 1.4" in shown


@pytest.mark.parametrize(
    ("kind", "sign"), [("md", "| --- |"), ("latex", r"\toprule"), ("csv", "E23,"), ("html", "<td>")]
)
def test_a_format_can_be_chosen(kind: str, sign: str) -> None:
    assert sign in works("tables", "E23", "--format", kind)


def test_all_formats_and_figures_are_written(here: Path) -> None:
    shown = works("tables", "E23", "E6", "--out", "mine")
    endings = {path.name for path in (here / "mine").iterdir()}
    tables = {f"tables.{ending}" for ending in ("txt", "md", "tex", "csv", "html")}
    assert endings == tables | {"E6-illustration.png", "E6-illustration.pdf"}
    assert "mine/tables.html" in shown


def test_the_page_is_written_where_one_says(here: Path) -> None:
    works("docs", "--results", "none", "--out", "documents")
    assert (here / "documents" / "reproduction.md").read_text().startswith("# Reproduction")
