from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clove.data import Dataset, check_dataset, data_status, load_dataset, mix
from clove.data import images as images_module
from clove.data.places import data_folders
from clove.errors import CloveError, CloveWarning
from clove.folders import cache_folder

from .test_idx import idx_bytes

IDX_NAMES = images_module.IDX_FILES


def small(fill: int = 1) -> dict[str, np.ndarray]:
    return {
        "x_train": np.full((6, 28, 28), fill, np.uint8),
        "y_train": np.arange(6, dtype=np.uint8),
        "x_test": np.full((3, 28, 28), fill, np.uint8),
        "y_test": np.arange(3, dtype=np.uint8),
    }


def write_idx(folder: Path, fill: int = 1, zipped: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in small(fill).items():
        raw, stem = idx_bytes(array), images_module.IDX_FILES[name]
        path = folder / (f"{stem}.gz" if zipped else stem)
        path.write_bytes(gzip.compress(raw) if zipped else raw)


def fill_of(dataset: Dataset) -> int:
    return int(dataset.x_train[0, 0, 0, 0])


@pytest.mark.parametrize("place", ["mnist.npz", "mnist/mnist.npz"])
def test_an_npz_file_is_found(no_places: Path, place: str) -> None:
    (no_places / "mnist").mkdir()
    np.savez(no_places / place, **small())
    dataset = load_dataset("mnist")
    assert dataset.x_train.shape == (6, 1, 28, 28)
    assert dataset.x_test.shape == (3, 1, 28, 28)
    assert dataset.x_train.dtype == np.uint8
    assert dataset.y_train is not None
    assert dataset.y_train.dtype == np.int64
    assert (dataset.scale, dataset.classes, dataset.name) == (255, 10, "mnist")


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "mnist"),
        ("mnist", "mnist/raw"),
        ("mnist", "MNIST/raw"),
        ("fmnist", "FashionMNIST/raw"),
        ("fmnist", "fmnist"),
    ],
)
def test_idx_files_are_found(no_places: Path, name: str, place: str, zipped: bool) -> None:
    write_idx(no_places / place, zipped=zipped)
    dataset = load_dataset(name)
    np.testing.assert_array_equal(dataset.x_train[:, 0], small()["x_train"])
    assert dataset.y_test is not None
    assert dataset.y_test.tolist() == [0, 1, 2]


def test_a_systems_own_copy_is_found_last(
    no_places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "system"
    write_idx(system, fill=9, zipped=True)
    *others, form = images_module.FMNIST.forms
    assert form.system_folders == (Path("/usr/share/datasets/fashion-mnist"),)
    forms = (*others, replace(form, system_folders=(system,)))
    monkeypatch.setattr(images_module, "FMNIST", replace(images_module.FMNIST, forms=forms))
    assert fill_of(load_dataset("fmnist")) == 9
    np.savez(no_places / "fmnist.npz", **small(2))
    assert fill_of(load_dataset("fmnist")) == 2


def test_the_folder_asked_for_goes_before_all_others(no_places: Path, tmp_path: Path) -> None:
    np.savez(no_places / "mnist.npz", **small(1))
    write_idx(tmp_path / "mine" / "mnist", fill=5)
    assert fill_of(load_dataset("mnist", data_dir=tmp_path / "mine")) == 5
    (tmp_path / "empty").mkdir()
    assert fill_of(load_dataset("mnist", data_dir=str(tmp_path / "empty"))) == 1


@pytest.mark.parametrize("name", ["mnist", "digits"])
def test_a_folder_asked_for_must_be_there(no_places: Path, name: str) -> None:
    for look in (partial(load_dataset, name), partial(check_dataset, name), data_status):
        with pytest.raises(CloveError, match="there is no data folder /nowhere: make it, or name"):
            look(data_dir="/nowhere")


def test_damaged_files_are_answered_with_what_to_do(no_places: Path) -> None:
    (no_places / "mnist.npz").write_bytes(b"garbage")
    with pytest.raises(CloveError) as caught:
        load_dataset("mnist")
    assert str(caught.value) == (
        f"{no_places / 'mnist.npz'} is damaged or no npz file. "
        "Delete that file and run `clove data fetch mnist`, or put it there again"
    )
    (no_places / "amazon.npz").write_bytes(b"garbage")
    with pytest.raises(CloveError, match="Delete that file and put it there again"):
        load_dataset("amazon")


def closed(monkeypatch: pytest.MonkeyPatch, method: str, folder: Path) -> None:
    """Let a method of paths fail below a folder, as it does where there is no permission."""
    real = getattr(Path, method)

    def refuse(path: Path, *given: Any, **named: Any) -> Any:
        if folder in (path, *path.parents):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **named)

    monkeypatch.setattr(Path, method, refuse)


@pytest.mark.parametrize("form", ["npz", "idx"])
def test_files_that_may_not_be_read_are_not_called_damaged(
    no_places: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    if form == "npz":
        np.savez(no_places / "mnist.npz", **small())
    else:
        write_idx(no_places / "mnist")
    closed(monkeypatch, "open", no_places)
    closed(monkeypatch, "read_bytes", no_places)
    with pytest.raises(CloveError) as caught:
        load_dataset("mnist")
    assert str(caught.value).startswith(f"no permission to read {no_places}")
    assert "damaged" not in str(caught.value)


def test_folders_nobody_may_look_into_are_named(
    no_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(no_places / "mnist.npz", **small())
    closed(monkeypatch, "stat", no_places)
    with pytest.raises(CloveError) as caught:
        load_dataset("mnist")
    assert "data set 'mnist' was not found where clove may look. " in str(caught.value)
    assert f"{no_places} (no permission to look there)" in str(caught.value)


def test_a_cache_that_may_not_be_read_is_none(
    no_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(no_places / "mnist.npz", **small())
    for method in ("glob", "mkdir", "read_text"):
        closed(monkeypatch, method, cache_folder())
    with pytest.warns(CloveWarning, match="decoded data cannot be kept"):
        assert check_dataset("mnist").checks


def test_the_users_cache_is_searched(no_places: Path) -> None:
    folder = cache_folder() / "data"
    folder.mkdir(parents=True)
    np.savez(folder / "mnist.npz", **small(4))
    assert fill_of(load_dataset("mnist")) == 4


def test_without_settings_only_the_users_cache_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOVE_CACHE", raising=False)
    monkeypatch.delenv("CLOVE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert data_folders() == [Path("/xdg/clove/data")]


def test_missing_data_are_answered_with_where_to_put_them(no_places: Path, tmp_path: Path) -> None:
    write_idx(no_places / "MNIST" / "raw")
    (no_places / "MNIST" / "raw" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(CloveError) as caught:
        load_dataset("mnist", data_dir=tmp_path)
    message = str(caught.value)
    assert "data set 'mnist' was not found" in message
    assert str(no_places / "mnist.npz") in message
    assert str(tmp_path / "MNIST/raw") in message
    assert "raw (lacks t10k-labels-idx1-ubyte)" in message
    assert "$CLOVE_DATA" in message


def test_a_truncated_npz_file_is_named(no_places: Path) -> None:
    path = no_places / "mnist.npz"
    np.savez_compressed(path, **small())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CloveError, match=r"mnist\.npz is damaged"):
        load_dataset("mnist")


def test_a_lone_array_is_no_npz_file(no_places: Path) -> None:
    with (no_places / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(CloveError, match=r"mnist\.npz is damaged or no npz file"):
        load_dataset("mnist")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, "lacks arrays: y_test"),
        ({"x_train": np.zeros((6, 784), np.uint8)}, r"x_train is uint8 of shape \(6, 784\)"),
        ({"x_test": np.zeros((3, 28, 28))}, "x_test is float64"),
        ({"y_train": np.zeros((6, 1), np.uint8)}, r"y_train is uint8 of shape \(6, 1\)"),
        ({"y_train": np.zeros(5, np.uint8)}, "6 train points but 5 labels"),
        ({"y_test": np.full(3, 11)}, "test labels run from 11 to 11"),
        ({"y_test": np.array([{}, {}, {}])}, "damaged"),
    ],
)
def test_an_npz_file_with_other_contents_is_refused(
    no_places: Path, change: dict[str, np.ndarray | None], message: str
) -> None:
    arrays = {name: array for name, array in {**small(), **change}.items() if array is not None}
    np.savez(no_places / "mnist.npz", **arrays)
    with pytest.raises(CloveError, match=message):
        load_dataset("mnist")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_one_wrong_byte_never_ends_in_another_error(
    no_places: Path, place: int, value: int
) -> None:
    path = no_places / "mnist.npz"
    np.savez_compressed(path, **small())
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = value
    path.write_bytes(bytes(raw))
    with suppress(CloveError):
        assert load_dataset("mnist").x_train.shape == (6, 1, 28, 28)


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_the_real_data_are_whole(real: Callable[[str], Dataset], name: str) -> None:
    dataset = real(name)
    assert dataset.x_train.shape == (60_000, 1, 28, 28)
    assert dataset.x_test.shape == (10_000, 1, 28, 28)
    assert dataset.y_train is not None
    assert set(dataset.y_train) == set(range(10))


def test_fashion_mnist_is_balanced(real: Callable[[str], Dataset]) -> None:
    dataset = real("fmnist")
    assert dataset.y_train is not None
    assert dataset.y_test is not None
    assert set(np.bincount(dataset.y_train)) == {6000}
    assert set(np.bincount(dataset.y_test)) == {1000}


@pytest.mark.parametrize(
    ("mixing", "clients", "train", "test"),
    [
        ("none", 50, 1000, 200),
        ("label-skew-1", 25, 500, 400),
        ("feature-skew", 40, 500, 250),
        ("concept-shift", 20, 1000, 500),
    ],
)
def test_fashion_mnist_is_enough_for_the_papers_amounts(
    real: Callable[[str], Dataset], mixing: str, clients: int, train: int, test: int
) -> None:
    mixed = mix(real("fmnist"), mixing, seed=1)
    assert mixed.shortfall is None
    assert len(mixed.clients) == clients
    for client in mixed.clients:
        assert client.test is not None
        assert (client.size, len(client.test[0])) == (train, test)
        assert client.train[0].dtype == np.float32
        assert 0 <= client.train[0].min() <= client.train[0].max() <= 1
