"""Seconds a round of every method beside FedAvg's: the paper's 28×28 CNN, 25 clients of 500 points.

    CLOVE_DATA=folder/with/fmnist python benchmarks/methods.py [--device cuda] [--rounds 15]

Fashion-MNIST, label skew 1, batches of 64, one seed. Medians over the rounds after the first five,
in which kernels are chosen and steps captured; a method that groups once, at the start, has its
first round in a column of its own. Writes benchmarks/results/NAME.csv and NAME.md.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import pandas as pd
from origin import all_in_words, origin
from rich.progress import track

import clove
from clove.algorithms import known_algorithms

RESULTS = Path(__file__).parent / "results"
PHASES = ["losses", "training", "server", "evaluation"]
WARM_UP = 5


def row_of(algorithm: str, rounds: int, device: str) -> dict[str, object]:
    result = clove.run(
        dataset="fmnist",
        mixing="label-skew-1",
        algorithm=algorithm,
        rounds=rounds + WARM_UP,
        batch_size=64,
        device=device,
    )
    times, made = result.history, result.summary()["made"]
    return {
        "algorithm": algorithm,
        **times[["seconds", *PHASES]].iloc[WARM_UP:].median().to_dict(),
        "first_round": times["seconds"].iloc[0],
        "engine": result.settings.engine,
        "precision": result.settings.precision,
        **{name: made[name] for name in ("machine", "torch", "clove")},
        **origin(),
    }


def table(runs: pd.DataFrame) -> str:
    first = runs.iloc[0]
    plain = runs.loc[runs["algorithm"] == "fedavg", "seconds"].iloc[0]
    lines = [
        "28×28 CNN, 25 clients × 500 points (Fashion-MNIST, label skew 1): medians over rounds, "
        f"milliseconds. Made on {first['machine']}, {first['precision']}, with torch "
        f"{first['torch']}, clove {first['clove']}, {all_in_words(runs.to_dict('records'))}, by "
        "`benchmarks/methods.py`.",
        "",
        "| method | a round | × FedAvg | losses, summaries | training | server | evaluation | "
        "first round |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for _, run in runs.sort_values("seconds").iterrows():
        times = " | ".join(f"{1e3 * run[phase]:.1f}" for phase in PHASES)
        lines.append(
            f"| {run['algorithm']} | {1e3 * run['seconds']:.1f} | {run['seconds'] / plain:.1f} | "
            f"{times} | {1e3 * run['first_round']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--device", default="auto")
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--methods", nargs="*", default=known_algorithms())
    words.add_argument("--out", default=str(RESULTS / "methods"))
    given = words.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, object]] = []
    for algorithm in track(given.methods, description="methods"):
        rows.append(row_of(algorithm, given.rounds, given.device))
        pd.DataFrame(rows).to_csv(f"{given.out}.csv", index=False)
    text = table(pd.DataFrame(rows))
    Path(f"{given.out}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
