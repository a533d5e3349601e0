"""MNIST and Fashion-MNIST, from the files they are published in or one npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array, Arrays, Chunks, DataCard, Form, Parts, remote_files
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.idx import read_idx
from clove.data.npz import read_npz
from clove.data.sources import locate
from clove.errors import CloveError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
IMAGE_SHAPE = (28, 28)


def read_npz_file(parts: Parts) -> Chunks:
    """Read the arrays of one npz file."""
    return _checked(read_npz(parts["npz"], ARRAYS), parts["npz"])


def read_idx_files(parts: Parts) -> Chunks:
    """Read the four idx files."""
    return _checked(
        {name: read_idx(path, axes=3 if name[0] == "x" else 1) for name, path in parts.items()},
        parts["x_train"].parent,
    )


def _checked(arrays: Arrays, source: Path) -> Chunks:
    for name, array in arrays.items():
        check = _check_images if name[0] == "x" else _check_labels
        check(array, f"{source}: {name}")
    return [
        (name, array[:, None] if name[0] == "x" else array.astype(np.int64))
        for name, array in arrays.items()
    ]


def _check_images(x: Array, what: str) -> None:
    if x.dtype != np.uint8 or x.shape[1:] != IMAGE_SHAPE:
        raise CloveError(
            f"{what} is {x.dtype} of shape {x.shape}, expected uint8 of shape (points, 28, 28)"
        )


def _check_labels(y: Array, what: str) -> None:
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise CloveError(f"{what} is {y.dtype} of shape {y.shape}, expected one integer per point")


def _forms(name: str, torchvision: str, *system: Path) -> tuple[Form, ...]:
    return (
        Form(
            words=f"{name}.npz (arrays {', '.join(ARRAYS)})",
            parts={"npz": (f"{name}.npz",)},
            folders=("", name),
            decode=read_npz_file,
        ),
        Form(
            words=f"the four idx files {', '.join(IDX_FILES.values())} (each may end in .gz)",
            parts={array: (file, f"{file}.gz") for array, file in IDX_FILES.items()},
            folders=(name, f"{name}/raw", torchvision, f"{torchvision}/raw"),
            decode=read_idx_files,
            system_folders=system,
        ),
    )


def _card(
    name: str,
    torchvision: str,
    gzipped: tuple[str, ...],
    plain: tuple[str, ...],
    mirrors: tuple[str, ...],
    system: tuple[Path, ...] = (),
    **words: Any,
) -> DataCard:
    """Declare one of these data sets; MD5 sums are of the gzipped and the plain idx files."""
    files = IDX_FILES.values()
    packed = {f"{file}.gz": md5 for file, md5 in zip(files, gzipped, strict=True)}
    return DataCard(
        name=name,
        shape=(1, *IMAGE_SHAPE),
        classes=10,
        train=60_000,
        test=10_000,
        forms=_forms(name, torchvision, *system),
        files=remote_files(packed, *mirrors),
        checksums={**packed, **dict(zip(files, plain, strict=True))},
        contents=dict(zip(IDX_FILES, plain, strict=True)),
        **words,
    )


MNIST = _card(
    name="mnist",
    torchvision="MNIST",
    description="Handwritten digits, 70,000 images of 28 × 28 pixels, 10 classes",
    licence="none stated; cite it",
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to "
        "document recognition, Proceedings of the IEEE, 1998"
    ),
    gzipped=(
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    plain=(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
)
FMNIST = _card(
    name="fmnist",
    torchvision="FashionMNIST",
    description="Fashion-MNIST: articles of clothing, 70,000 images of 28 × 28 pixels, 10 classes",
    licence="MIT",
    citation=(
        "H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking "
        "machine learning algorithms, arXiv:1708.07747, 2017"
    ),
    gzipped=(
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    plain=(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
    # Debian's package dataset-fashion-mnist.
    system=(Path("/usr/share/datasets/fashion-mnist"),),
)


def mnist(data_dir: Path | None, seed: int) -> Dataset:
    """Load MNIST with its official split."""
    return _load(MNIST, data_dir)


def fmnist(data_dir: Path | None, seed: int) -> Dataset:
    """Load Fashion-MNIST with its official split."""
    return _load(FMNIST, data_dir)


def _load(card: DataCard, data_dir: Path | None) -> Dataset:
    return Dataset.of(card, scale=255, **decoded(locate(card, data_dir)))
