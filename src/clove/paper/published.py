"""The figures that the paper prints, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import pandas as pd


@dataclass(frozen=True)
class Figure:
    """A figure as printed: its mean and its spread over seeds, where that is printed."""

    mean: float  # NaN where the paper prints a dash
    std: float | None
    decimals: int = 2
    bold: bool = False

    @property
    def spread(self) -> float:
        """How far a figure may be from this one to be the same: its std, or half a last digit."""
        return max(self.std or 0.0, 0.5 * 10.0**-self.decimals)


@cache
def published() -> pd.DataFrame:
    """Return every figure of the paper: table, data set, mixing, method, variant, metric."""
    with files("clove.paper").joinpath("published.csv").open("rb") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table["decimals"] = [len(printed.partition(".")[2]) for printed in table["mean"]]
    for name in ("mean", "std", "bold"):
        table[name] = pd.to_numeric(table[name])
    return table


@cache
def _index() -> dict[tuple[str, ...], Figure]:
    found = {}
    names = ["table", "dataset", "mixing", "algorithm", "variant", "metric"]
    for row in published().to_dict("records"):
        std = None if pd.isna(row["std"]) else float(row["std"])
        found[tuple(str(row[name]) for name in names)] = Figure(
            float(row["mean"]), std, int(row["decimals"]), bool(row["bold"])
        )
    return found


def figure(
    table: str, metric: str, dataset: str, mixing: str, algorithm: str, variant: str
) -> Figure | None:
    """Return a figure of the paper, whether or not its table names the mixing."""
    for one in (mixing, ""):
        found = _index().get((table, dataset, one, algorithm, variant, metric))
        if found is not None:
            return found
    return None
