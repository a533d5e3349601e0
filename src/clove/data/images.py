"""MNIST and Fashion-MNIST, from the files they are published in or one npz file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.data.dataset import Dataset
from clove.data.idx import read_idx
from clove.data.places import data_folders
from clove.errors import CloveError

Array = NDArray[Any]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
IMAGE_SHAPE = (28, 28)


@dataclass(frozen=True)
class ImageSet:
    """What sets one of these data sets apart from the other: both share a format."""

    name: str
    torchvision_folder: str
    licence: str
    citation: str
    description: str
    system_folder: Path | None = None
    """Where an operating system's package puts the idx files."""


MNIST = ImageSet(
    name="mnist",
    torchvision_folder="MNIST",
    licence="none stated; cite it",
    citation=(
        "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to "
        "document recognition, Proceedings of the IEEE, 1998"
    ),
    description="Handwritten digits, 70,000 images of 28 × 28 pixels, 10 classes",
)
FMNIST = ImageSet(
    name="fmnist",
    torchvision_folder="FashionMNIST",
    licence="MIT",
    citation=(
        "H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking "
        "machine learning algorithms, arXiv:1708.07747, 2017"
    ),
    description="Fashion-MNIST: articles of clothing, 70,000 images of 28 × 28 pixels, 10 classes",
    system_folder=Path("/usr/share/datasets/fashion-mnist"),
)


def mnist(data_dir: Path | None, seed: int) -> Dataset:
    """Load MNIST with its official split."""
    return load_images(MNIST, data_dir)


def fmnist(data_dir: Path | None, seed: int) -> Dataset:
    """Load Fashion-MNIST with its official split."""
    return load_images(FMNIST, data_dir)


def load_images(spec: ImageSet, data_dir: Path | None) -> Dataset:
    """Load a data set from the first place that holds all of it."""
    places = _places(spec, data_dir)
    for place in places:
        if arrays := _read(place):
            return _dataset(spec, arrays, place)
    raise CloveError(
        f"data set {spec.name!r} was not found. Put {spec.name}.npz (arrays {', '.join(ARRAYS)}) "
        f"or the four idx files {', '.join(IDX_FILES.values())} (each may end in .gz) in one of "
        "these places, or name another folder with data_dir or $CLOVE_DATA:\n"
        + "\n".join(f"  {place}{_lacks(place)}" for place in places)
    )


def _places(spec: ImageSet, data_dir: Path | None) -> list[Path]:
    """Return the npz files and the folders of idx files to try, in order."""
    file, own, torchvision = f"{spec.name}.npz", spec.name, spec.torchvision_folder
    inside = (file, f"{own}/{file}", own, f"{own}/raw", torchvision, f"{torchvision}/raw")
    places = [folder / place for folder in data_folders(data_dir) for place in inside]
    # The system's folder comes last: what the user put somewhere goes before it.
    return places if spec.system_folder is None else [*places, spec.system_folder]


def _read(place: Path) -> dict[str, Array] | None:
    """Read the arrays at a place, if they are all there."""
    if place.suffix == ".npz":
        return _read_npz(place) if place.is_file() else None
    files = _idx_files(place)
    return _read_idx_files(files) if len(files) == len(IDX_FILES) else None


def _idx_files(folder: Path) -> dict[str, Path]:
    """Return the idx files a folder holds, by the array in them; a plain file before a gzipped."""
    return {
        name: folder / (stem + ending)
        for ending in (".gz", "")
        for name, stem in IDX_FILES.items()
        if (folder / (stem + ending)).is_file()
    }


def _lacks(place: Path) -> str:
    """Say what is missing where only some of the idx files are."""
    found = _idx_files(place)
    missing = [stem for name, stem in IDX_FILES.items() if name not in found]
    return f" (lacks {', '.join(missing)})" if found else ""


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS if name in file.files}
    # A damaged file makes numpy, zipfile, zlib or even Python's tokenizer fail, each in its way.
    except Exception as error:
        raise CloveError(f"{path} is damaged or no npz file: {error}") from error
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise CloveError(f"{path} lacks arrays: {', '.join(missing)}")
    return arrays


def _read_idx_files(files: dict[str, Path]) -> dict[str, Array]:
    return {
        name: read_idx(path, axes=3 if name.startswith("x") else 1) for name, path in files.items()
    }


def _dataset(spec: ImageSet, arrays: dict[str, Array], source: Path) -> Dataset:
    for name in ("x_train", "x_test"):
        _check_images(arrays[name], f"{source}: {name}")
    for name in ("y_train", "y_test"):
        _check_labels(arrays[name], f"{source}: {name}")
    return Dataset(
        name=spec.name,
        x_train=arrays["x_train"][:, None],
        y_train=arrays["y_train"].astype(np.int64),
        x_test=arrays["x_test"][:, None],
        y_test=arrays["y_test"].astype(np.int64),
        classes=10,
        scale=255,
        licence=spec.licence,
        citation=spec.citation,
        description=spec.description,
    )


def _check_images(x: Array, what: str) -> None:
    if x.dtype != np.uint8 or x.shape[1:] != IMAGE_SHAPE:
        raise CloveError(
            f"{what} is {x.dtype} of shape {x.shape}, expected uint8 of shape (points, 28, 28)"
        )


def _check_labels(y: Array, what: str) -> None:
    if y.dtype.kind not in "iu" or y.ndim != 1:
        raise CloveError(f"{what} is {y.dtype} of shape {y.shape}, expected one integer per point")
