"""MNIST by the person who wrote each digit: a federation that nature made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clove.data.card import Array, Arrays, Chunks, DataCard, Form, Parts, RemoteFile
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.idx import INTEGER, read_idx
from clove.data.images import MNIST
from clove.data.npz import read_npz
from clove.data.options import one_of, whole_number
from clove.data.people import drawn, rows_of
from clove.data.rows import Rows
from clove.data.sources import locate
from clove.errors import CloveError
from clove.seeds import stream

LABELS = "qmnist-train-labels-idx2-int"
LABELS_MD5 = "0058f8dd561b90ffdd0f734c6a30e5e4"
COLUMNS = 8  # of QMNIST's labels; the first three are the digit, the series and the writer
TEST_PART = 5
BY = ("writer", "hsf")


def read_writers(parts: Parts) -> Chunks:
    """Read who wrote each training image from an npz file."""
    arrays = read_npz(parts["npz"], ("writer_train", "hsf_train"))
    return [("writer", arrays["writer_train"]), ("hsf", arrays["hsf_train"])]


def read_labels(parts: Parts) -> Chunks:
    """Read who wrote each training image from QMNIST's labels, which keep MNIST's order."""
    table = read_idx(parts["labels"], axes=2, code=INTEGER)
    if table.shape[1] != COLUMNS:
        raise CloveError(
            f"{parts['labels']} has {table.shape[1]} columns, expected QMNIST's {COLUMNS}"
        )
    return zip(("digit", "hsf", "writer"), table.T.astype(np.int64), strict=False)


MNIST_WRITERS = DataCard(
    name="mnist-writers",
    description=(
        "MNIST's 60,000 training images by the 539 people who wrote them: NIST staff (series 0) "
        "and students (series 4)"
    ),
    licence="images: none stated, cite them; writers (QMNIST): BSD",
    citation=(
        f"{MNIST.citation}; C. Yadav and L. Bottou, Cold case: the lost MNIST digits, Advances in "
        "Neural Information Processing Systems, 2019"
    ),
    shape=MNIST.shape,
    classes=10,
    groups=440,
    brings={"clients_per_cluster": 1},
    train=41_411,
    test=10_137,
    forms=(
        Form(
            words="mnist_writers.npz (arrays writer_train, hsf_train)",
            parts={"npz": ("mnist_writers.npz",)},
            folders=("", "mnist-writers", "mnist"),
            decode=read_writers,
        ),
        Form(
            words=f"QMNIST's {LABELS}.gz",
            parts={"labels": (LABELS, f"{LABELS}.gz")},
            folders=("mnist-writers", "qmnist", "QMNIST/raw", ""),
            decode=read_labels,
        ),
    ),
    files=(
        RemoteFile(
            f"{LABELS}.gz",
            LABELS_MD5,
            (
                f"https://raw.githubusercontent.com/facebookresearch/qmnist/master/{LABELS}.gz",
                f"https://raw.githubusercontent.com/facebookresearch/qmnist/main/{LABELS}.gz",
                f"https://github.com/facebookresearch/qmnist/raw/main/{LABELS}.gz",
            ),
        ),
    ),
    checksums={f"{LABELS}.gz": LABELS_MD5},
    needs=("mnist",),
)


def mnist_writers(
    data_dir: Path | None,
    seed: int,
    *,
    by: str = "writer",
    minimum: int = 100,
    writers: int | None = None,
) -> Dataset:
    """Load MNIST's training images, grouped by who wrote them.

    Each writer's last fifth of images, in the order of the files, is for testing. (MNIST's own test
    images are by other people, so they cannot test a writer's model.)

    With mixing `none` every group is a cluster, and this data set asks for one client in each: so a
    writer is a client, with all images of that person and nobody else's. Which writers are alike is
    not known: the true cluster of a client is the client itself.

    Parameters
    ----------
    by : "writer" or "hsf"
        What makes a group: the writer, or the series of forms the images come from (staff or
        students). Series are two clusters, whose clients pool several writers.
    minimum : int
        Only writers with at least so many images.
    writers : int, optional
        Only so many writers, drawn by the seed; by default all.
    """
    by, least = one_of("by", by, BY), whole_number("minimum", minimum, 2)
    x, y, who = _images(data_dir)
    names, counts = np.unique(who["writer"], return_counts=True)
    chosen = drawn(names[counts >= least], writers, stream(seed, "mnist-writers/writers"))
    if len(chosen) == 0:
        raise CloveError(f"no writer has {least} images, the most is {counts.max()}: lower minimum")
    rows, group = rows_of(who["writer"], chosen)
    train, test = _split(group)
    if by == "hsf":
        group = np.unique(who["hsf"][rows], return_inverse=True)[1]
    return Dataset.of(
        MNIST_WRITERS,
        x_train=Rows(x, rows[train]),
        y_train=y[rows[train]],
        group_train=group[train],
        x_test=Rows(x, rows[test]),
        y_test=y[rows[test]],
        group_test=group[test],
        scale=255,
        **(MNIST_WRITERS.brings if by == "writer" else {}),
    )


def _images(data_dir: Path | None) -> tuple[Array, Array, Arrays]:
    """Return MNIST's training images and labels, and who wrote them."""
    source = locate(MNIST_WRITERS, data_dir)
    who = dict(source.decode())
    arrays = decoded(locate(MNIST, data_dir))
    x, y = arrays["x_train"], arrays["y_train"]
    for name, array in who.items():
        if array.shape != y.shape or array.dtype.kind not in "iu":
            raise CloveError(
                f"{source.where}: {name} is {array.dtype} of shape {array.shape}, "
                f"expected one integer for each of MNIST's {len(y)} training images"
            )
    if not np.array_equal(who.pop("digit", y), y):
        raise CloveError(f"{source.where}: its digits are not those of MNIST, in that order")
    return x, y, who


def _split(group: Array) -> tuple[Array, Array]:
    """Return the rows for training and for testing: the last fifth of each group is the latter."""
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - (np.cumsum(sizes) - sizes).repeat(sizes)
    held_out = np.maximum(sizes // TEST_PART, 1)
    test = place >= (sizes - held_out)[group]
    return np.flatnonzero(~test), np.flatnonzero(test)
