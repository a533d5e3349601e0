"""A run's folder as a page needs it: plain files, read as far as the run has come.

Nothing of the engines is loaded, so that a page is quick to make, and nothing is written, so that a
run can be read while it goes on.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from clove.errors import CloveError
from clove.folders import (
    CHECKPOINT,
    CLIENTS,
    COMPARISON,
    DATA,
    ERRORS,
    LOSS_VECTORS,
    METRICS,
    SETTINGS,
    SUMMARY,
    TABLE,
    TIMINGS,
    readable,
)

Record = dict[str, Any]
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

SIZES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "BOOL": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
}
# The settings that every page tells of, whatever the run.
TOLD = {
    **dict.fromkeys(("dataset", "mixing", "algorithm", "engine", "device"), str),
    **dict.fromkeys(("rounds", "seed"), int),
}
# Where a checkpoint keeps models: the server's, or those that clients keep.
MODELS = ("/state/models/", "/memory/kept/model/")


@dataclass(frozen=True)
class Vectors:
    """The loss vectors of a round: a row a client."""

    clients: Indices
    losses: Floats


@dataclass(frozen=True)
class Scores:
    """How each client was served when it was last measured."""

    clients: Indices
    loss: Floats
    accuracy: Floats | None


@dataclass(frozen=True)
class RunRead:
    """All that a page tells of a run."""

    path: Path
    settings: Mapping[str, Mapping[str, Any]]  # by section
    records: Sequence[Record]
    timings: Sequence[Record]
    vectors: Mapping[int, Vectors] = field(default_factory=dict)
    groups: Indices | None = None  # the true ones, where known
    scores: Scores | None = None
    data: Mapping[str, Any] = field(default_factory=dict)  # names, points and labels of clients
    model_bytes: int | None = None
    finished: bool = False

    def setting(self, name: str, otherwise: Any = None) -> Any:
        """Return a setting, whatever section it is in."""
        return next((s[name] for s in self.settings.values() if name in s), otherwise)

    @property
    def algorithm(self) -> str:
        """The method's name."""
        return str(self.setting("algorithm"))

    @property
    def reference(self) -> bool:
        """Whether it is no federated method, but what those are measured by."""
        return bool(self.settings.get("made", {}).get("reference", False))

    @cached_property
    def assignment(self) -> Indices:
        """The model of each client after the last round; -1: it never took part."""
        last = self.records[-1]["assignment"] if self.records else []
        return np.array(last, dtype=np.int64)

    @property
    def clients(self) -> int:
        """How many clients there are, as far as is known."""
        return len(self.assignment) or len(self.data.get("points", ()))

    @property
    def measured(self) -> Record:
        """The last round whose models were evaluated."""
        return next((r for r in reversed(self.records) if was_measured(r)), {})

    @property
    def diverged(self) -> str | None:
        """Where losses are no finite numbers, in words; None if they are."""
        rounds = [record for record in self.records if was_measured(record)]
        bad = [record["round"] for record in rounds if record["test_loss"] is None]
        loss = np.zeros(0) if self.scores is None else self.scores.loss
        lost = int((~np.isfinite(loss)).sum())
        whose = [f"at the end those of {lost} of {len(loss)} clients"] if lost else []
        since = [f"in {len(bad)} of {len(rounds)} rounds, first in round {bad[0]}"] if bad else []
        return ", ".join([*since, *whose]) or None

    @property
    def stability_round(self) -> int | None:
        """The round after which participants first called their assignments stable."""
        return next((r["round"] for r in self.records if r["stable"]), None)

    @property
    def personal(self) -> bool:
        """Whether every client has a model of its own."""
        seen = np.flatnonzero(self.assignment >= 0)
        return len(seen) > 1 and bool((self.assignment[seen] == seen).all()) and not self.grouped

    @property
    def grouped(self) -> bool:
        """Whether the method says of itself that it makes groups of clients."""
        return any("clusters" in record or record["ari"] is not None for record in self.records)


def was_measured(record: Record) -> bool:
    """Say whether models were evaluated in a round; losses that are no numbers are not noted."""
    return record["test_loss"] is not None or record["accuracy"] is not None


# ---------------------------------------------------------------------------------------- folders


def is_run(path: Path) -> bool:
    """Say whether a folder holds a run that has begun."""
    return (path / SETTINGS).is_file()


def is_comparison(path: Path) -> bool:
    """Say whether a folder holds a comparison."""
    return (path / COMPARISON).is_file()


def is_going_on(path: Path) -> bool:
    """Say whether a folder holds a comparison that has not come to its end."""
    return is_comparison(path) and not (path / TABLE).is_file()


def run_folders(path: Path) -> list[Path]:
    """Return the folders of runs that a folder stands for: its own, or a comparison's."""
    if is_run(path):
        return [path]
    if not is_comparison(path):
        return []
    order = [*_json(path / COMPARISON)["algorithms"]]
    found = [run.parent for run in path.glob(f"*/seed-*/{SETTINGS}")]
    return sorted(found, key=lambda run: (_place(run.parent.name, order), _number(run.name)))


def failures(path: Path) -> list[dict[str, str]]:
    """Return the methods of a comparison that failed, each with the last line of its story."""
    stories = sorted(path.glob(f"*/{ERRORS}")) if is_comparison(path) else []
    return [{"algorithm": story.parent.name, "error": _last_line(story)} for story in stories]


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _number(name: str) -> int:
    digits = name.removeprefix("seed-")
    return int(digits) if digits.isdigit() else 0


# ------------------------------------------------------------------------------------------- runs


def read_run(path: Path) -> RunRead:
    """Read a run as far as it has come, while it may be going on."""
    if not is_run(path):
        raise _no_run(path)
    with readable(path):
        finished = _finished(path)  # before all else: what it speaks of is there, if it is
        records = _lines(path / METRICS)
        checkpoint = _checkpoint(path / CHECKPOINT)
        data = _json(path / DATA) if (path / DATA).is_file() else {}
        return RunRead(
            path=path,
            settings=_settings(path / SETTINGS),
            records=records,
            timings=_lines(path / TIMINGS)[: len(records)],
            vectors=_all_vectors(path / LOSS_VECTORS, len(records)),
            data=data,
            finished=finished,
            **checkpoint,
        )


def _no_run(path: Path) -> CloveError:
    """Make the error for a folder without a run, with those it has in it."""
    if not path.exists():
        return CloveError(f"there is no folder {path}")
    if is_comparison(path):
        return CloveError(f"no run of the comparison in {path} has begun")
    inside = sorted(path.glob(f"*/{SETTINGS}")) + sorted(path.glob(f"*/{COMPARISON}"))
    names = ", ".join(str(file.parent) for file in inside[:5])
    hint = f"; did you mean {names}?" if names else ""
    return CloveError(
        f"{path} holds neither a run nor a comparison: there is no {SETTINGS} and no {COMPARISON} "
        f"in it{hint}"
    )


def _finished(path: Path) -> bool:
    """Say whether a run came to its end, by its summary; what it sums up must then be whole."""
    if not (path / SUMMARY).is_file():
        return False
    rounds = _json(path / SUMMARY).get("rounds")
    if type(rounds) is not int:
        raise _damaged(path / SUMMARY, "it does not say how many rounds the run had")
    for file in (path / METRICS, path / TIMINGS):
        found = len(_lines(file))
        if found != rounds:
            words = f"it has {found} whole lines, but {SUMMARY} says that the run had"
            raise _damaged(file, f"{words} {rounds} rounds")
    table = path / CLIENTS
    if table.is_file() and not table.read_bytes().startswith(b"client,"):
        raise _damaged(table, "it does not begin with the titles of a table of clients")
    return True


def _damaged(path: Path, why: object) -> CloveError:
    return CloveError(f"{path} is damaged: {why}")


def _settings(path: Path) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None
    sections = {name: section for name, section in content.items() if isinstance(section, dict)}
    found = {name: value for section in sections.values() for name, value in section.items()}
    lacking = [name for name in TOLD if name not in found]
    if lacking:
        raise _damaged(path, f"no section of it has {', '.join(lacking)}")
    for name, kind in TOLD.items():
        if type(found[name]) is not kind:
            raise _damaged(path, f"{name} must be {kind.__name__}, not {found[name]!r}")
    return sections


def _json(path: Path) -> dict[str, Any]:
    try:
        return _object(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise _damaged(path, error) from None


def _lines(path: Path) -> list[Record]:
    """Return the records of a file of lines; the last may be in the middle of being written."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1]
    try:
        return [_object(json.loads(line)) for line in whole.splitlines()]
    except ValueError as error:
        raise _damaged(path, error) from None


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"a JSON object should be where {str(content)[:20]} is")
    return content


def _all_vectors(folder: Path, rounds: int) -> dict[int, Vectors]:
    found = {}
    for path in sorted(folder.glob("round-*.npz")):
        number = path.stem.removeprefix("round-")
        if number.isdigit() and int(number) <= rounds:
            found[int(number)] = _vectors(path)
    return found


def _vectors(path: Path) -> Vectors:
    try:
        with np.load(path) as arrays:
            return Vectors(arrays["clients"].astype(np.int64), arrays["losses"].astype(np.float64))
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
        raise _damaged(path, error) from None


def _checkpoint(path: Path) -> dict[str, Any]:
    """Return groups, scores and the size of a model, without reading any parameters."""
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            arrays = {
                name: file.get_tensor(name)
                for name in names
                if name == "/clients/groups" or name.startswith("/scores/")
            }
            size = _model_bytes(file, names)
    except (OSError, SafetensorError, ValueError) as error:
        raise _damaged(path, error) from None
    return {
        "groups": arrays.get("/clients/groups"),
        "scores": _scores(arrays),
        "model_bytes": size,
    }


def _scores(arrays: Mapping[str, NDArray[Any]]) -> Scores | None:
    if "/scores/clients" not in arrays:
        return None
    return Scores(arrays["/scores/clients"], arrays["/scores/loss"], arrays.get("/scores/accuracy"))


def _model_bytes(file: Any, names: set[str]) -> int | None:
    """Return the size of one model, from the shapes of a stack of them."""
    for prefix in MODELS:
        parts = [file.get_slice(name) for name in names if name.startswith(prefix)]
        if parts and all(part.get_dtype() in SIZES for part in parts):
            return sum(int(np.prod(p.get_shape()[1:])) * SIZES[p.get_dtype()] for p in parts)
    return None
