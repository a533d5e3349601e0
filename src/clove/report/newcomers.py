"""The table of a newcomer: every model, how far it is, and how well it does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table


def newcomer_table(found: Any, users: NDArray[np.int64], title: str) -> Table:
    """Return a row a model, the nearest first and the newcomer's own in bold.

    `found` has the newcomer's `model` and, for every model, `distances`, `loss` and `accuracy`
    (None: the task has no right and wrong); `users` says how many clients use each.
    """
    columns = {"model": [str(model) for model in range(len(found.loss))]}
    columns["distance"] = [f"{far:.4g}" if np.isfinite(far) else "–" for far in found.distances]
    columns["loss"] = [f"{loss:.4g}" for loss in found.loss]
    if found.accuracy is not None:
        columns["accuracy %"] = [f"{100 * share:.1f}" for share in found.accuracy]
    columns["clients"] = [str(number) for number in users]
    table = Table(title=escape(title), title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for model in np.argsort(found.distances, kind="stable"):
        mine = "bold green" if model == found.model else None
        table.add_row(*(cells[model] for cells in columns.values()), style=mine)
    return table
