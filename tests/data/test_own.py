"""One's own clients from files, tables and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from clove.data import (
    ClientData,
    clients_from_folder,
    clients_from_hugging_face,
    clients_from_path,
    clients_from_table,
)
from clove.errors import CloveError

X = np.arange(6.0, dtype=np.float32).reshape(3, 2)
Y = np.array([0, 1, 0])


def names(clients: Sequence[ClientData]) -> list[str | None]:
    return [client.name for client in clients]


def labels(clients: Sequence[ClientData]) -> list[list[int]]:
    return [client.train[1].tolist() for client in clients if client.train[1] is not None]


def refused(read: Callable[..., Any], *given: Any, **options: Any) -> str:
    with pytest.raises(CloveError) as caught:
        read(*given, **options)
    return str(caught.value)


# -------------------------------------------------------------------------------------------- npz


def npz(folder: Path, name: str, **arrays: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / name, **arrays)
    return folder / name


def test_an_npz_file_is_a_client_with_the_files_name(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        npz(tmp_path, f"{name}.npz", x=X, y=Y)
    clients = clients_from_folder(tmp_path)
    assert names(clients) == ["a", "b", "c"]
    np.testing.assert_array_equal(clients[0].train[0], X)
    assert labels(clients) == [Y.tolist()] * 3
    assert [client.test for client in clients] == [None] * 3


def test_an_npz_file_may_hold_test_data(tmp_path: Path) -> None:
    npz(tmp_path, "a.npz", x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2])
    (client,) = clients_from_folder(tmp_path)
    assert client.test is not None
    np.testing.assert_array_equal(client.test[0], X[:2])
    np.testing.assert_array_equal(client.test[1], Y[:2])


def test_without_y_clients_are_unlabelled(tmp_path: Path) -> None:
    npz(tmp_path, "a.npz", x=X)
    assert clients_from_folder(tmp_path)[0].train[1] is None


def test_bytes_become_numbers_from_0_to_1_and_other_numbers_stay(tmp_path: Path) -> None:
    grey = np.array([[0, 51], [255, 102]], np.uint8)
    npz(tmp_path / "bytes", "a.npz", x=grey, x_test=grey[:1])
    npz(tmp_path / "numbers", "a.npz", x=grey.astype(np.int64))
    (client,) = clients_from_folder(tmp_path / "bytes")
    assert client.test is not None
    for x in (client.train[0], client.test[0]):
        assert x.dtype == np.float32
    np.testing.assert_allclose(client.train[0], [[0, 0.2], [1, 0.4]])
    np.testing.assert_allclose(client.test[0], [[0, 0.2]])
    assert clients_from_folder(tmp_path / "numbers")[0].train[0].max() == 255


def test_an_npz_file_without_x_is_refused_by_name(tmp_path: Path) -> None:
    npz(tmp_path, "ward.npz", features=X, y=Y)
    said = refused(clients_from_folder, tmp_path)
    assert "client ward: " in said
    assert "needs an array x (or x_train); it has features, y" in said


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 and then nothing"])
def test_a_damaged_npz_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ward.npz").write_bytes(content)
    assert "client ward: " in refused(clients_from_folder, tmp_path)


def test_an_npz_file_with_damaged_content_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "ward.npz", x=np.random.default_rng(0).normal(size=(50, 9)))
    whole = bytearray((tmp_path / "ward.npz").read_bytes())
    whole[300:600] = bytes(300)
    (tmp_path / "ward.npz").write_bytes(whole)
    assert "ward.npz cannot be read as npz" in refused(clients_from_folder, tmp_path)


def test_a_single_array_under_the_name_of_an_npz_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "ward.npz").open("wb") as file:
        np.save(file, X)
    assert "client ward: " in refused(clients_from_folder, tmp_path)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    npz(tmp_path, "ward.npz", x=np.array([{"a": 1}], dtype=object))
    assert "ward.npz cannot be read as npz" in refused(clients_from_folder, tmp_path)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X[:, :1], "y": Y}, "client 1 (b) has features of shape (1,), expected (2,)"),
        ({"x": X}, "client 1 (b) has labels of shape none, expected ()"),
        ({"x": X, "y": Y / 2}, "client 1 (b) has labels of type float, expected integer"),
        ({"x": X, "y": Y[:2]}, "client b: training x has 3 points but y has 2"),
        ({"x": X[:0], "y": Y[:0]}, "client b has no training data"),
        ({"x": X * np.nan, "y": Y}, "client b: training x holds NaN"),
        ({"x": X, "y": Y, "x_test": X}, "client b's test data has labels of shape none"),
        ({"x": X, "y": np.array(["p", "q", "p"])}, "client b: training y holds values of type"),
    ],
    ids=["shape", "no labels", "dtype", "lengths", "empty", "nan", "no test labels", "text"],
)
def test_what_does_not_fit_the_other_clients_is_refused_by_name(
    tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    npz(tmp_path, "a.npz", x=X, y=Y)
    npz(tmp_path, "b.npz", **arrays)
    assert said in refused(clients_from_folder, tmp_path)


# ---------------------------------------------------------------------------------------- folders


def test_hidden_files_and_files_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    npz(tmp_path, "a.npz", x=X)
    (tmp_path / "README.txt").write_text("about these files")
    (tmp_path / "._a.npz").write_bytes(b"a Mac was here")
    (tmp_path / ".cache").mkdir()
    assert names(clients_from_folder(tmp_path)) == ["a"]


def test_endings_may_be_in_capitals(tmp_path: Path) -> None:
    npz(tmp_path / "arrays", "a.npz", x=X).rename(tmp_path / "arrays" / "a.NPZ")
    csv(tmp_path / "tables", "b.CSV", "p,q\n1,2\n")
    assert names(clients_from_folder(tmp_path / "arrays")) == ["a"]
    assert names(clients_from_folder(tmp_path / "tables")) == ["b"]


def test_a_folder_holds_one_kind_of_clients(tmp_path: Path) -> None:
    npz(tmp_path, "a.npz", x=X)
    (tmp_path / "b.csv").write_text("p,q\n1,2\n")
    assert "both .npz files and tables" in refused(clients_from_folder, tmp_path)
    (tmp_path / "c").mkdir()
    assert "both files and folders" in refused(clients_from_folder, tmp_path)


def test_an_empty_folder_says_what_to_put_there(tmp_path: Path) -> None:
    assert "put one .npz, .parquet or .csv file in it" in refused(clients_from_folder, tmp_path)


def test_a_path_may_be_a_folder_or_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "all.csv"
    table.write_text("client,7,label\na,1,0\nb,2,1\n")
    options = {"client_column": "client", "label_column": "label", "split_column": "split"}
    assert names(clients_from_path(table, **options)) == ["a", "b"]
    assert labels(clients_from_path(table, label_column=7)) == [[1], [2]]  # as --set reads it
    npz(tmp_path / "folder", "c.npz", x=X)
    assert names(clients_from_path(tmp_path / "folder", **options)) == ["c"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert names(clients_from_path("~/folder")) == ["c"]


def test_a_path_to_nowhere_is_refused(tmp_path: Path) -> None:
    assert "no folder or table of clients at" in refused(clients_from_path, tmp_path / "none")
    assert "no folder of clients at" in refused(clients_from_folder, tmp_path / "none")
    (tmp_path / "a.xlsx").write_text("")
    assert "use .csv or .parquet" in refused(clients_from_path, tmp_path / "a.xlsx")


# ----------------------------------------------------------------------------------------- tables


def csv(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


TABLE = pd.DataFrame(
    {
        "client": ["b", "a", "b", "a"],
        "dose": [1.5, 2.0, 3.0, 4.0],
        "old": [True, False, True, True],
        "label": ["well", "ill", "ill", "ill"],
    }
)


@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_a_table_has_a_row_a_sample_and_a_client_column(tmp_path: Path, kind: str) -> None:
    TABLE.to_csv(tmp_path / "all.csv", index=False)
    clients = clients_from_table(TABLE if kind == "frame" else tmp_path / "all.csv")
    assert names(clients) == ["a", "b"]
    np.testing.assert_array_equal(clients[0].train[0], [[2.0, 0], [4.0, 1]])
    np.testing.assert_array_equal(clients[1].train[0], [[1.5, 1], [3.0, 1]])
    assert labels(clients) == [[0, 0], [1, 0]]
    assert clients[0].train[0].dtype == np.float32


def test_client_numbers_are_in_the_order_of_numbers() -> None:
    frame = pd.DataFrame({"client": [10, 9, 100], "x": [1.0, 2.0, 3.0]})
    assert names(clients_from_table(frame)) == ["9", "10", "100"]


def test_columns_may_have_other_names() -> None:
    frame = pd.DataFrame(
        {
            "site": ["a"] * 3,
            "x": [1.0, 2, 3],
            "out": [0.5, 1, 2],
            "part": ["train", "test", "train"],
        }
    )
    (client,) = clients_from_table(
        frame, client_column="site", label_column="out", split_column="part"
    )
    assert client.test is not None
    np.testing.assert_array_equal(client.train[0], [[1], [3]])
    assert labels([client]) == [[0.5, 2]]
    np.testing.assert_array_equal(client.test[0], [[2]])
    np.testing.assert_array_equal(client.test[1], [1])


def test_a_client_may_have_no_test_rows() -> None:
    frame = TABLE.assign(split=["train", "train", "train", "test"])
    a, b = clients_from_table(frame)
    assert a.test is not None
    assert b.test is None


def test_tables_without_labels_are_unlabelled() -> None:
    assert labels(clients_from_table(TABLE.drop(columns="label"))) == []


def test_columns_may_be_of_pandas_nullable_kinds() -> None:
    frame = TABLE.assign(old=TABLE["old"].astype("boolean"), dose=TABLE["dose"].astype("Float64"))
    assert names(clients_from_table(frame)) == ["a", "b"]
    frame.loc[2, "dose"] = pd.NA
    assert "client b: training x holds NaN" in refused(clients_from_table, frame)


def test_each_table_of_a_folder_is_a_client(tmp_path: Path) -> None:
    csv(tmp_path, "b.csv", "dose,label,split\n1,well,train\n2,ill,train\n3,ill,test\n")
    csv(tmp_path, "a.csv", "label,dose,split\nill,4,train\nill,5,test\n")
    clients = clients_from_folder(tmp_path)
    assert names(clients) == ["a", "b"]
    assert labels(clients) == [[0], [1, 0]]  # a is ill though no one is well there
    np.testing.assert_array_equal(clients[0].train[0], [[4]])
    assert clients[1].test is not None


def test_parquet_files_are_read_where_pyarrow_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    TABLE.to_parquet(tmp_path / "all.parquet")
    assert names(clients_from_table(tmp_path / "all.parquet")) == ["a", "b"]
    TABLE.drop(columns="client").to_parquet(tmp_path / "all.parquet")
    assert names(clients_from_folder(tmp_path)) == ["all"]


def test_parquet_files_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(path: Path) -> pd.DataFrame:
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd, "read_parquet", lacking)
    (tmp_path / "a.parquet").write_bytes(b"")
    assert "needs pyarrow: pip install pyarrow" in refused(clients_from_folder, tmp_path)


def test_a_table_without_a_client_column_is_refused() -> None:
    said = refused(clients_from_table, TABLE, client_column="site")
    assert "no column 'site' to say whose each row is; it has client, dose, old, label" in said


@pytest.mark.parametrize("which", ["label_column", "split_column"])
def test_a_column_that_was_asked_for_must_be_there(tmp_path: Path, which: str) -> None:
    assert "no column 'outcome'" in refused(clients_from_table, TABLE, **{which: "outcome"})
    csv(tmp_path, "a.csv", "dose,label\n1,2\n")
    assert "no column 'outcome'" in refused(clients_from_folder, tmp_path, **{which: "outcome"})


def test_a_row_without_a_client_is_refused_by_number() -> None:
    frame = TABLE.assign(client=["a", "b", None, "a"])
    assert "row 2 of the table has no client" in refused(clients_from_table, frame)


def test_a_missing_label_is_refused_by_client(tmp_path: Path) -> None:
    frame = TABLE.assign(label=["well", "ill", None, "ill"])
    assert "client b: its point 1 has no label" in refused(clients_from_table, frame)
    csv(tmp_path, "a.csv", "dose,label\n1,2\n")
    csv(tmp_path, "b.csv", "dose,label\n1,2\n3,\n")
    assert "client b: its point 1 has no label" in refused(clients_from_folder, tmp_path)


def test_a_column_of_words_is_refused_with_the_client_that_has_them(tmp_path: Path) -> None:
    csv(tmp_path, "a.csv", "dose,label\n1,2\n")
    csv(tmp_path, "b.csv", "dose,label\n1,2\nhigh,1\n")
    said = refused(clients_from_folder, tmp_path)
    assert "client b: column 'dose' does not hold numbers but 'high'" in said
    assert "encode it, drop it, or name it as the label" in said


def test_dates_are_no_numbers() -> None:
    frame = TABLE.assign(day=pd.Timestamp("2026-01-01"))
    assert "column 'day' does not hold numbers" in refused(clients_from_table, frame)


@pytest.mark.parametrize("other", ["validation", None])
def test_splits_are_train_and_test(other: str | None) -> None:
    frame = TABLE.assign(split=["train", "train", other, "test"])
    assert "client b: split must be train or test, not" in refused(clients_from_table, frame)


def test_a_client_needs_training_rows() -> None:
    frame = TABLE.assign(split=["train", "test", "test", "test"])
    assert "client a has no training data" in refused(clients_from_table, frame)


def test_tables_of_a_folder_must_have_the_same_columns(tmp_path: Path) -> None:
    csv(tmp_path, "a.csv", "dose,age\n1,2\n")
    csv(tmp_path, "b.csv", "dose,weight\n1,2\n")
    assert "b.csv and " in (said := refused(clients_from_folder, tmp_path))
    assert said.endswith("differ in columns: age, weight")


def test_a_client_has_one_table(tmp_path: Path) -> None:
    csv(tmp_path, "a.csv", "dose\n1\n")
    csv(tmp_path, "a.CSV", "dose\n1\n")
    assert "client a has more than one file" in refused(clients_from_folder, tmp_path)


@pytest.mark.parametrize("content", [b"", b'a,b\n1,2,3\n4,5\n"', b"\xff\xfe\x00dose\n1\n"])
def test_a_damaged_table_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert "a.csv cannot be read" in refused(clients_from_folder, tmp_path)


# ----------------------------------------------------------------------------------------- images


def draw(path: Path, value: int = 0, size: tuple[int, int] = (4, 3), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("1", "L", "I;16") else (value,) * len(mode)).save(path)


def test_folders_of_images_by_class_are_clients(tmp_path: Path) -> None:
    draw(tmp_path / "b" / "dog" / "1.png", 255)
    draw(tmp_path / "b" / "cat" / "2.png", 51)
    draw(tmp_path / "a" / "emu" / "1.jpg", 0)
    clients = clients_from_folder(tmp_path)
    assert names(clients) == ["a", "b"]
    assert labels(clients) == [[2], [0, 1]]
    assert clients[1].train[0].shape == (2, 1, 3, 4)
    assert clients[1].train[0].dtype == np.float32
    np.testing.assert_allclose(clients[1].train[0][:, 0, 0, 0], [0.2, 1])


def test_folders_of_images_may_be_split(tmp_path: Path) -> None:
    for client, part, kind in (
        *(("a", "train", "cat"), ("a", "train", "dog"), ("a", "test", "dog")),
        *(("b", "train", "dog"), ("b", "test", "cat")),
    ):
        draw(tmp_path / client / part / kind / "1.png")
    clients = clients_from_folder(tmp_path)
    assert labels(clients) == [[0, 1], [1]]
    assert [client.test[1].tolist() for client in clients if client.test] == [[1], [0]]


def test_training_images_alone_are_no_class_called_train(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "train" / "cat" / "1.png")
    draw(tmp_path / "b" / "train" / "dog" / "1.png")
    clients = clients_from_folder(tmp_path)
    assert labels(clients) == [[0], [1]]
    assert clients[0].test is None


def test_train_may_be_a_class_among_others(tmp_path: Path) -> None:
    for kind in ("car", "train"):
        draw(tmp_path / "a" / kind / "1.png")
    assert labels(clients_from_folder(tmp_path)) == [[0, 1]]


@pytest.mark.parametrize("split", [False, True])
def test_images_without_classes_are_unlabelled(tmp_path: Path, split: bool) -> None:
    for client in ("a", "b"):
        draw(tmp_path / client / ("train" if split else "") / "1.png")
        if split:
            draw(tmp_path / client / "test" / "1.png")
    clients = clients_from_folder(tmp_path)
    assert labels(clients) == []
    assert all((client.test is not None) == split for client in clients)


def test_colours_come_first_and_other_greys_are_grey(tmp_path: Path) -> None:
    draw(tmp_path / "rgb" / "a" / "1.png", 255, mode="RGB")
    assert clients_from_folder(tmp_path / "rgb")[0].train[0].shape == (1, 3, 3, 4)
    draw(tmp_path / "grey" / "a" / "1.png", 1, mode="1")
    draw(tmp_path / "grey" / "a" / "2.png", 255, mode="LA")
    draw(tmp_path / "grey" / "a" / "3.png", 65535, mode="I;16")
    (client,) = clients_from_folder(tmp_path / "grey")
    assert client.train[0].shape == (3, 1, 3, 4)
    np.testing.assert_allclose(client.train[0], 1)


def test_hidden_images_are_passed_over(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "cat" / "1.png")
    (tmp_path / "a" / "cat" / "._1.png").write_bytes(b"a Mac was here")
    draw(tmp_path / "a" / ".thumbnails" / "1.png", size=(1, 1))
    (client,) = clients_from_folder(tmp_path)
    assert labels([client]) == [[0]]


def test_a_folder_without_images_is_refused_by_client(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "train" / "1.png")
    (tmp_path / "a" / "test").mkdir()
    assert "client a: there are no images in" in refused(clients_from_folder, tmp_path)


def test_an_image_in_no_class_is_refused(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "cat" / "1.png")
    draw(tmp_path / "b" / "1.png")
    said = refused(clients_from_folder, tmp_path)
    assert said.startswith("client b: ")
    assert said.endswith("1.png is in no class, as other images are")


def test_a_damaged_image_is_refused_by_name(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "1.png", size=(50, 50))
    whole = (tmp_path / "a" / "1.png").read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        (tmp_path / "a" / "1.png").write_bytes(content)
        said = refused(clients_from_folder, tmp_path)
        assert said.startswith("client a: ")
        assert "1.png cannot be read as an image" in said


def test_images_must_be_alike(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "1.png")
    draw(tmp_path / "a" / "2.png", size=(5, 3))
    assert "2.png differs in size or colours from" in refused(clients_from_folder, tmp_path)
    draw(tmp_path / "a" / "2.png", mode="RGB")
    assert "(3, 3, 4), not (1, 3, 4)" in refused(clients_from_folder, tmp_path)
    (tmp_path / "a" / "2.png").unlink()
    draw(tmp_path / "b" / "1.png", size=(5, 3))
    assert "client 1 (b) has features of shape (1, 3, 5)" in refused(clients_from_folder, tmp_path)


# ----------------------------------------------------------------------------------- hugging face


class Fake:
    """As much of a Hugging Face dataset as is used: columns, and rows by number."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = columns
        self.column_names = list(columns)

    def select(self, rows: Sequence[int]) -> Fake:
        return Fake({name: [values[row] for row in rows] for name, values in self.columns.items()})

    def __getitem__(self, column: str) -> Sequence[Any]:
        return self.columns[column]


def test_a_hugging_face_dataset_has_a_partition_column() -> None:
    data = Fake(
        {
            "client": ["b", "a", "b"],
            "pixels": [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, 5.0]]],
            "label": [3, 4, 5],
        }
    )
    clients = clients_from_hugging_face(data, features="pixels", label="label")
    assert names(clients) == ["a", "b"]
    assert labels(clients) == [[4], [3, 5]]
    np.testing.assert_array_equal(clients[1].train[0], [[[0, 1]], [[4, 5]]])


def test_several_columns_are_features_and_labels_may_be_words() -> None:
    data = Fake({"site": [10, 9, 10], "p": [1, 2, 3], "q": [4.0, 5.0, 6.0], "out": ["n", "y", "y"]})
    clients = clients_from_hugging_face(data, partition="site", features=["p", "q"], label="out")
    assert names(clients) == ["9", "10"]
    assert labels(clients) == [[1], [0, 1]]
    np.testing.assert_array_equal(clients[1].train[0], [[1, 4], [3, 6]])
    unlabelled = clients_from_hugging_face(data, partition="site", features=["p"], label=None)
    assert labels(unlabelled) == []


def test_pictures_are_scaled_and_their_colours_come_first() -> None:
    images = [Image.new("RGB", (4, 3), (255, 0, 51)), Image.new("RGB", (4, 3))]
    data = Fake({"client": ["a", "a"], "image": images})
    (client,) = clients_from_hugging_face(data, features="image", label=None)
    assert client.train[0].shape == (2, 3, 3, 4)
    np.testing.assert_allclose(client.train[0][0, :, 0, 0], [1, 0, 0.2])


def test_hugging_face_columns_must_be_there_and_full() -> None:
    data = Fake({"client": ["a", None], "x": [[1.0], [1.0]], "label": [0, None]})
    for wrong in (
        {"partition": "site", "features": "x", "label": None},
        {"features": "site", "label": None},
        {"features": ["x", "site"], "label": None},
        {"features": "x", "label": "site"},
    ):
        said = refused(clients_from_hugging_face, data, **wrong)
        assert said == "the dataset has no column 'site'; it has client, x, label"
    said = refused(clients_from_hugging_face, data, features="x", label=None)
    assert said == "row 1 has no client"
    full = Fake({**data.columns, "client": ["a", "b"]})
    said = refused(clients_from_hugging_face, full, features="x", label="label")
    assert said == "client b: its point 0 has no label"


def test_hugging_face_samples_must_be_alike() -> None:
    data = Fake({"client": ["a", "a"], "x": [[1.0], [1.0, 2.0]]})
    said = refused(clients_from_hugging_face, data, features="x", label=None)
    assert said == "client a: its sample 1 has shape (2,), the first (1,): all must be alike"
