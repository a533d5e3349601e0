"""One's own clients: from a folder with a file each, or from one table with a client column.

Pandas, Pillow and pyarrow are loaded only where a file needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clove.data.client_data import ClientData, check_clients
from clove.errors import CloveError

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
Points = tuple[Array, Array | None]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
TABLES = (".csv", ".parquet")
SPLITS = ("train", "test")
LABEL, SPLIT = "label", "split"  # the usual names of columns, which need not be there


def clients_from_path(path: str | Path, **options: Any) -> list[ClientData]:
    """Read clients from a folder (a file or subfolder each) or from one table."""
    path = Path(path).expanduser()
    options = {name: str(column) for name, column in options.items()}
    if path.is_dir():
        options.pop("client_column", None)  # in a folder, a file is a client
        return clients_from_folder(path, **options)
    if path.is_file():
        return clients_from_table(path, **options)
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
      `train/` (and `test/`) above them where there is nothing else in it. The classes of all
      clients together are numbered in alphabetical order.

    Hidden files, and files of other kinds, are passed over.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise CloveError(f"there is no folder of clients at {folder}")
    found = _visible(folder)
    folders = [p for p in found if p.is_dir()]
    files = [p for p in found if p.is_file() and p.suffix.lower() in (".npz", *TABLES)]
    if folders and files:
        raise CloveError(f"{folder} holds both files and folders of clients: keep one kind")
    if folders:
        return check_clients(_image_clients(folders))
    if not files:
        raise CloveError(
            f"{folder} holds no clients: put one .npz, .parquet or .csv file in it for each, "
            "or a folder of images"
        )
    tables = [file.suffix.lower() in TABLES for file in files]
    if all(tables):
        return _table_files(files, label_column, split_column)
    if any(tables):
        raise CloveError(f"{folder} holds both .npz files and tables: keep one kind")
    return check_clients(map(_npz_client, files))


def clients_from_table(
    table: str | Path | pd.DataFrame,
    *,
    client_column: str = "client",
    label_column: str = LABEL,
    split_column: str = SPLIT,
) -> list[ClientData]:
    """Read clients from one table: a row a sample, and a column that says whose it is.

    All other columns are features, but for the labels (if there) and the split (if there: `train`
    or `test`). Text labels are numbered in alphabetical order.
    """
    frame = _read_table(Path(table).expanduser()) if isinstance(table, str | Path) else table
    _check_columns(frame, client_column, label_column, split_column)
    whose = frame[client_column]
    if whose.isna().any():
        row = int(np.flatnonzero(whose.isna())[0])
        raise CloveError(f"row {row} of the table has no {client_column}")
    special = [c for c in (client_column, label_column, split_column) if c in frame.columns]
    x = _feature_columns(frame.drop(columns=special), whose)
    y = _numbered(frame[label_column], whose) if label_column in frame.columns else None
    parts = frame[split_column].to_numpy() if split_column in frame.columns else None
    return check_clients(
        _rows_client(str(name), x[rows], _of(y, rows), _of(parts, rows))
        for name, rows in sorted(frame.groupby(client_column).indices.items())
    )


def clients_from_hugging_face(
    dataset: Any, *, partition: str = "client", features: str | Sequence[str], label: str | None
) -> list[ClientData]:
    """Read clients from a Hugging Face dataset with a column that says whose each row is.

    `features` names one column of arrays (or images), or several columns of numbers. Text labels
    are numbered in alphabetical order.
    """
    import pandas as pd

    several = [features] if isinstance(features, str) else list(features)
    for column in [partition, *([label] if label else []), *several]:
        if column not in dataset.column_names:
            raise CloveError(
                f"the dataset has no column {column!r}; it has {', '.join(dataset.column_names)}"
            )
    whose = pd.Series(dataset[partition][:])
    if whose.isna().any():
        raise CloveError(f"row {int(np.flatnonzero(whose.isna())[0])} has no {partition}")
    y = _numbered(pd.Series(dataset[label][:], name=label), whose) if label else None
    return check_clients(
        ClientData(
            train=(_features(dataset.select(rows), features, str(name)), _of(y, rows)),
            name=str(name),
        )
        for name, rows in sorted(whose.groupby(whose).indices.items())
    )


def _features(rows: Any, features: str | Sequence[str], name: str) -> Array:
    if not isinstance(features, str):
        return np.stack([np.asarray(rows[column][:]) for column in features], axis=1)
    samples = [_channels_first(np.asarray(one)) for one in rows[features]]
    for index, sample in enumerate(samples):
        if sample.shape != samples[0].shape:
            raise CloveError(
                f"client {name}: its sample {index} has shape {sample.shape}, "
                f"the first {samples[0].shape}: all must be alike"
            )
    return _floats(np.stack(samples))


# ------------------------------------------------------------------------------- one file a client


def _npz_client(path: Path) -> ClientData:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    # A damaged file makes numpy, zipfile, zlib or even Python's tokenizer fail, each in its way.
    except Exception as error:
        raise CloveError(f"client {path.stem}: {path} cannot be read as npz: {error}") from None
    x, y = arrays.get("x_train", arrays.get("x")), arrays.get("y_train", arrays.get("y"))
    if x is None:
        raise CloveError(
            f"client {path.stem}: {path} needs an array x (or x_train); "
            f"it has {', '.join(arrays) or 'none'}"
        )
    test = None
    if "x_test" in arrays:
        test = (_floats(arrays["x_test"]), arrays.get("y_test"))
    return ClientData(train=(_floats(x), y), test=test, name=path.stem)


def _floats(x: Array) -> Array:
    """Give bytes the range [0, 1], as images are used; leave other numbers as they are."""
    return (x / np.float32(255)).astype(np.float32) if x.dtype == np.uint8 else x


# ------------------------------------------------------------------------------------------- tables


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": pd.read_csv,
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
    except (OSError, ValueError) as error:  # of which pandas' and pyarrow's errors are kinds
        raise CloveError(f"the table {path} cannot be read: {error}") from None


def _table_files(files: Sequence[Path], label: str, split: str) -> list[ClientData]:
    """Read a table a client as one table, so that text labels mean the same to all."""
    import pandas as pd

    names = [file.stem for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CloveError(f"client {twice} has more than one file in {files[0].parent}")
    whose = "(client)"
    frames = [_read_table(file).assign(**{whose: file.stem}) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if set(frame.columns) != set(frames[0].columns):
            odd = set(frame.columns) ^ set(frames[0].columns)
            raise CloveError(f"{file} and {files[0]} differ in columns: {', '.join(sorted(odd))}")
    return clients_from_table(
        pd.concat(frames, ignore_index=True),
        client_column=whose,
        label_column=label,
        split_column=split,
    )


def _check_columns(frame: pd.DataFrame, client: str, label: str, split: str) -> None:
    """Refuse a table without a column that was asked for; labels and splits may be missing."""
    wanted = {client: "to say whose each row is"}
    if label != LABEL:
        wanted[label] = "of labels"
    if split != SPLIT:
        wanted[split] = "to say what is for training and what for testing"
    for column, purpose in wanted.items():
        if column not in frame.columns:
            raise CloveError(
                f"the table has no column {column!r} {purpose}; "
                f"it has {', '.join(map(str, frame.columns))}"
            )


def _feature_columns(features: pd.DataFrame, whose: pd.Series) -> Array:
    import pandas as pd

    for column in features.columns:
        values = features[column]
        if values.dtype.kind not in "iufb":
            odd = np.flatnonzero(pd.to_numeric(values, errors="coerce").isna() & values.notna())
            first = int(odd[0]) if len(odd) else 0
            raise CloveError(
                f"client {whose.iloc[first]}: column {column!r} does not hold numbers but "
                f"{values.iloc[first]!r}; encode it, drop it, or name it as the label"
            )
    x: Array = features.to_numpy(dtype=np.float32, na_value=np.nan)
    return x


def _numbered(labels: pd.Series, whose: pd.Series) -> Array:
    """Return labels as numbers: text in alphabetical order, numbers as they are."""
    if labels.isna().any():
        row = int(np.flatnonzero(labels.isna())[0])
        name = whose.iloc[row]
        point = int((whose.iloc[:row] == name).sum())
        raise CloveError(f"client {name}: its point {point} has no {labels.name}")
    values: Array = labels.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    return np.unique(values.astype(str), return_inverse=True)[1]


def _rows_client(name: str, x: Array, y: Array | None, parts: Array | None) -> ClientData:
    if parts is None:
        return ClientData(train=(x, y), name=name)
    unknown = sorted(set(map(str, parts)) - set(SPLITS))
    if unknown:
        raise CloveError(f"client {name}: split must be train or test, not {unknown[0]!r}")
    train, test = ((x[parts == part], _of(y, parts == part)) for part in SPLITS)
    return ClientData(train=train, test=test if len(test[0]) else None, name=name)


def _of(values: Array | None, rows: Array) -> Array | None:
    return None if values is None else values[rows]


# ------------------------------------------------------------------------------------------- images


def _image_clients(folders: Sequence[Path]) -> Iterator[ClientData]:
    parts = {folder: _parts(folder) for folder in folders}
    homes = [home for found in parts.values() for home in found.values()]
    classes = sorted({c.name for home in homes for c in _visible(home) if c.is_dir()})
    number = {name: index for index, name in enumerate(classes)}
    for folder, found in parts.items():
        points = {part: _images(folder.name, home, number) for part, home in found.items()}
        yield ClientData(train=points["train"], test=points.get("test"), name=folder.name)


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]


def _parts(folder: Path) -> dict[str, Path]:
    """Return the folders of a client's training and test images: itself, where it has no such."""
    found = {path.name: path for path in _visible(folder) if path.is_dir()}
    return found if "train" in found and set(found) <= set(SPLITS) else {"train": folder}


def _images(client: str, folder: Path, number: dict[str, int]) -> Points:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in IMAGES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise CloveError(f"client {client}: there are no images in {folder}")
    x = [_read_image(client, file) for file in files]
    for file, image in zip(files, x, strict=True):
        if image.shape != x[0].shape:
            raise CloveError(
                f"client {client}: {file} differs in size or colours from {files[0]}: "
                f"{image.shape}, not {x[0].shape}"
            )
    if not number:
        return np.stack(x), None
    classes = [file.relative_to(folder).parts[0] for file in files]
    loose = next((f for f, name in zip(files, classes, strict=True) if name not in number), None)
    if loose is not None:
        raise CloveError(f"client {client}: {loose} is in no class, as other images are")
    return np.stack(x), np.array([number[name] for name in classes])


def _read_image(client: str, path: Path) -> Array:
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode.startswith("I;16"):  # grey in 16 bits
                return (np.asarray(image)[None] / np.float32(65535)).astype(np.float32)
            grey = image.mode in ("1", "L", "LA")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # Pillow fails in any of these ways
        raise CloveError(f"client {client}: {path} cannot be read as an image: {error}") from None
    return _floats(_channels_first(pixels))


def _channels_first(pixels: Array) -> Array:
    if pixels.dtype != np.uint8 or pixels.ndim < 2:
        return pixels
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
