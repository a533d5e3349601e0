"""Without their extra, these tests are left out (test_extras.py says so)."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

MISSING = [one for one in ("tensorboard", "mlflow") if not find_spec(one)]
collect_ignore_glob = ["test_*.py"] if MISSING else []
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before anything imports it


@pytest.fixture(autouse=True)
def nobody_elses_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a user's own MLflow out of it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
