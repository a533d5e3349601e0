from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clove.data import Dataset, load_dataset
from clove.errors import CloveError

TRAIN = [
    (0, "Peace talks", "Peace, at last\\and more"),
    (1, 'The "big" game', "game, game"),
    (2, "Oil up", "Oil oil oil"),
    (3, "New chip", "a chip"),
]
TEST = [(3, "Unheard chip", "the"), (0, "", "")]


def original(rows: list[tuple[int, str, str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows((label + 1, title, text) for label, title, text in rows)
    return out.getvalue()


def compact(rows: list[tuple[int, str, str]], source: bool) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["label", "text", *(["source"] if source else [])])
    for label, title, text in rows:
        writer.writerow([label, f"{title} {text}", *(["paper"] if source else [])])
    return out.getvalue()


def write_original(folder: Path, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", TRAIN), ("test", TEST)):
        raw = original(rows).encode()
        path = folder / (f"{part}.csv.gz" if zipped else f"{part}.csv")
        path.write_bytes(gzip.compress(raw) if zipped else raw)


def write_compact(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", TRAIN), ("test", TEST)):
        raw = compact(rows, source=part == "train").encode()
        (folder / f"agnews_{part}.csv.gz").write_bytes(gzip.compress(raw))


def assert_whole(dataset: Dataset) -> None:
    assert dataset.y_train is not None
    assert dataset.y_train.tolist() == [0, 1, 2, 3]
    assert dataset.x_train.shape == (4, 200)
    assert dataset.x_train.dtype == np.int32
    rows = np.asarray(dataset.x_train)
    # Four times oil, three times game, twice peace and chip; then the others as they came.
    assert rows[0, :8].tolist() == [4, 6, 4, 7, 8, 9, 10, 0]
    assert rows[1, :6].tolist() == [11, 12, 3, 3, 3, 0]
    assert rows[2, :6].tolist() == [2, 13, 2, 2, 2, 0]
    assert rows[3, :5].tolist() == [14, 5, 15, 5, 0]
    assert np.asarray(dataset.x_test)[0, :4].tolist() == [1, 5, 11, 0]
    assert not np.asarray(dataset.x_test)[1].any()
    assert (dataset.classes, dataset.kind, dataset.tokens) == (4, "classification", 20_002)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("place", ["agnews", "ag_news_csv", "AG_NEWS"])
def test_the_original_files_are_found(no_places: Path, place: str, zipped: bool) -> None:
    write_original(no_places / place, zipped)
    dataset = load_dataset("agnews")
    assert_whole(dataset)
    assert "sample" not in dataset.description


@pytest.mark.parametrize("place", [".", "agnews"])
def test_the_compact_files_are_found_and_called_a_sample(no_places: Path, place: str) -> None:
    write_compact(no_places / place)
    dataset = load_dataset("agnews")
    assert_whole(dataset)
    assert "of the 120,000 training texts, a sample of 4" in dataset.description


def test_the_vocabulary_comes_from_the_training_texts_only(no_places: Path) -> None:
    write_original(no_places / "agnews")
    dataset = load_dataset("agnews", words=2, length=3)
    assert np.asarray(dataset.x_train).tolist() == [[1, 1, 1], [1, 1, 3], [2, 1, 2], [1, 1, 1]]
    assert np.asarray(dataset.x_test).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert dataset.tokens == 4
    # Decoded with other options, the same files are other arrays.
    assert_whole(load_dataset("agnews"))


@pytest.mark.parametrize("option", ["words", "length"])
def test_amounts_must_be_whole_numbers(option: str) -> None:
    with pytest.raises(CloveError, match=f"{option} must be a whole number"):
        load_dataset("agnews", **{option: 0.5})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "holds no texts"),
        (b'"1","title"\n', "row 1 is no row of AG News"),
        (b'"1","a","b"\n"World","a","b"\n', "row 2 is no row of AG News"),
        (b'"5","a","b"\n', "row 1: no class of AG News: 4"),
        (b'"1","a","\xff"\n', "row 1 is no row of AG News"),
        (b"\x1f\x8b no gzip", "cannot be read"),
    ],
)
def test_damaged_files_are_named_with_the_row(no_places: Path, raw: bytes, message: str) -> None:
    write_original(no_places / "agnews")
    (no_places / "agnews" / "train.csv").write_bytes(raw)
    with pytest.raises(CloveError, match=message) as caught:
        load_dataset("agnews")
    assert "train.csv" in str(caught.value)


def test_a_header_that_lacks_a_column_is_answered(no_places: Path) -> None:
    write_compact(no_places)
    (no_places / "agnews_train.csv.gz").write_text("class,text\n1,a\n")
    with pytest.raises(CloveError, match=r"agnews_train\.csv\.gz, row 1 .*'label'"):
        load_dataset("agnews")


def test_the_real_data_are_a_sample_that_says_so(real: Callable[[str], Dataset]) -> None:
    dataset = real("agnews")
    assert dataset.y_test is not None
    assert np.bincount(dataset.y_test).tolist() == [1900] * 4
    assert dataset.size("train") in (75_183, 120_000)
    assert (dataset.size("train") == 120_000) != ("a sample of 75,183" in dataset.description)
    x = np.asarray(dataset.x_train[:20_000])
    assert x.min() == 0
    assert x.max() == 20_001
    # Padding stands on the right: after the first of it nothing else comes.
    assert (np.diff((x == 0).astype(int), axis=1) >= 0).all()
    assert np.median((x > 0).sum(1)) in range(30, 50)
