"""Results made up by hand, and an experiment small enough to be run in a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clove.paper.experiment import EXPERIMENTS, Cell, Experiment
from clove.paper.results import Recorded, Results

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "mixing": "label-skew-1",
    "clusters": 2,
    "clients_per_cluster": 2,
    "rounds": 3,
}
TINY = Experiment(
    number="E99",
    name="tiny",
    title="A tiny experiment",
    printed="Table 99",
    claim="None.",
    runs=[{**SMALL, "algorithm": ["clove", "fedavg"]}],
    extras=[{**SMALL, "algorithm": "clove", "transform": "log", "label": "CLoVE, log losses"}],
    tables=[{"table": "none", "metric": "accuracy"}],
    figures=[{"kind": "curves", "metric": "ari"}],
)


def cell(number: str, reading: str = "paper", **wanted: Any) -> Cell:
    """Return the first cell of an experiment of the paper that has these settings."""
    label = wanted.pop("label", None)
    for one in EXPERIMENTS[number].cells(reading):
        same = all(one.settings.get(name) == value for name, value in wanted.items())
        if same and (one.label == label if label else not one.extra):
            return one
    raise AssertionError(f"{number} has no cell with {wanted}")


def recorded(one: Cell, seed: int, rounds: int | None = None, **figures: Any) -> Recorded:
    """Return a run as results keep it, with these figures."""
    wanted = int(one.settings["rounds"])
    cut = Cell({**one.settings, "rounds": rounds or wanted})
    identity = {"key": cut.key, "seed": seed}
    run = {
        **identity,
        "settings": one.settings["variant"],
        "dataset": one.dataset,
        "mixing": one.mixing,
        "algorithm": one.algorithm,
        "options": json.dumps({}),
        "rounds": rounds or wanted,
        "clients": 25,
        **dict.fromkeys(["accuracy", "test_loss", "ari", "ari_seen", "ari_at_10_rounds"]),
        **dict.fromkeys(["first_round_ari_0.9", "stability_round", "models_used", "k_right"]),
        "seconds": 2.5,
        **{
            "machine": "a machine",
            "precision": "fp32",
            "clove": "0.1",
            "torch": "2",
            "python": "3",
        },
        "date": "2026-01-02",
        **figures,
    }
    lines = [
        {**identity, "round": r, "ari": min(1.0, 0.3 * r), "ari_seen": 0.5, "accuracy": 50.0}
        for r in range(1, min(run["rounds"], 12) + 1)
    ]
    return Recorded(run, lines)


def results(folder: Path, *some: tuple[Cell, Sequence[Any], str]) -> Results:
    """Return results in which the runs of each cell have these values of a metric, one a seed."""
    kept = Results(folder)
    for one, values, metric in some:
        kept.add(recorded(one, seed, **{metric: value}) for seed, value in enumerate(values))
    return kept


def heat(number: int, served: list[int], algorithm: str) -> Recorded:
    """Return a run with a loss for each of three clusters on so many models."""
    one = cell("E18", algorithm=algorithm)
    run = recorded(one, 0, test_loss=0.1)
    run.heat_map.extend(
        {
            **{"key": one.key, "seed": 0, "algorithm": algorithm, "client": cluster},
            **{"cluster": cluster, "assigned": served[cluster], "model": model},
            "loss": 0.1 if model == served[cluster] else 0.5 + 0.01 * model,
        }
        for cluster in range(3)
        for model in range(number)
    )
    return run
