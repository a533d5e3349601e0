"""Every method gives the same on both engines, to rounding."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

import clove
from clove.algorithms import (
    Algorithm,
    CflS,
    Clove,
    FedAla,
    FedAvg,
    FedGwc,
    FedPac,
    FedProto,
    FedProx,
    Fesem,
    FlexCfl,
    Ifca,
    KFed,
    Local,
    Pacfl,
    PerFedAvg,
)
from clove.federation import Sequential, Vectorized
from tests.federation.worlds import WORLDS, assert_same_models, some_clients

from .on_engines import play_rounds

METHODS: dict[str, tuple[type[Algorithm[Any]], dict[str, Any]]] = {
    "clove": (Clove, {}),
    "ifca": (Ifca, {}),
    "fedavg": (FedAvg, {}),
    "local": (Local, {}),
    "fedproto": (FedProto, {}),
    "fedproto, by clients and heads": (
        FedProto,
        {"prototype_average": "clients", "predicts": "head", "prototype_weight": 0.3},
    ),
    "fedproto, of local prototypes": (
        FedProto,
        {"prototype_distance": "prototypes", "prototype_weight": 0.3},
    ),
    "fedala": (FedAla, {}),
    "fedala, all layers": (FedAla, {"layers": 0, "measured": "blended", "weight_share": 0.6}),
    "fedpac": (FedPac, {}),
    "fedpac, as trained": (
        FedPac,
        {"measured": "trained", "head_epochs": 2, "head_learning_rate": 0.3, "least_weight": 0.05},
    ),
    "fedpac, by PFLlib": (
        FedPac,
        {"indices": "pfllib", "prototype_average": "clients", "least_weight": 0.001},
    ),
    "fedprox": (FedProx, {"mu": 0.3}),
    "per-fedavg, first-order": (PerFedAvg, {"personal_learning_rate": 0.2, "personal_steps": 3}),
    "cfl-s": (CflS, {"eps1": 10.0, "eps2": 0.1}),
    "cfl-s, as published": (CflS, {"eps1": 10.0, "eps2": 0.1, "indices": "as-published"}),
    "fesem": (Fesem, {}),
    "flexcfl": (FlexCfl, {"pretraining_steps": 5, "eta_g": 0.1}),
    "per-fedavg, hessian-free": (
        PerFedAvg,
        {"personal_learning_rate": 0.2, "meta_gradient": "hessian-free"},
    ),
    "pacfl": (Pacfl, {}),
    "pacfl, of classes": (Pacfl, {"per_class": True, "angle": "vectors", "vectors": 2}),
    "pacfl, all angles": (Pacfl, {"angle": "sum", "linkage": "complete"}),
    "k-fed": (KFed, {"local_clusters": 2}),
    "k-fed, Awasthi and Sheffet": (KFed, {"local_clusters": 2, "central": "awasthi-sheffet"}),
    "fedgwc": (FedGwc, {"tolerance": 1.0}),
}


@pytest.mark.parametrize("network", ["mlp", "cnn with batch norm"])
@pytest.mark.parametrize("name", METHODS)
def test_engines_agree_on_rounds_of_each_method(name, network):
    assert_same_rounds(rounds_of(name, network, Vectorized), rounds_of(name, network, Sequential))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("network", ["mlp", "cnn with batch norm"])
@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_agrees_with_the_cpu_on_rounds_of_each_method(name, network):
    expected = rounds_of(name, network, Sequential)
    assert_same_rounds(rounds_of(name, network, Vectorized, device="cuda"), expected)


@pytest.mark.parametrize("pool", ["groups", "all"])
def test_engines_agree_on_pooled_data_too_which_know_no_stragglers(pool):
    options = {"clusters": 2, "clients_per_cluster": 2, "rounds": 2, "precision": "fp64"}
    one, other = (
        clove.run(algorithm="centralized", pool=pool, engine=engine, stragglers=lost, **options)
        for engine, lost in (("sequential", 0.0), ("vectorized", 0.99))
    )
    np.testing.assert_allclose(other.history["test_loss"], one.history["test_loss"], rtol=1e-6)
    assert other.history["bytes_up"].tolist() == one.history["bytes_up"].tolist()
    assert one.history["bytes_up"].iloc[-1] > 0


def rounds_of(name, network, engine_type, **options):
    """Run a few rounds of a method, in double precision."""
    task, shape, classes = WORLDS[network]
    clients = some_clients((7, 20, 9, 16, 17), shape, classes)
    method, own = METHODS[name]
    return play_rounds(engine_type(clients, task, dtype=torch.float64, **options), method, **own)


def assert_same_rounds(found, expected):
    for field in fields(expected[0]):
        one, other = getattr(expected[0], field.name), getattr(found[0], field.name)
        if isinstance(one, dict):
            assert_same_models(other, one, 1e-6)
    np.testing.assert_allclose(found[1].loss, expected[1].loss, rtol=1e-6)
    np.testing.assert_allclose(found[1].accuracy, expected[1].accuracy)
    assert found[2] == expected[2]
