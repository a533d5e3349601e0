"""Small runs, and what of a run folder must not depend on when or how it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

import clove
from clove.data import load_dataset

QUICK: dict[str, Any] = {"engine": "vectorized", "device": "cpu", "batch_size": 10, "rounds": 3}
TINY: dict[str, Any] = {
    "engine": "vectorized",
    "rounds": 2,
    "clusters": 2,
    "clients_per_cluster": 2,
}
TIMES = ("seconds", "seconds_per_round")


def lasting(folder: Path) -> dict[str, Any]:
    """Return all a run folder says, apart from times (and the picture, drawn from the rest)."""
    summary = json.loads((folder / "summary.json").read_text())
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("summary.json", "timings.jsonl", "picture.png")
    }
    return files | {"summary": {k: v for k, v in summary.items() if k not in TIMES}}


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics file."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def digits_of(classes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the test images of some digits, as clients get them."""
    dataset = load_dataset("digits")
    assert dataset.y_test is not None
    mine = np.isin(dataset.y_test, classes)
    return dataset.scaled(dataset.x_test[mine]), dataset.y_test[mine]


class MyNet(nn.Module):
    """A network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.hidden(x).relu())
        return logits


def own_clients(
    number: int = 6, *, test: bool = True, seed: int = 0, labels: bool = True
) -> list[clove.ClientData]:
    """Make clients of two kinds: what is class 1 for the first half is class 0 for the others."""
    generator = np.random.default_rng(seed)

    def points(size: int, kind: int) -> tuple[np.ndarray, np.ndarray | None]:
        x = generator.normal(size=(size, 4)).astype(np.float32)
        y = ((x[:, 0] > 0) ^ bool(kind)).astype(np.int64)
        return x + 0.5 * kind, y if labels else None

    kinds = [int(2 * client >= number) for client in range(number)]
    return [
        clove.ClientData(train=points(40, kind), test=points(20, kind) if test else None)
        for kind in kinds
    ]
