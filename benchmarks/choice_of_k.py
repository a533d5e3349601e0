"""How often the number of clusters is read right from trained probes, by transform of the losses.

    python benchmarks/choice_of_k.py [--datasets mnist fmnist] [--seeds 6] [--epochs 3 1] [--keep F]

Two clients a cluster, 500 points each, at most 15 clusters: the federations of the paper's table on
unknown K. Only the first round is run; its loss vectors are kept in the folder `--keep`, so that an
interrupted run goes on. Writes benchmarks/results/choice_of_k.csv and .md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import clove
from clove.clustering import TRANSFORMS, merge_ratio_k, silhouette_k, transform_losses
from clove.paper.experiment import amounts_of

sys.path.insert(0, str(Path(__file__).parent))
from origin import all_in_words, origin

RESULTS = Path(__file__).parent / "results"
MIXINGS = ["none", *(f"label-skew-{n}" for n in (1, 2, 3, 4)), "feature-skew", "concept-shift"]
MOST = 15
PROBES = {"probes": "trained", "probe_models": MOST, "max_models": MOST, "batch_norm": "batch"}
FEDERATION = {"variant": "authors", "clients_per_cluster": 2, "points_per_client": 500}
TRAINING = {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 100}
SELECTIONS = {"merge-ratio": merge_ratio_k, "silhouette": silhouette_k}


def first_losses(dataset: str, mixing: str, seed: int, epochs: int, keep: Path) -> np.ndarray:
    """Return the first round's loss vectors, from the folder where they are there."""
    file = keep / f"{dataset}-{mixing}-{seed}-{epochs}.npy"
    if not file.exists():
        result = clove.run(
            **{"dataset": dataset, "mixing": mixing, "seed": seed, "rounds": 1},
            **{"engine": "vectorized", "probe_epochs": epochs},
            **FEDERATION,
            **TRAINING,
            **PROBES,
        )
        np.save(file, result.loss_vectors(1).losses)
    return np.load(file)


def readings(dataset: str, mixing: str, seed: int, epochs: int, keep: Path) -> list[dict]:
    losses = first_losses(dataset, mixing, seed, epochs, keep)
    right = amounts_of({"dataset": dataset, "mixing": mixing, **FEDERATION}).clusters
    return [
        {
            **{"dataset": dataset, "mixing": mixing, "seed": seed, "probe_epochs": epochs},
            **{"transform": transform, "selection": selection, "true": right},
            "found": choose(transform_losses(losses, transform), MOST).n_clusters,
        }
        for transform, (selection, choose) in product(TRANSFORMS, SELECTIONS.items())
    ]


def in_words(rows: pd.DataFrame) -> str:
    rows = rows.assign(right=rows.found == rows.true)
    by = ["dataset", "probe_epochs", "selection", "transform"]
    lines = [
        "Runs in which K was read right from the first round's losses on trained probes, and the "
        f"mixings in which it was not. Two clients a cluster, 500 points each; by "
        f"`benchmarks/choice_of_k.py`; {all_in_words(rows.to_dict('records'))}.",
        "",
        "| data | epochs of a probe | by | losses | right | wrong on |",
        "| --- | ---: | --- | --- | ---: | --- |",
    ]
    for (dataset, epochs, selection, transform), some in rows.groupby(by, sort=False):
        wrong = some[~some.right].groupby("mixing", sort=False).seed.count()
        where = ", ".join(f"{mixing} ({number})" for mixing, number in wrong.items()) or "–"
        share = f"{int(some.right.sum())} of {len(some)}"
        cells = (dataset, epochs, selection, transform, share, where)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--datasets", nargs="+", default=["mnist", "fmnist"])
    words.add_argument("--seeds", type=int, default=6)
    words.add_argument("--epochs", nargs="+", type=int, default=[3, 1])
    words.add_argument("--keep", default=str(Path(tempfile.gettempdir()) / "clove-choice-of-k"))
    words.add_argument("--out", default=str(RESULTS / "choice_of_k"))
    given = words.parse_args()
    keep = Path(given.keep)
    keep.mkdir(parents=True, exist_ok=True)
    seeds = range(1, given.seeds + 1)
    rows: list[dict] = []
    for dataset, epochs, seed, mixing in product(given.datasets, given.epochs, seeds, MIXINGS):
        rows += readings(dataset, mixing, seed, epochs, keep)
        print(dataset, f"epochs {epochs}", f"seed {seed}", mixing, flush=True)
    table = pd.DataFrame(rows).assign(**origin())
    table.to_csv(f"{given.out}.csv", index=False)
    Path(f"{given.out}.md").write_text(in_words(table))
    print(in_words(table))


if __name__ == "__main__":
    main()
