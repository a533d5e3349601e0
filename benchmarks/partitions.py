"""How much the division of the data alone moves accuracy, for label skews 2 and 3.

    python benchmarks/partitions.py [--data fmnist] [--methods local] [--partitions 2 3]

There, shares of each class are drawn from a Dirichlet distribution, and the paper's authors use one
draw for all seeds. Here each partition is another draw by the same rules (`variant=authors`), and
everything else is as in `clove paper run --settings authors`, with seed 1. Runs that are done are
kept: the same command goes on. Writes benchmarks/results/partitions.csv and .md.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from rich.progress import track

import clove
from clove.paper.experiment import by_rules
from clove.paper.published import figure

sys.path.insert(0, str(Path(__file__).parent))
from origin import all_in_words, origin

RESULTS = Path(__file__).parent / "results"
MIXINGS = ("label-skew-2", "label-skew-3")
METHODS = ("local", "clove")
DATA = ("mnist", "fmnist", "cifar10")
TABLE = "supervised-accuracy"
WHICH = ["dataset", "mixing", "algorithm", "rounds"]


def made(dataset: str, mixing: str, algorithm: str, rounds: int, partition: int) -> dict[str, Any]:
    """Run a method on a partition of its own."""
    named = {"dataset": dataset, "mixing": mixing, "algorithm": algorithm}
    settings = {**by_rules(named, "authors"), "rounds": rounds, "seed": 1}
    with patch("clove.data.mixings.clients.PARTITION_SEED", partition):
        result = clove.run(**settings)
    figures = {"accuracy": 100 * result.accuracy, "ari": result.ari}
    return {**named, "partition": partition, "rounds": rounds, **figures, **origin()}


def in_words(runs: pd.DataFrame) -> str:
    lines = [
        "Accuracy in % with other draws of the same division (seed 1, settings as the authors' "
        "code has them), and the paper's after 100 rounds, whose draw is one of its own. By "
        "`benchmarks/partitions.py`; "
        f"{all_in_words(runs.to_dict('records'))}.",
        "",
        "| data | mixing | method | rounds | partitions | least | mean | most | the paper's |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for which, some in runs.groupby(WHICH):
        *named, rounds = which
        theirs = figure(TABLE, "accuracy", *named, "")
        assert theirs is not None, "the paper has all that may be asked for"
        spread = [some["accuracy"].min(), some["accuracy"].mean(), some["accuracy"].max()]
        figures = [str(len(some)), *(f"{one:.1f}" for one in spread), f"{theirs.mean:.1f}"]
        lines.append("| " + " | ".join([*named, str(rounds), *figures]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--data", nargs="+", choices=DATA, default=["mnist", "fmnist"])
    words.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    words.add_argument("--partitions", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    words.add_argument("--rounds", type=int, default=100)
    words.add_argument("--out", default=str(RESULTS / "partitions"))
    given = words.parse_args()
    file = Path(f"{given.out}.csv")
    rows = pd.read_csv(file).to_dict("records") if file.exists() else []
    done = {tuple(row[name] for name in (*WHICH, "partition")) for row in rows}
    works = product(given.partitions, given.data, MIXINGS, given.methods)
    wanted = [(d, m, a, given.rounds, p) for p, d, m, a in works]
    for work in track([one for one in wanted if one not in done], description="partitions"):
        rows.append(made(*work))
        table = pd.DataFrame(rows).sort_values([*WHICH, "partition"])
        table.to_csv(file, index=False)
        Path(f"{given.out}.md").write_text(in_words(table), encoding="utf-8")
    print(in_words(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
