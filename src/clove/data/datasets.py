"""The data sets that can be loaded by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clove.data.agnews import AGNEWS, agnews
from clove.data.amazon import AMAZON, amazon
from clove.data.card import DataCard
from clove.data.cifar10 import CIFAR10, cifar10
from clove.data.dataset import Dataset
from clove.data.digits import DIGITS, digits
from clove.data.femnist import FEMNIST, femnist
from clove.data.images import FMNIST, MNIST, fmnist, mnist
from clove.data.linear import LINEAR, linear
from clove.data.options import check_options, options_of
from clove.data.places import named_folder
from clove.data.writers import MNIST_WRITERS, mnist_writers
from clove.errors import unknown_name

Loader = Callable[..., Dataset]
"""`loader(data_dir, seed, *, its own options)`."""

DATASETS: Mapping[str, Loader] = {
    "agnews": agnews,
    "amazon": amazon,
    "cifar10": cifar10,
    "digits": digits,
    "femnist": femnist,
    "fmnist": fmnist,
    "linear": linear,
    "mnist": mnist,
    "mnist-writers": mnist_writers,
}

CARDS: Mapping[str, DataCard] = {
    card.name: card
    for card in (
        AGNEWS,
        AMAZON,
        CIFAR10,
        DIGITS,
        FEMNIST,
        FMNIST,
        LINEAR,
        MNIST,
        MNIST_WRITERS,
    )
}
"""What each loader declares about its data set, by the same names."""


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
        Seed of what is drawn: data on the spot, or which writers; the rest does not depend on it.
    **options
        The data set's own options, see `dataset_options`; None stands for the default.
    """
    given = {option: value for option, value in options.items() if value is not None}
    check_options(f"data set {name!r}", given, dataset_options(name))
    return DATASETS[name](named_folder(data_dir), seed, **given)


def dataset_options(name: str) -> dict[str, Any]:
    """Return a data set's own options and their defaults."""
    return options_of(DATASETS[dataset_card(name).name])


def dataset_card(name: str) -> DataCard:
    """Return what is known about a data set: facts, forms it comes in, where to get it."""
    if name not in CARDS:
        raise unknown_name("data set", name, CARDS)
    return CARDS[name]
