"""Several algorithms and seeds on the same clients, in one folder that survives a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

import clove
from clove.algorithms import ALGORITHMS, FedAvg
from clove.errors import CloveError, CloveWarning
from clove.report import figures
from clove.runs import compare
from clove.runs.compare import is_comparison, resume_comparison
from clove.runs.compared import Comparison
from clove.runs.loop import Progress
from clove.runs.settings import read_settings
from tests.runs.small import TINY, MyNet, lasting, own_clients

SETTINGS: dict[str, Any] = {**TINY, "probes": "trained", "first_round": "random"}
METHODS = ["clove", "ifca", "fedavg"]


class Stop(BaseException):
    """Stands in for the end of the process."""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A finished comparison. Look, do not touch."""
    return clove.compare(METHODS, seeds=2, out=tmp_path_factory.mktemp("all") / "out", **SETTINGS)


def test_a_comparison_holds_every_run_the_table_and_a_picture(comparison: Comparison) -> None:
    folder = comparison.folder
    assert {path.name for path in folder.iterdir()} == {
        *METHODS,
        *("comparison.json", "runs.csv", "picture.png", "picture.pdf"),
        *("table.txt", "table.md", "table.tex", "table.csv"),
    }
    for method in METHODS:
        assert sorted(path.name for path in (folder / method).iterdir()) == ["seed-0", "seed-1"]
        for seed in (0, 1):
            settings = clove.load(folder / method / f"seed-{seed}").settings
            assert (settings.algorithm, settings.seed) == (method, seed)
    assert imread(comparison.picture).ndim == 3
    assert (folder / "picture.pdf").read_bytes().startswith(b"%PDF-")


def test_summaries_come_by_algorithm_in_the_order_asked_for(comparison: Comparison) -> None:
    order = [(summary["algorithm"], summary["seed"]) for summary in comparison.summaries]
    assert order == [(method, seed) for method in METHODS for seed in (0, 1)]


def test_the_table_has_a_row_an_algorithm(comparison: Comparison) -> None:
    table = comparison.table
    assert table["algorithm"].tolist() == METHODS
    assert table["seeds"].tolist() == [2, 2, 2]
    accuracies = [s["accuracy"] for s in comparison.summaries if s["algorithm"] == "ifca"]
    assert table.loc[1, "accuracy"] == pytest.approx(sum(accuracies) / 2)
    written = pd.read_csv(comparison.folder / "table.csv")
    pd.testing.assert_frame_equal(written, table, check_dtype=False)
    assert "| clove |" in (comparison.folder / "table.md").read_text()
    assert (comparison.folder / "table.txt").read_text() == str(comparison)
    assert (comparison.folder / "table.tex").read_text() == comparison.latex()


def test_the_runs_are_a_row_each(comparison: Comparison) -> None:
    runs = pd.read_csv(comparison.folder / "runs.csv")
    assert runs[["algorithm", "seed"]].to_numpy().tolist() == [
        [method, seed] for method in METHODS for seed in (0, 1)
    ]
    assert runs["accuracy"].tolist() == [s["accuracy"] for s in comparison.summaries]
    assert runs["error"].isna().all()


def test_options_go_to_the_algorithms_that_have_them(comparison: Comparison) -> None:
    given = {
        method: read_settings(comparison.folder / method / "seed-0" / "settings.toml")
        for method in METHODS
    }
    assert [given[method].get("probes") for method in METHODS] == ["trained", None, None]
    assert [given[method].get("first_round") for method in METHODS] == ["random", "random", None]
    assert {given[method]["clusters"] for method in METHODS} == {2}


def test_every_run_is_what_it_would_be_alone(comparison: Comparison, tmp_path: Path) -> None:
    alone = {name: value for name, value in SETTINGS.items() if name != "probes"}
    clove.run(algorithm="ifca", seed=1, **alone, out=tmp_path / "alone")
    assert lasting(tmp_path / "alone") == lasting(comparison.folder / "ifca" / "seed-1")


def test_seeds_count_up_from_the_first(tmp_path: Path) -> None:
    found = clove.compare(["fedavg"], seeds=2, seed=5, out=tmp_path / "out", **TINY)
    assert [summary["seed"] for summary in found.summaries] == [5, 6]


def test_a_task_may_be_named(tmp_path: Path) -> None:
    found = clove.compare(["fedavg"], task="reconstruction", out=tmp_path / "out", **TINY)
    assert found.summaries[0]["accuracy"] is None
    assert resume_comparison(tmp_path / "out").summaries == found.summaries


def test_own_clients_and_networks_are_compared_on(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "clients": own_clients(),
        "task": clove.classification(MyNet),
        "out": tmp_path / "out",
        "engine": "vectorized",
        "rounds": 2,
        "models": 2,
    }
    found = clove.compare(["clove", "local"], **given)
    assert [summary["clients"] for summary in found.summaries] == [6, 6]
    assert clove.compare(["clove", "local"], **given).summaries == found.summaries
    assert resume_comparison(tmp_path / "out").summaries == found.summaries
    shutil.rmtree(tmp_path / "out" / "local")
    with pytest.raises(CloveError, match="hand them over again"):
        resume_comparison(tmp_path / "out")


# ----------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("anew", [True, False], ids=["compare again", "resume"])
@pytest.mark.parametrize("stop", [("clove", 1, 1), ("ifca", 0, 2)], ids=str)
def test_a_stopped_comparison_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    comparison: Comparison,
    stop: tuple[str, int, int],
    anew: bool,
) -> None:
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())

    def watch(algorithm: str, seed: int, progress: Progress) -> None:
        if (algorithm, seed, progress.round) == stop:
            raise Stop

    told: list[tuple[str, int, int]] = []

    def listen(algorithm: str, seed: int, progress: Progress) -> None:
        told.append((algorithm, seed, progress.round))

    out = tmp_path / "out"
    with pytest.raises(Stop):
        clove.compare(METHODS, seeds=2, out=out, watch=watch, **SETTINGS)
    assert not (out / "table.md").exists()
    (out / "fedavg" / "seed-1").mkdir(parents=True)  # killed before its settings were written
    if anew:
        clove.compare(METHODS, seeds=2, out=out, watch=listen, **SETTINGS)
    else:
        resume_comparison(out, listen)
    assert ("clove", 0, 1) not in told
    for method in METHODS:
        for seed in (0, 1):
            run = Path(method) / f"seed-{seed}"
            assert lasting(out / run) == lasting(comparison.folder / run)
    assert (out / "picture.png").exists()


def test_a_finished_comparison_runs_nothing_again(comparison: Comparison) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a run was run again")

    again = resume_comparison(comparison.folder, refuse)
    assert again.summaries == comparison.summaries


def test_only_a_folder_with_a_comparison_is_one(comparison: Comparison, tmp_path: Path) -> None:
    assert is_comparison(comparison.folder)
    assert not is_comparison(comparison.folder / "clove" / "seed-0")
    assert not is_comparison(tmp_path / "nowhere")


def test_settings_of_any_kind_are_remembered(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**TINY, "data_dir": tmp_path, "learning_rate": np.float64(0.01)}
    clove.compare(["fedavg"], out=tmp_path / "out", **settings)
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert (saved["data_dir"], saved["learning_rate"]) == (str(tmp_path), 0.01)
    assert len(clove.compare(["fedavg"], out=tmp_path / "out", **settings).summaries) == 1


# -------------------------------------------------------------------------------------- failing


@dataclass(frozen=True)
class Faulty(FedAvg):
    """FedAvg that cannot be relied on: it fails in its second round where a file says so."""

    switch: str = ""
    only_seed: int = -1

    name = "faulty"

    def round(self, state: Any, cohort: Any) -> Any:
        trained = yield from super().round(state, cohort)
        if Path(self.switch).exists() and self.only_seed in (-1, self.setup.seed):
            raise ZeroDivisionError("of all things\nmore of it")
        return trained


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a comparison in which one method fails, as long as there is a file `broken`."""
    monkeypatch.setitem(ALGORITHMS, "faulty", Faulty)
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())
    (tmp_path / "broken").touch()
    return {**TINY, "switch": str(tmp_path / "broken"), "out": tmp_path / "out"}


def test_a_method_that_fails_does_not_take_the_others_down(faulty: dict[str, Any]) -> None:
    error = "ZeroDivisionError: of all things"
    with pytest.warns(CloveWarning, match=f"faulty, seed 0; faulty, seed 1: {error}$"):
        found = clove.compare(["faulty", "fedavg"], seeds=2, **faulty)
    assert [one["algorithm"] for one in found.summaries] == ["fedavg", "fedavg"]
    assert found.failures == [
        {"algorithm": "faulty", "seed": seed, "error": error} for seed in (0, 1)
    ]
    folder = found.folder
    (story,) = found.errors()
    assert story == folder / "faulty" / "error.txt"
    assert "more of it" in story.read_text()
    assert "in round" in story.read_text()
    runs = pd.read_csv(folder / "runs.csv")
    assert runs[runs["algorithm"] == "faulty"]["error"].tolist() == [error, error]
    assert f"- faulty failed: {error}" in (folder / "table.md").read_text()
    assert f"faulty failed: {error}" in (folder / "table.txt").read_text()


def test_what_failed_is_tried_again_and_what_is_done_is_not(
    faulty: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.warns(CloveWarning, match="faulty"):
        clove.compare(["faulty", "fedavg"], seeds=2, **faulty)
    (tmp_path / "broken").unlink()
    told: set[str] = set()
    found = resume_comparison(tmp_path / "out", lambda algorithm, *_: told.add(algorithm))
    assert told == {"faulty"}
    assert found.failures == []
    assert found.table["seeds"].tolist() == [2, 2]
    assert not (tmp_path / "out" / "faulty" / "error.txt").exists()


def test_seeds_that_failed_are_told_from_those_that_did_not(
    faulty: dict[str, Any], tmp_path: Path
) -> None:
    given = {**faulty, "engine": "sequential", "only_seed": 1}
    with pytest.warns(CloveWarning, match="faulty, seed 0; faulty, seed 1"):
        clove.compare(["fedavg", "faulty"], seeds=2, **given)
    with pytest.warns(CloveWarning, match="faulty, seed 1: Zero"):  # begun runs go on one by one
        found = clove.compare(["fedavg", "faulty"], seeds=2, **given)
    assert [(one["algorithm"], one["seed"]) for one in found.failures] == [("faulty", 1)]
    assert "faulty (1 of 2 seeds)" in str(found)
    assert "faulty failed: seed 1: ZeroDivisionError: of all things" in str(found)


def test_where_all_methods_fail_that_is_an_error(faulty: dict[str, Any]) -> None:
    with pytest.raises(CloveError, match=r"^faulty, seed 0: ZeroDivisionError: of all things$"):
        clove.compare(["faulty"], **faulty)
    assert not (faulty["out"] / "table.md").exists()


def test_an_error_of_the_watcher_is_not_the_methods(tmp_path: Path) -> None:
    def watch(*_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        clove.compare(["fedavg", "local"], out=tmp_path / "out", watch=watch, **TINY)


# ------------------------------------------------------------------------------------------- all


def test_all_are_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())
    found = clove.compare("all", out=tmp_path / "out", **{**TINY, "rounds": 1})
    assert found.table["algorithm"].tolist() == list(ALGORITHMS)
    assert found.failures == []
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert saved["algorithms"] == list(ALGORITHMS)


def test_a_method_may_come_before_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())
    monkeypatch.setattr(compare, "known_algorithms", lambda: ["fedavg", "local"])
    found = clove.compare("local,all", out=tmp_path / "out", **TINY)
    assert found.table["algorithm"].tolist() == ["local", "fedavg"]


def test_methods_that_do_not_apply_are_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())
    monkeypatch.setattr(compare, "known_algorithms", lambda: ["ifca", "centralized", "fedavg"])
    given = {"clients": own_clients(), "task": clove.classification(MyNet), "rounds": 1}
    with pytest.warns(CloveWarning) as heard:
        found = clove.compare("all", out=tmp_path / "out", engine="vectorized", **given)
    assert found.table["algorithm"].tolist() == ["fedavg"]
    said = [str(one.message) for one in heard]
    assert said[0].startswith("ifca is left out: ifca needs the number of models")
    assert said[1].startswith("centralized is left out: the clients' true groups are not known")
    assert len(said) == 2


def test_where_no_method_applies_that_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "known_algorithms", lambda: ["centralized"])
    given = {"clients": own_clients(), "task": clove.classification(MyNet), "rounds": 1}
    with (
        pytest.warns(CloveWarning, match="centralized is left out"),
        pytest.raises(CloveError, match="no algorithm applies to these clients"),
    ):
        clove.compare("all", out=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_all_methods_alike_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="unknown device 'gpu'"):
        clove.compare("all", out=tmp_path / "out", **TINY, device="gpu")


# --------------------------------------------------------------------------------------- showing


class Shown:
    """Notes what a display is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, algorithms: Any, seeds: int, rounds: int, done: Any) -> None:
        self.told.append((list(algorithms), seeds, rounds, len(done)))

    def update(self, algorithm: str, seed: int, run: Any) -> None:
        self.told.append((algorithm, seed, run.round))

    def failed(self, algorithm: str) -> None:
        self.told.append(algorithm)


def test_a_display_is_told_the_plan_the_rounds_and_the_failures(faulty: dict[str, Any]) -> None:
    once, again = Shown(), Shown()
    clove.compare(["fedavg", "faulty"], display=once, **faulty)
    assert once.told == [
        *[(["fedavg", "faulty"], 1, 2, 0), ("fedavg", 0, 1), ("fedavg", 0, 2)],
        "faulty",
    ]
    clove.compare(["fedavg", "faulty"], display=again, **faulty)
    assert again.told == [(["fedavg", "faulty"], 1, 2, 1), "faulty"]


# ------------------------------------------------------------------------------------- refusing


@pytest.mark.parametrize(
    ("methods", "changed"),
    [(["clove", "ifca"], {}), (METHODS, {"rounds": 9}), (METHODS, {"seeds": 3})],
)
def test_another_comparison_in_the_folder_is_refused(
    comparison: Comparison, methods: list[str], changed: dict[str, Any]
) -> None:
    with pytest.raises(CloveError, match="holds another comparison: choose another folder"):
        clove.compare(methods, **{"seeds": 2, "out": comparison.folder, **SETTINGS, **changed})


@pytest.mark.parametrize(
    ("methods", "settings", "message"),
    [
        ([], {}, "name each algorithm to compare once"),
        (["clove", "ifca", "clove"], {}, "name each algorithm to compare once"),
        (["clove", "icfa"], {}, "unknown algorithm 'icfa': did you mean 'ifca'"),
        (["fedavg", "local"], {"max_models": 4}, "'max_models' is an option of algorithm clove"),
        (["clove"], {"max_model": 4}, "unknown setting 'max_model': did you mean 'max_models'"),
        (["clove"], {"seeds": 0}, "seeds must be 1 or more, not 0"),
        (["clove"], {"seed": "first"}, "seed must be int, not 'first'"),
        (["clove"], {"dataset": "digit"}, "unknown dataset 'digit': did you mean 'digits'"),
    ],
)
def test_a_comparison_that_cannot_be_meant_is_refused_before_anything_is_written(
    tmp_path: Path, methods: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(CloveError, match=message):
        clove.compare(methods, out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CloveError, match="is not empty: choose another folder"):
        clove.compare(["fedavg"], out=tmp_path)
    with pytest.raises(CloveError, match="is a file: choose another folder"):
        clove.compare(["fedavg"], out=tmp_path / "thesis.tex")


def test_a_damaged_comparison_is_named(tmp_path: Path) -> None:
    clove.compare("fedavg", out=tmp_path / "c", rounds=1, engine="vectorized")
    (tmp_path / "c" / "comparison.json").write_text("{")
    with pytest.raises(CloveError, match=r"comparison\.json is damaged"):
        resume_comparison(tmp_path / "c")


def test_a_comparison_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    comparison = clove.compare("clove,fedavg", out=tmp_path / "compared", **TINY)
    shown = comparison._repr_html_()
    assert "<td>fedavg</td>" in shown
    assert "<strong>" in shown.split("<tbody>")[1], "the best is bold"
    assert 'src="data:image/png;base64,' in shown
