from __future__ import annotations

import io
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clove.data import Dataset, load_dataset, mix
from clove.data import cifar10 as cifar10_module
from clove.data.cifar10 import BATCHES, CIFAR10, MEAN, STD
from clove.data.idx import idx_md5
from clove.data.pickles import load_arrays
from clove.data.sources import locate
from clove.data.status import _decoded_checks
from clove.errors import CloveError

EACH = 4  # images of a batch


@pytest.fixture(autouse=True)
def small_batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches be as small as they are here, but for the real ones."""
    if "real" not in request.fixturenames:
        monkeypatch.setattr(cifar10_module, "IN_BATCH", EACH)


def pixels() -> np.ndarray:
    """Return the images of all six batches, `[batches, images, 3, 32, 32]`."""
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (6, EACH, 3, 32, 32), dtype=np.uint8)


def labels() -> np.ndarray:
    return np.arange(6 * EACH).reshape(6, EACH) % 10


def batch(number: int, protocol: int = 2) -> bytes:
    content = {
        b"batch_label": b"some batch",
        b"labels": labels()[number].tolist(),
        b"data": pixels()[number].reshape(EACH, -1),
        b"filenames": [b"x.png"] * EACH,
    }
    return pickle.dumps(content, protocol=protocol)


def write_batches(folder: Path, protocol: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BATCHES):
        (folder / name).write_bytes(batch(number, protocol))


def write_archive(path: Path, leave_out: str = "") -> None:
    # The published archive does not hold the batches in order either.
    with tarfile.open(path, "w:gz") as archive:
        for number, name in reversed(list(enumerate(BATCHES))):
            if name != leave_out:
                member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                member.size = len(batch(number))
                archive.addfile(member, io.BytesIO(batch(number)))
        archive.addfile(tarfile.TarInfo("cifar-10-batches-py/readme.html"))


def write_mosaics(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in zip(BATCHES, pixels(), strict=True):
        rows = images.reshape(2, 2, 3, 32, 32).transpose(0, 3, 1, 4, 2).reshape(64, 64, 3)
        image.fromarray(rows).save(folder / f"{name}.webp", lossless=True)
    y = labels()
    np.savez(folder / "labels.npz", y_train=y[:5].ravel(), y_test=y[5].astype(np.uint8))


def assert_whole(dataset: Dataset) -> None:
    np.testing.assert_array_equal(dataset.x_train, pixels()[:5].reshape(-1, 3, 32, 32))
    np.testing.assert_array_equal(dataset.x_test, pixels()[5])
    np.testing.assert_array_equal(dataset.y_train, labels()[:5].ravel())
    np.testing.assert_array_equal(dataset.y_test, labels()[5])
    assert dataset.y_train is not None
    assert dataset.y_train.dtype == np.int64
    assert dataset.x_train.dtype == np.uint8
    assert dataset.classes == 10


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("place", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."])
def test_batches_are_found(no_places: Path, place: str, protocol: int) -> None:
    write_batches(no_places / place, protocol)
    assert_whole(load_dataset("cifar10"))


@pytest.mark.parametrize("place", [".", "cifar10"])
def test_the_archive_is_read_without_unpacking_it(no_places: Path, place: str) -> None:
    (no_places / place).mkdir(exist_ok=True)
    write_archive(no_places / place / "cifar-10-python.tar.gz")
    assert_whole(load_dataset("cifar10"))
    assert list(no_places.rglob("data_batch*")) == []


def test_mosaics_are_read(no_places: Path) -> None:
    write_mosaics(no_places / "cifar10")
    assert_whole(load_dataset("cifar10"))


def test_each_channel_is_standardised(no_places: Path) -> None:
    write_batches(no_places / "cifar10")
    dataset = load_dataset("cifar10")
    x, _ = dataset.take("train", np.arange(3))
    expected = (x / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    scaled = dataset.scaled(x)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, expected, atol=1e-5)


def test_the_authors_variant_leaves_pixels_as_they_are(no_places: Path) -> None:
    write_batches(no_places / "cifar10")
    raw = load_dataset("cifar10", variant="authors")
    x, _ = raw.take("test", np.arange(EACH))
    assert raw.scaled(x).dtype == np.float32
    np.testing.assert_array_equal(raw.scaled(x), pixels()[5])
    unit = load_dataset("cifar10", variant="authors", pixels="unit")
    np.testing.assert_allclose(unit.scaled(x), pixels()[5] / 255, atol=1e-6)


@pytest.mark.parametrize(("option", "nearest"), [("variant", "authors"), ("pixels", "raw")])
def test_unknown_words_get_the_known_ones(option: str, nearest: str) -> None:
    with pytest.raises(CloveError, match=f"unknown {option} 'x'.*{nearest}"):
        load_dataset("cifar10", **{option: "x"})


class Trap:
    """An object whose pickle, loaded without care, makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_that_would_run_something_is_refused(no_places: Path, tmp_path: Path) -> None:
    write_batches(no_places / "cifar10")
    trap = tmp_path / "sprung"
    (no_places / "cifar10" / "data_batch_3").write_bytes(pickle.dumps(Trap(trap)))
    with pytest.raises(CloveError, match=r"data_batch_3 is damaged.*mkdir, which no array needs"):
        load_dataset("cifar10")
    assert not trap.exists()


def test_only_the_usual_encoding_of_bytes_is_let_through() -> None:
    assert load_arrays(pickle.dumps(b"\xff\x00", protocol=2)) == b"\xff\x00"
    hidden = pickle.dumps(b"\xff", protocol=2).replace(b"latin1", b"rot_13")
    with pytest.raises(pickle.UnpicklingError, match="rot_13"):
        load_arrays(hidden)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"labels": [0]}, "is damaged or no batch"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}, "no batch of CIFAR-10"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "3 × 32 × 32, one per label"),
        ({b"data": np.zeros((1, 3072)), b"labels": [0]}, "bytes of images"),
        ({b"data": [0] * 3072, b"labels": [0]}, "bytes of images"),
        ([1, 2], "is damaged or no batch"),
    ],
)
def test_batches_with_other_contents_are_refused(
    no_places: Path, content: object, message: str
) -> None:
    write_batches(no_places / "cifar10")
    (no_places / "cifar10" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(CloveError, match=message):
        load_dataset("cifar10")


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.integers(0, 100_000), value=st.integers(0, 255))
def test_one_wrong_byte_in_a_batch_never_ends_in_another_error(
    no_places: Path, place: int, value: int
) -> None:
    write_batches(no_places / "cifar10")
    raw = bytearray(batch(0))
    # The pickle's own commands stand at its ends; the pixels between them may be anything.
    raw[(place % 400) - 200] = value
    (no_places / "cifar10" / "data_batch_1").write_bytes(bytes(raw))
    with suppress(CloveError):
        load_dataset("cifar10")


def test_damaged_archives_are_named(no_places: Path) -> None:
    path = no_places / "cifar-10-python.tar.gz"
    write_archive(path, leave_out="data_batch_2")
    with pytest.raises(CloveError, match="lacks data_batch_2"):
        load_dataset("cifar10")
    write_archive(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CloveError, match=r"cifar-10-python\.tar\.gz is damaged"):
        load_dataset("cifar10")
    path.write_bytes(b"no archive at all")
    with pytest.raises(CloveError, match=r"cifar-10-python\.tar\.gz is damaged"):
        load_dataset("cifar10")


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch"])
def test_a_mosaic_of_another_size_would_shift_labels_and_is_named(
    no_places: Path, name: str
) -> None:
    image = pytest.importorskip("PIL.Image")
    write_mosaics(no_places / "cifar10")
    image.new("RGB", (32, 32)).save(no_places / "cifar10" / f"{name}.webp", lossless=True)
    with pytest.raises(CloveError, match=rf"{name}\.webp has 1 images, expected 4"):
        load_dataset("cifar10")


def test_a_batch_that_is_a_copy_of_another_is_found_out(no_places: Path) -> None:
    contents = {
        "x_train": idx_md5(pixels()[:5].reshape(-1, 3, 32, 32)),
        "x_test": idx_md5(pixels()[5]),
    }
    card = replace(CIFAR10, contents=contents)
    folder = no_places / "cifar10"
    write_mosaics(folder)
    as_known = {check.what: check.ok for check in _decoded_checks(locate(card, None))}
    assert as_known["cifar10 x_train"]
    assert as_known["cifar10 x_test"]
    shutil.copy(folder / "data_batch_1.webp", folder / "data_batch_2.webp")
    copied = {check.what: check.ok for check in _decoded_checks(locate(card, None))}
    assert not copied["cifar10 x_train"]
    assert copied["cifar10 x_test"]


def test_damaged_mosaics_are_named(no_places: Path) -> None:
    folder = no_places / "cifar10"
    write_mosaics(folder)
    shutil.copy(folder / "labels.npz", folder / "labels")
    np.savez(folder / "labels.npz", y_train=np.zeros(18, int), y_test=np.zeros(EACH, int))
    with pytest.raises(CloveError, match=r"labels\.npz does not hold 4 labels for each batch"):
        load_dataset("cifar10")
    (folder / "labels").replace(folder / "labels.npz")
    (folder / "data_batch_1.webp").write_bytes(b"no picture")
    with pytest.raises(CloveError, match=r"data_batch_1\.webp is damaged or no picture"):
        load_dataset("cifar10")


def test_the_real_data_are_whole(real: Callable[[str], Dataset]) -> None:
    dataset = real("cifar10")
    assert dataset.x_train.shape == (50_000, 3, 32, 32)
    assert dataset.x_test.shape == (10_000, 3, 32, 32)
    for y, each in ((dataset.y_train, 5000), (dataset.y_test, 1000)):
        assert y is not None
        assert np.bincount(y).tolist() == [each] * 10
    # The first image is the frog everybody knows; its first pixels are published in tutorials.
    assert int(dataset.y_train[0]) == 6  # type: ignore[index]
    assert np.asarray(dataset.x_train[0])[:, 0, 0].tolist() == [59, 62, 63]


def test_the_usual_mean_and_deviation_are_those_of_the_data(
    real: Callable[[str], Dataset],
) -> None:
    dataset = real("cifar10")
    x = dataset.scaled(dataset.take("train", np.arange(0, 50_000, 10))[0])
    assert np.abs(x.mean((0, 2, 3))).max() < 0.05
    assert np.abs(x.std((0, 2, 3)) - 1).max() < 0.05


def test_the_real_data_make_clients(real: Callable[[str], Dataset]) -> None:
    mixed = mix(real("cifar10"), "label-skew-1", seed=1, clients_per_cluster=3)
    assert len(mixed.clients) == 15
    assert mixed.clients[0].train[0].shape == (500, 3, 32, 32)
    assert mixed.clients[0].train[0].dtype == np.float32
