"""Who is who on a page of several runs: short names, and all that differs beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clove.report.page.data import word
from clove.report.page.read import RunRead

# Settings in which runs may differ and still be seeds of one thing, or methods on one footing.
APART = ("seed", "algorithm")
UNTOLD = ("machine", "made")
OPTIONS = "algorithm"  # the section of a method's own settings: in another they mean another thing
MOST_TOLD = 3  # settings in a name; where it takes more, runs are numbered
MOST_LETTERS = 20  # of a value in a name


@dataclass(frozen=True)
class Kind:
    """Runs that differ only in their seed."""

    name: str
    runs: list[RunRead]
    apart: Mapping[str, str]  # all settings in which it differs from others of the page

    @property
    def whole(self) -> str:
        """The method with all that differs, for whom the name is too short."""
        return _named(self.runs[0].algorithm, [f"{name}={v}" for name, v in self.apart.items()])


def kinds(runs: Sequence[RunRead]) -> list[Kind]:
    """Return runs that differ only in their seed together, named by what tells them apart."""
    alike: dict[str, list[RunRead]] = {}
    for run in runs:
        alike.setdefault(repr((run.algorithm, sorted(_told(run).items()))), []).append(run)
    groups = list(alike.values())
    told = [_told(mine[0]) for mine in groups]
    apart = _apart([mine[0] for mine in groups])
    return [Kind(*kind) for kind in zip(_names(groups, told), groups, apart, strict=True)]


def apart_table(found: Sequence[Kind]) -> dict[str, Any]:
    """Return what differs as a table: a row a kind, a column a setting."""
    titles = list(dict.fromkeys(name for kind in found for name in kind.apart))
    rows = [[kind.name, *(kind.apart.get(title) for title in titles)] for kind in found]
    return {"titles": ["run", *titles], "rows": rows if titles else []}


def _told(run: RunRead, without: Sequence[str] = UNTOLD) -> dict[str, Any]:
    """Return the settings that make runs different things."""
    return {
        name: value
        for section, values in run.settings.items()
        if section not in without
        for name, value in values.items()
        if name not in APART
    }


def _apart(runs: Sequence[RunRead]) -> list[dict[str, str]]:
    """Return the settings in which each run differs from others; its options, from its method's."""
    general = _differing([_told(run, (*UNTOLD, OPTIONS)) for run in runs])
    own = {
        method: _differing([_told(run) for run in runs if run.algorithm == method])
        for method in dict.fromkeys(run.algorithm for run in runs)
    }
    return [
        {name: word(v) for name, v in _told(run).items() if name in (*general, *own[run.algorithm])}
        for run in runs
    ]


def _differing(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that are not the same among those that have them at all."""
    names = dict.fromkeys(name for one in told for name in one)
    return [n for n in names if len({repr(one[n]) for one in told if n in one}) > 1]


def _names(groups: Sequence[Sequence[RunRead]], told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each: its method, with the few settings that tell it from its like."""
    methods = [mine[0].algorithm for mine in groups]
    telling = {
        method: _telling([one for one, its in zip(told, methods, strict=True) if its == method])
        for method in methods
    }
    names = [
        _named(method, [f"{n}={_brief(one[n])}" for n in telling[method] if n in one])
        for method, one in zip(methods, told, strict=True)
    ]
    return [_numbered(names, place) for place in range(len(names))]


def _telling(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fewest settings that tell all apart, as far as a greedy look finds them.

    Again and again the one that tells most apart; none where it would take too many for a name.
    """
    names, chosen = dict.fromkeys(name for one in told for name in one), list[str]()

    def parts(by: list[str]) -> int:
        return len({repr([one.get(name) for name in by]) for one in told})

    for _ in names:
        if parts(chosen) == len(told):
            break
        chosen.append(max(names, key=lambda name: parts([*chosen, name])))
    return chosen if len(chosen) <= MOST_TOLD else []


def _brief(value: Any) -> str:
    text = word(value)
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _named(method: str, told: Sequence[str]) -> str:
    return f"{method} ({', '.join(told)})" if told else method


def _numbered(names: Sequence[str], place: int) -> str:
    """Return a name, with a number where it stands for several."""
    name = names[place]
    return f"{name} {names[: place + 1].count(name)}" if names.count(name) > 1 else name
