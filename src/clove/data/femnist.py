"""FEMNIST: characters by the person who wrote them, from the json files that LEAF makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array, Arrays, Chunks, DataCard, Form, Parts
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.leaf import writers_in
from clove.data.options import one_of, whole_number
from clove.data.people import drawn, rows_of
from clove.data.rows import Rows
from clove.data.sources import Source, locate
from clove.errors import CloveError
from clove.seeds import stream

SIDE = 28
CLASSES = 62
TRAIN_SHARE = 0.9
PATTERN = "*.json"
VARIANTS = ("paper", "authors")
# The authors draw 100 writers from those with the most images, a pool ten times as large.
AUTHORS_WRITERS, AUTHORS_POOL = 100, 10

Written = tuple[str, Array, Array]
"""A writer, images `[points, 784]` and labels."""


def read_split(parts: Parts) -> Chunks:
    """Read the folders `train` and `test` that LEAF makes; each holds a part of every writer."""
    numbers: dict[str, int] = {}
    for part in ("train", "test"):
        for writer, x, y in _written(parts[part]):
            yield from _piece(part, numbers.setdefault(writer, len(numbers)), x, y)


def read_whole(parts: Parts) -> Chunks:
    """Read all data, and split each writer's: the first 90 % in file order are for training."""
    for number, (_, x, y) in enumerate(_written(parts["all"])):
        cut = int(TRAIN_SHARE * len(y)) or 1
        yield from _piece("train", number, x[:cut], y[:cut])
        yield from _piece("test", number, x[cut:], y[cut:])


def _piece(part: str, writer: int, x: Array, y: Array) -> Chunks:
    yield f"x_{part}", x.reshape(-1, 1, SIDE, SIDE)
    yield f"y_{part}", y
    yield f"writer_{part}", np.full(len(y), writer)


def _written(part: Path) -> Iterator[Written]:
    """Read writer after writer; files in the order of their names, writers in the file's."""
    for path in sorted(part.glob(PATTERN)) if part.is_dir() else [part]:
        for user, data in writers_in(path):
            yield user, *_images(data, f"{path}, writer {user!r}")


def _images(data: Any, what: str) -> tuple[Array, Array]:
    try:
        x = np.array(data["x"], np.float32).reshape(-1, SIDE * SIDE)
        y = np.array(data["y"], np.int64).reshape(-1)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CloveError(
            f"{what}: expected lists x (of images, 784 numbers each) and y (of labels), {error!r}"
        ) from error
    if len(x) != len(y):
        raise CloveError(f"{what}: {len(x)} images but {len(y)} labels")
    if not np.isfinite(x).all():
        raise CloveError(f"{what}: pixels that are no finite numbers")
    return x, y


def _forms(*folders: str) -> tuple[Form, ...]:
    return (
        Form(
            words="LEAF's folders train and test",
            parts={"train": ("train",), "test": ("test",)},
            folders=folders,
            decode=read_split,
            pattern=PATTERN,
        ),
        Form(
            words="LEAF's folder all_data",
            parts={"all": ("all_data", "all_data.json")},
            folders=folders,
            decode=read_whole,
            pattern=PATTERN,
        ),
    )


FEMNIST = DataCard(
    name="femnist",
    description="Handwritten characters by writer, images of 28 × 28 pixels, 62 classes",
    licence="LEAF: BSD 2-Clause; images: NIST Special Database 19",
    citation=(
        "S. Caldas, S. M. K. Duddu, P. Wu, T. Li, J. Konečný, H. B. McMahan, V. Smith and "
        "A. Talwalkar, LEAF: a benchmark for federated settings, arXiv:1812.01097, 2018"
    ),
    shape=(1, SIDE, SIDE),
    classes=CLASSES,
    brings={"clients_per_cluster": 1},
    forms=_forms("femnist", "femnist/data", "leaf/data/femnist/data"),
    by_hand=(
        "LEAF publishes a program, not files: clone https://github.com/TalwalkarLab/leaf and run, "
        "in data/femnist, ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9."
    ),
)


def femnist(
    data_dir: Path | None, seed: int, *, writers: int | None = None, variant: str = "paper"
) -> Dataset:
    """Load FEMNIST; the writers are its groups.

    With mixing `none` a writer is a client, as in `mnist-writers`. Of LEAF's `all_data` the first
    90 % of a writer's images are for training; `train` and `test` are taken as they are.

    Parameters
    ----------
    writers : int, optional
        Only so many writers, drawn by the seed; by default all, in the authors' variant 100.
    variant : "paper" or "authors"
        The authors draw from the writers with the most images: a tenth of all, or as many tenths
        as make the pool ten times as large as the draw.
    """
    source = locate(FEMNIST, data_dir)
    arrays = decoded(source)
    pool = _in_both(arrays, source)
    if one_of("variant", variant, VARIANTS) == "authors":
        wanted = AUTHORS_WRITERS if writers is None else whole_number("writers", writers)
        writers = min(wanted, len(pool)) if writers is None else writers
        pool = _most_productive(arrays, pool, AUTHORS_POOL * wanted)
    chosen = drawn(pool, writers, stream(seed, "femnist/writers"))
    fields: dict[str, Array | Rows] = {}
    for part in ("train", "test"):
        rows, fields[f"group_{part}"] = rows_of(arrays[f"writer_{part}"], chosen)
        x = arrays[f"x_{part}"]
        fields[f"x_{part}"] = x if len(rows) == len(x) else Rows(x, rows)
        fields[f"y_{part}"] = arrays[f"y_{part}"][rows]
    return Dataset.of(FEMNIST, **fields, **FEMNIST.brings)


def _in_both(arrays: Arrays, source: Source) -> Array:
    """Return the writers who have images in both parts of the split."""
    pool = np.intersect1d(arrays["writer_train"], arrays["writer_test"])
    if len(pool) == 0:
        raise CloveError(
            f"{source.where}: no writer has images for training and for testing. "
            "Let LEAF's preprocess.sh split samples (-t sample), not writers"
        )
    return pool


def _most_productive(arrays: Arrays, pool: Array, enough: int) -> Array:
    """Return the writers with the most images: so many tenths of all that they are enough."""
    written = np.concatenate([arrays["writer_train"], arrays["writer_test"]])
    ranking = pool[np.argsort(-np.bincount(written)[pool], kind="stable")]
    sizes = (-(-len(ranking) * tenth // 10) for tenth in range(1, 11))
    return ranking[: next((size for size in sizes if size >= enough), len(ranking))]
