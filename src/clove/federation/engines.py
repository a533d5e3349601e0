"""Making an engine by name, and choosing the faster one by a short measured trial."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clove.data import ClientData
from clove.errors import CloveError, unknown_name
from clove.federation import parameters as stacks
from clove.federation.learner import make_optimizer
from clove.federation.questions import LocalTraining, Train
from clove.federation.sequential import Sequential
from clove.federation.simulation import Simulation, Work
from clove.federation.vectorized import Vectorized, fitting_group
from clove.folders import cache_folder, write_atomically
from clove.tasks import Task

ENGINES = ("auto", "sequential", "vectorized")
TRIAL_STEPS = 2
SEQUENTIAL_CLIENTS = 2
CPU_GROUPS = (4, 16, 64)  # the best depends on the caches, so it is measured
CLEARLY = 1.15  # sequential must be faster by this much: near ties should not depend on noise


@dataclass(frozen=True)
class EngineChoice:
    """Which engine, how many clients it takes at once (0: all), with how many threads, and why."""

    engine: str
    group_size: int
    threads: int
    reason: str


def find_device(name: str) -> torch.device:
    """Return the device of that name; `auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise unknown_name("device", name, ("auto", "cpu", "cuda"))
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise CloveError("device 'cuda' was asked for, but torch sees no GPU; use --device cpu")
    try:
        return torch.device(name)
    except RuntimeError:
        raise unknown_name("device", name, ("auto", "cpu", "cuda")) from None


def make_engine(
    name: str,
    clients: Sequence[ClientData],
    task: Task,
    training: LocalTraining,
    *,
    group_size: int = 0,
    threads: int = 0,
    **options: Any,
) -> tuple[Simulation, EngineChoice]:
    """Make the engine of that name; `auto` measures which is faster here for this work.

    Torch's number of threads is set to `threads`; 0 leaves it to torch, or for `auto` to the trial.
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    make_optimizer([torch.zeros(1)], training)  # torch's first one loads half of torch: not now
    if threads:
        torch.set_num_threads(threads)
    if name == "sequential":
        choice = EngineChoice(name, 0, torch.get_num_threads(), "as asked")
        return Sequential(clients, task, **options), choice
    vectorized = Vectorized(clients, task, group_size=group_size, **options)
    fits = fitting_group(vectorized, training)
    if name == "vectorized":
        vectorized.group_size = group_size or _standard_group(vectorized, fits)
        choice = EngineChoice(name, vectorized.group_size, torch.get_num_threads(), "as asked")
        return vectorized, choice
    work = _work_key(vectorized, training, threads)
    choice = _remembered(work) or _measured(vectorized, training, fits, threads)
    _remember(work, choice)
    torch.set_num_threads(choice.threads)
    if choice.engine == "vectorized":
        vectorized.group_size = choice.group_size
        return vectorized, choice
    return Sequential.over(vectorized), choice


def _standard_group(engine: Vectorized, fits: int) -> int:
    return fits if engine.device.type == "cuda" else min(fits, CPU_GROUPS[1])


# ------------------------------------------------------------------------------------ the trial


def _measured(engine: Vectorized, training: LocalTraining, fits: int, threads: int) -> EngineChoice:
    """Time a few steps of both engines on this work, per client, with one thread and with all."""
    alone: dict[int, float] = {}
    together: dict[tuple[int, int], float] = {}
    for number in [threads] if threads else sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(number)
        alone[number] = _seconds_per_client(Sequential.over(engine), training, SEQUENTIAL_CLIENTS)
        try:
            for size in _group_sizes(engine, fits):
                together[size, number] = _seconds_per_client(engine, training, size)
        except CloveError as error:
            return EngineChoice("sequential", 0, number, f"the network cannot be stacked: {error}")
    return _fastest(alone, together)


def _fastest(alone: dict[int, float], together: dict[tuple[int, int], float]) -> EngineChoice:
    """Choose by seconds a client: sequential by threads, vectorized by group size and threads."""
    fewest = min(alone, key=alone.__getitem__)
    size, number = min(together, key=together.__getitem__)
    ratio = alone[fewest] / together[size, number]
    if ratio * CLEARLY < 1:
        reason = f"{1 / ratio:.1f}× as fast as vectorized in a trial, {_threads(fewest)}"
        return EngineChoice("sequential", 0, fewest, reason)
    reason = (
        f"{ratio:.1f}× as fast as sequential in a trial, {size} clients at once, {_threads(number)}"
    )
    return EngineChoice("vectorized", size, number, reason)


def _threads(number: int) -> str:
    return f"{number} thread{'s' if number > 1 else ''}"


def _group_sizes(engine: Vectorized, fits: int) -> list[int]:
    most = min(engine.clients, fits)
    sizes = (most,) if engine.device.type == "cuda" else CPU_GROUPS
    if engine.group_size:
        return [engine.group_size]
    return sorted({min(size, most) for size in sizes})


def _seconds_per_client(engine: Simulation, training: LocalTraining, clients: int) -> float:
    work = _trial(engine, training, min(clients, engine.clients))
    seconds = []
    with torch.random.fork_rng(devices=[engine.device] if engine.device.type == "cuda" else []):
        engine.train_group(work)  # warm up: the first call pays for allocations and kernel choice
        for _ in range(2):
            _wait(engine)
            start = time.perf_counter()
            engine.train_group(work)
            _wait(engine)
            seconds.append(time.perf_counter() - start)
    return min(seconds) / len(work.clients)


def _trial(engine: Simulation, training: LocalTraining, clients: int) -> Work:
    """Return a few steps of training for the first clients."""
    cohort = np.arange(clients)
    model = stacks.move(engine.network.state_dict(), engine.device, engine.dtype)
    question = Train(stacks.repeat(model, 1), np.zeros(clients, dtype=np.int64), cohort, training)
    plans = [engine._plan(int(client), 1.0, question)[:TRIAL_STEPS] for client in cohort]
    return Work(cohort, stacks.repeat(model, clients), plans, question, cohort)


def _wait(engine: Simulation) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)


# ------------------------------------------------------- remembering, so that a repeat is the same


def _remembered(work: str) -> EngineChoice | None:
    """Return what an earlier trial of the same work on this machine chose."""
    try:
        return EngineChoice(**json.loads(_choices_file().read_text())[work])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(work: str, choice: EngineChoice) -> None:
    path = _choices_file()
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    if not isinstance(known, dict):
        known = {}
    if known.get(work) == asdict(choice):
        return
    known[work] = asdict(choice)
    try:
        write_atomically(path, json.dumps(known, indent=1).encode())
    except OSError:
        return  # a cache that cannot be written costs a trial next time, nothing more


def _choices_file() -> Path:
    return cache_folder() / "engine-choices.json"


def _work_key(engine: Vectorized, training: LocalTraining, threads: int) -> str:
    """Name the work and the machine: what the trial's outcome depends on."""
    device = torch.cuda.get_device_name(engine.device) if engine.device.type == "cuda" else "cpu"
    parts = (
        f"{engine.network!r} {engine.task.name} {engine.train_pool.x.shape[1:]} {engine.dtype} "
        f"{training} {engine.clients} {engine.group_size} {device} {os.cpu_count()} "
        f"{threads or torch.get_num_threads()} {torch.__version__}"
    )
    return hashlib.sha256(parts.encode()).hexdigest()[:16]
