"""What bfloat16 does to accuracy and ARI: runs of the paper's experiments, beside those in TF32.

    clove paper run E1 --settings authors --data cifar10 --algorithm clove --no-extras \\
        --mixing label-skew-1 --mixing concept-shift --precision bf16 \\
        --out runs/bf16 --results benchmarks/results/bf16
    python benchmarks/precision.py

Makes a table of every cell that both folders of results have, in benchmarks/results/precision.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"
PAPER = Path(__file__).parent.parent / "results" / "paper"
CELL = ["key", "dataset", "mixing", "algorithm"]
SHOWN = {"accuracy": 1, "ari": 2, "first_round_ari_0.9": 1}


def side_by_side(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of both, of those cells that both have."""
    both = set(one["key"]) & set(other["key"])
    return pd.concat([runs[runs["key"].isin(both)] for runs in (one, other)])


def in_words(runs: pd.DataFrame) -> str:
    """Write a row for each cell and precision."""
    made = runs[["machine", "torch", "clove", "date"]].drop_duplicates().astype(str)
    by = "; ".join(f"{m}, torch {t}, clove {c}, {d}" for m, t, c, d in made.itertuples(index=False))
    lines = [
        "The paper's experiments in two precisions, settings as the authors' code has them: mean ± "
        f"population std over seeds. Made on {by}, by `clove paper run` and "
        "`benchmarks/precision.py`. Seconds are of runs beside others on the same GPU, and left "
        "out.",
        "",
        "| data | mixing | method | precision | seeds | accuracy % | ARI | first round ≥ 0.9 |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for cell, some in runs.groupby([*CELL, "precision"]):
        _, *names, precision = cell
        figures = [_figure(some[name], digits) for name, digits in SHOWN.items()]
        lines.append("| " + " | ".join([*names, precision, str(len(some)), *figures]) + " |")
    return "\n".join(lines) + "\n"


def _figure(values: pd.Series, digits: int) -> str:
    """Write a mean and its spread; nothing where one of the runs has no value."""
    if values.isna().any():
        return ""
    return f"{values.mean():.{digits}f} ± {values.std(ddof=0):.{digits}f}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--one", default=str(PAPER), help="a folder of results")
    words.add_argument("--other", default=str(RESULTS / "bf16"), help="and another")
    words.add_argument("--out", default=str(RESULTS / "precision.md"))
    given = words.parse_args()
    one, other = (pd.read_csv(Path(folder) / "runs.csv") for folder in (given.one, given.other))
    text = in_words(side_by_side(one, other))
    Path(given.out).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
