from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data import ClientData, check_clients, holdout
from clove.errors import CloveError

X = np.arange(12.0).reshape(4, 3)
Y = np.array([0, 1, 0, 1])


def test_arrays_come_back_as_they_went_in_without_a_copy() -> None:
    client = ClientData(train=(X, Y), test=(X[:2], Y[:2]), name="ward A", group=np.int64(3))
    assert client.train[0] is X
    assert client.train[1] is Y
    assert client.size == 4
    assert client.labelled
    assert client.group == 3
    assert type(client.group) is int


@pytest.mark.parametrize("train", [X, (X, None), X.tolist()])
def test_without_labels_a_client_is_unsupervised(train: object) -> None:
    client = ClientData(train=train)  # type: ignore[arg-type]
    assert client.train[1] is None
    assert not client.labelled
    np.testing.assert_array_equal(client.train[0], X)


def test_lists_become_arrays() -> None:
    client = ClientData(train=([[0.0], [1.0]], [0, 1]))
    assert client.train[0].shape == (2, 1)
    assert client.train[1] is not None
    assert client.train[1].dtype.kind == "i"


def test_the_text_of_a_client_is_short() -> None:
    assert repr(ClientData((X, Y), (X, Y), name="a")) == (
        "ClientData('a': 4 training points of shape (3,), 4 test points)"
    )
    assert "no test points" in repr(ClientData(X))


def test_a_client_cannot_be_changed_but_can_be_pickled() -> None:
    client = ClientData((X, Y), name="a")
    with pytest.raises(AttributeError):
        client.name = "b"  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(client))
    np.testing.assert_array_equal(copy.train[0], X)
    assert copy.name == "a"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ((X, Y[:3]), "client 3: training x has 4 points but y has 3"),
        ((X[:0], Y[:0]), "client 3 has no training data"),
        (X[:0], "client 3 has no training data"),
        ((np.where(X == 7, np.nan, X), Y), "training x holds NaN or infinite values, .* point 2"),
        ((X, np.array([0, np.inf, 0, 1])), "training y holds NaN or infinite values, .* point 1"),
        ((np.array([{}, {}]), None), "type object"),
        ((X, np.array(["a", "b", "a", "b"])), "training y holds values of type <U1"),
        ((X, Y, Y), "a tuple of 3"),
        ([X, Y], r"given as a tuple \(x, y\)"),
        (5.0, "single number"),
    ],
)
def test_unsound_training_data_are_refused_with_the_clients_name(
    train: object, message: str
) -> None:
    with pytest.raises(CloveError, match=message):
        ClientData(train=train, name="3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ((X[:0], Y[:0]), "has no test data"),
        ((X[:, :2], Y), r"client 3's test data has features of shape \(2,\), expected \(3,\)"),
        ((X.astype(int), Y), "features of type integer, expected float as in its training data"),
        (X, "labels of shape none"),
        ((X, Y / 2), "labels of type float, expected integer"),
        ((X, Y[:, None] / 2), r"labels of shape \(1,\), expected \(\)"),
    ],
)
def test_test_data_must_be_of_the_kind_of_the_training_data(test: object, message: str) -> None:
    with pytest.raises(CloveError, match=message):
        ClientData(train=(X, Y), test=test, name="3")  # type: ignore[arg-type]


def test_a_column_of_classes_is_a_class_a_point() -> None:
    client = ClientData(train=(X, Y[:, None]), test=(X, Y))
    assert client.train[1] is not None
    np.testing.assert_array_equal(client.train[1], Y)
    fractions = ClientData(train=(X, Y[:, None] / 2)).train[1]
    assert fractions is not None
    assert fractions.shape == (len(Y), 1)


def test_a_tensor_may_have_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    client = ClientData(torch.ones(3, 2, requires_grad=True))
    np.testing.assert_array_equal(client.train[0], np.ones((3, 2)))


def test_points_need_features() -> None:
    with pytest.raises(CloveError, match=r"training x has shape \(4, 0\): its points have no feat"):
        ClientData(np.empty((4, 0)))


def test_a_group_is_a_number() -> None:
    with pytest.raises(CloveError, match="client w: group must be a whole number, not 'a'"):
        ClientData(X, name="w", group="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("clients", [5, ClientData(X), None], ids=["number", "one", "none"])
def test_clients_are_a_list(clients: object) -> None:
    with pytest.raises(CloveError, match="clients must be a list of ClientData, not"):
        check_clients(clients)  # type: ignore[arg-type]


def test_an_unnamed_client_is_called_so() -> None:
    with pytest.raises(CloveError, match="an unnamed client has no training data"):
        ClientData(X[:0])


def test_clients_that_agree_form_a_federation() -> None:
    clients = (ClientData((X, Y)), ClientData((X[:1].astype(np.float32), Y[:1].astype(np.uint8))))
    assert check_clients(clients) == list(clients)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (ClientData((X[:, :2], Y)), r"client 1 has features of shape \(2,\), expected \(3,\)"),
        (ClientData((X.astype(int), Y)), "client 1 has features of type integer, expected float"),
        (ClientData(X), "client 1 has labels of shape none, .* as in client 0"),
        (ClientData((X, Y / 2), name="b"), r"client 1 \(b\) has labels of type float"),
        ((X, Y), "client 1 is of type tuple, expected ClientData"),
    ],
)
def test_a_client_unlike_the_first_is_named(odd: object, message: str) -> None:
    with pytest.raises(CloveError, match=message):
        check_clients([ClientData((X, Y)), odd])  # type: ignore[list-item]


def test_a_federation_has_at_least_one_client() -> None:
    with pytest.raises(CloveError, match="at least one client"):
        check_clients([])


@settings(deadline=None)
@given(size=st.integers(2, 60), share=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_holdout_divides_the_training_points(size: int, share: float, seed: int) -> None:
    x = np.arange(size)[:, None]
    client = ClientData((x, x[:, 0]), name="a", group=2)
    (divided,), count = holdout([client], share, seed=seed)
    assert count == 1
    assert divided.test is not None
    assert (divided.name, divided.group) == ("a", 2)
    train, test = divided.train[0][:, 0], divided.test[0][:, 0]
    assert sorted([*train, *test]) == list(range(size))
    assert len(train) >= 1
    assert len(test) >= 1
    assert abs(len(test) - share * size) <= 1
    np.testing.assert_array_equal(divided.train[1], train)
    np.testing.assert_array_equal(divided.test[1], test)


def test_holdout_leaves_clients_with_test_data_alone_and_counts_the_others() -> None:
    whole, bare = ClientData((X, Y), (X, Y)), ClientData(X)
    clients, count = holdout([whole, bare, bare], seed=0)
    assert clients[0] is whole
    assert count == 2
    assert clients[1].test is not None
    assert clients[1].test[1] is None


def test_holdout_depends_on_the_seed_and_the_clients_place_only() -> None:
    client = ClientData(np.arange(50)[:, None])

    def held(seed: int) -> list[list[int]]:
        clients, _ = holdout([client, client], seed=seed)
        return [c.test[0][:, 0].tolist() for c in clients if c.test is not None]

    assert held(1) == held(1)
    assert held(1) != held(2)
    assert held(1)[0] != held(1)[1]


def test_nothing_can_be_held_out_of_one_point() -> None:
    with pytest.raises(CloveError, match=r"client 1 \(b\) has one training point"):
        holdout([ClientData(X), ClientData(X[:1], name="b")], seed=0)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_the_share_held_out_lies_between_nought_and_one(share: float) -> None:
    with pytest.raises(CloveError, match="between 0 and 1"):
        holdout([ClientData(X)], share, seed=0)
