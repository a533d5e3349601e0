from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clove.data import CARDS, DataCard, fetch_dataset, load_dataset
from clove.data import datasets as datasets_module
from clove.data import fetch as fetch_module
from clove.errors import CloveError
from clove.folders import cache_folder

from . import server
from .server import Mirror
from .test_agnews import TEST, TRAIN, original
from .test_idx import idx_bytes
from .test_images import IDX_NAMES, small
from .test_mnist_writers import qmnist

FILES = {
    **{f"{stem}.gz": gzip.compress(idx_bytes(small()[name])) for name, stem in IDX_NAMES.items()},
    "train.csv": original(TRAIN).encode(),
    "test.csv": original(TEST).encode(),
    "qmnist-train-labels-idx2-int.gz": gzip.compress(qmnist()),
}


def small_card(card: DataCard) -> DataCard:
    """Make a card whose files are the small ones of these tests."""
    files = tuple(
        replace(file, md5=hashlib.md5(FILES.get(file.name, b"")).hexdigest()) for file in card.files
    )
    return replace(card, files=files)


@pytest.fixture
def mirror(no_places: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    cards = {name: small_card(card) for name, card in CARDS.items()}
    monkeypatch.setattr(datasets_module, "CARDS", cards)
    monkeypatch.setattr(fetch_module, "CARDS", cards)
    with server.mirror() as running:
        for name, content in FILES.items():
            running.behaviours[f"/data/{name}"] = server.serve(content)
        yield running


def asked(mirror: Mirror) -> set[str]:
    return {path.removeprefix("/data/") for path, _ in mirror.requests}


def test_what_was_fetched_is_found(mirror: Mirror) -> None:
    told: list[str] = []
    folder = fetch_dataset(
        "mnist", progress=lambda *what: told.append(what[0]), mirrors=[f"{mirror.url}/data/"]
    )
    assert folder == cache_folder() / "data" / "mnist"
    assert load_dataset("mnist").size("train") == 6
    assert list(dict.fromkeys(told)) == [f"{stem}.gz" for stem in IDX_NAMES.values()]


def test_without_other_mirrors_the_known_addresses_are_asked(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = small_card(CARDS["agnews"])
    files = tuple(replace(f, urls=(f"{mirror.url}/data/{f.name}",)) for f in card.files)
    monkeypatch.setattr(datasets_module, "CARDS", {"agnews": replace(card, files=files)})
    fetch_dataset("agnews")
    assert asked(mirror) == {"train.csv", "test.csv"}


def test_it_can_be_put_elsewhere(mirror: Mirror, tmp_path: Path) -> None:
    folder = fetch_dataset("agnews", str(tmp_path / "mine"), mirrors=[f"{mirror.url}/data"])
    assert folder == tmp_path / "mine" / "agnews"
    assert load_dataset("agnews", data_dir=tmp_path / "mine").size("train") == len(TRAIN)


def test_what_is_there_is_not_fetched_again(mirror: Mirror) -> None:
    for _ in range(2):
        fetch_dataset("agnews", mirrors=[f"{mirror.url}/data"])
    assert len(mirror.requests) == 2


def test_what_a_data_set_is_made_from_is_fetched_too(mirror: Mirror, no_places: Path) -> None:
    folder = fetch_dataset("mnist-writers", mirrors=[f"{mirror.url}/data"])
    assert asked(mirror) == {*(f"{stem}.gz" for stem in IDX_NAMES.values()), *QMNIST}
    assert (folder.parent / "mnist" / "train-images-idx3-ubyte.gz").is_file()
    # Where the images are, only the writers are fetched.
    mirror.requests.clear()
    fetch_dataset("mnist-writers", folder=no_places, mirrors=[f"{mirror.url}/data"])
    assert asked(mirror) == set(QMNIST)


QMNIST = ("qmnist-train-labels-idx2-int.gz",)


def test_the_second_mirror_serves_what_the_first_does_not(mirror: Mirror) -> None:
    mirrors = [f"{mirror.url}/nowhere", f"{mirror.url}/data"]
    fetch_dataset("agnews", mirrors=mirrors, pause=0)
    assert load_dataset("agnews").size("test") == len(TEST)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("amazon", r"by hand.*AmazonReview\.zip.*KD3A.*put amazon\.npz in .*data/amazon"),
        ("femnist", r"by hand.*TalwalkarLab/leaf.*preprocess\.sh.*data/femnist"),
        ("digits", "needs no files: comes with scikit-learn"),
        ("linear", "needs no files: drawn on the spot"),
        ("mnits", "did you mean 'mnist'"),
    ],
)
def test_what_cannot_be_fetched_is_answered_with_what_to_do(
    no_places: Path, name: str, message: str
) -> None:
    with pytest.raises(CloveError, match=message):
        fetch_dataset(name)


@pytest.mark.parametrize("name", [name for name, card in CARDS.items() if card.files])
def test_every_file_has_several_addresses_and_a_published_sum(name: str) -> None:
    for file in CARDS[name].files:
        assert len(file.urls) >= 2
        assert len({url.split("/")[2] for url in file.urls}) >= 2
        assert all(url.endswith(f"/{file.name}") for url in file.urls)
        assert len(file.md5) == 32
        assert int(file.md5, 16)
        assert CARDS[name].checksums[file.name] == file.md5


@pytest.mark.parametrize("name", [name for name, card in CARDS.items() if card.forms])
def test_missing_data_are_answered_with_what_to_run_or_where_to_put_what(
    no_places: Path, tmp_path: Path, name: str
) -> None:
    card = CARDS[name]
    with pytest.raises(CloveError, match=f"data set '{name}' was not found") as caught:
        load_dataset(name, data_dir=tmp_path)
    message = str(caught.value)
    assert (f"clove data fetch {name}" in message) == bool(card.files)
    assert all(form.words in message for form in card.forms)
    assert f"{card.by_hand} Put" in message or card.files
    for folder in (str(tmp_path), str(no_places), str(cache_folder() / "data")):
        assert f"  {folder}" in message
    assert "$CLOVE_DATA" in message
