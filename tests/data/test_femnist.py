from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clove.data import Dataset, load_dataset, mix
from clove.data.leaf import writers_in
from clove.errors import CloveError

GREY = 0.1
"""No pixel of LEAF's, which are bytes divided by 255; other programs may write what they like."""


def image(number: int) -> list[float]:
    return [number / 255] * 783 + [1.0]


def written(users: dict[str, list[int]]) -> dict[str, Any]:
    """Make the content of a file: each writer has images that show a number, with that label."""
    return {
        "users": list(users),
        "num_samples": [len(numbers) for numbers in users.values()],
        "user_data": {
            user: {"x": [image(n) for n in numbers], "y": [n % 62 for n in numbers]}
            for user, numbers in users.items()
        },
    }


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def shown(dataset: Dataset, part: str, writer: int) -> list[int]:
    groups = dataset.group_train if part == "train" else dataset.group_test
    assert groups is not None
    x, y = dataset.take(part, np.flatnonzero(groups == writer))  # type: ignore[arg-type]
    numbers = np.rint(x[:, 0, 0, 0] * 255).astype(int).tolist()
    assert y is not None
    assert y.tolist() == [number % 62 for number in numbers]
    return numbers


def many(writers: int) -> dict[str, list[int]]:
    """Make writers, the later the more images."""
    return {f"f{w:04}": list(range(2 + w)) for w in range(writers)}


@pytest.mark.parametrize("place", ["femnist", "femnist/data", "leaf/data/femnist/data"])
def test_all_data_are_split_within_each_writer_in_file_order(no_places: Path, place: str) -> None:
    folder = no_places / place / "all_data"
    write(folder / "all_data_0.json", written({"b": list(range(20)), "a": [5, 3, 1]}))
    write(folder / "all_data_1.json", written({"c": [9, 8], "lone": [7]}))
    dataset = load_dataset("femnist")
    assert shown(dataset, "train", 0) == list(range(18))
    assert shown(dataset, "test", 0) == [18, 19]
    assert (shown(dataset, "train", 1), shown(dataset, "test", 1)) == ([5, 3], [1])
    assert (shown(dataset, "train", 2), shown(dataset, "test", 2)) == ([9], [8])
    assert dataset.group_train is not None
    # Who wrote one image only cannot be trained and tested.
    assert dataset.group_train.max() == 2
    assert (dataset.classes, dataset.feature_shape, dataset.images) == (62, (1, 28, 28), True)


def test_one_file_of_all_data_will_do(no_places: Path) -> None:
    write(no_places / "femnist" / "all_data.json", written({"a": [1, 2, 3]}))
    assert shown(load_dataset("femnist"), "test", 0) == [3]


def test_folders_for_training_and_testing_are_taken_as_they_are(no_places: Path) -> None:
    folder = no_places / "femnist"
    write(folder / "all_data" / "all.json", written({"z": [1, 2]}))
    write(folder / "train" / "train.json", written({"a": [1, 2], "b": [3], "c": [4]}))
    write(folder / "test" / "test.json", written({"c": [7, 8], "a": [6], "d": [9]}))
    dataset = load_dataset("femnist")
    assert (shown(dataset, "train", 0), shown(dataset, "test", 0)) == ([1, 2], [6])
    assert (shown(dataset, "train", 1), shown(dataset, "test", 1)) == ([4], [7, 8])
    assert (dataset.size("train"), dataset.size("test")) == (3, 3)


def test_pixels_are_float32_as_the_files_give_them(no_places: Path) -> None:
    content = written({"a": [1, 2, 3]})
    content["user_data"]["a"]["x"][0][5] = GREY
    write(no_places / "femnist" / "all_data" / "all.json", content)
    dataset = load_dataset("femnist")
    x = dataset.scaled(dataset.take("train", np.array([0]))[0])
    assert x.dtype == np.float32
    assert x[0, 0, 0, 5] == np.float32(GREY)
    assert x[0, 0, 27, 27] == 1


def test_writers_split_from_each_other_are_refused(no_places: Path) -> None:
    write(no_places / "femnist" / "train" / "a.json", written({"a": [1, 2]}))
    write(no_places / "femnist" / "test" / "b.json", written({"b": [3]}))
    with pytest.raises(CloveError, match=r"no writer has images for training and.*-t sample"):
        load_dataset("femnist")


def test_a_writer_is_a_client(no_places: Path) -> None:
    write(no_places / "femnist" / "all_data" / "all.json", written(many(5)))
    mixed = mix(load_dataset("femnist"), "none", seed=0)
    assert mixed.groups.tolist() == [0, 1, 2, 3, 4]
    assert [client.size for client in mixed.clients] == [1, 2, 3, 4, 5]


def test_writers_are_drawn_by_the_seed(no_places: Path) -> None:
    write(no_places / "femnist" / "all_data" / "all.json", written(many(20)))

    def sizes(writers: int, seed: int) -> list[int]:
        groups = load_dataset("femnist", seed=seed, writers=writers).group_train
        assert groups is not None
        return np.bincount(groups).tolist()

    assert sizes(6, seed=1) == sizes(6, seed=1) != sizes(6, seed=2)
    assert len(sizes(6, seed=1)) == 6
    # A larger draw adds writers to a smaller one.
    assert set(sizes(3, seed=1)) < set(sizes(6, seed=1))
    with pytest.raises(CloveError, match="writers=21, but there are 20 to draw from"):
        load_dataset("femnist", writers=21)


def test_the_authors_draw_from_those_who_wrote_most(no_places: Path) -> None:
    write(no_places / "femnist" / "all_data" / "all.json", written(many(25)))
    dataset = load_dataset("femnist", seed=3, writers=1, variant="authors")
    # Ten writers at least are needed to draw one from: four tenths of 25, those with most images.
    assert dataset.size("train") + dataset.size("test") >= 2 + 15
    everybody = load_dataset("femnist", variant="authors")
    assert everybody.group_train is not None
    assert everybody.group_train.max() == 24
    with pytest.raises(CloveError, match="unknown variant 'mine'"):
        load_dataset("femnist", variant="mine")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "no json file of LEAF: expected '{', found '\\['"),
        ({}, "'user_data' holds no writer"),
        ({"users": ["a"]}, "'user_data' holds no writer"),
        ({"users": ["a"], "user_data": {}}, "'user_data' holds no writer"),
        ({"users": ["a"], "user_data": {"a": [1]}}, "writer 'a': expected lists x"),
        ({"users": ["a"], "user_data": {"a": {"x": [[1, 2]], "y": [0]}}}, "784 numbers each"),
        ({"users": ["a"], "user_data": {"a": {"x": [], "y": [0]}}}, "0 images but 1 labels"),
        ({"users": ["a"], "user_data": {"a": {"x": [[]], "y": ["?"]}}}, "writer 'a'"),
        (
            {"users": ["a"], "user_data": {"a": {"x": [[float("nan")] * 784], "y": [0]}}},
            "no finite numbers",
        ),
        (
            {"users": ["a"], "user_data": {"a": {"x": [image(0)] * 2, "y": [0, 62]}}},
            "labels run from",
        ),
    ],
)
def test_files_with_other_contents_are_refused(
    no_places: Path, content: object, message: str
) -> None:
    write(no_places / "femnist" / "all_data" / "all_data_0.json", content)
    with pytest.raises(CloveError, match=message):
        load_dataset("femnist")


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(1, 30_000), indent=st.sampled_from([None, 1]))
def test_a_file_cut_anywhere_is_named(no_places: Path, cut: int, indent: int | None) -> None:
    path = no_places / "femnist" / "all_data" / "all_data_0.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = json.dumps(written({"a": [1, 2], "b": [3]}), indent=indent)
    path.write_text(whole[: -(cut % len(whole)) or -1])
    with pytest.raises(CloveError, match=r"all_data_0\.json is damaged or no json file"):
        load_dataset("femnist")


@settings(deadline=None, max_examples=50)
@given(
    users=st.dictionaries(st.text(), st.lists(st.integers()) | st.integers(), min_size=1),
    before=st.booleans(),
    indent=st.sampled_from([None, 2]),
    chunk=st.integers(1, 20),
)
def test_writers_are_read_one_by_one_as_json_reads_them_all(
    users: dict[str, object], before: bool, indent: int | None, chunk: int
) -> None:
    rest = {"users": list(users), "num_samples": [{"nested": []}, None], "more": 12.5}
    content = {**rest, "user_data": users} if before else {"user_data": users, **rest}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("clove.data.leaf.CHUNK", chunk)
        path = Path(folder) / "some.json"
        path.write_text(json.dumps(content, indent=indent))
        assert dict(writers_in(path)) == users


@pytest.mark.parametrize("text", ['{"user_data" {}}', '{"user_data": {"a": [] "b": []}}', "{,}"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(CloveError, match=r"some\.json is damaged or no json file of LEAF"):
        list(writers_in(path))


def test_data_that_are_not_there_are_answered_with_how_to_make_them(no_places: Path) -> None:
    (no_places / "femnist" / "train").mkdir(parents=True)
    with pytest.raises(CloveError, match=r"was not found.*TalwalkarLab/leaf.*preprocess\.sh"):
        load_dataset("femnist")
