"""AG News: titles and descriptions of news in four classes, as rows of word ids."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from clove.data.card import Chunks, DataCard, Form, Parts, remote_files
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.idx import read_maybe_gzipped
from clove.data.options import whole_number
from clove.data.sources import locate
from clove.data.text import FIRST, encoded, vocabulary
from clove.errors import CloveError

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
WORDS, LENGTH = 20_000, 200

Labelled = tuple[list[int], list[str]]
"""Labels from 0, and texts."""


def read_original(parts: Parts, words: int = WORDS, length: int = LENGTH) -> Chunks:
    """Read train.csv and test.csv as published: class from 1, title, description, no header."""
    return _encoded(parts, words, length, header=False)


def read_compact(parts: Parts, words: int = WORDS, length: int = LENGTH) -> Chunks:
    """Read csv files with a header: label from 0, text, perhaps more."""
    return _encoded(parts, words, length, header=True)


def _encoded(parts: Parts, words: int, length: int, header: bool) -> Chunks:
    ids: dict[str, int] = {}
    for part in ("train", "test"):
        labels, texts = _labelled(parts[part], header)
        # What is not in the training texts, nobody can know.
        ids = ids or vocabulary(texts, words)
        yield f"x_{part}", encoded(texts, ids, length)
        yield f"y_{part}", np.array(labels, np.int64)


def _labelled(path: Path, header: bool) -> Labelled:
    labels: list[int] = []
    texts: list[str] = []
    rows = _headed(path) if header else _plain(path)
    try:
        for number, (label, text) in enumerate(rows, 1):
            if label not in range(len(CLASSES)):
                raise CloveError(f"{path}, row {number}: no class of AG News: {label}")
            labels.append(label)
            texts.append(text)
    except (csv.Error, UnicodeDecodeError, ValueError, KeyError) as error:
        raise CloveError(
            f"{path}, row {len(labels) + 1} is no row of AG News: {error!r}"
        ) from error
    if not labels:
        raise CloveError(f"{path} holds no texts")
    return labels, texts


def _lines(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(read_maybe_gzipped(path)), encoding="utf-8", newline="")


def _plain(path: Path) -> Iterator[tuple[int, str]]:
    for label, title, description in csv.reader(_lines(path)):
        yield int(label) - 1, f"{title} {description}"


def _headed(path: Path) -> Iterator[tuple[int, str]]:
    for row in csv.DictReader(_lines(path)):
        yield int(row["label"]), row["text"] or ""


_SUMS = {
    "train.csv": "b1a00f826fdfbd249f79597b59e1dc12",
    "test.csv": "d52ea96a97a2d943681189a97654912d",
}
_FOLDERS = ("agnews", "ag_news_csv", "agnews/ag_news_csv", "AG_NEWS")

AGNEWS = DataCard(
    name="agnews",
    description="AG News: 127,600 titles and descriptions of news, 4 classes",
    licence="research, non-commercial",
    citation=(
        "X. Zhang, J. Zhao and Y. LeCun, Character-level convolutional networks for text "
        "classification, Advances in Neural Information Processing Systems, 2015; from A. Gulli's "
        "corpus of news articles"
    ),
    shape=(LENGTH,),
    classes=len(CLASSES),
    train=120_000,
    test=7_600,
    forms=(
        Form(
            words="train.csv and test.csv",
            parts={part: (f"{part}.csv", f"{part}.csv.gz") for part in ("train", "test")},
            folders=_FOLDERS,
            decode=read_original,
        ),
        Form(
            words="agnews_train.csv.gz and agnews_test.csv.gz (with a header: label, text)",
            parts={
                part: (f"agnews_{part}.csv.gz", f"agnews_{part}.csv") for part in ("train", "test")
            },
            folders=("", "agnews"),
            decode=read_compact,
            sample=True,
        ),
    ),
    files=remote_files(
        _SUMS,
        "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
        "https://github.com/mhjabreel/CharCnn_Keras/raw/master/data/ag_news_csv/",
    ),
    checksums=_SUMS,
)


def agnews(
    data_dir: Path | None, seed: int, *, words: int = WORDS, length: int = LENGTH
) -> Dataset:
    """Load AG News: each text is a row of word ids, see `clove.data.text`.

    Parameters
    ----------
    words : int
        How many of the most frequent words of the training texts have an id of their own.
    length : int
        How many words of a text are kept; shorter texts are filled up with 0.
    """
    words, length = whole_number("words", words), whole_number("length", length)
    source = locate(AGNEWS, data_dir)
    arrays = decoded(source, words=words, length=length)
    description, found = AGNEWS.description, len(arrays["y_train"])
    if source.form.sample and found != AGNEWS.train:
        description += f"; of the {AGNEWS.train:,} training texts, a sample of {found:,}"
    return Dataset.of(AGNEWS, **arrays, tokens=FIRST + words, description=description)
