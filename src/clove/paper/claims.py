"""The paper's claims, and goals of our own, held against results."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from clove.paper.experiment import EXPERIMENTS, Cell, selected
from clove.paper.measured import Measured, measured
from clove.paper.names import METRICS, place
from clove.paper.published import figure
from clove.paper.results import Results


@dataclass(frozen=True)
class Claim:
    """What is said of the figures of some cells; the file says what each part means."""

    experiment: str
    says: str
    metric: str
    only: Mapping[str, Any]
    table: str = ""
    paper_at_least: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    near: Mapping[str, float] | None = None
    rank: int | None = None
    above: Mapping[str, Any] | None = None
    same: Sequence[str] = ()
    own_least: bool | None = None
    ours: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds: in how many of how many cells, and where it does not."""

    claim: Claim
    holds: int = 0
    cells: int = 0  # of those there are whole runs of
    missing: int = 0
    failures: tuple[str, ...] = field(default=())

    @property
    def is_decided(self) -> bool:
        """Whether runs that are missing could not change it."""
        return bool(self.cells) and (not self.missing or self.holds < self.cells)

    def __str__(self) -> str:
        if not self.cells:
            return "not run yet"
        unmade = f"; {self.missing} not run yet" if self.missing else ""
        if self.holds == self.cells:
            so_far = " so far" if self.missing else ""
            return f"holds{so_far} ({self.cells} of {self.cells}{unmade})"
        some = f"holds in {self.holds} of {self.cells}" if self.holds else "does not hold"
        return f"{some}{unmade}: not {'; '.join(self.failures)}"


@cache
def all_claims() -> tuple[Claim, ...]:
    """Return all claims, in the order of their file."""
    text = files("clove.paper").joinpath("claims.toml").read_text(encoding="utf-8")
    return tuple(Claim(**one) for one in tomllib.loads(text)["claims"])


def verdict(claim: Claim, reading: str, results: Results) -> Verdict:
    """Hold a claim against results."""
    cells = EXPERIMENTS[claim.experiment].cells(reading)
    if claim.own_least:
        return _by_heat_map(claim, [cell for cell in cells if _is_meant(cell, claim.only)], results)
    found = [_measured(claim, cell, results) for cell in cells if _is_meant(cell, claim.only)]
    low = claim.paper_at_least
    if low is not None:
        found = [one for one in found if one.theirs is not None and one.theirs.mean >= low]
    relative = claim.rank is not None or claim.above is not None
    others = [_measured(claim, cell, results) for cell in cells] if relative else []
    judged = [(one, _judge(claim, one, others)) for one in found]
    made = [(one, reason) for one, reason in judged if reason is not None]
    failures = [f"{_place(one, found)} ({reason})" for one, reason in made if reason]
    return Verdict(
        *(claim, len(made) - len(failures), len(made), len(judged) - len(made), tuple(failures))
    )


def _is_meant(cell: Cell, only: Mapping[str, Any]) -> bool:
    """Say whether a claim is about a cell: rows beyond the paper are meant by label or by name."""
    if "label" in only:
        return cell.label == str(only["label"])
    settings = {name: wanted for name, wanted in only.items() if name != "beyond"}
    return cell.extra == only.get("beyond", False) and selected(cell, settings)


def _measured(claim: Claim, cell: Cell, results: Results) -> Measured:
    names = (cell.dataset, cell.mixing, cell.algorithm, cell.variant)
    theirs = figure(claim.table, claim.metric, *names) if claim.table else None
    return measured(results, cell, METRICS[claim.metric], theirs)


def _place(one: Measured, found: Sequence[Measured]) -> str:
    """Return where a figure stands; with its row where that is not clear by itself."""
    where = place(one.cell.dataset, one.cell.mixing)
    alike = [o for o in found if place(o.cell.dataset, o.cell.mixing) == where]
    return f"{where}, {one.cell.label}" if len(alike) > 1 else where


# ------------------------------------------------------------------------------------------- rules


def _judge(claim: Claim, one: Measured, others: Sequence[Measured]) -> str | None:
    """Return why a claim does not hold of a figure; empty: it does; None: that is not known yet."""
    if not one.is_whole:
        return None
    shown = one.ours_text()
    if claim.rank is not None:
        return _ranked(claim.rank, one, others)
    if claim.above is not None:
        return _compared(claim, one, others)
    if claim.near is not None:
        assert one.theirs is not None
        near = abs(one.difference) <= claim.near[one.cell.dataset] + 1e-9
        return "" if near else f"{shown}, paper {one.theirs_text()}"
    low, high = claim.at_least, claim.at_most
    fits = (low is None or one.mean >= low) and (high is None or one.mean <= high)
    return "" if fits else shown


def _ranked(rank: int, one: Measured, others: Sequence[Measured]) -> str | None:
    """Judge whether a figure is among the first of the paper's methods on the same data."""
    where = (one.cell.dataset, one.cell.mixing, one.cell.variant)
    rivals = [
        o
        for o in others
        if (o.cell.dataset, o.cell.mixing, o.cell.variant) == where and not o.cell.extra
    ]
    if not all(rival.is_whole for rival in rivals):
        return None
    mine = round(one.mean, one.decimals)
    ahead = [o for o in rivals if (round(o.mean, one.decimals) - mine) * one.metric.better > 0]
    best = max(rivals, key=lambda o: np.nan_to_num(o.mean, nan=-np.inf) * one.metric.better)
    named = f"{best.cell.label} {best.ours_text()}"
    return "" if len(ahead) < rank else f"{one.ours_text()}, place {len(ahead) + 1}; {named}"


def _compared(claim: Claim, one: Measured, others: Sequence[Measured]) -> str | None:
    """Judge whether a figure is no worse than that of another cell."""
    assert claim.above is not None
    alike = ["dataset", "mixing", *claim.same]
    for other in others:
        same = all(other.cell.settings.get(n) == one.cell.settings.get(n) for n in alike)
        if same and _is_meant(other.cell, claim.above):
            if not other.is_whole:
                return None
            behind = (other.mean - one.mean) * one.metric.better > 0
            return f"{one.ours_text()}, {other.cell.label} {other.ours_text()}" if behind else ""
    return None


def _by_heat_map(claim: Claim, cells: Sequence[Cell], results: Results) -> Verdict:
    """Judge whether clients do best on their own models, client by client and seed by seed."""
    keys = {cell.key for cell in cells}
    table = results.heat_maps
    rows = table[table["key"].isin(keys)] if len(table) else table
    if rows.empty:
        return Verdict(claim, missing=len(cells))
    failures, judged = [], 0
    for (seed, cluster), losses in rows.groupby(["seed", "cluster"]):
        judged += 1
        own = losses[losses["model"] == losses["assigned"]]["loss"].min()
        best = losses.loc[losses["loss"].idxmin()]
        if not own <= best["loss"]:
            told = f"{own:.3g}, model {best['model']} {best['loss']:.3g}"
            failures.append(f"cluster {cluster} of seed {seed} ({told})")
    return Verdict(claim, judged - len(failures), judged, failures=tuple(failures))
