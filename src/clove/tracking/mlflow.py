"""A run of MLflow, in a folder or on a server."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

FINISHED = "FINISHED"


def new_run(uri: str, experiment: str, name: str) -> str:
    """Begin a run in an experiment, which is made where it is missing; return its number."""
    client = _client(uri)
    known = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if known is None else known.experiment_id
    run_id: str = client.create_run(number, run_name=name).info.run_id
    return run_id


def _client(uri: str) -> MlflowClient:
    if uri.startswith("file:"):  # which MLflow keeps alive for those who say that they want it
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return MlflowClient(uri)


class MlflowLog:
    """Metrics by round, settings as parameters, all files as artifacts."""

    def __init__(self, uri: str, run_id: str) -> None:
        self._client, self._run = _client(uri), run_id

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note the settings, unless that was done before."""
        known = self._client.get_run(self._run).data.params
        new = {n: str(v) for n, v in settings.items() if v is not None and n not in known}
        self._client.log_batch(self._run, params=[Param(n, v) for n, v in new.items()])

    def last(self) -> dict[str, int]:
        """Return the last step that each metric has."""
        known = self._client.get_run(self._run).data.metrics
        return {
            name: max(one.step for one in self._client.get_metric_history(self._run, name))
            for name in known
        }

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note metrics at a step."""
        now = int(1000 * time.time())
        values = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=values)

    @property
    def ended(self) -> bool:
        """Whether the run's end has been noted."""
        return bool(self._client.get_run(self._run).info.status == FINISHED)

    def end(self, files: Mapping[str, Path], metrics: Mapping[str, float]) -> None:
        """Keep the files; the figures are those of the last step."""
        for name, path in files.items():
            folder = str(Path(name).parent)
            self._client.log_artifact(self._run, str(path), None if folder == "." else folder)
        self._client.set_terminated(self._run, FINISHED)

    def close(self) -> None:
        """Nothing is held open."""
