"""What CLoVE and its probes do on Fashion-MNIST, label skew 1: groups found, when, how well.

    CLOVE_DATA=folder/with/fmnist python benchmarks/foundation.py

Writes benchmarks/results/foundation.csv (a row a run) and foundation.md (the table the docs quote).
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import pandas as pd
import torch
from origin import all_in_words, origin
from rich.progress import track

import clove

RESULTS = Path(__file__).parent / "results"
TRAINING = {
    "authors' code (1e-2, batch 100)": {"learning_rate": 1e-2, "batch_size": 100},
    "paper (1e-3, batch 64)": {"learning_rate": 1e-3, "batch_size": 64},
}
KNOWN = {"dataset": "fmnist", "mixing": "label-skew-1"}
ONE_GROUP = {"dataset": "fmnist", "mixing": "none", "iid": True, "clients_per_cluster": 25}
UNKNOWN = {"probes": "trained", "transform": "row", "selection": "merge-ratio", "max_models": 15}
EXPERIMENTS = {
    "CLoVE, first round by evaluation": (KNOWN, {}, 3, 10),
    "CLoVE, first round random": (KNOWN, {"first_round": "random"}, 3, 10),
    "IFCA": (KNOWN, {"algorithm": "ifca"}, 3, 10),
    "FedAvg": (KNOWN, {"algorithm": "fedavg"}, 3, 10),
    "CLoVE, trained probes": (KNOWN, {"probes": "trained"}, 5, 10),
    "CLoVE, random probes": (KNOWN, {"probes": "random"}, 5, 10),
    "K unknown: trained probes, row, merge ratio": (KNOWN, UNKNOWN, 5, 10),
    "K unknown: silhouette, no probes": (KNOWN, {"max_models": 15}, 5, 10),
    "K unknown, one distribution only: trained probes, row, merge ratio": (
        {**ONE_GROUP, "points_per_client": 500},
        UNKNOWN,
        5,
        3,
    ),
}


def one_run(name: str, training: str, seed: int, device: str, engine: str) -> dict[str, object]:
    data, options, _, rounds = EXPERIMENTS[name]
    settings = {"algorithm": "clove", **data, **TRAINING[training], **options}
    result = clove.run(rounds=rounds, seed=seed, device=device, engine=engine, **settings)
    summary, history = result.summary(), result.history
    return {
        "experiment": name,
        "training": training,
        "seed": seed,
        "first_ari": history["ari"].iloc[0],
        "ari_by_round_3": history["ari"].iloc[2],
        "final_ari": summary["ari"],
        "first_round_ari_0.9": summary["first_round_ari_0.9"],
        "groups": summary["clusters"],
        "rounds": rounds,
        "accuracy": summary["accuracy"],
        "seconds_per_round": summary["seconds_per_round"],
        "engine": summary["engine"],
        **{key: value for key, value in summary["made"].items() if key != "engine_reason"},
        **origin(),
    }


def table(runs: pd.DataFrame) -> str:
    lines = [
        f"Fashion-MNIST, 25 clients × 500, made on {runs['machine'][0]} with torch "
        f"{runs['torch'][0]}, clove {runs['clove'][0]}, {all_in_words(runs.to_dict('records'))}.",
        "",
        "| what | training | seeds | ARI at the first clustering (mean, least) | ARI in round 3 "
        "(mean, least) | groups at the end | accuracy % (mean, least), rounds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (name, training), some in runs.groupby(["experiment", "training"], sort=False):
        groups = ", ".join(map(str, sorted(set(some["groups"]))))
        lines.append(
            f"| {name} | {training} | {len(some)} | {spread(some['first_ari'])} "
            f"| {spread(some['ari_by_round_3'])} | {groups} "
            f"| {spread(100 * some['accuracy'], 1)}, {some['rounds'].iloc[0]} |"
        )
    return "\n".join(lines) + "\n"


def spread(values: pd.Series, digits: int = 2) -> str:
    if values.isna().any():
        return "–"
    return f"{values.mean():.{digits}f}, {values.min():.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the result files")
    given = parser.parse_args()
    warnings.simplefilter("always", clove.CloveWarning)
    jobs = [
        (name, training, seed)
        for name, (_, _, seeds, _) in EXPERIMENTS.items()
        for training in TRAINING
        for seed in range(seeds)
    ]
    rows = [one_run(*job, given.device, given.engine) for job in track(jobs, "runs")]
    runs = pd.DataFrame(rows)
    given.out.mkdir(parents=True, exist_ok=True)
    runs.to_csv(given.out / "foundation.csv", index=False)
    (given.out / "foundation.md").write_text(table(runs), encoding="utf-8")
    print(table(runs))
    print("torch", torch.__version__)


if __name__ == "__main__":
    main()
