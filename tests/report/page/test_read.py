"""Run folders as pages read them: whatever the run, however far it has come."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clove
from clove.errors import CloveError
from clove.report.page.read import failures, read_run, run_folders
from clove.report.page.render import page_data
from tests.report.page.conftest import KINDS


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """A run of one's own to spoil."""
    return Path(shutil.copytree(runs / "clove", tmp_path / "run"))


@pytest.mark.parametrize("kind", [*KINDS, "own"])
def test_what_is_read_is_what_the_run_says_of_itself(runs: Path, kind: str) -> None:
    read, result = read_run(runs / kind), clove.load(runs / kind)
    assert read.finished
    assert read.records == result._story.records
    assert read.assignment.tolist() == result.assignment.tolist()
    assert read.measured["test_loss"] == result.test_loss
    assert read.stability_round == result.summary()["stability_round"]
    assert set(read.vectors) == set(result._story.loss_vectors)
    table, scores = result.client_scores, read.scores
    assert scores is not None
    np.testing.assert_array_equal(scores.clients, table["client"])
    np.testing.assert_array_equal(scores.loss, table["loss"])
    groups = None if read.groups is None else read.groups.tolist()
    assert groups == result.summary()["groups"]


@pytest.mark.parametrize(
    ("kind", "grouped", "personal"),
    [
        ("clove", True, False),
        ("fedavg", False, False),
        ("local", False, True),
        ("own", True, False),
    ],
)
def test_methods_with_and_without_groups_are_told_apart(
    runs: Path, kind: str, grouped: bool, personal: bool
) -> None:
    read = read_run(runs / kind)
    assert (read.grouped, read.personal) == (grouped, personal)


def test_a_line_being_written_is_left_for_later(copied: Path) -> None:
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "accu')
    assert len(read_run(copied).records) == 4


def test_a_run_that_has_only_begun_has_no_rounds(copied: Path) -> None:
    for name in ("metrics.jsonl", "timings.jsonl", "checkpoint.safetensors", "summary.json"):
        (copied / name).unlink()
    shutil.rmtree(copied / "loss_vectors")
    read = read_run(copied)
    assert not read.finished
    assert not read.records
    assert read.clients == 9
    assert read.scores is None


def test_a_folder_of_before_clients_data_were_noted_is_read_all_the_same(copied: Path) -> None:
    (copied / "data.json").unlink()
    assert read_run(copied).data == {}


@pytest.mark.parametrize(
    "name",
    [
        *("settings.toml", "metrics.jsonl", "timings.jsonl", "checkpoint.safetensors"),
        *("data.json", "summary.json", "clients.csv"),
    ],
)
def test_a_damaged_file_is_named(copied: Path, name: str) -> None:
    (copied / name).write_text("no\n")
    with pytest.raises(CloveError, match=f"{re.escape(name)} is damaged"):
        read_run(copied)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("settings.toml", 'rounds = "x"\n', "no section of it has dataset, .*algorithm.*rounds"),
        ("metrics.jsonl", "", "it has 0 whole lines, but summary.json says .* had 4 rounds"),
        ("timings.jsonl", "{}\n", "it has 1 whole lines, but summary.json says .* had 4 rounds"),
        ("metrics.jsonl", "[1]\n" * 4, r"a JSON object should be where \[1\] is"),
        ("summary.json", "[1, 2]", r"a JSON object should be where \[1, 2\] is"),
        ("summary.json", "{}", "it does not say how many rounds"),
        ("clients.csv", "", "it does not begin with the titles"),
        ("data.json", "3", "a JSON object should be where 3 is"),
    ],
)
def test_a_file_that_is_not_what_a_run_writes_is_named_with_what_is_wrong(
    copied: Path, name: str, content: str, why: str
) -> None:
    (copied / name).write_text(content)
    with pytest.raises(CloveError, match=f"{re.escape(str(copied / name))} is damaged: {why}"):
        page_data([copied])


def test_a_setting_of_another_kind_is_named(copied: Path) -> None:
    text = (copied / "settings.toml").read_text()
    (copied / "settings.toml").write_text(text.replace("rounds = 4", 'rounds = "x"'))
    with pytest.raises(CloveError, match=r"settings\.toml is damaged: rounds must be int, not 'x'"):
        read_run(copied)


def test_metrics_cut_short_are_those_of_a_run_that_was_stopped_where_it_has_no_summary(
    copied: Path,
) -> None:
    lines = (copied / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copied / "metrics.jsonl").write_text("".join(lines[:2]))
    (copied / "summary.json").unlink()
    read = read_run(copied)
    assert (read.finished, len(read.records), len(read.timings)) == (False, 2, 2)


def test_damaged_loss_vectors_are_named(copied: Path) -> None:
    (copied / "loss_vectors" / "round-00002.npz").write_bytes(b"no")
    with pytest.raises(CloveError, match=r"round-00002\.npz is damaged"):
        read_run(copied)


def test_another_folder_is_refused_with_what_may_have_been_meant(
    runs: Path, comparison: Path, tmp_path: Path
) -> None:
    with pytest.raises(CloveError, match="holds neither a run nor a comparison"):
        read_run(tmp_path)
    with pytest.raises(CloveError, match=f"did you mean {re.escape(str(runs / 'clove'))}, "):
        read_run(runs)
    with pytest.raises(CloveError, match=f"did you mean {re.escape(str(comparison))}\\?"):
        read_run(comparison.parent)
    with pytest.raises(CloveError, match="there is no folder"):
        read_run(tmp_path / "nowhere")


def test_a_comparison_that_has_no_run_yet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"algorithms": ["clove"], "seeds": 1}')
    with pytest.raises(CloveError, match="no run of the comparison"):
        page_data([tmp_path])


def test_a_comparison_stands_for_its_runs_in_their_order(comparison: Path) -> None:
    names = [f"{run.parent.name}/{run.name}" for run in run_folders(comparison)]
    methods = ("clove", "ifca", "fedavg")
    assert names == [f"{method}/seed-{seed}" for method in methods for seed in (0, 1)]
    assert failures(comparison) == []


def test_a_method_that_failed_is_told_with_its_error(comparison: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(comparison, tmp_path / "compared"))
    (home / "ifca" / "error.txt").write_text("ifca, seed 0\nTraceback\nCloveError: too few\n\n")
    assert failures(home) == [{"algorithm": "ifca", "error": "CloveError: too few"}]


def test_reading_and_rendering_load_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys, clove.report.page.render; "
        "print(sorted({'torch', 'sklearn', 'scipy', 'pandas', 'matplotlib'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
