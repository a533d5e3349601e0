"""Notes to the paper's figures: where they are not what they seem, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from clove.paper.measured import Measured

Scope = Literal["table", "row", "column", "cell"]
OF_ROW, OF_COLUMN = {"algorithm", "variant"}, {"dataset", "mixing"}


@dataclass(frozen=True)
class Note:
    """A sentence, and to which of the paper's figures it belongs."""

    text: str
    table: Sequence[str]
    metric: Sequence[str] = ()  # none: all
    only: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        """Where its number stands: at a row, a column, single figures, or nowhere in particular."""
        row, column = OF_ROW & set(self.only), OF_COLUMN & set(self.only)
        if row and column:
            return "cell"
        return "row" if row else "column" if column else "table"

    def is_about(self, table: str, one: Measured) -> bool:
        """Say whether it belongs to the paper's figure beside one of ours."""
        told = {
            "dataset": one.cell.dataset,
            "mixing": one.cell.mixing,
            "algorithm": one.cell.algorithm,
            "variant": one.cell.variant,
        }
        return (
            one.theirs is not None
            and table in self.table
            and (not self.metric or one.metric.name in self.metric)
            and all(told[name] in wanted for name, wanted in self.only.items())
        )


@cache
def all_notes() -> tuple[Note, ...]:
    """Return all notes, in the order of their file."""
    text = files("clove.paper").joinpath("notes.toml").read_text(encoding="utf-8")
    return tuple(_note(one) for one in tomllib.loads(text)["notes"])


def _note(one: Mapping[str, Any]) -> Note:
    lists = {name: v if isinstance(v, list) else [v] for name, v in one.items() if name != "text"}
    table, metric = lists.pop("table"), lists.pop("metric", [])
    return Note(one["text"], table, metric, lists)
