"""Runs followed by TensorBoard and MLflow, read back by TensorBoard and MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from safetensors.torch import load_file

import clove
from clove.errors import CloveError, CloveWarning
from clove.runs.carried import Carrier
from clove.runs.tracked import Tracking
from clove.tracking.mlflow import MlflowLog
from clove.tracking.tensorboard import TensorBoardLog
from tests.runs.small import TINY, records
from tests.test_cli import works
from tests.tracking.reading import (
    Series,
    artifacts,
    hyperparameters,
    metrics,
    on_mlflow,
    on_tensorboard,
    scalars,
)

BOTH = ["tensorboard", "mlflow"]
ROUNDS = {**TINY, "rounds": 4}


def expected(folder: Path) -> Series:
    """Return what a log should hold, by the run's own folder."""
    times = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    found: Series = {}
    for record, timing in zip(records(folder), times, strict=True):
        step = record.pop("round")
        assert timing.pop("round") == step
        phases = {f"time/{name}": value for name, value in timing.items()}
        phases["time/round"] = phases.pop("time/seconds")
        for name, value in {**record, **phases}.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append((step, float(value)))
    return found


def same(found: Series, wanted: Series) -> None:
    assert found.keys() == wanted.keys()
    for name, steps in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in steps], name
        assert [v for _, v in found[name]] == pytest.approx([v for _, v in steps]), name


# ------------------------------------------------------------------------------------------- a run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked") / "run"
    clove.run(**ROUNDS, track=BOTH, out=folder)
    return folder


def test_both_logs_hold_every_metric_of_every_round(run: Path) -> None:
    same(scalars(run), expected(run))
    same(metrics(run), expected(run))


def test_settings_are_parameters(run: Path) -> None:
    _, found = on_mlflow(run)
    assert found.data.params["algorithm"] == "clove"
    assert found.data.params["learning_rate"] == "0.001"
    assert found.data.params["clusters"] == "2"
    assert found.data.params["transform"] == "identity"  # which nobody set
    assert found.info.run_name == "clove, seed 0"
    assert hyperparameters(run)["algorithm"] == "clove"
    assert hyperparameters(run)["learning_rate"] == 0.001
    log = on_tensorboard(run)
    text = log.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]
    assert b"| learning_rate | 0.001 |" in text
    assert log.Scalars("hparam/accuracy")[0].value == pytest.approx(records(run)[-1]["accuracy"])


def test_figures_and_models_are_kept(run: Path, tmp_path: Path) -> None:
    assert {"picture.png", "settings.toml", "summary.json", "models"} <= set(artifacts(run))
    assert artifacts(run, "models") == [f"models/model-{n}.safetensors" for n in range(2)]
    client, found = on_mlflow(run)
    assert found.info.status == "FINISHED"
    copy = client.download_artifacts(found.info.run_id, "models/model-1.safetensors", str(tmp_path))
    model = clove.load(run).model(1).state_dict()
    assert all(tensor.equal(model[name]) for name, tensor in load_file(copy).items())
    assert on_tensorboard(run).Images("picture.png")[0].width > 100


def test_a_tracked_run_is_the_run_it_would_have_been(run: Path, tmp_path: Path) -> None:
    clove.run(**ROUNDS, out=tmp_path / "run")
    assert records(tmp_path / "run") == records(run)
    assert "tracking" not in {path.name for path in (tmp_path / "run").iterdir()}


def test_a_finished_run_gone_on_with_is_left_alone(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run / "tracking").rglob("*")}
    clove.resume(run)
    assert {path: path.stat().st_mtime_ns for path in (run / "tracking").rglob("*")} == before


# ------------------------------------------------------------------------------------ interruptions


class Stop(BaseException):
    """A kill, as far as a test can have one."""


@pytest.mark.parametrize("before_the_log", [False, True])
def test_a_run_that_is_resumed_goes_on_in_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_the_log: bool
) -> None:
    follow = Tracking.follow

    def killed(self: Tracking, standing: Any) -> None:
        if not before_the_log or standing.round < 2:
            follow(self, standing)
        if standing.round == 2:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "follow", killed)
        with pytest.raises(Stop):
            clove.run(**ROUNDS, track=BOTH, out=tmp_path / "run")
    assert len(scalars(tmp_path / "run")["accuracy"]) == (1 if before_the_log else 2)
    clove.resume(tmp_path / "run")
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))
    client, run = on_mlflow(tmp_path / "run")
    assert run.info.status == "FINISHED"
    assert len(client.search_runs([run.info.experiment_id])) == 1


@pytest.mark.parametrize("log", [TensorBoardLog, MlflowLog])
def test_a_round_half_written_is_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    add = log.add

    def killed(self: Any, step: int, values: dict[str, float]) -> None:
        add(self, step, dict(list(values.items())[:2]) if step == 2 else values)
        if step == 2:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(log, "add", killed)
        with pytest.raises(Stop):
            clove.run(**ROUNDS, track=BOTH, out=tmp_path / "run")
    clove.resume(tmp_path / "run")
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))


def test_a_log_may_be_added_to_a_run_that_is_resumed(tmp_path: Path) -> None:
    def killed(standing: Any) -> None:
        if standing.round == 2:
            raise Stop

    with pytest.raises(Stop):
        clove.run(**ROUNDS, out=tmp_path / "run", watch=killed)
    clove.resume(tmp_path / "run", track="tensorboard")
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))


def test_the_command_adds_a_log_to_what_is_resumed(tmp_path: Path) -> None:
    clove.run(**TINY, out=tmp_path / "run")
    works("resume", tmp_path / "run", "--track", "mlflow", "--track", "tensorboard")
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))
    clove.compare("clove", out=tmp_path / "two", **TINY)
    works("resume", tmp_path / "two", "--track", "mlflow")
    folder = tmp_path / "two" / "clove" / "seed-0"
    same(metrics(folder), expected(folder))


def test_a_log_that_fails_does_not_stop_the_run_and_is_filled_up_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, failures = MlflowLog.add, []

    def away(self: Any, step: int, values: dict[str, float]) -> None:
        if step == 2 and not failures:
            failures.append(step)
            raise ConnectionError("the server is away")
        add(self, step, values)

    monkeypatch.setattr(MlflowLog, "add", away)
    with pytest.warns(CloveWarning, match="mlflow cannot be written: the server is away. The run"):
        clove.run(**ROUNDS, track=BOTH, out=tmp_path / "run")
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))


def test_what_failed_to_the_end_is_written_by_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Any, step: int, values: dict[str, float]) -> None:
        raise ConnectionError("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowLog, "add", away)
        with pytest.warns(CloveWarning, match="mlflow cannot be written"):
            clove.run(**ROUNDS, track="mlflow", out=tmp_path / "run")
    assert metrics(tmp_path / "run") == {}
    clove.resume(tmp_path / "run")
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))


# ----------------------------------------------------------------------------------------- several


def test_a_comparison_is_one_store_of_mlflow_and_a_log_of_tensorboard_each(tmp_path: Path) -> None:
    clove.compare("clove,fedavg", seeds=2, out=tmp_path, track=BOTH, **TINY)
    store = MlflowClient((tmp_path / "tracking" / "mlflow").as_uri())
    runs = store.search_runs([e.experiment_id for e in store.search_experiments()])
    names = {run.info.run_name for run in runs}
    assert names == {f"{name}, seed {seed}" for name in ("clove", "fedavg") for seed in (0, 1)}
    assert {run.info.status for run in runs} == {"FINISHED"}
    for name in ("clove", "fedavg"):
        for seed in (0, 1):
            folder = tmp_path / name / f"seed-{seed}"
            same(scalars(folder), expected(folder))
            same(metrics(folder), expected(folder))
            assert "picture.png" in artifacts(folder)


def test_a_comparison_that_is_resumed_goes_on_in_its_logs(tmp_path: Path) -> None:
    def killed(algorithm: str, seed: int, standing: Any) -> None:
        if (algorithm, standing.round) == ("fedavg", 1):
            raise Stop

    with pytest.raises(Stop):
        clove.compare("clove,fedavg", out=tmp_path, track=BOTH, watch=killed, **TINY)
    assert artifacts(tmp_path / "clove" / "seed-0") == []
    clove.compare("clove,fedavg", out=tmp_path, **TINY)
    for name in ("clove", "fedavg"):
        folder = tmp_path / name / "seed-0"
        same(scalars(folder), expected(folder))
        same(metrics(folder), expected(folder))
        assert "picture.png" in artifacts(folder)


def test_a_run_elsewhere_is_followed_once_something_of_it_is_here(tmp_path: Path) -> None:
    result = clove.run(**TINY)

    class Distant:
        settings, records, round = result.settings, result._story.records, 2

    tracking = Tracking(tmp_path / "run", BOTH)
    tracking.follow(Distant())
    assert not (tmp_path / "run").exists()
    result.save(tmp_path / "run")
    tracking.follow(Distant())
    assert "time/round" not in scalars(tmp_path / "run")  # what is not known there
    tracking.finish()
    tracking.close()
    same(scalars(tmp_path / "run"), expected(tmp_path / "run"))
    same(metrics(tmp_path / "run"), expected(tmp_path / "run"))


def test_logs_are_not_carried_to_other_machines(run: Path) -> None:
    carried = Carrier(run).news()
    assert "metrics.jsonl" in carried
    assert not [name for name in carried if name.startswith("tracking")]


# ------------------------------------------------------------------------------------------ choices


def test_mlflow_is_kept_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = (tmp_path / "elsewhere").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", elsewhere)
    clove.run(**TINY, track="mlflow", out=tmp_path / "run")
    store = MlflowClient(elsewhere)
    (run,) = store.search_runs([e.experiment_id for e in store.search_experiments()])
    assert run.data.metrics["accuracy"] == records(tmp_path / "run")[-1]["accuracy"]
    assert not (tmp_path / "run" / "tracking" / "mlflow").exists()
    file = download_artifacts(f"runs:/{run.info.run_id}/summary.json", tracking_uri=elsewhere)
    assert json.loads(Path(file).read_text())["algorithm"] == "clove"


def test_logs_that_cannot_be_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="unknown tracker 'mlflo': did you mean 'mlflow'"):
        clove.run(**TINY, track="mlflo", out=tmp_path / "run")
    with pytest.raises(CloveError, match="tracking needs a folder for the run: set out"):
        clove.run(**TINY, track="mlflow")
    with pytest.raises(CloveError, match="unknown tracker"):
        clove.compare("clove", track=["wandb"], out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()
