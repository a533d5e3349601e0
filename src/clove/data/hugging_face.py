"""Clients from Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clove.data.card import Array
from clove.data.client_data import ClientData, Points, check_clients
from clove.data.own_images import picture, unit_range
from clove.data.own_tables import by_owner, numbered, owners
from clove.errors import CloveError

if TYPE_CHECKING:
    import pandas as pd


def clients_from_hugging_face(
    dataset: Any,
    *,
    partition: str = "client",
    features: str | Sequence[str],
    label: str | None,
    test: Any = None,
) -> list[ClientData]:
    """Read clients from a Hugging Face dataset with a column that says whose each row is.

    Parameters
    ----------
    dataset : datasets.Dataset
        The training data.
    partition : str
        The column that says whose each row is.
    features : str or sequence of str
        One column of arrays or images, or several columns of numbers.
    label : str or None
        The column of labels; words are numbered in alphabetical order. None: there are none.
    test : datasets.Dataset, optional
        Test data with the same columns; every client in it must have training data.
    """
    several = [features] if isinstance(features, str) else list(features)
    if not several:
        raise CloveError("features=[] names no column: name one of arrays, or several of numbers")
    tables = [dataset] if test is None else [dataset, test]
    for table in tables:
        _check(table, [partition, *([label] if label else []), *several])
    whose = [owners(_series(table, partition)) for table in tables]
    y = None if label is None else _labels(tables, label, whose)
    train, *tests = (
        _points(table, features, own, None if y is None else y[place])
        for place, (table, own) in enumerate(zip(tables, whose, strict=True))
    )
    held = tests[0] if tests else {}
    for name in held.keys() - train.keys():
        raise CloveError(f"client {name} has test data but no training data")
    return check_clients(
        ClientData(train=points, test=held.get(name), name=name) for name, points in train.items()
    )


def _check(dataset: Any, wanted: Sequence[str]) -> None:
    if not hasattr(dataset, "select") or not hasattr(dataset, "column_names"):
        raise CloveError(
            f"expected a Hugging Face dataset, got {type(dataset).__name__}; of a dictionary of "
            "splits take one, such as dataset['train']"
        )
    for column in wanted:
        if column not in dataset.column_names:
            raise CloveError(
                f"the dataset has no column {column!r}; it has {', '.join(dataset.column_names)}"
            )


def _series(dataset: Any, column: str) -> pd.Series:
    import pandas as pd

    return pd.Series(list(dataset[column][:]), name=column)


def _labels(tables: Sequence[Any], label: str, whose: Sequence[pd.Series]) -> list[Array]:
    """Return the labels of each table; words mean the same in all."""
    import pandas as pd

    columns = [_series(table, label) for table in tables]
    y = numbered(pd.concat(columns, ignore_index=True), pd.concat(whose, ignore_index=True))
    return np.split(y, np.cumsum([len(column) for column in columns])[:-1])


def _points(
    dataset: Any, features: str | Sequence[str], whose: pd.Series, y: Array | None
) -> Mapping[str, Points]:
    return {
        name: (_features(dataset.select(rows), features, name), None if y is None else y[rows])
        for name, rows in by_owner(whose)
    }


def _features(rows: Any, features: str | Sequence[str], name: str) -> Array:
    if not isinstance(features, str):
        return np.stack([np.asarray(rows[column][:]) for column in features], axis=1)
    kind = _declared(getattr(rows, "features", {}).get(features))
    samples = [_sample(one, kind) for one in rows[features][:]]
    for index, sample in enumerate(samples):
        if sample.shape != samples[0].shape:
            raise CloveError(
                f"client {name}: its sample {index} has shape {sample.shape}, "
                f"the first {samples[0].shape}: all must be alike"
            )
    return np.stack(samples)


def _sample(value: Any, kind: str | None) -> Array:
    if hasattr(value, "convert"):  # a picture of Pillow
        return picture(value)
    return unit_range(np.asarray(value, kind))


def _declared(feature: Any) -> str | None:
    """Return the type of an array's numbers, which is lost in the lists that it is read as."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    kind = getattr(feature, "dtype", None)
    return kind if kind in ("uint8", "float32", "float64") else None
