"""From settings to a federation and an algorithm, ready to run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clove.algorithms import Algorithm, Setup, find_algorithm
from clove.data import (
    ClientData,
    Dataset,
    MixedClients,
    check_clients,
    dataset_options,
    holdout,
    load_dataset,
    mix,
    mixing_options,
    pool_training_data,
    read_clients,
)
from clove.errors import CloveError
from clove.federation import Parameters, initial_models
from clove.federation.engines import EngineChoice, find_device, make_engine
from clove.federation.federation import Federation
from clove.federation.parameters import Indices, move
from clove.federation.precision import dtype_of, find_precision
from clove.runs.settings import OWN_CLIENTS, OWN_NETWORK, Settings
from clove.tasks import TASKS, Task, named_task

MODEL_FOR = {  # the paper's, where they do not follow from the shape
    ("cifar10", "classification"): "cifar-cnn",
    ("cifar10", "reconstruction"): "conv-autoencoder",
    ("amazon", "classification"): "amazon-mlp",
    ("agnews", "classification"): "text-cnn",
}
MOST_CLASSES = 100_000


@dataclass(frozen=True)
class Clients:
    """Whose data a run is about: the clients, their true groups where known, what to learn."""

    clients: list[ClientData]
    groups: Indices | None
    task: Task
    model: str  # the network's name in the zoo, or that it is the user's own
    outputs: int
    data: Mapping[str, Any] = field(default_factory=dict)  # options as they came out
    truth: Any = None  # parameters the data were made with, where they were made
    remark: str | None = None  # what a user should know about the data

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return tuple(self.clients[0].train[0].shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of all clients' data, to notice other data on resume."""
        digest = hashlib.sha256()
        for client in self.clients:
            for array in (*client.train, *(client.test or ())):
                if array is not None:
                    digest.update(f"{array.dtype.str} {array.shape}".encode())
                    digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs."""

    settings: Settings  # with what `auto` came out as
    clients: Clients
    federation: Federation
    algorithm: Algorithm[Any]
    choice: EngineChoice


def gather_clients(
    settings: Settings, own: Sequence[ClientData] | None = None, task: Task | None = None
) -> Clients:
    """Return the clients of a data set and mixing, or a user's own."""
    if task is not None and settings.model not in ("auto", OWN_NETWORK):
        raise CloveError("give either a task with its network or model=, not both")
    likely = None
    if settings.clients is not None:
        own, likely = read_clients(settings.clients, **settings.data)
    if own is not None:
        return _own_clients(settings, own, task, likely)
    if settings.dataset == OWN_CLIENTS:
        raise CloveError(
            "this run was made with clients handed over in Python: "
            "hand them over again, with clove.run(clients=...) or clove.resume(..., clients=...)"
        )
    if settings.model == OWN_NETWORK and task is None:
        raise CloveError("this run has a network of your own: hand it over again with task=...")
    dataset, mixed = mixed_clients(settings)
    task, outputs = task or _task_for(settings, dataset), dataset.classes or 1
    return Clients(
        clients=mixed.clients,
        groups=mixed.groups,
        task=task.for_data(tuple(mixed.clients[0].train[0].shape[1:]), outputs),
        model=_network_name(task),
        outputs=outputs,
        truth=dataset.truth,
        data={**settings.data, **mixed.options},
        remark=mixed.shortfall,
    )


def mixed_clients(settings: Settings) -> tuple[Dataset, MixedClients]:
    """Load the data set and divide it among clients."""

    def among(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.data.items() if name in known}

    name, mixing, seed = settings.dataset, settings.mixing, settings.seed
    dataset = load_dataset(name, settings.data_dir, seed, **among(dataset_options(name)))
    return dataset, mix(dataset, mixing, seed, **among(mixing_options(mixing)))


def _own_clients(
    settings: Settings, own: Sequence[ClientData], task: Task | None, likely: str | None = None
) -> Clients:
    """Return clients of a user's own; `likely` is a column that may hold the labels they lack."""
    clients, held = holdout(check_clients(own), seed=settings.seed)
    remarks = [f"{held} clients had no test data: a fifth of their training data was held out"]
    remarks = remarks if held else []
    labels = [client.train[1] for client in clients]
    kind = settings.task
    if task is None and kind == "auto":
        kind = "reconstruction" if labels[0] is None else "classification"
        if labels[0] is None:
            remarks.append("no labels found: the clients' data are reconstructed")
        if labels[0] is not None and np.issubdtype(labels[0].dtype, np.floating):
            kind = "regression"
            remarks.append("labels are fractions: taken as regression, unless task says otherwise")
    if likely is not None:
        remarks.append(
            f"column {likely!r} is taken as a feature; if it holds labels, "
            f"set label_column={likely}"
        )
    shape = tuple(clients[0].train[0].shape[1:])
    task = task or named_task(kind, _model_for(settings, kind, shape), settings.loss)
    outputs = 1
    if task.name == "classification" and labels[0] is not None:
        outputs = _classes(clients)
    elif labels[0] is not None and labels[0].ndim > 1:
        outputs = int(np.prod(labels[0].shape[1:]))
    groups = [client.group for client in clients]
    known = np.array(groups) if all(group is not None for group in groups) else None
    return Clients(
        clients=clients,
        groups=known,
        task=task.for_data(shape, outputs),
        model=_network_name(task),
        outputs=outputs,
        data=settings.data,
        remark="; ".join(remarks) or None,
    )


def _classes(clients: Sequence[ClientData]) -> int:
    """Return how many classes there are, judged by the highest label."""
    highest = 0
    for index, client in enumerate(clients):
        who = f"client {index}" if client.name is None else f"client {client.name}"
        for _, y in (client.train, client.test or (None, None)):
            if y is None:
                continue
            if y.ndim > 1:
                raise CloveError(
                    f"{who}: labels have shape {y.shape[1:]}, but classification takes one whole "
                    "number a sample; if a row marks its class by a 1, use y.argmax(axis=1), and "
                    "for several numbers to predict set task=regression"
                )
            highest = max(highest, int(np.max(y)))
            if highest >= MOST_CLASSES:
                raise CloveError(
                    f"{who} has the label {highest}: classes are numbered from 0, up to "
                    f"{MOST_CLASSES:,}; if labels are quantities, set task=regression"
                )
    return 1 + highest


def _network_name(task: Task) -> str:
    return task.network if isinstance(task.network, str) else OWN_NETWORK


def _task_for(settings: Settings, dataset: Dataset) -> Task:
    kind = dataset.kind if settings.task == "auto" else settings.task
    if kind == "classification" and dataset.kind != "classification":
        raise CloveError(f"data set {settings.dataset!r} has no classes: set task=regression")
    return named_task(kind, _model_for(settings, kind, dataset.feature_shape), settings.loss)


def _model_for(settings: Settings, kind: str, shape: tuple[int, ...]) -> str:
    """Return the network's name; `auto`, where the usual one of the task fits."""
    if settings.model != "auto":
        return settings.model
    images = kind == "classification" and len(shape) == 3 and min(shape[1:]) >= 28
    return MODEL_FOR.get((settings.dataset, kind), "cnn" if images else "auto")


def prepare(settings: Settings, clients: Clients) -> Prepared:
    """Make the federation and the algorithm, and settle what was left to `auto`."""
    device = find_device(settings.device)
    precision = find_precision(settings.precision, device)
    dtype = dtype_of(precision)
    algorithm, clients = simulated_algorithm(settings, clients, device)
    federation, choice = make_engine(
        settings.engine,
        clients.clients,
        clients.task,
        settings.training,
        group_size=settings.group_size,
        threads=settings.threads,
        seed=settings.seed,
        device=device,
        dtype=dtype,
        precision=precision,
        memory=settings.memory,
        kernels=settings.kernels,
        models_at_once=settings.models_at_once,
        evaluation_kernel=settings.evaluation_kernel,
        compiled=settings.compile,
        rounds=settings.rounds,
        # Data that were put together are no client's that could fail to reply.
        stragglers=settings.stragglers if algorithm.setup.pools is None else 0.0,
    )
    settings = replace(
        with_whole_paths(settings),
        engine=choice.engine,
        group_size=choice.group_size,
        device=str(device),
        precision=precision,
        kernels=",".join(choice.kernels) or "auto",
        models_at_once=choice.models_at_once,
        evaluation_kernel=choice.evaluation_kernel,
        compile="on" if choice.compiled else "off",
        task=clients.task.name if clients.task.name in TASKS else settings.task,
        model=clients.model,
        data={name: value for name, value in clients.data.items() if value is not None},
        threads=choice.threads,
    )
    return Prepared(settings, clients, federation, algorithm, choice)


def algorithm_for(
    settings: Settings, clients: Clients, number: int, device: torch.device
) -> Algorithm[Any]:
    """Return the method, told what it may know of so many clients."""
    dtype = dtype_of(find_precision(settings.precision, device))

    def initial(count: int, how: str) -> Parameters:
        return move(initial_models(clients.task, count, how, settings.seed), device, dtype)

    setup = Setup(
        clients=number,
        groups=None if clients.groups is None else len(np.unique(clients.groups)),
        training=settings.training,
        seed=settings.seed,
        initial=initial,
        classes=clients.outputs if clients.task.correct is not None else None,
    )
    return find_algorithm(settings.algorithm)(setup, **settings.options)


def simulated_algorithm(
    settings: Settings, clients: Clients, device: torch.device
) -> tuple[Algorithm[Any], Clients]:
    """Return the method, and the clients it works with, whose data may be pooled before."""
    algorithm = algorithm_for(settings, clients, len(clients.clients), device)
    pools = algorithm.pools(clients.groups)
    if pools is None:
        return algorithm, clients
    pooled = replace(clients, clients=pool_training_data(clients.clients, pools))
    return replace(algorithm, setup=replace(algorithm.setup, pools=pools)), pooled


def with_whole_paths(settings: Settings) -> Settings:
    """Return settings whose paths do not depend on the folder one is in."""
    return replace(
        settings, data_dir=_absolute(settings.data_dir), clients=_absolute(settings.clients)
    )


def _absolute(path: str | None) -> str | None:
    """Return a path that still leads there from another folder."""
    return None if path is None else str(Path(path).expanduser().absolute())


@contextmanager
def threads_restored() -> Iterator[None]:
    """Give torch back the number of threads it had: a run's is the run's own."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
