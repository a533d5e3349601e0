"""One run as plain data for its page: lists, numbers and words, as JSON has them."""

from __future__ import annotations

import shlex
from math import ceil
from typing import Any

import numpy as np

from clove.folders import SETTINGS
from clove.report.numbers import brief, duration, megabytes, percent
from clove.report.page.costs import references
from clove.report.page.read import Indices, Record, RunRead
from clove.report.page.vectors import loss_vectors, nearest_groups

MOST_SHOWN = 300  # clients in pictures
MOST_ROWS = 5000  # clients in the table
PHASES = ("losses", "training", "server", "evaluation")
OWN_CLIENTS = "own-clients"


def run_page(run: RunRead) -> dict[str, Any]:
    """Return all that the page of a run shows."""
    shown = shown_clients(run)
    return {
        "kind": "run",
        "title": title(run),
        "subtitle": subtitle(run),
        "status": status(run),
        "headline": headline(run),
        "remarks": remarks(run, shown),
        "curves": curves(run),
        "stability_round": run.stability_round,
        "groups": None if run.groups is None else run.groups.tolist(),
        "order": shown.tolist(),
        "vectors": loss_vectors(run, shown),
        "membership": membership(run, shown),
        "cards": cards(run),
        "clients": client_rows(run),
        "bytes": traffic(run),
        "times": times(run),
        "settings": settings(run),
        "command": command(run),
    }


# ------------------------------------------------------------------------------------------- words


def title(run: RunRead) -> str:
    """Say what was run on what."""
    return f"{run.algorithm} on {data_title(run)}"


def data_title(run: RunRead) -> str:
    """Say whose data it is."""
    dataset = run.setting("dataset")
    return "own clients" if dataset == OWN_CLIENTS else f"{dataset}, {run.setting('mixing')}"


def subtitle(run: RunRead) -> str:
    """Say how large the run is, and where it is made."""
    seed, engine = run.setting("seed"), run.setting("engine")
    where = "on Flower" if engine == "flower" else f"{engine} engine on {run.setting('device')}"
    return f"{run.clients} clients, {run.setting('rounds')} rounds, seed {seed}, {where}"


def status(run: RunRead) -> dict[str, Any]:
    """Return how far the run has come."""
    done, of = len(run.records), int(run.setting("rounds", 0))
    words = "finished" if run.finished else f"round {done} of {of}"
    return {"finished": run.finished, "done": done, "rounds": of, "words": words}


def headline(run: RunRead) -> list[dict[str, str]]:
    """Return the figures a reader looks for first, each with a word of explanation."""
    if not run.records:
        return []
    found = [*_quality(run), *_grouping(run)]
    up, down = (sum(r[key] for r in run.records) for key in ("bytes_up", "bytes_down"))
    found.append(_figure("traffic", megabytes(up + down), f"{megabytes(up)} up"))
    seconds = sum(timing["seconds"] for timing in run.timings)
    a_round = duration(seconds / max(len(run.timings), 1))
    found.append(_figure("time", duration(seconds), f"{a_round} a round"))
    return found


def _quality(run: RunRead) -> list[dict[str, str]]:
    last = run.measured
    if not last:
        return []
    scores = run.scores
    if last["accuracy"] is None:
        note = "mean over clients"
        return [_figure("test loss", f"{last['test_loss']:.4g}", note)]
    worst = ""
    if scores is not None and scores.accuracy is not None and len(scores.accuracy):
        worst = f"worst client {percent(float(scores.accuracy.min()))}"
    return [_figure("accuracy", percent(last["accuracy"]), worst)]


def _grouping(run: RunRead) -> list[dict[str, str]]:
    if not run.grouped:
        return []
    last, found = run.records[-1], []
    if last["ari"] is not None:
        first = next((r["round"] for r in run.records if _at_least(r["ari"], 0.9)), None)
        note = "never 0.9" if first is None else f"0.9 from round {first}"
        found.append(_figure("ARI", f"{last['ari']:.2f}", note))
    number = len(set(run.assignment.tolist()) - {-1})
    of = "" if run.groups is None else f"{len(np.unique(run.groups))} true groups"
    found.append(_figure("clusters", str(number), of))
    if last["stable"] is not None:  # clients are asked
        stable = run.stability_round
        note = "when assignments first settled" if stable else "not in these rounds"
        found.append(_figure("stable", f"round {stable}" if stable else "–", note))
    return found


def _at_least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound - 1e-12


def _figure(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def remarks(run: RunRead, shown: Indices) -> list[str]:
    """Return what a reader must know to read the page rightly."""
    found = [run.data["remark"]] if run.data.get("remark") else []
    if not run.records:
        found.append("No round is finished yet.")
    elif not run.finished:
        found.append("The run is not finished: figures are those of the rounds done so far.")
    found += _troubles(run)
    if len(shown) < run.clients:
        found.append(
            f"Pictures show {len(shown)} of {run.clients} clients, drawn evenly from all clusters; "
            "figures and cards are of all."
        )
    if run.records and run.groups is None:
        found.append("The clients' true groups are not known, so nothing is compared to them.")
    if run.records and run.personal:
        found.append(
            f"{run.algorithm} gives each client a model of its own: there are no clusters."
        )
    return found


def _troubles(run: RunRead) -> list[str]:
    """Return what went wrong in training, as far as figures show it."""
    found, rate = [], run.setting("learning_rate")
    if run.diverged:
        found.append(
            f"Training diverged: losses are no finite numbers ({run.diverged}), and figures made "
            f"of them are missing. A smaller learning rate than {rate} may help."
        )
    short = _short_rounds(run)
    if short:
        first = short[0]
        found.append(
            f"In {len(short)} of {len(run.records)} rounds fewer clients took part than were asked "
            f"(in round {first['round']}: {first['participants']}): where a client's training "
            f"diverges, it is left out. A smaller learning rate than {rate} may help."
        )
    return found


def _short_rounds(run: RunRead) -> list[Record]:
    """Return rounds in which a simulation missed clients that it did not choose to."""
    if run.setting("engine") == "flower" or float(run.setting("stragglers", 0.0)):
        return []
    asked = max(1, ceil(float(run.setting("participation", 1.0)) * run.clients - 1e-9))
    return [record for record in run.records if record["participants"] < asked]


# ------------------------------------------------------------------------------------------ figures


def shown_clients(run: RunRead) -> Indices:
    """Return the clients in pictures, those of a cluster together, so that blocks show."""
    groups = run.groups if _fits(run) else np.zeros(run.clients, dtype=np.int64)
    assignment = run.assignment if len(run.assignment) else np.zeros(run.clients, dtype=np.int64)
    assert groups is not None
    order: Indices = np.lexsort((np.arange(run.clients), groups, assignment))
    if len(order) > MOST_SHOWN:
        order = order[np.linspace(0, len(order) - 1, MOST_SHOWN).round().astype(int)]
    return order


def _fits(run: RunRead) -> bool:
    return run.groups is not None and len(run.groups) == run.clients


def curves(run: RunRead) -> dict[str, list[Any]]:
    """Return what is measured by round."""
    rounds = [record["round"] for record in run.records]
    names = ("accuracy", "test_loss", "ari", "ari_seen", "clusters")
    return {"round": rounds} | {n: brief(r.get(n) for r in run.records) for n in names}


def membership(run: RunRead, shown: Indices) -> dict[str, Any] | None:
    """Return the model of each client by round, where there is more than one to be in."""
    rows = np.full((len(run.records), run.clients), -1)
    for row, record in zip(rows, run.records, strict=True):  # clients may come later
        row[: len(record["assignment"])] = record["assignment"]
    if run.personal or len(np.unique(rows[rows >= 0])) < 2:
        return None
    some = _some_rounds(len(rows))
    table = rows[some][:, shown].T
    return {
        "clients": shown.tolist(),
        "rounds": [run.records[place]["round"] for place in some],
        "models": table.tolist(),
        "sizes": _sizes(rows[some]),
    }


def _some_rounds(number: int, most: int = 400) -> list[int]:
    if number <= most:
        return list(range(number))
    return [int(place) for place in np.linspace(0, number - 1, most).round()]


def _sizes(rows: np.ndarray[Any, Any]) -> dict[str, list[int]]:
    """Return for each model how many clients it had, by round."""
    models = np.unique(rows[rows >= 0])
    return {str(model): (rows == model).sum(axis=1).tolist() for model in models}


# ------------------------------------------------------------------------------------------- cards


def cards(run: RunRead) -> list[dict[str, Any]]:
    """Return what there is to tell of each cluster, the largest first."""
    models, counts = np.unique(run.assignment[run.assignment >= 0], return_counts=True)
    if run.personal or (len(models) < 2 and not run.grouped):
        return []
    nearest = nearest_groups(run)
    order = models[np.argsort(-counts, kind="stable")]
    return [_card(run, int(model), nearest.get(int(model))) for model in order]


def _card(run: RunRead, model: int, nearest: tuple[int, float] | None) -> dict[str, Any]:
    members = np.flatnonzero(run.assignment == model)
    return {
        "model": model,
        "size": len(members),
        "members": members.tolist()[:MOST_SHOWN],
        "labels": _labels(run, members),
        "points": _points(run, members),
        "groups": _true_groups(run, members),
        "spread": _spread(run, members),
        "nearest": None if nearest is None else [nearest[0], *brief([nearest[1]])],
    }


def _labels(run: RunRead, members: Indices) -> list[int] | None:
    counts = run.data.get("labels")
    if counts is None or members.max() >= len(counts):
        return None
    total: list[int] = np.array([counts[client] for client in members]).sum(axis=0).tolist()
    return total


def _points(run: RunRead, members: Indices) -> int | None:
    points = run.data.get("points")
    if points is None or members.max() >= len(points):
        return None
    return sum(int(points[client]) for client in members)


def _true_groups(run: RunRead, members: Indices) -> dict[str, int] | None:
    """Return how many members each true group has here."""
    if run.groups is None or members.max() >= len(run.groups):
        return None
    found, counts = np.unique(run.groups[members], return_counts=True)
    return {str(group): int(n) for group, n in zip(found, counts, strict=True)}


def _spread(run: RunRead, members: Indices) -> dict[str, Any] | None:
    """Return how evenly a cluster's clients are served: least, quartiles, most."""
    if run.scores is None:
        return None
    values = run.scores.loss if run.scores.accuracy is None else run.scores.accuracy
    mine = values[np.isin(run.scores.clients, members)]
    if not len(mine):
        return None
    what = "test loss" if run.scores.accuracy is None else "accuracy"
    return {"what": what, "of": brief(np.quantile(mine, [0, 0.25, 0.5, 0.75, 1]))}


# ----------------------------------------------------------------------------------------- clients


def client_rows(run: RunRead) -> dict[str, Any]:
    """Return the table of clients, worst served first."""
    columns = ["client", "cluster", "group", "accuracy", "loss", "points"]
    rows = [_client_row(run, place) for place in _worst_first(run)]
    if run.data.get("names"):
        columns.insert(1, "name")
    used = [c for c in columns if any(row.get(c) is not None for row in rows)]
    if run.personal or not run.grouped:
        used = [column for column in used if column != "cluster"]
    return {"columns": used, "rows": [[r.get(c) for c in used] for r in rows], "of": run.clients}


def _worst_first(run: RunRead) -> list[tuple[int, int | None]]:
    """Return clients, each with its place among the scores, where it has one."""
    scores = run.scores
    if scores is None:
        return [(client, None) for client in range(min(run.clients, MOST_ROWS))]
    loss = np.nan_to_num(scores.loss, nan=np.inf)  # nobody is served worse than by no number
    worst = loss if scores.accuracy is None else -scores.accuracy
    order = np.lexsort((scores.clients, -loss, -worst))[:MOST_ROWS]
    return [(int(scores.clients[place]), int(place)) for place in order]


def _client_row(run: RunRead, which: tuple[int, int | None]) -> dict[str, Any]:
    client, place = which
    row: dict[str, Any] = {"client": client}
    if client < len(run.assignment) and run.assignment[client] >= 0:
        row["cluster"] = int(run.assignment[client])
    if run.groups is not None and client < len(run.groups):
        row["group"] = int(run.groups[client])
    for key, values in (("name", run.data.get("names")), ("points", run.data.get("points"))):
        if values is not None and client < len(values):
            row[key] = values[client]
    if run.scores is not None and place is not None:
        row["loss"] = brief([run.scores.loss[place]])[0]
        if run.scores.accuracy is not None:
            row["accuracy"] = brief([run.scores.accuracy[place]])[0]
    return row


# ------------------------------------------------------------------------------------ bytes, time


def traffic(run: RunRead) -> dict[str, Any] | None:
    """Return bytes by round, this run's and those of FedAvg and IFCA on the same settings."""
    if not run.records:
        return None
    up, down = ([r[key] for r in run.records] for key in ("bytes_up", "bytes_down"))
    found = {run.algorithm: {"up": up, "down": down}}
    for name, other in references(run).items():
        found[name] = {"up": other.up, "down": other.down}
    totals = [
        {
            "method": name,
            "up": megabytes(sum(one["up"])),
            "down": megabytes(sum(one["down"])),
            "both": sum(one["up"]) + sum(one["down"]),
        }
        for name, one in found.items()
    ]
    return {"methods": found, "totals": totals, "model": run.model_bytes}


def times(run: RunRead) -> dict[str, Any] | None:
    """Return seconds by phase and round, and in all."""
    if not run.timings:
        return None
    by_phase = {phase: brief(t.get(phase, 0.0) for t in run.timings) for phase in PHASES}
    totals = {phase: sum(t.get(phase, 0.0) for t in run.timings) for phase in PHASES}
    everything = sum(totals.values()) or 1.0
    return {
        "phases": by_phase,
        "totals": [
            {"phase": phase, "time": duration(seconds), "share": percent(seconds / everything)}
            for phase, seconds in totals.items()
        ],
    }


# --------------------------------------------------------------------------------------- settings


def settings(run: RunRead) -> dict[str, dict[str, str]]:
    """Return all settings as words, by section."""
    return {
        section: {name: word(value) for name, value in values.items() if name != "command"}
        for section, values in run.settings.items()
    }


def word(value: Any) -> str:
    """Return a setting's value as words."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def command(run: RunRead) -> str | None:
    """Return the command that repeats the run: to the bit from its folder, or as it was noted."""
    if run.setting("engine") == "flower":
        return None
    noted = run.settings.get("made", {}).get("command")
    if noted == "":
        return None  # clients or a network were handed over in Python
    return noted or f"clove run {shlex.quote(str(run.path / SETTINGS))}"
