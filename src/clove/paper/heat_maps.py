"""How well every model of a run serves one client of each cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from clove.data import ClientData
from clove.federation import Losses, LossVectors, Sequential
from clove.paper.experiment import Cell
from clove.runs.api import load
from clove.runs.build import gather_clients
from clove.runs.folder import RunFolder
from clove.runs.settings import Settings


def heat_map(cell: Cell, seed: int, folder: RunFolder, settings: Settings) -> list[dict[str, Any]]:
    """Return the test loss of the first client of each cluster on all models of a finished run."""
    story = load(folder.path)._story
    gathered = gather_clients(settings)
    assert gathered.groups is not None
    firsts = [int(np.flatnonzero(gathered.groups == k)[0]) for k in np.unique(gathered.groups)]
    tests = [gathered.clients[client].test for client in firsts]
    clients = [ClientData(test, test) for test in tests if test is not None]
    engine = Sequential(clients, gathered.task, seed=seed)
    answer = engine.answer(Losses(story.models, np.arange(len(clients))))
    assert isinstance(answer, LossVectors)
    return [
        {
            "key": cell.key,
            "seed": seed,
            "algorithm": cell.algorithm,
            "client": client,
            "cluster": int(gathered.groups[client]),
            "assigned": int(story.assignment[client]) if len(story.assignment) else -1,
            "model": model,
            "loss": float(f"{loss:.5g}"),
        }
        for client, row in zip(firsts, answer.losses, strict=True)
        for model, loss in enumerate(row)
    ]
