"""Machines to work on, joined through Ray: one's own, or a cluster that is running already."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from clove.errors import CloveError
from clove.extras import RAY_ALONE, RAY_CALM, ray_blind
from clove.runs.settings import Settings

PATIENCE = 5.0  # seconds that a cluster has to answer in
WAYS = "--ray takes local, auto, or HOST:PORT of the machine where `ray start --head` was run"


@dataclass(frozen=True)
class Machine:
    """What one machine of a cluster has."""

    cores: int
    gpus: int


@dataclass(frozen=True)
class Cluster:
    """The machines that are there to work on, and Ray, which reaches them."""

    ray: Any
    machines: Sequence[Machine]

    def device(self, wanted: str) -> str:
        """Return the device runs are to use: of the GPUs, Ray says which each may see."""
        gpus = any(machine.gpus for machine in self.machines)
        if wanted == "auto":
            return "cuda" if gpus else "cpu"
        if not wanted.startswith("cuda"):
            return wanted
        if not gpus:
            raise CloveError(
                f"device {wanted!r} was asked for, but no machine of the cluster offers a GPU to "
                "Ray: use --device cpu, or start Ray there with `ray start --num-gpus=N`"
            )
        return "cuda"

    def cores(self, tasks: int, settings: Settings) -> int:
        """Return how many cores a task gets: as many as it is to have threads, or its share."""
        most = max((machine.cores for machine in self.machines), default=1)
        if settings.threads:
            return max(1, min(settings.threads, most))
        return share(self.machines, tasks, on_gpu=settings.device == "cuda")


def share(machines: Sequence[Machine], tasks: int, *, on_gpu: bool = False) -> int:
    """Return the most cores each task can have where all, or as many as there are GPUs, work.

    >>> share([Machine(16, 0), Machine(4, 0)], tasks=5)
    4
    >>> share([Machine(16, 2), Machine(16, 0)], tasks=5, on_gpu=True)
    8
    """
    if on_gpu:
        machines = [machine for machine in machines if machine.gpus]
        tasks = min(tasks, sum(machine.gpus for machine in machines))
    for cores in range(max((machine.cores for machine in machines), default=1), 1, -1):
        places = [machine.cores // cores for machine in machines]
        if on_gpu:
            places = [min(p, machine.gpus) for p, machine in zip(places, machines, strict=True)]
        if sum(places) >= tasks:
            return cores
    return 1


@contextmanager
def joined(address: str) -> Iterator[Cluster]:
    """Join the cluster of that address, or for `local` start one here that ends with this.

    Where this process is connected to a cluster already, that one is used, and left as it is.
    """
    _check(address)
    ray = _library(address)
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, address)
    try:
        yield Cluster(ray, _machines(ray))
    finally:
        if not connected:
            ray.shutdown()


def _check(address: str) -> None:
    """Refuse what cannot be an address, or where nobody answers: Ray itself asks for minutes."""
    if address in ("local", "auto"):
        return
    if not isinstance(address, str) or "://" in address:
        raise CloveError(f"{WAYS}, not {address!r}")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise CloveError(f"{WAYS}, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise CloveError(
            f"no Ray cluster answers at {address} ({error}): start one there with "
            f"`ray start --head --port={port}`, or use --ray local"
        ) from None


def _library(address: str) -> Any:
    # Read when Ray is imported or started.
    os.environ.update(RAY_CALM | (RAY_ALONE if address == "local" else {}))
    try:
        import ray
    except ImportError as error:
        raise CloveError("--ray needs Ray: pip install 'clove-fl[ray]'") from error
    return ray


def _connect(ray: Any, address: str) -> None:
    own = address == "local"
    started = {"include_dashboard": False} if own else {}
    try:
        with ray_blind() if own else nullcontext():
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **started)
    except (ConnectionError, RuntimeError, ValueError) as error:
        hint = "start one with `ray start --head`, or use --ray local"
        if own:
            hint = "compare without --ray, or name a cluster that is running"
        reason = str(error).strip().splitlines()[0]
        raise CloveError(f"cannot use the Ray cluster {address!r} ({reason}): {hint}") from error


def _machines(ray: Any) -> list[Machine]:
    there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Machine(int(one.get("CPU", 0)), int(one.get("GPU", 0))) for one in there]
