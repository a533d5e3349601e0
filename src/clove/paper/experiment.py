"""The experiments: what is run for each, read from a file of its own.

A file lists the runs of an experiment as settings by name. A list of values stands for one run with
each; `variant_key` and `label` say how the paper's figures and we call each of them. What holds
only by the paper, by the authors' code, or for one method stands in a table of that name.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from typing import Any

from clove.algorithms import known_algorithms
from clove.data import (
    DATASETS,
    Amounts,
    dataset_card,
    expected_amounts,
    find_mixing,
    mixing_options,
)
from clove.errors import CloveError, unknown_name
from clove.paper.names import OPTIONS, method

READINGS = ("paper", "authors")
NAMES = ("variant_key", "label", "beyond", "heat_map", *READINGS)
# How a run is made, and not what comes of it.
MACHINE = (
    *("device", "engine", "precision", "memory", "data_dir", "threads", "compile"),
    *("kernels", "group_size", "models_at_once", "evaluation_kernel"),
    *("checkpoint_every", "picture"),
)


@dataclass(frozen=True)
class Cell:
    """One setting of an experiment, to be run with several seeds."""

    settings: Mapping[str, Any]  # by name, without the seed
    variant: str = ""  # as the table of the paper's figures calls it
    label: str = ""  # of the row or the line
    extra: bool = False  # beyond the paper
    heat_map: bool = False

    @property
    def dataset(self) -> str:
        """Whose data."""
        return str(self.settings["dataset"])

    @property
    def mixing(self) -> str:
        """How clients differ."""
        return str(self.settings["mixing"])

    @property
    def algorithm(self) -> str:
        """The method."""
        return str(self.settings["algorithm"])

    @cached_property
    def key(self) -> str:
        """A name that tells settings apart, the same wherever and in whatever order they stand."""
        told = {name: self.settings[name] for name in sorted(self.settings) if name not in MACHINE}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        return f"{self.dataset}-{self.mixing}-{self.algorithm}-{digest[:10]}"


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper."""

    number: str  # such as E1
    name: str
    title: str
    printed: str  # where in the paper
    claim: str
    runs: Sequence[Mapping[str, Any]] = ()
    extras: Sequence[Mapping[str, Any]] = ()
    runs_of: Sequence[str] = ()  # experiments whose runs this one reads, too
    only: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Mapping[str, Any]] = ()
    figures: Sequence[Mapping[str, Any]] = ()
    _known: dict[str, list[Cell]] = field(default_factory=dict, init=False, compare=False)

    def cells(self, reading: str) -> list[Cell]:
        """Return what is run, by the paper's settings or the authors'."""
        if reading not in READINGS:
            raise unknown_name("settings", reading, READINGS)
        if reading not in self._known:
            self._known[reading] = self._combined(reading)
        return list(self._known[reading])

    def _combined(self, reading: str) -> list[Cell]:
        own = [cell for rule in self.runs for cell in _cells(rule, reading)]
        own += [cell for rule in self.extras for cell in _cells(rule, reading, extra=True)]
        for other in self.runs_of:
            own += EXPERIMENTS[other].cells(reading)
        unique: dict[str, Cell] = {}
        for cell in own:
            if selected(cell, self.only):
                unique.setdefault(cell.key, cell)  # a row beyond the paper may be one of its own
        return list(unique.values())

    @property
    def datasets(self) -> list[str]:
        """The data sets needed."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells("paper")))


# ------------------------------------------------------------------------------------ from rules


def selected(cell: Cell, only: Mapping[str, Any]) -> bool:
    """Say whether a cell has, of every setting named, one of the values named."""
    return all(_told(cell.settings, name) in _values(name, wanted) for name, wanted in only.items())


def _told(settings: Mapping[str, Any], name: str) -> Any:
    return settings.get(name, "auto")  # what an experiment leaves open


def _values(name: str, wanted: Any) -> Sequence[Any]:
    """Return the values a rule names; methods may go by the name of a list of them."""
    if name == "algorithm" and isinstance(wanted, str) and wanted in rules()["algorithms"]:
        wanted = rules()["algorithms"][wanted]
    return wanted if isinstance(wanted, list) else [wanted]


def _cells(rule: Mapping[str, Any], reading: str, extra: bool = False) -> Iterator[Cell]:
    """Yield a cell for every combination of the values that a rule lists."""
    rule = {**rule, **rule.get(reading, {})}
    shared = {n: v for n, v in rule.items() if n not in NAMES and not isinstance(v, dict)}
    for row in _rows(rule):
        given = {**shared, **row}
        label = given.pop("label", rule.get("label", "{algorithm}"))
        for values in product(*(_values(name, value) for name, value in given.items())):
            settings = dict(zip(given, values, strict=True))
            settings |= rule.get(settings["algorithm"], {})
            yield Cell(
                settings=by_rules(settings, reading),
                variant=rule.get("variant_key", "").format_map(Words(settings)),
                label=label.format_map(Words.printed(settings)),
                extra=extra,
                heat_map=bool(rule.get("heat_map", False)),
            )


def _rows(rule: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a rule has beyond the paper's; for any other rule, one that is empty."""
    if "beyond" not in rule:
        return [{}]
    return [{"algorithm": "clove", **row} for row in rules()["beyond"][rule["beyond"]]]


class Words(dict[str, Any]):
    """What labels may name: the settings, and the number of clients."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        if "clients_per_cluster" in settings:
            self["clients"] = amounts_of(settings).clients

    @classmethod
    def printed(cls, settings: Mapping[str, Any]) -> Words:
        """Return words for readers."""
        words = cls(settings)
        for name, value in settings.items():
            if isinstance(value, bool):
                words[name] = "yes" if value else "no"
            elif isinstance(value, str):
                words[name] = OPTIONS.get(value, value)
        words["algorithm"] = method(settings["algorithm"])
        return words


def amounts_of(settings: Mapping[str, Any]) -> Amounts:
    """Return how many clusters, clients and points there are about in runs with these settings."""
    card, mixing = dataset_card(settings["dataset"]), settings["mixing"]
    known = mixing_options(mixing)
    return expected_amounts(card, mixing, **{n: v for n, v in settings.items() if n in known})


def by_rules(settings: Mapping[str, Any], reading: str) -> dict[str, Any]:
    """Return settings with what the rules of a reading add to them."""
    found: dict[str, Any] = {}
    for rule in rules()[reading]["rules"]:
        where = rule.get("where", {})
        if all(_told(settings, n) in _values(n, wanted) for n, wanted in where.items()):
            found |= rule["set"]
    return {**found, **settings}


# ------------------------------------------------------------------------------------ from files


@cache
def rules() -> dict[str, Any]:
    """Return how runs are set, by the paper and by the authors."""
    return tomllib.loads(_folder().joinpath("settings.toml").read_text(encoding="utf-8"))


def _folder() -> Any:
    return files("clove.paper")


def _read() -> dict[str, Experiment]:
    found = {}
    for file in sorted(_folder().joinpath("experiments").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".toml"):
            number = f"E{int(file.name[1:3])}"
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            found[number] = Experiment(number=number, **content)
    return found


EXPERIMENTS: dict[str, Experiment] = _read()
ALL = "all"


def find_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return experiments by number or name; `all` stands for every one.

    >>> [one.number for one in find_experiments(["e2", "ablation"])]
    ['E2', 'E23']
    """
    known = {one.name: one for one in EXPERIMENTS.values()}
    found: dict[str, Experiment] = {}
    for name in names:
        if name == ALL:
            found |= EXPERIMENTS
            continue
        one = EXPERIMENTS.get(name.upper()) or known.get(name)
        if one is None:
            see = "`clove paper list` shows them all"
            raise unknown_name("experiment", name, [*EXPERIMENTS, *known, ALL], see)
        found[one.number] = one
    if not found:
        raise CloveError("name an experiment: `clove paper list` shows them, `all` stands for all")
    return list(found.values())


def check_choice(
    datasets: Sequence[str] = (), mixings: Sequence[str] = (), algorithms: Sequence[str] = ()
) -> None:
    """Refuse names that no run could have."""
    for name in datasets:
        if name not in DATASETS:
            raise unknown_name("dataset", name, DATASETS)
    for name in algorithms:
        if name not in known_algorithms():
            raise unknown_name("algorithm", name, known_algorithms())
    for name in mixings:
        find_mixing(name)
