"""The table of clients' labels."""

from __future__ import annotations

import numpy as np

from clove.data import ClientData, load_dataset, mix
from clove.data.mixings import MixedClients, describe

from .synthetic import labels, numbered


def test_labels_are_counted_as_the_clients_see_them() -> None:
    dataset = numbered(800)
    mixed = mix(dataset, "concept-shift", 0)
    counts = describe(mixed, dataset)
    assert counts.labels == [str(label) for label in range(10)]
    for client, train, test in zip(mixed.clients, counts.train, counts.test, strict=True):
        assert train.tolist() == [np.sum(labels(client) == label) for label in range(10)]
        assert test.tolist() == [np.sum(labels(client, "test") == label) for label in range(10)]


def test_a_row_says_cluster_and_numbers() -> None:
    mixed = mix(numbered(), "label-skew-1", 0, clusters=2, clients_per_cluster=1)
    counts = describe(mixed, numbered())
    row = counts.rows()[1]
    assert (row["client"], row["cluster"], row["train"], row["test"]) == (1, 1, 80, 40)
    assert (row["label 0"], row["label 2"], row["label 3"]) == (0, 40, 40)


def test_without_clusters_the_rows_have_none() -> None:
    dataset = numbered()
    rows = describe(mix(dataset, "dirichlet", 0, total_clients=3), dataset).rows()
    assert [row["cluster"] for row in rows] == [None] * 3


def test_data_without_classes_have_one_column() -> None:
    linear, unlabelled = load_dataset("linear", points=50), numbered(y_train=None, y_test=None)
    for dataset, mixing in ((linear, "none"), (unlabelled, "feature-skew")):
        mixed = mix(dataset, mixing, 0)
        counts = describe(mixed, dataset)
        assert counts.labels == ["all"]
        assert counts.train[:, 0].tolist() == [client.size for client in mixed.clients]


def test_clients_without_test_points_have_none_of_any_label() -> None:
    client = ClientData(train=(np.zeros((2, 1, 2, 2)), np.array([1, 1])))
    counts = describe(MixedClients([client], None, None), numbered(classes=3))
    assert counts.train.tolist() == [[0, 2, 0]]
    assert counts.test.tolist() == [[0, 0, 0]]
