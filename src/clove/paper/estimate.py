"""How long the runs of a cell take about on this machine.

The arithmetic of a run is counted, and divided by the rate this machine reaches in a matrix
product, of which a round reaches a share. It is a guide to what to start before lunch, no more.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from clove.paper.experiment import Cell
from clove.runs.build import MODEL_FOR
from clove.tasks import named_task

SHARE = {"cpu": 0.5, "cuda": 0.15}  # of a matrix product's rate, in rounds of small networks
OWN_SECONDS = {"cpu": 0.02, "cuda": 0.012}  # of a round, beside the arithmetic
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10),
    "fmnist": ((1, 28, 28), 10),
    "mnist-writers": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "agnews": ((200,), 4),
    "amazon": ((5000,), 2),
    "linear": ((20,), 1),
}
POINTS = {"concept-shift": 1000, "none": 1000}


@cache
def machine_rate() -> tuple[str, float]:
    """Return the device that runs would take, and operations a second in a matrix product."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = 4096 if device == "cuda" else 1024
    a = torch.rand(size, size, device=device)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        (a @ a).sum().item()
        seconds.append(time.perf_counter() - start)
    return device, 2 * size**3 / min(seconds)


@cache
def _operations(dataset: str, task: str) -> int:
    """Return the operations of a forward pass over one sample."""
    shape, outputs = SHAPES[dataset]
    kind = "classification" if task == "auto" else task
    kind = "regression" if dataset == "linear" else kind
    usual = "cnn" if kind == "classification" and len(shape) == 3 else "auto"
    chosen = named_task(kind, MODEL_FOR.get((dataset, kind), usual), "auto")
    network = chosen.for_data(shape, outputs).build().eval()
    words = dataset == "agnews"
    x = torch.zeros((1, *shape), dtype=torch.int64 if words else torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(x)
    return int(counter.get_total_flops())


def seconds_for(cell: Cell, rate: tuple[str, float]) -> float:
    """Return about how many seconds one run of a cell takes."""
    settings, (device, operations_a_second) = cell.settings, rate
    clusters = 4 if cell.mixing in ("feature-skew", "concept-shift") else 5
    clusters = 10 if cell.mixing in ("none", "label-skew-4") else clusters
    clients = clusters * settings.get("clients_per_cluster", 5) * settings.get("participation", 1)
    points = settings.get("points_per_client", POINTS.get(cell.mixing, 500))
    models = settings.get("max_models", clusters) if cell.algorithm in ("clove", "ifca") else 1
    passes = 3 * settings["local_epochs"] + models + 1
    work = clients * points * passes * _operations(cell.dataset, settings.get("task", "auto"))
    a_round = float(work) / (SHARE[device] * operations_a_second) + OWN_SECONDS[device]
    return int(settings["rounds"]) * a_round
