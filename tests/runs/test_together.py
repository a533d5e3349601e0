"""Runs of several seeds as one stack: the same as each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clove
from clove.federation import together
from clove.runs.api import run_settings_together
from clove.runs.build import gather_clients
from clove.runs.settings import from_names

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "mixing": "label-skew-1",
    "rounds": 4,
    "engine": "vectorized",
    "precision": "fp64",
    "kernels": "auto",
}
CASES: dict[str, dict[str, Any]] = {
    "clove": {"algorithm": "clove"},
    "some take part, some straggle": {
        "algorithm": "clove",
        "participation": 0.6,
        "stragglers": 0.3,
    },
    "probes and early stopping": {
        "algorithm": "clove",
        "probes": "trained",
        "early_stopping": True,
        "stable_rounds": 2,
    },
    "gradients": {"algorithm": "clove", "averaging": "gradients"},
    "unequal clients": {"algorithm": "fedavg", "mixing": "dirichlet", "total_clients": 7},
    "small groups": {"algorithm": "fedavg", "group_size": 4},
    "local": {"algorithm": "local"},
    "fedprox": {"algorithm": "fedprox", "mu": 0.1},
    "per-fedavg": {
        "algorithm": "per-fedavg",
        "personal_learning_rate": 0.1,
        "meta_gradient": "hessian-free",
    },
    "fedproto": {"algorithm": "fedproto"},
    "fedala": {"algorithm": "fedala", "participation": 0.6, "measured": "blended"},
    "fedpac": {"algorithm": "fedpac", "participation": 0.6},
    "centralized": {"algorithm": "centralized"},
    "cfl-s": {"algorithm": "cfl-s", "eps2": 0.1, "participation": 0.6},
    "fesem": {"algorithm": "fesem", "participation": 0.6},
    "flexcfl": {"algorithm": "flexcfl", "participation": 0.6, "eta_g": 0.1},
    "pacfl": {"algorithm": "pacfl", "participation": 0.6, "stragglers": 0.3},
    "k-fed": {"algorithm": "k-fed", "local_clusters": 2},
    "fedgwc": {"algorithm": "fedgwc", "tolerance": 1e-3},
    "ifca, momentum": {"algorithm": "ifca", "optimizer": "sgd", "momentum": 0.5},
    "momentum is kept": {
        **{"algorithm": "fedavg", "optimizer": "sgd", "momentum": 0.5, "participation": 0.6},
        **{"keep_momentum": True, "learning_rate_decay": 0.9},
    },
}


def all_together(settings: dict[str, Any], seeds: int = 3) -> list[clove.Result]:
    chosen = [from_names(**settings, seed=seed) for seed in range(seeds)]
    return run_settings_together([(one, gather_clients(one), None, None) for one in chosen])


@pytest.mark.parametrize("case", CASES)
def test_each_seed_comes_out_as_by_itself(case: str) -> None:
    settings = {**SMALL, **CASES[case]}
    for seed, stacked in enumerate(all_together(settings)):
        alone = clove.run(**settings, seed=seed)
        np.testing.assert_array_equal(stacked.assignment, alone.assignment)
        for column in ("test_loss", "accuracy", "ari", "bytes_up", "bytes_down", "participants"):
            found, expected = (r.history[column].to_numpy(float) for r in (stacked, alone))
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=column)


def test_clients_of_all_seeds_are_one_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    merge = together._merged

    def noted(works: Any) -> Any:
        merged = merge(works)
        sizes.append(len(merged.clients))
        return merged

    monkeypatch.setattr(together, "_merged", noted)
    all_together({**SMALL, "algorithm": "fedavg", "group_size": 25, "rounds": 2})
    assert sizes == [75, 75]
    sizes.clear()
    all_together({**SMALL, "algorithm": "fedavg", "group_size": 25, "rounds": 1, "memory": 1e-3})
    assert sum(sizes) == 75
    assert max(sizes) < 75


def test_time_is_shared_out() -> None:
    for result in all_together({**SMALL, "algorithm": "clove"}, seeds=2):
        history = result.history
        parts = history[["losses", "training", "evaluation", "server"]].sum(axis=1)
        np.testing.assert_allclose(parts, history["seconds"])
        assert (history["seconds"] > 0).all()


def test_runs_of_different_shapes_are_run_one_after_the_other(tmp_path: Path) -> None:
    chosen = [from_names(**{**SMALL, "algorithm": "fedavg", "rounds": n}) for n in (1, 2)]
    runs = [(one, gather_clients(one), tmp_path / str(n), None) for n, one in enumerate(chosen)]
    assert [len(result.history) for result in run_settings_together(runs)] == [1, 2]
    assert len(clove.load(tmp_path / "1").history) == 2
