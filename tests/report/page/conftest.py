"""Small runs of several kinds, made once, for pages to be made of. Look, do not touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clove
from tests.runs.small import own_clients

SMALL: dict[str, Any] = {
    "engine": "vectorized",
    "device": "cpu",
    "threads": 1,
    "clusters": 3,
    "clients_per_cluster": 3,
    "points_per_client": 30,
    "learning_rate": 0.003,
    "rounds": 4,
}
KINDS: dict[str, dict[str, Any]] = {
    "clove": {"algorithm": "clove"},
    "ifca": {"algorithm": "ifca"},
    "fedavg": {"algorithm": "fedavg"},
    "local": {"algorithm": "local"},
    "reconstruction": {"algorithm": "clove", "task": "reconstruction"},
    "some": {"algorithm": "clove", "participation": 0.5, "evaluate_every": 2, "transform": "log"},
    "probes": {"algorithm": "clove", "probes": "trained", "max_models": 4},
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind."""
    home = tmp_path_factory.mktemp("pages")
    for name, settings in KINDS.items():
        clove.run(**SMALL, **settings, out=home / name)
    clove.run(
        clients=own_clients(),
        algorithm="clove",
        max_models=3,
        rounds=3,
        out=home / "own",
        threads=1,
    )
    return home


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three methods with two seeds."""
    home = tmp_path_factory.mktemp("compared") / "runs"
    clove.compare("clove,ifca,fedavg", seeds=2, out=home, **SMALL)
    return home
