"""Which kernels of a GPU a round of CLoVE spends its time in.

    python benchmarks/kernels.py [--shapes cifar cnn28] [--precision tf32 bf16] [--top 12]

Profiles rounds on made-up data (see rounds.py), their preparation included, and writes
benchmarks/results/kernels.csv and kernels.md: milliseconds a round, and calls a round.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

import clove
from clove.runs.bench import PHASES, made_clients

sys.path.insert(0, str(Path(__file__).parent))
from origin import all_in_words, origin
from rounds import SHAPES

RESULTS = Path(__file__).parent / "results"
ROUNDS, WARM_UP = 12, 4
SHOWN = 90  # letters of a kernel's name


def measured(shape: str, precision: str, top: int) -> list[dict[str, Any]]:
    """Return the kernels that take longest, and the phases of the rounds they are from."""
    one = SHAPES[shape][1]
    settings: dict[str, Any] = {
        "clients": made_clients(one),
        "model": one.model,
        "task": one.task,
        "algorithm": "clove",
        "models": one.models,
        "batch_size": 64,
        "device": "cuda",
        "engine": "vectorized",
        "precision": precision,
        "compile": "auto",
    }
    clove.run(rounds=2, **settings)  # what is tried and compiled once is no part of a round
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        result = clove.run(rounds=ROUNDS, **settings)
    phases = 1e3 * result.history.iloc[WARM_UP:][["seconds", *PHASES]].median()
    kernels = sorted(seen.key_averages(), key=lambda kernel: -kernel.self_device_time_total)
    return [
        {
            "federation": SHAPES[shape][0],
            "precision": precision,
            "kernel": kernel.key[:SHOWN],
            "milliseconds": kernel.self_device_time_total / 1e3 / ROUNDS,
            "calls": kernel.count / ROUNDS,
            **phases.to_dict(),
            "machine": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            **origin(),
        }
        for kernel in kernels[:top]
    ]


def table(rows: pd.DataFrame) -> str:
    """Return all of it in Markdown."""
    lines = [
        "Kernels of CLoVE's rounds, milliseconds a round (several run at once, and the profiler "
        f"slows the host), the longest first; by `benchmarks/kernels.py` on "
        f"{', '.join(rows['machine'].unique())}, torch {', '.join(rows['torch'].unique())}, "
        f"{all_in_words(rows.to_dict('records'))}."
    ]
    for (federation, precision), some in rows.groupby(["federation", "precision"], sort=False):
        first = some.iloc[0]
        phases = ", ".join(f"{name} {first[name]:.1f}" for name in PHASES)
        lines += [
            f"\n## {federation}, {precision}\n",
            f"A round {first['seconds']:.1f} ms: {phases}.\n",
            "| milliseconds | calls | kernel |",
            "| ---: | ---: | --- |",
        ]
        lines += [
            f"| {row['milliseconds']:.2f} | {row['calls']:.1f} | `{row['kernel']}` |"
            for row in some.to_dict("records")
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--shapes", nargs="*", default=["cifar", "cnn28"], choices=SHAPES)
    words.add_argument("--precision", nargs="*", default=["tf32", "bf16"])
    words.add_argument("--top", type=int, default=12)
    words.add_argument("--out", default=str(RESULTS / "kernels"))
    given = words.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here, and there are no kernels of one to measure")
    warnings.simplefilter("ignore")
    rows = [
        row
        for shape in given.shapes
        for precision in given.precision
        for row in measured(shape, precision, given.top)
    ]
    found = pd.DataFrame(rows)
    found.to_csv(f"{given.out}.csv", index=False)
    Path(f"{given.out}.md").write_text(table(found), encoding="utf-8")


if __name__ == "__main__":
    main()
