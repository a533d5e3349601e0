"""Several runs as plain data for their page: curves over seeds, a table, accuracy by bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clove.report.numbers import brief
from clove.report.page.data import data_title, settings, status
from clove.report.page.names import apart_table, kinds
from clove.report.page.read import RunRead
from clove.report.tables import cells, figures

CURVES = ("accuracy", "test_loss", "ari")


def several_page(
    runs: Sequence[RunRead], failures: Sequence[Mapping[str, str]] = (), complete: bool = True
) -> dict[str, Any]:
    """Return all that the page of several runs shows; `complete`: no more of them will come."""
    found = kinds([run for run in runs if run.records])
    named = {kind.name: kind.runs for kind in found}
    table = figures([summary(name, run) for name, mine in named.items() for run in mine])
    titles, rows = cells(table) if named else ([], [])
    shown = {name: row[0][0] for name, row in zip(named, rows, strict=True)}
    return {
        "kind": "several",
        "title": several_title(runs),
        "subtitle": f"{len(named)} compared in {len(runs)} runs",
        "status": several_status(runs, complete),
        "remarks": several_remarks(runs),
        "failures": [dict(failure) for failure in failures],
        "names": {name: kind.whole for kind in found for name in (kind.name, shown[kind.name])},
        "table": {"titles": titles, "rows": rows},
        "apart": apart_table(found),
        "curves": [curve(name, mine) for name, mine in named.items()],
        "pareto": pareto(named),
        "runs": [run_row(name, run) for name, mine in named.items() for run in mine],
        "settings": shared_settings(runs),
    }


def several_title(runs: Sequence[RunRead]) -> str:
    """Say what was compared on what."""
    whose = list(dict.fromkeys(data_title(run) for run in runs))
    return " · ".join(whose) if len(whose) <= 3 else f"{len(whose)} data sets"


def several_status(runs: Sequence[RunRead], complete: bool) -> dict[str, Any]:
    """Return how far all runs have come."""
    one_by_one = [status(run) for run in runs]
    done, of = (sum(one[key] for one in one_by_one) for key in ("done", "rounds"))
    finished = complete and all(run.finished for run in runs)
    words = "finished" if finished else f"{done} of {of} rounds"
    return {"finished": finished, "done": done, "rounds": of, "words": words}


def several_remarks(runs: Sequence[RunRead]) -> list[str]:
    """Return what a reader must know to read the page rightly."""
    found = []
    going = [run for run in runs if not run.finished]
    if going:
        found.append(f"{len(going)} of {len(runs)} runs are not finished: figures are of now.")
    diverged = [run for run in runs if run.diverged]
    if diverged:
        whose = ", ".join(dict.fromkeys(run.algorithm for run in diverged))
        found.append(
            f"Training diverged in {len(diverged)} of {len(runs)} runs ({whose}): losses there are "
            "no finite numbers, and figures made of them are missing. The page of each run says "
            "when."
        )
    if len({data_title(run) for run in runs}) > 1:
        found.append("The runs are on different data: their figures are not of one contest.")
    return found


# ----------------------------------------------------------------------------------------- figures


def summary(name: str, run: RunRead) -> dict[str, Any]:
    """Return a run's figures as a table of runs takes them."""
    last, stable = run.measured, run.stability_round
    reached = [r["round"] for r in run.records if r["ari"] is not None and r["ari"] >= 0.9 - 1e-12]
    return {
        "algorithm": name,
        "reference": run.reference,
        "seed": run.setting("seed"),
        "accuracy": last.get("accuracy"),
        "test_loss": last.get("test_loss"),
        "ari": run.records[-1]["ari"],
        "first_round_ari_0.9": reached[0] if reached else None,
        "stability_round": stable,
        "bytes_up": sum(record["bytes_up"] for record in run.records),
        "bytes_down": sum(record["bytes_down"] for record in run.records),
        "seconds": sum(timing["seconds"] for timing in run.timings),
    }


def curve(name: str, runs: Sequence[RunRead]) -> dict[str, Any]:
    """Return a kind's rounds: mean, least and most over its seeds."""
    rounds = min(len(run.records) for run in runs)
    found: dict[str, Any] = {"name": name, "seeds": len(runs)}
    for metric in CURVES:
        values = [[_number(r[metric]) for r in run.records[:rounds]] for run in runs]
        table = np.array(values, dtype=np.float64)
        measured = ~np.isnan(table).any(axis=0)
        table = table[:, measured]
        found[metric] = {
            "round": (1 + np.flatnonzero(measured)).tolist(),
            "mean": brief(table.mean(axis=0)),
            "low": brief(table.min(axis=0)),
            "high": brief(table.max(axis=0)),
        }
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def pareto(named: Mapping[str, Sequence[RunRead]]) -> dict[str, Any] | None:
    """Return what each kind reached and what it sent for that, and which no other beats.

    References have no part in that: their bytes leave out the data they were given.
    """
    found = [summary(name, run) for name, mine in named.items() for run in mine]
    accurate = any(one["accuracy"] is not None for one in found)
    what = "accuracy" if accurate else "test_loss"
    points = []
    for name in named:
        mine = [one for one in found if one["algorithm"] == name and one[what] is not None]
        if mine:
            sent = [one["bytes_up"] + one["bytes_down"] for one in mine]
            reached = [one[what] for one in mine]
            points.append(
                {
                    "name": name,
                    "reference": mine[0]["reference"],
                    "bytes": float(np.mean(sent)),
                    "value": float(np.mean(reached)),
                    "seeds": [brief(sent), brief(reached)],
                }
            )
    if not points:
        return None
    better = 1 if accurate else -1
    for point in points:
        rivals = [other for other in points if not other["reference"]]
        point["best"] = point in rivals and not any(_beats(one, point, better) for one in rivals)
    return {"what": what, "points": points}


def _beats(other: Mapping[str, Any], one: Mapping[str, Any], better: int) -> bool:
    """Say whether another is at least as good for no more bytes, and ahead in one of them."""
    ahead, cheaper = better * (other["value"] - one["value"]), one["bytes"] - other["bytes"]
    return bool(ahead >= 0 and cheaper >= 0 and (ahead > 0 or cheaper > 0))


def run_row(name: str, run: RunRead) -> dict[str, Any]:
    """Return where a run is and how far it has come."""
    return {
        "name": name,
        "seed": run.setting("seed"),
        "status": status(run)["words"],
        "folder": str(run.path),
        "command": run.settings.get("made", {}).get("command") or None,
    }


def shared_settings(runs: Sequence[RunRead]) -> dict[str, dict[str, str]]:
    """Return the settings that all runs have in common, by section."""
    if not runs:
        return {}
    all_settings = [settings(run) for run in runs]
    first = all_settings[0]
    return {
        section: {
            name: value
            for name, value in values.items()
            if all(one.get(section, {}).get(name) == value for one in all_settings)
        }
        for section, values in first.items()
        if section != "algorithm"
    }
