"""A run on Flower is the run of the sequential engine, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from torch import nn

import clove

from .grid import LocalGrid
from .runs import CLIENTS, COMMON, DATA, digits, digits_app, load_data, serve, simulate

CASES: dict[str, dict[str, Any]] = {
    "clove": {},
    "first round at random": {"first_round": "random"},
    "unknown K": {"max_models": 7, "rounds": 2},
    "early stopping": {"early_stopping": True, "stable_rounds": 2, "rounds": 4},
    "trained probes": {"probes": "trained", "probe_models": 8, "rounds": 2},
    "random probes": {"probes": "random", "probe_models": 12, "rounds": 2},
    "overlap": {"matching": "overlap", "rounds": 2},
    "newcomers after stability": {
        **{"participation": 0.4, "early_stopping": True, "stable_rounds": 1, "rounds": 4},
    },
    "gradients": {"averaging": "gradients", "rounds": 2},
    "double precision": {"precision": "fp64", "rounds": 2},
    "seldom evaluated": {"evaluate_every": 2, "rounds": 3},
    "fedavg": {"algorithm": "fedavg"},
    "fedsgd": {"algorithm": "fedavg", "averaging": "gradients", "rounds": 2},
    "ifca": {"algorithm": "ifca"},
    "local": {"algorithm": "local"},
    "fedprox": {"algorithm": "fedprox", "rounds": 2},
    "per-fedavg": {"algorithm": "per-fedavg", "rounds": 2},
    "per-fedavg, hessian-free": {
        **{"algorithm": "per-fedavg", "meta_gradient": "hessian-free", "rounds": 2},
    },
    "cfl-s": {"algorithm": "cfl-s", "eps1": 10.0, "eps2": 0.1, "participation": 0.6},
    "cfl-s, as published": {
        **{"algorithm": "cfl-s", "eps1": 10.0, "eps2": 0.1, "indices": "as-published"},
        "rounds": 3,
    },
    "cfl-s, momentum is kept": {
        **{"algorithm": "cfl-s", "optimizer": "sgd", "momentum": 0.9, "keep_momentum": True},
        **{"learning_rate": 0.1, "learning_rate_decay": 0.9, "participation": 0.6},
    },
    "fesem": {"algorithm": "fesem", "participation": 0.6},
    "flexcfl": {"algorithm": "flexcfl", "pretraining_steps": 5, "participation": 0.6},
    "fedproto": {"algorithm": "fedproto", "rounds": 2},
    "fedproto, of local prototypes": {
        **{"algorithm": "fedproto", "prototype_distance": "prototypes", "rounds": 3},
    },
    "fedala": {"algorithm": "fedala", "rounds": 3},
    "fedala, some take part": {
        **{"algorithm": "fedala", "participation": 0.5, "measured": "blended", "rounds": 4},
    },
    "fedpac": {"algorithm": "fedpac", "rounds": 3},
    "fedpac, some take part": {
        **{"algorithm": "fedpac", "participation": 0.5, "measured": "trained", "rounds": 3},
    },
    "fedpac, by PFLlib": {
        **{"algorithm": "fedpac", "indices": "pfllib", "prototype_average": "clients"},
        "rounds": 2,
    },
    "pacfl": {"algorithm": "pacfl", "rounds": 2},
    "pacfl, of classes, few participants": {
        **{"algorithm": "pacfl", "angle": "vectors", "per_class": True, "participation": 0.4},
        **{"rounds": 2, "vectors": 2},
    },
    "k-fed": {"algorithm": "k-fed", "local_clusters": 2, "rounds": 2},
    "fedgwc": {"algorithm": "fedgwc", "tolerance": 1e-3},
}
STAY = ("local", "fedproto", "fedala")  # methods whose models stay with the clients


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_metrics_and_models_are_those_of_the_sequential_engine(options, tmp_path: Path) -> None:
    settings = {**COMMON, "algorithm": "clove", **options}
    ours, theirs = (
        serve(grid := LocalGrid.of(digits_app(), CLIENTS), tmp_path / "run", **settings),
        simulate(**settings),
    )
    assert ours._story.records == theirs._story.records
    for number, vectors in theirs._story.loss_vectors.items():
        np.testing.assert_array_equal(ours.loss_vectors(number).losses, vectors.losses)
    if settings["algorithm"] not in STAY:
        for name, tensor in theirs._story.models.items():
            assert tensor.equal(ours._story.models[name]), name
    assert len(grid.nodes) == CLIENTS


def dropping() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(16, 10),
    )


def test_dropout_and_batch_normalisation_are_a_clients_own(tmp_path: Path) -> None:
    task = clove.classification(dropping)
    grid = LocalGrid.of(clove.flower.client(task, load_data), CLIENTS)
    settings = {**COMMON, "algorithm": "clove", "rounds": 2}
    ours = serve(grid, tmp_path / "run", task=task, **settings)
    theirs = clove.run(**settings, engine="sequential", task=task)
    assert ours._story.records == theirs._story.records


def without_tests(context: Context) -> clove.ClientData:
    client = load_data(context)
    return clove.ClientData(train=client.train, group=client.group)


def test_test_data_are_held_out_as_in_a_simulation(tmp_path: Path) -> None:
    app = clove.flower.client(clove.classification("mlp"), without_tests)
    settings = {n: v for n, v in COMMON.items() if n not in DATA} | {"rounds": 2}
    clients = [clove.ClientData(train=one.train, group=one.group) for one in digits()]
    ours = serve(LocalGrid.of(app, CLIENTS), tmp_path / "run", **settings)
    theirs = clove.run(clients=clients, engine="sequential", **settings)
    assert ours._story.records == theirs._story.records


def test_a_newcomer_is_assigned_from_the_folder_of_the_run(tmp_path: Path) -> None:
    settings = {**COMMON, "algorithm": "clove"}
    ours = serve(LocalGrid.of(digits_app(), CLIENTS), tmp_path / "run", **settings)
    x, y = digits()[3].train
    theirs = simulate(**settings).assign(x, y)
    assert ours.assign(x, y).model == theirs.model
    np.testing.assert_allclose(ours.assign(x, y).distances, theirs.distances)


def test_models_of_local_training_stay_with_the_clients(tmp_path: Path) -> None:
    result = serve(
        LocalGrid.of(digits_app(), CLIENTS), tmp_path / "run", **COMMON, algorithm="local"
    )
    assert result.summary()["models"] == CLIENTS
    with pytest.raises(clove.CloveError, match="stayed with its clients"):
        result.model(0)
