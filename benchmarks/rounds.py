"""Seconds a round of CLoVE and FedAvg for the paper's shapes, engine by engine and phase by phase.

    python benchmarks/rounds.py [--device cuda] [--shapes cnn28 cifar] [--rounds 20] [--out NAME]

Data are made up (random numbers of the right shapes; time does not depend on them). Beside each
time stands the arithmetic floor: the work's floating-point operations and least memory traffic over
the rates this machine reaches in a large matrix product and a large copy. Writes a row a run to
benchmarks/results/NAME.csv and the tables the docs quote to NAME.md; rows of shapes that were not
asked for stay.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from origin import all_in_words, origin
from rich.progress import track
from torch.utils.flop_counter import FlopCounterMode

import clove
from clove.federation.engines import find_device
from clove.federation.precision import kernels_of, networks_in
from clove.runs import bench
from clove.runs.bench import Shape, made_clients

RESULTS = Path(__file__).parent / "results"
PHASES = ["losses", "training", "server", "evaluation"]


SHAPES = {
    "cnn28": ("28×28 CNN, 25 × 500", bench.SHAPES["cnn"]),
    "cifar": ("CIFAR-10 CNN, 15 × 500", replace(bench.SHAPES["cifar-cnn"], clients=15, models=3)),
    "autoencoder": (
        "autoencoder, 50 × 1000",
        replace(bench.SHAPES["autoencoder"], clients=50, points=1000, models=10),
    ),
    "textcnn": (
        "TextCNN, 30 × 100",
        replace(bench.SHAPES["text-cnn"], clients=30, points=100, models=6),
    ),
    "amazon": (
        "AmazonMLP, 20 × 1000",
        replace(bench.SHAPES["amazon-mlp"], clients=20, points=1000, models=4),
    ),
    "thousand": (
        "28×28 CNN, 1000 × 100",
        replace(bench.SHAPES["cnn"], clients=1000, points=100, models=10),
    ),
    "mlp": ("28×28 MLP, 25 × 500", bench.SHAPES["mlp"]),
}


def measured(
    shape: Shape, clients: list[clove.ClientData], rounds: int, algorithm: str, **settings: str
) -> tuple[dict[str, float], clove.Result]:
    """Run, leave out the first rounds, and return the median seconds of each phase."""
    own = {"models": shape.models} if algorithm == "clove" else {}
    result = clove.run(
        clients=clients,
        model=shape.model,
        task=shape.task,
        algorithm=algorithm,
        rounds=rounds,
        batch_size=64,
        **own,
        **settings,
    )
    timings = result.history.iloc[min(3, rounds - 1) :]
    return timings[["seconds", *PHASES]].median().to_dict(), result


def floor_of(shape: Shape, device: torch.device, precision: str) -> dict[str, float]:
    """Return a CLoVE round's operations and bytes, and the seconds they must take at least."""
    network = clove.classification(shape.model).for_data(shape.sample, shape.classes).build()
    words = shape.model == "text-cnn"
    x = torch.zeros((1, *shape.sample), dtype=torch.int64 if words else torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(x)
    samples, forward = shape.clients * shape.points, counter.get_total_flops()
    operations = samples * forward * (3 + shape.models + 1)  # training, losses, evaluation
    numbers = sum(p.numel() for p in network.parameters())
    steps = -(-shape.points // 64)
    data = samples * int(np.prod(shape.sample))
    # Each sample once a pass; parameters, gradients and two moments in and out once a step.
    moved = 4 * (data * (shape.models + 2) + 7 * numbers * shape.clients * steps)
    rate, bandwidth = rates(device, precision)
    return {
        "gigaflop": operations / 1e9,
        "gigabytes": moved / 1e9,
        "floor_seconds": operations / rate + moved / bandwidth,
    }


def rates(device: torch.device, precision: str) -> tuple[float, float]:
    """Return operations a second in a matrix product, and bytes a second in a copy."""
    size = 8192 if device.type == "cuda" else 2048
    a = torch.rand(size, size, device=device)
    b = torch.empty_like(a)

    def seconds(do: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            do()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return min(times)

    with kernels_of(precision, device), networks_in(precision, device):
        product = seconds(lambda: a @ a)
    return 2 * size**3 / product, 2 * a.numel() * 4 / seconds(lambda: b.copy_(a))


def variants(device: torch.device) -> list[dict[str, str]]:
    """Return the engines and precisions to put side by side."""
    if device.type == "cpu":
        return [{"engine": "sequential"}, {"engine": "vectorized"}, {"engine": "auto"}]
    return [
        {"engine": "sequential", "precision": "tf32"},
        {"engine": "vectorized", "precision": "fp32"},
        {"engine": "vectorized", "precision": "tf32"},
        {"engine": "vectorized", "precision": "bf16"},
        {"engine": "vectorized", "precision": "tf32", "compile": "on"},
        {"engine": "vectorized", "precision": "bf16", "compile": "on"},
    ]


def rows_of(name: str, given: argparse.Namespace, device: torch.device) -> list[dict[str, object]]:
    (about, shape), rows = SHAPES[name], []
    clients = made_clients(shape)
    some = [v for v in variants(device) if given.compile or "compile" not in v]
    for settings in track(some, description=about):
        slow = settings["engine"] == "sequential"
        rounds = (3 if shape.clients > 25 else 6) if slow else given.rounds
        for algorithm in ["clove"] if given.clove_only else ["clove", "fedavg"]:
            try:
                phases, result = measured(
                    shape, clients, rounds, algorithm, device=str(device), **settings
                )
            except clove.CloveError as error:
                print(f"{about}, {settings}: {error}")
                continue
            made = result.summary()["made"]
            precision = result.settings.precision
            rows.append(
                {
                    "shape": about,
                    "algorithm": algorithm,
                    "engine": result.settings.engine,
                    "asked": settings["engine"],
                    "precision": precision,
                    "compiled": result.settings.compile,
                    "kernels": result.settings.kernels,
                    "threads": result.settings.threads,
                    "group": result.settings.group_size,
                    **phases,
                    **(floor_of(shape, device, precision) if algorithm == "clove" else {}),
                    "rounds": rounds,
                    **{key: value for key, value in made.items() if key != "engine_reason"},
                    **origin(),
                }
            )
            print({k: v for k, v in rows[-1].items() if k in ("engine", "seconds", *PHASES)})
    return rows


def tables(runs: pd.DataFrame) -> str:
    first, made = runs.iloc[0], all_in_words(runs.to_dict("records"))
    lines = [
        "Medians over rounds after the first three (of slow works one), milliseconds. Made on "
        f"{first['machine']} with torch {first['torch']}, clove {first['clove']}, {made}, by "
        "`benchmarks/rounds.py`. Data are made up. The floor is by the rates of a large matrix "
        "product and a large copy; a library's convolutions may be quicker than that product.",
        "",
        "| federation | method | engine | a round | losses | training | server | evaluation | "
        "floor | times sequential |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (shape, algorithm), some in runs.groupby(["shape", "algorithm"], sort=False):
        slow = some.loc[some["engine"] == "sequential", "seconds"]
        for _, run in some.iterrows():
            compiled = ", compiled" if run["compiled"] == "on" else ""
            engine = f"{run['engine']}, {run['precision']}{compiled}"
            engine += " (auto)" if run["asked"] == "auto" else ""
            times = " | ".join(f"{1e3 * run[p]:.1f}" for p in ["seconds", *PHASES])
            floor = f"{1e3 * run['floor_seconds']:.1f}" if algorithm == "clove" else ""
            ratio = f"{slow.iloc[0] / run['seconds']:.1f}" if len(slow) else ""
            lines.append(f"| {shape} | {algorithm} | {engine} | {times} | {floor} | {ratio} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--device", default="auto")
    words.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--clove-only", action="store_true")
    words.add_argument("--compile", action="store_true", help="Measure compiled steps too.")
    words.add_argument("--out", default="rounds")
    given = words.parse_args()
    device = find_device(given.device)
    runs = pd.DataFrame([row for name in given.shapes for row in rows_of(name, given, device)])
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"{given.out}.csv"
    if kept.exists():
        known = pd.read_csv(kept)
        runs = pd.concat([known[~known["shape"].isin(runs["shape"])], runs], ignore_index=True)
    runs.to_csv(kept, index=False)
    (RESULTS / f"{given.out}.md").write_text(tables(runs))
    print(tables(runs))


if __name__ == "__main__":
    main()
