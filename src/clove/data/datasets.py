"""The data sets that can be loaded by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clove.data.dataset import Dataset
from clove.data.digits import digits
from clove.data.images import fmnist, mnist
from clove.data.linear import linear
from clove.data.options import check_options, options_of
from clove.errors import unknown_name

Loader = Callable[..., Dataset]
"""`loader(data_dir, seed, *, its own options)`."""

DATASETS: Mapping[str, Loader] = {
    "digits": digits,
    "fmnist": fmnist,
    "linear": linear,
    "mnist": mnist,
}


def load_dataset(
    name: str, data_dir: str | Path | None = None, seed: int = 0, **options: Any
) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    data_dir : path, optional
        Folder to search first; then $CLOVE_DATA and the user's cache folder are searched.
    seed : int
        Seed of data sets that are drawn on the spot; the others do not depend on it.
    **options
        The data set's own options, see `dataset_options`; None stands for the default.
    """
    given = {option: value for option, value in options.items() if value is not None}
    check_options(f"data set {name!r}", given, dataset_options(name))
    folder = None if data_dir is None else Path(data_dir).expanduser()
    return DATASETS[name](folder, seed, **given)


def dataset_options(name: str) -> dict[str, Any]:
    """Return a data set's own options and their defaults."""
    if name not in DATASETS:
        raise unknown_name("data set", name, DATASETS)
    return options_of(DATASETS[name])
