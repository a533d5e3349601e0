"""How long the runs of a cell take about on this machine.

The arithmetic of a run is counted, and divided by the rate this machine reaches in a matrix
product, of which a round reaches a share. It is a guide to what to start before lunch, no more.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from clove.data import dataset_card
from clove.paper.experiment import Cell, amounts_of
from clove.runs.build import MODEL_FOR
from clove.tasks import named_task

SHARE = {"cpu": 0.5, "cuda": 0.15}  # of a matrix product's rate, in rounds of small networks
OWN_SECONDS = {"cpu": 0.02, "cuda": 0.012}  # of a round, beside the arithmetic


@cache
def machine_rate(device: str) -> tuple[str, float]:
    """Return a kind of device, and its operations a second in a matrix product."""
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
    card = dataset_card(dataset)
    usual = "regression" if card.classes is None else "classification"
    kind = usual if task == "auto" else task
    images = kind == "classification" and len(card.shape) == 3 and min(card.shape[1:]) >= 28
    name = MODEL_FOR.get((dataset, kind), "cnn" if images else "auto")
    network = named_task(kind, name, "auto").for_data(card.shape, card.classes or 1).build().eval()
    words = name == "text-cnn"
    x = torch.zeros((1, *card.shape), dtype=torch.int64 if words else torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(x)
    return int(counter.get_total_flops())


def seconds_for(cell: Cell, rate: tuple[str, float]) -> float:
    """Return about how many seconds one run of a cell takes."""
    settings, (device, operations_a_second) = cell.settings, rate
    amounts = amounts_of(settings)
    clients = amounts.clients * settings.get("participation", 1)
    several = cell.algorithm in ("clove", "ifca")
    models = settings.get("max_models", amounts.clusters) if several else 1
    passes = 3 * settings.get("local_epochs", 1) + models + 1
    samples = clients * amounts.points * passes
    work = samples * _operations(cell.dataset, settings.get("task", "auto"))
    a_round = float(work) / (SHARE[device] * operations_a_second) + OWN_SECONDS[device]
    return int(settings["rounds"]) * a_round
