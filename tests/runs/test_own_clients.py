"""One's own clients and networks, handed over in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import clove
from clove.data import Dataset
from clove.errors import CloveError
from clove.runs import build
from clove.runs.build import gather_clients
from clove.runs.settings import data_title, from_names
from tests.runs.small import QUICK, MyNet, own_clients

LEARN = {**QUICK, "rounds": 12, "learning_rate": 0.03}


def test_own_clients_and_network_are_grouped_and_served() -> None:
    clients = own_clients()
    result = clove.run(
        clients=clients, task=clove.classification(MyNet), algorithm="clove", max_models=4, **LEARN
    )
    assert result.accuracy is not None
    assert result.accuracy > 0.85
    assert result.ari is None
    assert isinstance(result.model(0), MyNet)
    first, second = set(result.assignment[:3].tolist()), set(result.assignment[3:].tolist())
    assert not first & second
    newcomer = result.assign(*own_clients(seed=1)[0].train)
    assert newcomer.model in first


def test_groups_that_clients_name_are_compared_with() -> None:
    clients = [
        clove.ClientData(client.train, client.test, group=index // 3)
        for index, client in enumerate(own_clients())
    ]
    result = clove.run(clients=clients, **LEARN)
    assert result.ari == 1.0
    assert result.summary()["models"] == 2


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (None, "reconstruction"),
        (np.arange(40) % 3, "classification"),
        (np.linspace(0.0, 1.0, 40), "regression"),
        (np.ones((40, 2)), "regression"),
    ],
    ids=["none", "classes", "numbers", "pairs of numbers"],
)
def test_the_task_follows_from_the_labels(labels: np.ndarray | None, task: str) -> None:
    x = np.random.default_rng(0).normal(size=(40, 8))
    result = clove.run(clients=[clove.ClientData((x, labels))] * 2, algorithm="fedavg", **QUICK)
    assert result.settings.task == task
    assert result.test_loss is not None
    assert (result.accuracy is None) == (task != "classification")


def test_the_task_may_be_given_by_name() -> None:
    clients = own_clients()
    result = clove.run(clients=clients, task="reconstruction", algorithm="fedavg", **QUICK)
    assert (result.settings.task, result.accuracy) == ("reconstruction", None)


def test_a_class_that_only_test_data_have_counts() -> None:
    x = np.zeros((4, 3))
    client = clove.ClientData(train=(x, [0, 1, 0, 1]), test=(x, [0, 1, 2, 1]))
    result = clove.run(clients=[client], algorithm="fedavg", **QUICK)
    assert result.model(0)[-1].out_features == 3


def test_missing_test_data_are_held_out() -> None:
    gathered = gather_clients(from_names(dataset="own-clients"), own_clients(test=False))
    sizes = [(client.size, len(client.test[0])) for client in gathered.clients if client.test]
    assert sizes == [(32, 8)] * 6
    assert gathered.remark is not None
    assert gathered.remark.startswith("6 clients had no test data")


def test_clients_and_a_data_set_are_not_given_together(tmp_path: Path) -> None:
    clients = own_clients()
    for other in ({"dataset": "digits"}, {"mixing": "label-skew-1"}):
        with pytest.raises(CloveError, match="either your own clients or a dataset"):
            clove.run(clients=clients, **other)
        with pytest.raises(CloveError, match="either your own clients or a dataset"):
            clove.compare(["fedavg"], clients=clients, out=tmp_path / "out", **other)


def test_the_number_of_models_must_come_from_somewhere() -> None:
    with pytest.raises(CloveError, match="needs the number of models"):
        clove.run(clients=own_clients(), **QUICK)


def test_a_data_set_has_no_options_where_clients_are_given() -> None:
    with pytest.raises(CloveError, match=r"of mixing none, .*, not of your own clients"):
        clove.run(clients=own_clients(), points_per_client=3)


def test_a_run_of_own_clients_cannot_be_started_from_its_settings_alone() -> None:
    with pytest.raises(CloveError, match="hand them over again"):
        clove.run(dataset="own-clients")


def test_an_own_network_is_handed_over_again_to_a_loaded_run(tmp_path: Path) -> None:
    task, clients = clove.classification(MyNet), own_clients()
    result = clove.run(clients=clients, task=task, models=2, out=tmp_path / "run", **QUICK)
    alone = clove.load(tmp_path / "run")
    assert alone.summary() == result.summary()
    for use in (lambda: alone.model(0), lambda: alone.assign(*clients[0].train)):
        with pytest.raises(CloveError, match=r"network of your own: clove\.load\(path, task="):
            use()
    loaded = clove.load(tmp_path / "run", task=task)
    assert isinstance(loaded.model(0), MyNet)
    assert loaded.assign(*clients[0].train).model == result.assign(*clients[0].train).model


def test_an_own_network_may_learn_a_data_set_of_ours() -> None:
    task = clove.classification(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    result = clove.run(**QUICK, task=task)
    assert result.settings.model == "own-network"
    assert result.model(4)[1].weight.shape == (10, 64)


@pytest.mark.parametrize(("side", "network"), [(28, "cnn"), (8, "mlp")])
def test_images_that_are_large_enough_get_the_papers_network(
    monkeypatch: pytest.MonkeyPatch, side: int, network: str
) -> None:
    x, y = np.zeros((20, 1, side, side), np.uint8), np.arange(20) % 2
    images = Dataset("images", x_train=x, y_train=y, x_test=x, y_test=y, classes=2, scale=255)
    monkeypatch.setattr(build, "load_dataset", lambda *_, **__: images)
    assert gather_clients(from_names(dataset="mnist", mixing="none")).model == network
    own = [clove.ClientData((x / 255, y))]
    assert gather_clients(from_names(dataset="own-clients"), own).model == network


def test_a_data_set_without_classes_is_not_classified() -> None:
    with pytest.raises(CloveError, match="'linear' has no classes: set task=regression"):
        clove.run(dataset="linear", mixing="none", task="classification")


def test_a_run_leaves_torch_the_threads_it_had() -> None:
    before = torch.get_num_threads()
    clove.run(rounds=1, engine="vectorized", threads=before + 1)
    assert torch.get_num_threads() == before


def test_the_summary_says_what_was_done_to_own_data() -> None:
    draw = np.random.default_rng(0)
    clients = [
        clove.ClientData(train=(draw.normal(size=(20, 4)).astype("float32"), np.arange(20) / 7))
        for _ in range(3)
    ]
    result = clove.run(clients=clients, algorithm="fedavg", rounds=1, engine="vectorized")
    remark = result.summary()["remark"]
    assert "3 clients had no test data" in remark
    assert "taken as regression" in remark


def test_a_task_and_a_model_by_name_are_refused_together() -> None:
    with pytest.raises(CloveError, match="not both"):
        clove.run(task=clove.classification("mlp"), model="mlp", rounds=1)


def labelled(y: Any) -> clove.ClientData:
    return clove.ClientData(train=(np.zeros((len(y), 4), np.float32), np.asarray(y)), name="ward")


def test_one_hot_labels_are_refused_with_the_remedy() -> None:
    with pytest.raises(CloveError, match=r"ward: labels have shape \(3,\).*argmax.*regression"):
        clove.run(clients=[labelled(np.eye(3, dtype=int))], algorithm="fedavg", **QUICK)


def test_a_label_that_can_be_no_class_is_refused() -> None:
    with pytest.raises(CloveError, match=r"client ward has the label 1000000000.*task=regression"):
        clove.run(clients=[labelled([0, 1, 10**9])], algorithm="fedavg", **QUICK)


@pytest.mark.parametrize("clients", [5, [5], labelled([0, 1])], ids=["number", "list", "one"])
def test_clients_that_are_none_are_refused(clients: Any) -> None:
    with pytest.raises(CloveError, match="ClientData"):
        clove.run(clients=clients, algorithm="fedavg", **QUICK)


def test_data_without_labels_are_said_to_be_reconstructed() -> None:
    gathered = gather_clients(from_names(dataset="own-clients"), [clove.ClientData(np.eye(5))])
    assert gathered.remark is not None
    assert gathered.remark.endswith("no labels found: the clients' data are reconstructed")


def test_a_column_that_looks_like_labels_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text("client,dose,labels\n" + "a,1,0\na,2,1\n" * 5)
    remark = gather_clients(from_names(clients=str(path))).remark
    assert remark is not None
    assert "no labels found: the clients' data are reconstructed" in remark
    assert remark.endswith(
        "'labels' is taken as a feature; if it holds labels, set label_column=labels"
    )
    named = gather_clients(from_names(clients=str(path), label_column="labels"))
    assert named.task.name == "classification"
    assert "feature" not in (named.remark or "")


def test_own_clients_are_called_so_in_headings() -> None:
    assert data_title("own-clients", "none") == "own clients"
    assert data_title("digits", "none") == "digits, none"
