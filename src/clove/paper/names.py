"""How tables and figures call what settings name."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = {
    "fedavg": "FedAvg",
    "local": "Local-only",
    "per-fedavg": "Per-FedAvg",
    "fedproto": "FedProto",
    "fedala": "FedALA",
    "fedpac": "FedPAC",
    "fedprox": "FedProx",
    "cfl-s": "CFL-S",
    "fesem": "FeSEM",
    "flexcfl": "FlexCFL",
    "pacfl": "PACFL",
    "k-fed": "k-FED",
    "fedgwc": "FedGWC",
    "centralized": "centralized",
    "ifca": "IFCA",
    "clove": "CLoVE",
}
DATASETS = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "amazon": "Amazon",
    "agnews": "AG News",
    "mnist-writers": "MNIST by writer",
    "linear": "linear",
}
MIXINGS = {
    "none": "",
    "label-skew-1": "label skew 1",
    "label-skew-2": "label skew 2",
    "label-skew-3": "label skew 3",
    "label-skew-4": "label skew 4",
    "feature-skew": "feature skew",
    "concept-shift": "concept shift",
}
OPTIONS = {
    "kmeans": "k-means",
    "finch": "FINCH",
    "adam": "",
    "sgd": "(plain SGD)",
    "awasthi-sheffet": "(Awasthi and Sheffet)",
    "converged": "(k-means)",
}


@dataclass(frozen=True)
class Metric:
    """A figure of a run, as tables show it."""

    name: str
    title: str
    short: str
    decimals: int
    better: int = 0  # 1: more is better, -1: less is, 0: neither
    reached: bool = False  # a round that some runs never get to
    spread: bool = True  # whether ± std is shown


METRICS = {
    one.name: one
    for one in (
        Metric("accuracy", "accuracy in %", "accuracy", 1, 1),
        Metric("test_loss", "test loss", "loss", 3, -1),
        Metric("ari", "ARI", "ARI", 2, 1),
        Metric("ari_seen", "ARI over the clients seen so far", "ARI seen", 2, 1),
        Metric("ari_at_10_rounds", "ARI after 10 rounds", "ARI, round 10", 2, 1),
        Metric(
            "first_round_ari_0.9", "first round with ARI ≥ 0.9", "ARI ≥ 0.9", 1, -1, reached=True
        ),
        Metric(
            "stability_round",
            "round from which the clustering is stable",
            "stable",
            1,
            -1,
            reached=True,
        ),
        Metric(
            "k_right", "runs with the right number of clusters, in %", "K right", 0, 1, spread=False
        ),
        Metric("models_used", "models that have clients", "models", 1),
    )
}


def method(name: str) -> str:
    """Return how a method is printed: others' methods by the name they have."""
    return METHODS.get(name, name)


def dataset(name: str) -> str:
    """Return how a data set is printed."""
    return DATASETS.get(name, name)


def mixing(name: str) -> str:
    """Return how a mixing is printed."""
    return MIXINGS.get(name, name)


def place(dataset_name: str, mixing_name: str) -> str:
    """Return how data and how they are mixed are printed.

    >>> place("cifar10", "label-skew-1"), place("amazon", "none")
    ('CIFAR-10, label skew 1', 'Amazon')
    """
    return ", ".join(filter(None, (dataset(dataset_name), mixing(mixing_name))))
