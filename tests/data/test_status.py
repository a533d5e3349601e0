from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clove.data import CARDS, Check, CheckReport, Dataset, check_dataset, data_status
from clove.data import datasets as datasets_module
from clove.data import images as images_module
from clove.data import status as status_module
from clove.errors import CloveError
from clove.folders import cache_folder

from .test_agnews import write_compact
from .test_femnist import many, write, written
from .test_idx import idx_bytes
from .test_images import small, write_idx
from .test_mnist_writers import write_images, write_npz


def found(report: CheckReport) -> dict[str, Check]:
    return {check.what: check for check in report.checks}


def test_every_data_set_says_what_it_is(no_places: Path) -> None:
    states = {state.name: state for state in data_status()}
    assert set(states) == set(CARDS)
    for state in states.values():
        assert state.licence
        assert state.description
        assert state.how_to_get
        assert CARDS[state.name].citation
    assert {name for name, state in states.items() if state.present} == {"digits", "linear"}
    assert states["digits"].where == "comes with scikit-learn"
    assert states["linear"].size_bytes is None
    assert states["mnist"].where is None
    assert states["mnist"].how_to_get == "run: clove data fetch mnist"
    assert states["femnist"].how_to_get == "by hand: clove data fetch femnist says how"


def test_what_is_here_is_named_with_its_size(no_places: Path, tmp_path: Path) -> None:
    np.savez(no_places / "mnist.npz", **small())
    write_idx(tmp_path / "mine" / "fmnist", zipped=True)
    write_compact(no_places)
    states = {state.name: state for state in data_status(tmp_path / "mine")}
    assert states["mnist"].where == str(no_places / "mnist.npz")
    assert states["mnist"].size_bytes == (no_places / "mnist.npz").stat().st_size
    folder = tmp_path / "mine" / "fmnist"
    assert states["fmnist"].where == str(folder)
    assert states["fmnist"].size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert "perhaps a sample" in states["agnews"].description


def test_writers_are_here_only_with_the_images(no_places: Path) -> None:
    def present() -> bool:
        return next(state.present for state in data_status() if state.name == "mnist-writers")

    write_npz(no_places)
    assert not present()
    write_images(no_places)
    assert present()


def test_a_folder_nobody_may_look_into_is_as_good_as_none(
    no_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    assert not any(state.present for state in data_status() if state.name == "mnist")


@pytest.mark.parametrize("name", ["digits", "linear"])
def test_embedded_data_are_whole(name: str) -> None:
    report = check_dataset(name)
    assert report.ok
    assert report.checks
    assert report.where


def test_missing_data_cannot_be_checked(no_places: Path) -> None:
    with pytest.raises(CloveError, match="'cifar10' was not found"):
        check_dataset("cifar10")
    with pytest.raises(CloveError, match="unknown data set 'cifar11': did you mean 'cifar10'"):
        check_dataset("cifar11")


def test_files_are_compared_with_their_published_sums(
    no_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = no_places / "mnist"
    write_idx(folder, zipped=True)
    files = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    contents = {name: hashlib.md5(idx_bytes(a)).hexdigest() for name, a in small().items()}
    # As if this small data set were the published one.
    card = replace(CARDS["mnist"], checksums=files, contents=contents, train=6, test=3)
    for module in (images_module, datasets_module, status_module):
        monkeypatch.setattr(module, "CARDS", {**CARDS, "mnist": card}, raising=False)
    monkeypatch.setattr(images_module, "MNIST", card)
    checks = found(check_dataset("mnist", no_places))
    assert checks["md5 of train-images-idx3-ubyte.gz"] == Check(
        "md5 of train-images-idx3-ubyte.gz", True, "as published"
    )
    assert checks["mnist x_train"].ok
    assert checks["train points"] == Check("train points", True, "6")

    raw = bytearray(idx_bytes(small()["x_train"]))
    raw[-1] ^= 1
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(raw)))
    report = check_dataset("mnist", no_places)
    checks = found(report)
    assert not report.ok
    assert "published is" in checks["md5 of train-images-idx3-ubyte.gz"].detail
    assert checks["mnist x_train"] == Check("mnist x_train", False, "not as published")
    assert checks["mnist y_train"].ok


def test_what_is_too_little_is_counted(no_places: Path) -> None:
    np.savez(no_places / "mnist.npz", **small())
    checks = found(check_dataset("mnist"))
    assert checks["train points"] == Check("train points", False, "6 of 60,000")
    assert checks["test labels"] == Check("test labels", False, "3 of 10")
    assert checks["shape of a point"].ok


def test_a_sample_that_says_so_is_no_fault(no_places: Path) -> None:
    write_compact(no_places)
    checks = found(check_dataset("agnews"))
    assert checks["train points"] == Check("train points", True, "4 of 120,000: a sample")
    assert checks["test points"] == Check("test points", False, "2 of 7,600")


def test_how_many_points_leaf_makes_is_the_users_choice(no_places: Path) -> None:
    write(no_places / "femnist" / "all_data" / "all.json", written(many(3)))
    report = check_dataset("femnist")
    assert report.ok
    assert found(report)["train values"].detail == "0 that are not finite"
    assert found(report)["train labels"] == Check("train labels", True, "3 of 62")


def test_what_cannot_be_read_is_in_the_report(no_places: Path) -> None:
    (no_places / "amazon.npz").write_bytes(b"no npz file")
    report = check_dataset("amazon")
    assert not report.ok
    assert report.checks[-1].what == "readable"
    assert "amazon.npz is damaged" in report.checks[-1].detail


def test_values_that_are_not_finite_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((4, 20), np.float32)
    x[1, 2] = np.nan
    x[3, 0] = np.inf
    y = np.zeros((4, 1), np.float32)
    dataset = Dataset("linear", x, y, x[:1], y[:1], kind="regression")
    monkeypatch.setattr(status_module, "load_dataset", lambda *_: dataset)
    checks = found(check_dataset("linear"))
    assert checks["train values"] == Check("train values", False, "2 that are not finite")
    assert checks["test values"].ok


def test_decoded_arrays_are_checked_too(no_places: Path) -> None:
    np.savez(no_places / "mnist.npz", **small())
    assert found(check_dataset("mnist"))["decoded mnist"].ok
    (entry,) = (cache_folder() / "decoded").iterdir()
    path = entry / "x_train.npy"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))
    check = found(check_dataset("mnist"))["decoded mnist"]
    assert not check.ok
    assert check.detail == f"{entry} is damaged: delete it"


@pytest.mark.parametrize(
    "name", ["mnist", "fmnist", "cifar10", "agnews", "amazon", "mnist-writers"]
)
def test_the_real_data_pass(real: Callable[[str], Dataset], name: str) -> None:
    real(name)
    report = check_dataset(name)
    assert report.ok, [check for check in report.checks if not check.ok]
