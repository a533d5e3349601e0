"""Clients in tables: a row a sample, a column that says whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clove.data.card import Array
from clove.data.client_data import ClientData
from clove.errors import CloveError

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".parquet")
SPLITS = ("train", "test")
CLIENT, LABEL, SPLIT = "client", "label", "split"  # usual names; labels and splits may be missing
FILE = "(client)"  # the column that says which file a row came from
LIKELY = ("label", "target", "class", "y")


@dataclass(frozen=True)
class Columns:
    """Which columns say whose a row is, its label, and what it is for."""

    client_column: str = CLIENT
    label_column: str = LABEL
    split_column: str = SPLIT

    def __post_init__(self) -> None:
        named = [self.client_column, self.label_column, self.split_column]
        for place, name in enumerate(named):
            if name in named[:place]:
                raise CloveError(
                    f"the column {name!r} cannot be two of client_column, label_column and "
                    "split_column at once"
                )

    def check(self, frame: pd.DataFrame) -> None:
        """Refuse a table without a column that was asked for."""
        wanted = {self.client_column: "to say whose each row is"}
        if self.label_column != LABEL:
            wanted[self.label_column] = "of labels"
        if self.split_column != SPLIT:
            wanted[self.split_column] = "to say what is for training and what for testing"
        for column, purpose in wanted.items():
            if column not in frame.columns:
                raise CloveError(
                    f"the table has no column {column!r} {purpose}; "
                    f"it has {', '.join(map(str, frame.columns))}"
                )


def read_table(path: Path) -> pd.DataFrame:
    """Read a table from a file."""
    import pandas as pd

    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": _read_csv,
        ".parquet": pd.read_parquet,
    }
    kind = path.suffix.lower()
    if kind not in readers:
        raise CloveError(f"{path} is no table clove can read: use {' or '.join(readers)}")
    try:
        return readers[kind](path)
    except ImportError:
        raise CloveError(
            "reading .parquet needs pyarrow: pip install pyarrow, or save the table as .csv"
        ) from None
    except PermissionError:
        raise
    except (OSError, ValueError) as error:  # of which pandas' and pyarrow's errors are kinds
        raise CloveError(f"the table {path} cannot be read: {error}") from None


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    # Pandas would give the second of two columns of one name another one.
    names = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].dropna()
    if names.duplicated().any():
        raise CloveError(f"{path} has two columns called {names[names.duplicated()].iloc[0]!r}")
    return pd.read_csv(path)


def joined_tables(files: Sequence[Path]) -> pd.DataFrame:
    """Read a table a client as one table, so that text labels mean the same to all."""
    import pandas as pd

    names = [file.stem for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CloveError(f"client {twice} has more than one file in {files[0].parent}")
    frames = [read_table(file) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if frame.empty:
            raise CloveError(f"client {file.stem}: the table {file} has no rows")
        if set(frame.columns) != set(frames[0].columns):
            odd = set(frame.columns) ^ set(frames[0].columns)
            raise CloveError(
                f"{file} and {files[0]} differ in columns: {', '.join(sorted(map(str, odd)))}"
            )
    whose = np.repeat(names, [len(frame) for frame in frames])
    return pd.concat(frames, ignore_index=True).assign(**{FILE: whose})


def row_clients(frame: Any, columns: Columns) -> Iterator[ClientData]:
    """Return the clients of a table, in the order of their numbers or names."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise CloveError(
            f"a table is a path or a pandas DataFrame, not {type(frame).__name__}: {frame!r:.60}"
        )
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise CloveError(f"the table has two columns called {twice[0]!r}: rename one")
    columns.check(frame)
    if frame.empty:
        raise CloveError("the table has no rows")
    whose = owners(frame[columns.client_column])
    special = [columns.client_column, columns.label_column, columns.split_column]
    x = _features(frame.drop(columns=special, errors="ignore"), whose)
    y = _column(frame, columns.label_column)
    y = None if y is None else numbered(y, whose)
    parts = _column(frame, columns.split_column)
    for name, rows in by_owner(whose):
        yield _client(name, x[rows], _of(y, rows), None if parts is None else parts.iloc[rows])


def likely_labels(frame: pd.DataFrame, columns: Columns) -> str | None:
    """Return the name of a column that may hold labels, where the one that should is not there."""
    if columns.label_column in frame.columns:
        return None
    names = {str(column).lower(): str(column) for column in frame.columns}
    near = [names[name] for name in LIKELY if name in names]
    near += [names[name] for name in get_close_matches(LABEL, names, n=1, cutoff=0.7)]
    return near[0] if near else None


def owners(whose: pd.Series) -> pd.Series:
    """Return whose each row is: numbers as they are, anything else as text."""
    if whose.isna().any():
        row = int(np.flatnonzero(whose.isna())[0])
        raise CloveError(f"row {row} has no {whose.name}")
    return whose if whose.dtype.kind in "iuf" else whose.astype(str)


def by_owner(whose: pd.Series) -> Iterator[tuple[str, Array]]:
    """Return each client's name and rows, in order."""
    for name, rows in sorted(whose.groupby(whose).indices.items()):
        yield str(name), rows


def _column(frame: pd.DataFrame, name: str) -> pd.Series | None:
    return frame[name] if name in frame.columns else None


def _features(features: pd.DataFrame, whose: pd.Series) -> Array:
    import pandas as pd

    if not len(features.columns):
        raise CloveError("the table has no columns of features, only those of clients and labels")
    for column in features.columns:
        values = features[column]
        if values.dtype.kind not in "iufb":
            odd = np.flatnonzero(pd.to_numeric(values, errors="coerce").isna() & values.notna())
            first = int(odd[0]) if len(odd) else 0
            raise CloveError(
                f"client {whose.iloc[first]}: column {column!r} does not hold numbers but "
                f"{values.iloc[first]!r}; encode it, drop it, or name it as the label "
                f"(label_column={column})"
            )
    x: Array = features.to_numpy(dtype=np.float32, na_value=np.nan)
    return x


def numbered(labels: pd.Series, whose: pd.Series) -> Array:
    """Return labels as numbers: text in alphabetical order, numbers as they are."""
    if labels.isna().any():
        row = int(np.flatnonzero(labels.isna())[0])
        name = whose.iloc[row]
        point = int((whose.iloc[:row] == name).sum())
        raise CloveError(f"client {name}: its point {point} has no {labels.name}")
    values: Array = labels.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    words = np.array([isinstance(value, str) for value in values])
    if words.any() and not words.all():
        word, number = (whose.iloc[int(np.argmax(kind))] for kind in (words, ~words))
        raise CloveError(
            f"labels are words ({word} has some) and numbers ({number} has some): make them alike"
        )
    return np.unique(values.astype(str), return_inverse=True)[1]


def _client(name: str, x: Array, y: Array | None, parts: pd.Series | None) -> ClientData:
    if parts is None:
        return ClientData(train=(x, y), name=name)
    unknown = sorted(set(map(str, parts)) - set(SPLITS))
    if unknown:
        raise CloveError(f"client {name}: split must be train or test, not {unknown[0]!r}")
    mine = parts.to_numpy()
    train, test = ((x[mine == part], _of(y, mine == part)) for part in SPLITS)
    return ClientData(train=train, test=test if len(test[0]) else None, name=name)


def _of(values: Array | None, rows: Array) -> Array | None:
    return None if values is None else values[rows]
