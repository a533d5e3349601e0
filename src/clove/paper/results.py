"""What came of the runs, as two tidy tables that are kept: a row a run, and a row a round.

Only what a reader of the tables and figures needs is in them; the runs' folders hold the rest.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from clove.errors import CloveError
from clove.folders import METRICS, TIMINGS, held, plain_errors, write_atomically
from clove.paper.experiment import MACHINE, Cell
from clove.runs.api import run_folder_settings
from clove.runs.folder import RunFolder
from clove.runs.story import first_round_reaching, stability_round

RUNS, ROUNDS, HEAT_MAPS = "runs.csv", "rounds.csv", "heat_maps.csv"
IDENTITY = ["key", "seed"]
ENOUGH = 0.9
PATIENCE = 60.0  # seconds to wait while another command writes its runs
NAMED = ["dataset", "mixing", "algorithm"]


@dataclass(frozen=True)
class Recorded:
    """What is kept of one run."""

    run: dict[str, Any]
    rounds: list[dict[str, Any]]
    heat_map: list[dict[str, Any]] = field(default_factory=list)


def record(cell: Cell, reading: str, seed: int, folder: RunFolder) -> Recorded:
    """Read what is kept of a finished run from its folder."""
    summary = folder.summary()
    records = folder.lines(METRICS, summary["rounds"])
    timings = folder.lines(TIMINGS, summary["rounds"])
    made = summary["made"]
    identity = {"key": cell.key, "seed": seed}
    run = {
        **identity,
        "settings": reading,
        **{name: cell.settings[name] for name in NAMED},
        "options": json.dumps(
            {n: v for n, v in sorted(cell.settings.items()) if n not in (*NAMED, *MACHINE)},
            ensure_ascii=False,
        ),
        "rounds": summary["rounds"],
        "clients": summary["clients"],
        **outcome(records),
        "true_clusters": None if summary["groups"] is None else len(set(summary["groups"])),
        "seconds": round(sum(one["seconds"] for one in timings), 3),
        "machine": made["machine"],
        "precision": run_folder_settings(folder).precision,
        **{name: made[name] for name in ("clove", "torch", "python")},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    run["k_right"] = _k_right(run)
    return Recorded(run, [{**identity, **_round(one)} for one in records])


def outcome(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that tables show, from a run's rounds.

    Rounds are counted from 1, and ARI at ten rounds is that after the tenth.
    """
    last = records[-1]
    ari, accuracy = [one["ari"] for one in records], last["accuracy"]
    return {
        "accuracy": None if accuracy is None else round(100 * accuracy, 4),
        "test_loss": last["test_loss"],
        "ari": ari[-1],
        "ari_seen": last["ari_seen"],
        "ari_at_10_rounds": ari[9] if len(ari) >= 10 else None,
        "first_round_ari_0.9": first_round_reaching(records, ENOUGH),
        "stability_round": stability_round(records),
        "models_used": models_used(last),
        "bytes_up": sum(one["bytes_up"] for one in records),
        "bytes_down": sum(one["bytes_down"] for one in records),
    }


def models_used(record: Mapping[str, Any]) -> int:
    """Return how many models have clients."""
    return len({model for model in record["assignment"] if model >= 0})


def _k_right(run: Mapping[str, Any]) -> float | None:
    """Say whether there were as many clusters as in truth, as a percentage over runs would."""
    if run["ari"] is None or run["true_clusters"] is None:
        return None
    return 100.0 if run["models_used"] == run["true_clusters"] else 0.0


def _round(one: Mapping[str, Any]) -> dict[str, Any]:
    accuracy = one["accuracy"]
    return {
        "round": one["round"],
        "accuracy": None if accuracy is None else round(100 * accuracy, 2),
        "test_loss": _short(one["test_loss"]),
        "ari": _short(one["ari"]),
        "ari_seen": _short(one["ari_seen"]),
        "models_used": models_used(one),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


# ----------------------------------------------------------------------------------------- files


class Results:
    """The tables of a folder: runs, rounds, and the losses that heat maps show."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    heat_maps: pd.DataFrame

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._read_all()
        self._sorted: tuple[pd.DataFrame, dict[str, pd.DataFrame]] | None = None  # runs by key

    def has(self, key: str, seed: int, rounds: int) -> bool:
        """Say whether a run of so many rounds is here."""
        if self.runs.empty:
            return False
        mine = (self.runs["key"] == key) & (self.runs["seed"] == seed)
        return bool((mine & (self.runs["rounds"] == rounds)).any())

    def of(self, cell: Cell) -> pd.DataFrame:
        """Return the runs of a cell, a row a seed."""
        if self.runs.empty:
            return self.runs
        if self._sorted is None or self._sorted[0] is not self.runs:
            self._sorted = self.runs, dict(list(self.runs.groupby("key")))
        return self._sorted[1].get(cell.key, self.runs.iloc[:0])

    def rounds_of(self, cell: Cell) -> pd.DataFrame:
        """Return the rounds of a cell's runs."""
        return self.rounds[self.rounds["key"] == cell.key] if len(self.rounds) else self.rounds

    def add(self, found: Iterable[Recorded]) -> None:
        """Add runs, in the place of earlier ones with the same settings and seed, and write.

        What another command has added meanwhile is kept.
        """
        some = list(found)
        with held(self.folder, "the tables of results", patience=PATIENCE):
            self._read_all()
            self._add(some)

    def _add(self, some: Sequence[Recorded]) -> None:
        self.runs = _replaced(self.runs, [one.run for one in some])
        self.rounds = _replaced(self.rounds, [row for one in some for row in one.rounds])
        self.heat_maps = _replaced(self.heat_maps, [row for one in some for row in one.heat_map])
        self.write()

    def merge(self, other: Results) -> None:
        """Take over the runs of another folder."""
        for name in ("runs", "rounds", "heat_maps"):
            setattr(self, name, _replaced(getattr(self, name), getattr(other, name)))
        self.write()

    def write(self) -> None:
        """Write the tables, sorted so that a new run adds lines and moves none."""
        with plain_errors(self.folder):
            for name, table in (
                (RUNS, self.runs),
                (ROUNDS, self.rounds),
                (HEAT_MAPS, self.heat_maps),
            ):
                if len(table):
                    order = [n for n in (*IDENTITY, "round", "client", "model") if n in table]
                    text = table.sort_values(order).to_csv(index=False)
                    write_atomically(self.folder / name, text.encode())

    def _read_all(self) -> None:
        self.runs = self._read(RUNS)
        self.rounds = self._read(ROUNDS)
        self.heat_maps = self._read(HEAT_MAPS)

    def _read(self, name: str) -> pd.DataFrame:
        path = self.folder / name
        if not path.exists():
            return pd.DataFrame()
        try:
            table = pd.read_csv(io.BytesIO(path.read_bytes()), float_precision="round_trip")
        except (ValueError, OSError) as error:
            raise CloveError(f"{path} is damaged: {error}") from None
        missing = [column for column in IDENTITY if column not in table]
        if missing:
            raise CloveError(f"{path} is no table of results: it has no column {missing[0]!r}")
        return table


def _replaced(old: pd.DataFrame, new: Sequence[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Return a table with rows added, without the old ones of the same runs."""
    added = pd.DataFrame(new)
    if added.empty:
        return old
    if old.empty:
        return added
    both = pd.MultiIndex.from_frame(old[IDENTITY])
    kept = old[~both.isin(pd.MultiIndex.from_frame(added[IDENTITY]))]
    if kept.empty:
        return added
    columns = list(dict.fromkeys([*kept.columns, *added.columns]))
    parts = [one.reindex(columns=columns).astype(object) for one in (kept, added)]
    return pd.concat(parts, ignore_index=True).replace({None: np.nan}).infer_objects()
