"""One's own clients: from a folder with a file each, or from one table with a client column.

Pandas, Pillow and pyarrow are loaded only where a file needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clove.data.card import Arrays
from clove.data.client_data import ClientData, check_clients
from clove.data.npz import opened_npz
from clove.data.own_images import image_clients, unit_range, visible
from clove.data.own_tables import (
    CLIENT,
    FILE,
    LABEL,
    SPLIT,
    TABLES,
    Columns,
    joined_tables,
    likely_labels,
    read_table,
    row_clients,
)
from clove.errors import CloveError, unknown_name
from clove.folders import readable

if TYPE_CHECKING:
    import pandas as pd

ARRAYS = ("x", "y", "x_train", "y_train", "x_test", "y_test")
USUAL = {"client_column": CLIENT, "label_column": LABEL, "split_column": SPLIT}


def clients_from_path(path: str | Path, **options: Any) -> list[ClientData]:
    """Read clients from a folder (a file or subfolder each) or from one table."""
    return read_clients(path, **options)[0]


def read_clients(path: str | Path, **options: Any) -> tuple[list[ClientData], str | None]:
    """Read clients from a path, and say which column may hold labels if none was named."""
    path = Path(path).expanduser()
    columns = {name: str(column) for name, column in options.items()}
    with readable(path):
        if path.is_dir():
            return _from_folder(path, columns)
        if path.is_file():
            return _from_frame(read_table(path), Columns(**columns))
    raise CloveError(f"there is no folder or table of clients at {path}")


def clients_from_folder(
    folder: str | Path, *, label_column: str = LABEL, split_column: str = SPLIT
) -> list[ClientData]:
    """Read one client from each file or subfolder of a folder, in the order of their names.

    - `NAME.npz`: arrays `x` and `y` (or `x_train`, `y_train`), and `x_test`, `y_test` where there
      are test data. Without `y` the client is unlabelled.
    - `NAME.parquet` or `NAME.csv`: a row a sample, a column a feature, labels in `label_column`
      (if there is one), and `train` or `test` in `split_column` (if there is one).
    - `NAME/`: images in a subfolder for each class, or directly in it for unlabelled ones; with
      `train/` (and `test/`) above them in all clients, or in none.

    Labels may be words; those of all clients together are numbered in alphabetical order. Hidden
    files, and files of other kinds, are passed over.
    """
    folder = Path(folder).expanduser()
    with readable(folder):
        if not folder.is_dir():
            raise CloveError(f"there is no folder of clients at {folder}")
        given = {"label_column": label_column, "split_column": split_column}
        return _from_folder(folder, given)[0]


def clients_from_table(
    table: str | Path | pd.DataFrame,
    *,
    client_column: str = CLIENT,
    label_column: str = LABEL,
    split_column: str = SPLIT,
) -> list[ClientData]:
    """Read clients from one table: a row a sample, and a column that says whose it is.

    All other columns are features, but for the labels (if there) and the split (if there: `train`
    or `test`). Text labels are numbered in alphabetical order.
    """
    columns = Columns(client_column, label_column, split_column)
    if isinstance(table, str | Path):
        path = Path(table).expanduser()
        with readable(path):
            table = read_table(path)
    return _from_frame(table, columns)[0]


def client_from_file(path: str | Path, **options: Any) -> ClientData:
    """Read one client from its .npz file or its table, to join a run that others have made.

    Labels must be numbers: words were numbered over the clients of the run, who had them all.
    """
    path = Path(path).expanduser()
    columns = {name: str(column) for name, column in options.items()}
    with readable(path):
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "not there"
            raise CloveError(f"{path} is {kind}: name a file of one client, .npz, .csv or .parquet")
        if path.suffix.lower() in TABLES:
            return _table_client(path, columns)
        arrays = _arrays(path)
        for part in ("y", "y_test"):
            _refuse_words(path, arrays[part].dtype.kind if part in arrays else "i")
        return next(_npz_clients([path]))


def _table_client(path: Path, columns: Mapping[str, str]) -> ClientData:
    frame = joined_tables([path]).drop(
        columns=columns.get("client_column", CLIENT), errors="ignore"
    )
    label = columns.get("label_column", LABEL)
    if label in frame.columns:
        _refuse_words(path, frame[label].dtype.kind)
    return next(row_clients(frame, Columns(**{**columns, "client_column": FILE})))


def _refuse_words(path: Path, kind: str) -> None:
    if kind not in "biuf":
        raise CloveError(
            f"{path}: labels are words, which a run numbers over all its clients: give the "
            "numbers they had there"
        )


def _from_frame(frame: pd.DataFrame, columns: Columns) -> tuple[list[ClientData], str | None]:
    clients = check_clients(row_clients(frame, columns))
    return clients, likely_labels(frame, columns)


def _from_folder(folder: Path, columns: Mapping[str, str]) -> tuple[list[ClientData], str | None]:
    found = visible(folder)
    folders = [p for p in found if p.is_dir()]
    files = [p for p in found if p.is_file() and p.suffix.lower() in (".npz", *TABLES)]
    if folders and files:
        raise CloveError(f"{folder} holds both files and folders of clients: keep one kind")
    tables = [file.suffix.lower() in TABLES for file in files]
    if any(tables) and not all(tables):
        raise CloveError(f"{folder} holds both .npz files and tables: keep one kind")
    if not found or not (folders or files):
        raise CloveError(
            f"{folder} holds no clients: put one .npz, .parquet or .csv file in it for each, "
            "or a folder of images"
        )
    if any(tables):
        _refuse_columns(columns, ("client_column",), "in a folder of tables a file is a client")
        return _from_frame(joined_tables(files), Columns(**{**columns, "client_column": FILE}))
    what = "images" if folders else ".npz files"
    _refuse_columns(columns, USUAL, f"{folder} holds {what}, which have no columns")
    return check_clients(image_clients(folders) if folders else _npz_clients(files)), None


def _refuse_columns(columns: Mapping[str, str], without: Iterable[str], why: str) -> None:
    """Refuse names of columns where there are none; the usual names are in every settings file."""
    for name in without:
        if columns.get(name, USUAL[name]) != USUAL[name]:
            raise CloveError(f"{name}={columns[name]} was given, but {why}: leave it out")


# ------------------------------------------------------------------------------- one file a client


def _npz_clients(files: Sequence[Path]) -> Iterator[ClientData]:
    clients = {file.stem: _arrays(file) for file in files}
    _check_bytes(clients)
    _number_words(clients)
    for name, arrays in clients.items():
        test = (unit_range(arrays["x_test"]), arrays.get("y_test")) if "x_test" in arrays else None
        yield ClientData(train=(unit_range(arrays["x"]), arrays.get("y")), test=test, name=name)


def _arrays(path: Path) -> Arrays:
    """Read a client's arrays; `x_train` and `y_train` come under the names `x` and `y`."""
    try:
        with opened_npz(path) as file:
            arrays = {name: file[name] for name in file.files}
    except CloveError as error:
        raise CloveError(f"client {path.stem}: {error}") from None
    who = f"client {path.stem}: {path}"
    if "x" not in arrays and "x_train" not in arrays:
        raise CloveError(
            f"{who} needs an array x (or x_train); it has {', '.join(arrays) or 'none'}"
        )
    for name in arrays:
        if name not in ARRAYS:
            raise CloveError(f"{who}: {unknown_name('array', name, ARRAYS)}")
        if f"{name}_train" in arrays:
            raise CloveError(f"{who} holds both {name} and {name}_train: keep one of them")
    if "y_test" in arrays and "x_test" not in arrays:
        raise CloveError(f"{who} holds y_test, but no x_test to go with it")
    return {name.removesuffix("_train"): array for name, array in arrays.items()}


def _check_bytes(clients: Mapping[str, Arrays]) -> None:
    """Refuse bytes beside other numbers: bytes are scaled to [0, 1], and the others are not."""
    kinds = {
        f"client {name}'s {part}": arrays[part].dtype
        for name, arrays in clients.items()
        for part in ("x", "x_test")
        if part in arrays
    }
    first = next(iter(kinds))
    for who, kind in kinds.items():
        if (kind == np.uint8) != (kinds[first] == np.uint8):
            raise CloveError(
                f"{who} is of type {kind}, {first} of type {kinds[first]}: bytes are scaled to "
                "[0, 1] and other numbers are not, so all must be bytes or none"
            )


def _number_words(clients: Mapping[str, Arrays]) -> None:
    """Put numbers for labels that are words, in the alphabetical order of all clients' words."""
    labels = {
        (name, part): arrays[part]
        for name, arrays in clients.items()
        for part in ("y", "y_test")
        if part in arrays
    }
    words = {place: y for place, y in labels.items() if y.dtype.kind == "U"}
    if not words:
        return
    for name, part in labels.keys() - words.keys():
        other = next(iter(words))[0]
        raise CloveError(f"client {name}: {part} holds numbers, but client {other} has words")
    known = np.unique(np.concatenate([y.reshape(-1) for y in words.values()]))
    for (name, part), y in words.items():
        clients[name][part] = np.searchsorted(known, y)
