"""Logs as their own libraries read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

Series = dict[str, list[tuple[int, float]]]


def on_tensorboard(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder / "tracking" / "tensorboard"), {"scalars": 0}).Reload()


def scalars(folder: Path) -> Series:
    """Return step and value of everything that TensorBoard shows by round."""
    log = on_tensorboard(folder)
    tags = [tag for tag in log.Tags()["scalars"] if not tag.startswith("hparam/")]
    return {tag: [(one.step, one.value) for one in log.Scalars(tag)] for tag in tags}


def hyperparameters(folder: Path) -> dict[str, Any]:
    log = on_tensorboard(folder)
    content = log.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}


def on_mlflow(folder: Path) -> tuple[MlflowClient, Run]:
    known = json.loads((folder / "tracking" / "mlflow.json").read_text())
    client = MlflowClient(known["uri"])
    return client, client.get_run(known["run"])


def metrics(folder: Path) -> Series:
    """Return step and value of every metric that MLflow has."""
    client, run = on_mlflow(folder)
    return {
        name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def artifacts(folder: Path, under: str | None = None) -> list[str]:
    client, run = on_mlflow(folder)
    return [one.path for one in client.list_artifacts(run.info.run_id, under)]
