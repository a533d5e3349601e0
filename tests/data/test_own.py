"""One's own clients from files, tables and Hugging Face datasets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from clove.data import (
    ClientData,
    client_from_file,
    clients_from_folder,
    clients_from_hugging_face,
    clients_from_path,
    clients_from_table,
    read_clients,
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
    said = refused(clients_from_folder, tmp_path)
    assert said.startswith("client ward: ")
    assert "pickle" not in said


def test_an_npz_file_with_damaged_content_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "ward.npz", x=np.random.default_rng(0).normal(size=(50, 9)))
    whole = bytearray((tmp_path / "ward.npz").read_bytes())
    whole[300:600] = bytes(300)
    (tmp_path / "ward.npz").write_bytes(whole)
    assert "ward.npz is damaged or no npz file" in refused(clients_from_folder, tmp_path)


def test_a_single_array_under_the_name_of_an_npz_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "ward.npz").open("wb") as file:
        np.save(file, X)
    assert "client ward: " in refused(clients_from_folder, tmp_path)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    npz(tmp_path, "ward.npz", x=np.array([{"a": 1}], dtype=object))
    said = refused(clients_from_folder, tmp_path)
    assert said.endswith("ward.npz is damaged or no npz file: it holds Python objects")


def test_a_misspelt_array_is_refused_rather_than_left_out(tmp_path: Path) -> None:
    npz(tmp_path, "ward.npz", x=X, y_trian=Y)
    assert "unknown array 'y_trian': did you mean 'y_train'?" in refused(
        clients_from_folder, tmp_path
    )


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X, "y": Y, "y_test": Y}, "holds y_test, but no x_test"),
        ({"x": X, "x_train": X}, "holds both x and x_train"),
        ({"x_train": X, "y": Y, "y_train": Y}, "holds both y and y_train"),
    ],
    ids=["lone y_test", "two x", "two y"],
)
def test_arrays_that_contradict_each_other_are_refused(
    tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    npz(tmp_path, "ward.npz", **arrays)
    assert said in refused(clients_from_folder, tmp_path)


def test_words_as_labels_mean_the_same_to_all_clients(tmp_path: Path) -> None:
    npz(tmp_path, "a.npz", x=X, y=np.array(["no", "yes", "no"]))
    npz(tmp_path, "b.npz", x=X[:1], y=np.array(["yes"]), x_test=X[:1], y_test=np.array(["may"]))
    clients = clients_from_folder(tmp_path)
    assert labels(clients) == [[1, 2, 1], [2]]
    assert clients[1].test is not None
    assert clients[1].test[1] == [0]
    npz(tmp_path, "c.npz", x=X, y=Y)
    said = refused(clients_from_folder, tmp_path)
    assert said == "client c: y holds numbers, but client a has words"


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_bytes_and_other_numbers_are_not_mixed(tmp_path: Path, kind: type) -> None:
    npz(tmp_path, "a.npz", x=X.astype(np.uint8))
    npz(tmp_path, "b.npz", x=(50 * X).astype(kind))
    said = refused(clients_from_folder, tmp_path)
    assert f"client b's x is of type {np.dtype(kind)}, client a's x of type uint8" in said


@pytest.mark.parametrize("which", ["label_column", "client_column", "split_column"])
def test_columns_are_not_asked_of_what_has_none(tmp_path: Path, which: str) -> None:
    npz(tmp_path / "arrays", "a.npz", x=X)
    draw(tmp_path / "images" / "a" / "1.png")
    for folder in ("arrays", "images"):
        said = refused(clients_from_path, tmp_path / folder, **{which: "outcome"})
        assert f"{which}=outcome was given, but" in said
        assert "which have no columns" in said
    csv(tmp_path / "tables", "a.csv", "outcome,x\n1,2\n")
    said = refused(clients_from_path, tmp_path / "tables", client_column="outcome")
    assert "in a folder of tables a file is a client" in said


@pytest.mark.parametrize("method", ["iterdir", "is_dir", "open"])
def test_what_may_not_be_read_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    npz(tmp_path, "a.npz", x=X)

    def refuse(path: Path, *given: Any, **named: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refuse)
    for read in (clients_from_path, clients_from_folder):
        assert refused(read, tmp_path).startswith(f"no permission to read {tmp_path}")


@pytest.mark.parametrize("kind", ["csv", "png"])
def test_tables_and_images_that_may_not_be_read_are_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def refuse(path: Path, *given: Any, **named: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    csv(tmp_path / "csv", "a.csv", "x\n1\n")
    draw(tmp_path / "png" / "a" / "1.png")
    monkeypatch.setattr(pd, "read_csv", refuse)
    monkeypatch.setattr(Image, "open", refuse)
    said = refused(clients_from_folder, tmp_path / kind)
    assert said.startswith(f"no permission to read {tmp_path}")


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
        ({"x": X, "y": np.array(["p", "q", "p"])}, "client a: y holds numbers, but client b has"),
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
    assert "row 2 has no client" in refused(clients_from_table, frame)


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


def test_a_table_needs_rows(tmp_path: Path) -> None:
    assert refused(clients_from_table, TABLE[:0]) == "the table has no rows"
    empty = csv(tmp_path, "b.csv", "dose,label\n")
    csv(tmp_path, "a.csv", "dose,label\n1,2\n")
    said = refused(clients_from_folder, tmp_path)
    assert said == f"client b: the table {empty} has no rows"


def test_a_table_needs_features() -> None:
    said = refused(clients_from_table, TABLE[["client", "label"]])
    assert said.startswith("the table has no columns of features")


def test_clients_may_be_called_by_numbers_and_words() -> None:
    frame = TABLE.assign(client=["b", 10, 9, 10])
    assert names(clients_from_table(frame)) == ["10", "9", "b"]


def test_a_column_name_stands_for_one_column(tmp_path: Path) -> None:
    twice = pd.concat([TABLE, TABLE[["label"]]], axis=1)
    assert "two columns called 'label'" in refused(clients_from_table, twice)
    path = csv(tmp_path, "a.csv", "client,label,x,label\na,0,1,1\n")
    assert "a.csv has two columns called 'label'" in refused(clients_from_path, path)


def test_a_column_has_one_purpose() -> None:
    said = refused(clients_from_table, TABLE, label_column="client")
    assert "'client' cannot be two of client_column, label_column" in said


@pytest.mark.parametrize("table", [[[1, 2]], {"client": [1]}, None], ids=["list", "dict", "none"])
def test_a_table_is_a_table(table: object) -> None:
    assert "a table is a path or a pandas DataFrame, not" in refused(clients_from_table, table)


def test_labels_are_words_or_numbers(tmp_path: Path) -> None:
    csv(tmp_path, "a.csv", "dose,label\n1,2\n")
    csv(tmp_path, "b.csv", "dose,label\n1,ill\n")
    said = refused(clients_from_folder, tmp_path)
    assert said == "labels are words (b has some) and numbers (a has some): make them alike"


@pytest.mark.parametrize("name", ["labels", "Label", "lable", "target", "Y"])
def test_a_column_that_may_hold_labels_is_found(name: str, tmp_path: Path) -> None:
    path = csv(tmp_path, "all.csv", f"client,dose,{name}\na,1,0\n")
    assert read_clients(path)[1] == name
    assert read_clients(path, label_column=name)[1] is None


def test_no_other_column_is_taken_for_labels(tmp_path: Path) -> None:
    path = csv(tmp_path, "all.csv", "client,dose,level,age\na,1,0,3\n")
    assert read_clients(path)[1] is None


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


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("a/train/cat", "b/cat"), "client a has its images in train/, client b has no such"),
        (("a/train/cat", "b/train/cat", "b/car/1"), "client a has its images in train/"),
        (("a/train/x", "a/test/x", "a/val/x"), "holds train/ and test/ beside val/"),
        (("a/test/cat",), "holds test/, but no train/"),
    ],
    ids=["some clients", "a class called train", "a third part", "test alone"],
)
def test_all_clients_are_split_or_none(tmp_path: Path, folders: tuple[str, ...], said: str) -> None:
    for folder in folders:
        draw(tmp_path / folder / "1.png")
    assert said in refused(clients_from_folder, tmp_path)


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


def test_pictures_of_a_dataset_are_read_as_those_of_folders(tmp_path: Path) -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    palette = Image.fromarray(grey).convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE)
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    for kind, image in (("p", palette), ("1", Image.new("1", (4, 3), 1)), ("16", deep)):
        (tmp_path / kind / "a").mkdir(parents=True)
        image.save(tmp_path / kind / "a" / "1.png")
        data = Fake({"client": ["a"], "image": [image]})
        (from_dataset,) = clients_from_hugging_face(data, features="image", label=None)
        (from_folder,) = clients_from_folder(tmp_path / kind)
        np.testing.assert_array_equal(from_dataset.train[0], from_folder.train[0])


def test_features_must_be_named_and_a_dataset_given() -> None:
    data = Fake({"client": ["a"], "x": [[1.0]]})
    assert "features=[] names no column" in refused(
        clients_from_hugging_face, data, features=[], label=None
    )
    for other in ([1, 2], {"train": data}):
        said = refused(clients_from_hugging_face, other, features="x", label=None)
        assert said.startswith(f"expected a Hugging Face dataset, got {type(other).__name__}")


# --------------------------------------------------------------------------- the library itself

needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="needs datasets")


@needs_datasets
def test_a_real_dataset_with_a_test_split() -> None:
    datasets = importlib.import_module("datasets")
    columns = {"client": ["b", "a", "b"], "x": [[1.0], [2.0], [3.0]], "label": ["n", "y", "n"]}
    train = datasets.Dataset.from_dict(columns)
    test = datasets.Dataset.from_dict({"client": ["b"], "x": [[4.0]], "label": ["m"]})
    a, b = clients_from_hugging_face(train, features="x", label="label", test=test)
    assert a.test is None
    assert b.test is not None
    assert labels([a, b]) == [[2], [1, 1]]
    assert (b.test[0].tolist(), b.test[1].tolist()) == ([[4.0]], [0])  # type: ignore[union-attr]
    stranger = test.map(lambda row: {"client": "c"})
    said = refused(clients_from_hugging_face, train, features="x", label="label", test=stranger)
    assert said == "client c has test data but no training data"
    splits = datasets.DatasetDict({"train": train})
    said = refused(clients_from_hugging_face, splits, features="x", label=None)
    assert "got DatasetDict; of a dictionary of splits take one" in said


@needs_datasets
def test_real_bytes_are_scaled_and_real_images_read() -> None:
    datasets = importlib.import_module("datasets")
    kinds = datasets.Features(
        {
            "client": datasets.Value("string"),
            "bytes": datasets.Array2D((1, 2), "uint8"),
            "list": datasets.Sequence(datasets.Value("uint8")),
            "whole": datasets.Sequence(datasets.Value("int64")),
            "image": datasets.Image(),
        }
    )
    row = {"client": "a", "bytes": [[0, 255]], "list": [51, 255], "whole": [0, 255]}
    image = Image.new("RGB", (4, 3), (255, 0, 51))
    data = datasets.Dataset.from_list([{**row, "image": image}], features=kinds)
    found = {
        name: clients_from_hugging_face(data, features=name, label=None)[0].train[0]
        for name in ("bytes", "list", "whole", "image")
    }
    np.testing.assert_allclose(found["bytes"], [[[0, 1]]])
    np.testing.assert_allclose(found["list"], [[0.2, 1]])
    np.testing.assert_array_equal(found["whole"], [[0, 255]])
    assert found["image"].shape == (1, 3, 3, 4)
    np.testing.assert_allclose(found["image"][0, :, 0, 0], [1, 0, 0.2])


# ----------------------------------------------------------------------------- one that comes later


def test_a_newcomer_is_an_npz_file_or_a_table(tmp_path: Path) -> None:
    file = npz(tmp_path, "new.npz", x=X, y=Y, x_test=X[:1], y_test=Y[:1])
    found = client_from_file(file)
    assert found.name == "new"
    np.testing.assert_array_equal(found.train[0], X)
    assert found.test is not None
    assert len(found.test[0]) == 1
    rows = csv(tmp_path, "new.csv", "ward,dose,old,ill\nA,1.5,1,0\nA,2,0,1\n")
    table = client_from_file(rows, client_column="ward", label_column="ill")
    np.testing.assert_array_equal(table.train[0], [[1.5, 1], [2, 0]])
    assert labels([table]) == [[0, 1]]


def test_a_newcomers_labels_are_numbers_for_words_were_numbered_without_it(tmp_path: Path) -> None:
    words = np.array(["ill", "well", "ill"])
    for file in (
        npz(tmp_path, "new.npz", x=X, y=words),
        npz(tmp_path, "tested.npz", x=X, y=Y, x_test=X, y_test=words),
        csv(tmp_path, "new.csv", "dose,label\n1.5,ill\n2,well\n"),
    ):
        assert refused(client_from_file, file).startswith(f"{file}: labels are words")


def test_what_is_no_newcomers_file_is_refused(tmp_path: Path) -> None:
    assert "is a folder: name a file of one client" in refused(client_from_file, tmp_path)
    assert "is not there: name a file" in refused(client_from_file, tmp_path / "new.npz")
    assert "damaged or no npz" in refused(client_from_file, csv(tmp_path, "new.txt", "1,2"))
