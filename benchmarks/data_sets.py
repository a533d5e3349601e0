"""Three rounds of CLoVE on every data set and mixing, on both engines; and MNIST by writer.

    CLOVE_DATA=folder/with/data python benchmarks/data_sets.py

Data sets that are not here are left out, and named. Writes benchmarks/results/data_sets.csv and
data_sets.md.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from origin import in_words, origin
from rich.progress import track

import clove
from clove.data import data_status

RESULTS = Path(__file__).parent / "results"
PAPER = ("label-skew-1", "label-skew-2", "label-skew-3", "label-skew-4")
PAPER += ("feature-skew", "concept-shift", "none")
WITHOUT_GROUPS = ("dirichlet", "quantity-skew")
MIXINGS = {
    **dict.fromkeys(("mnist", "fmnist", "cifar10", "digits"), (*PAPER, "mixed", *WITHOUT_GROUPS)),
    "amazon": ("none",),
    "agnews": ("none", "label-skew-2"),
    "linear": ("none",),
}
WRITERS: dict[str, Any] = {"dataset": "mnist-writers", "mixing": "none", "writers": 100}


def matrix_run(dataset: str, mixing: str, engine: str, device: str) -> dict[str, Any]:
    known = {"models": 2} if mixing in WITHOUT_GROUPS else {}
    result = clove.run(
        dataset=dataset, mixing=mixing, rounds=3, engine=engine, device=device, **known
    )
    summary = result.summary()
    keys = ("clients", "models", "accuracy", "test_loss", "ari")
    row = {"dataset": dataset, "mixing": mixing, "engine": engine}
    return row | {key: summary[key] for key in keys} | provenance(summary)


def writers_run(algorithm: str, device: str, rounds: int, seed: int) -> dict[str, Any]:
    unknown = {"max_models": 15} if algorithm == "clove" else {}
    result = clove.run(
        **WRITERS, **unknown, algorithm=algorithm, rounds=rounds, seed=seed, device=device
    )
    summary = result.summary()
    row = {"dataset": f"mnist-writers, 100 writers, {rounds} rounds", "mixing": algorithm}
    keys = ("clients", "clusters", "accuracy", "test_loss", "engine")
    return row | {"seed": seed} | {key: summary[key] for key in keys} | provenance(summary)


def provenance(summary: dict[str, Any]) -> dict[str, Any]:
    made = {key: summary["made"][key] for key in ("clove", "torch", "machine")}
    return made | origin()


def table(matrix: pd.DataFrame, writers: pd.DataFrame, absent: list[str]) -> str:
    first = (matrix if len(matrix) else writers).iloc[0]
    lines = [
        f"Made on {first['machine']} with torch {first['torch']}, clove {first['clove']}, "
        f"{in_words(first)}. Three rounds, paper settings, seed 0: a check that every combination "
        "runs and that the engines agree, not a result. (Networks with dropout, those of CIFAR-10 "
        "and AG News, draw it differently on each engine.)",
        "",
        "| data set | mixing | clients | models | ARI | accuracy % (or loss), vectorized "
        "| sequential |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (dataset, mixing), both in matrix.groupby(["dataset", "mixing"], sort=False):
        one = both.iloc[0]
        cells = [score(row) for _, row in both.iterrows()]
        ari = "–" if pd.isna(one["ari"]) else " / ".join(f"{ari:.2f}" for ari in both["ari"])
        lines.append(
            f"| {dataset} | {mixing} | {one['clients']} | {one['models']} | {ari} "
            f"| {' | '.join(cells)} |"
        )
    if absent:
        lines += ["", f"Not here, and left out: {', '.join(absent)}."]
    if len(writers):
        lines += ["", "MNIST by the person who wrote each digit (not FEMNIST): "]
        lines[-1] += f"{writers['dataset'].iloc[0]}, K unknown (up to 15) for CLoVE, three seeds.\n"
        lines += ["| method | groups at the end | accuracy %, mean ± std |", "| --- | --- | ---: |"]
        for method, some in writers.groupby("mixing", sort=False):
            groups = ", ".join(map(str, some["clusters"]))
            accuracy = 100 * some["accuracy"]
            lines.append(
                f"| {method} | {groups} | {accuracy.mean():.1f} ± {accuracy.std(ddof=0):.1f} |"
            )
    return "\n".join(lines) + "\n"


def score(row: pd.Series) -> str:
    if pd.isna(row["accuracy"]):
        return f"{row['test_loss']:.4g}"
    return f"{100 * row['accuracy']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=30, help="rounds on MNIST by writer")
    parser.add_argument("--data", nargs="*", help="only these data sets, in files named after them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore", clove.CloveWarning)
    wanted = set(given.data or {*MIXINGS, "mnist-writers"})
    here = wanted & {status.name for status in data_status() if status.present}
    jobs = [
        (dataset, mixing, engine)
        for dataset, mixings in MIXINGS.items()
        if dataset in here
        for mixing in mixings
        for engine in ("vectorized", "sequential")
    ]
    matrix = pd.DataFrame([matrix_run(*job, given.device) for job in track(jobs, "matrix")])
    methods = ("clove", "fedavg", "local") if "mnist-writers" in here else ()
    pairs = [(method, seed) for method in methods for seed in range(3)]
    writers = pd.DataFrame(
        [writers_run(m, given.device, given.rounds, seed) for m, seed in track(pairs, "writers")]
    )
    absent = sorted(wanted - here)
    given.out.mkdir(parents=True, exist_ok=True)
    name = "-".join(["data_sets", *(given.data or [])])
    pd.concat([matrix, writers]).to_csv(given.out / f"{name}.csv", index=False)
    (given.out / f"{name}.md").write_text(table(matrix, writers, absent), encoding="utf-8")
    print(table(matrix, writers, absent))


if __name__ == "__main__":
    main()
