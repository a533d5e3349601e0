"""Same settings, same seed, same device: the same numbers to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clove
from clove.runs.settings import read_settings
from tests.runs.small import QUICK, TINY, lasting


@pytest.mark.parametrize("engine", ["sequential", "vectorized"])
def test_the_same_seed_gives_the_same_files(tmp_path: Path, engine: str) -> None:
    for name in ("one", "two"):
        clove.run(**{**QUICK, "engine": engine, "participation": 0.5}, out=tmp_path / name)
    assert lasting(tmp_path / "one") == lasting(tmp_path / "two")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("engine", ["sequential", "vectorized"])
def test_the_same_seed_gives_the_same_files_on_a_gpu(tmp_path: Path, engine: str) -> None:
    for name in ("one", "two"):
        clove.run(**{**QUICK, "engine": engine, "device": "cuda"}, out=tmp_path / name)
    assert lasting(tmp_path / "one") == lasting(tmp_path / "two")


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    for seed in (0, 1):
        clove.run(**TINY, seed=seed, out=tmp_path / str(seed))
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("0", "1")]
    assert metrics[0] != metrics[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"probes": "trained", "max_models": 6, "transform": "row", "selection": "merge-ratio"},
        {"algorithm": "ifca", "averaging": "gradients", "stragglers": 0.2, "engine": "auto"},
        {"algorithm": "local", "participation": 0.5, "precision": "fp64"},
        {"dataset": "linear", "mixing": "none", "initial_models": "orthonormal"},
        {"mixing": "feature-skew", "task": "reconstruction"},
        {"mixing": "concept-shift", "algorithm": "fedavg", "evaluate_every": 2},
    ],
    ids=lambda settings: ", ".join(f"{k}={v}" for k, v in settings.items()),
)
def test_a_runs_settings_file_repeats_it_to_the_byte(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    clove.run(**{**QUICK, **settings}, out=first)
    clove.run(**read_settings(first / "settings.toml"), out=second)
    assert read_settings(first / "settings.toml") == read_settings(second / "settings.toml")
    assert numbers(first) == numbers(second)


def numbers(folder: Path) -> dict[str, Any]:
    """Return all but why the engine was taken: in a repeat, because it was asked for."""
    files = lasting(folder)
    del files["settings.toml"], files["summary"]["made"]["engine_reason"]
    return files
