"""The same runs, simulated and on Flower."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp

import clove
from clove.runs import Result

from .grid import LocalGrid

DATA = {"dataset": "digits", "mixing": "label-skew-1", "clients_per_cluster": 2}
CLIENTS = 10
COMMON: dict[str, Any] = {**DATA, "rounds": 3, "learning_rate": 0.003, "seed": 0}


@cache
def digits() -> list[clove.ClientData]:
    from clove.runs.build import mixed_clients
    from clove.runs.settings import from_names

    return mixed_clients(from_names(**DATA))[1].clients


def load_data(context: Context) -> clove.ClientData:
    return digits()[int(context.node_config["partition-id"])]


def digits_app(**options: Any) -> ClientApp:
    return clove.flower.client(clove.classification("mlp"), load_data, **options)


def serve(
    grid: LocalGrid,
    out: Path,
    /,
    task: clove.Task | None = None,
    run_config: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Run the server's app to its end, and read the run from its folder."""
    options = {n: settings.pop(n) for n in clove.flower.OPTIONS if n in settings}
    options = {"min_nodes": len(grid.nodes), "timeout": 5, "wait": 1, **options}
    app = clove.flower.server(settings, out=out, task=task, **options)
    app(grid, Context(1, 0, {}, RecordDict(), run_config or {}))
    return clove.load(out, task=task)


def simulate(**settings: Any) -> Result:
    return clove.run(**{**COMMON, "engine": "sequential", **settings})
