"""Making an engine by name, and choosing the faster one by a short measured trial."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clove.data import ClientData
from clove.errors import CloveError, TooLittleMemory, unknown_name
from clove.federation import parameters as stacks
from clove.federation.budget import fitting_group, is_out_of_memory, memory_limit, part_of_memory
from clove.federation.kept_memory import keep_memory
from clove.federation.layers import KERNELS, ONE_BY_ONE, TILED
from clove.federation.precision import draws_from, kernels_of
from clove.federation.questions import LocalTraining, Train
from clove.federation.sequential import Sequential
from clove.federation.simulation import Simulation
from clove.federation.stacked import can_compile, can_tile
from clove.federation.vectorized import EVALUATION_BATCH, Vectorized
from clove.federation.work import Work
from clove.folders import cache_folder, write_atomically
from clove.tasks import Task

ENGINES = ("auto", "sequential", "vectorized")
COMPILE = ("auto", "on", "off")
TRIAL_STEPS = 2
TRIAL_MODELS = 5
TRIAL_REPEATS = (2, 6)  # the least, and the most where they take no longer than this together:
TRIAL_SECONDS = 0.2
SEQUENTIAL_CLIENTS = 2
CPU_GROUPS = (4, 16, 64)  # the best depends on the caches, so it is measured
CLEARLY = 1.15  # sequential must be faster by this much: near ties should not depend on noise
USUAL_KERNEL = {"cpu": "channels-last", "cuda": "grouped"}  # from which the trial sets out
MOST_ONE_BY_ONE = 64  # clients: with more, a step of single ones is too long to be worth a try
COMPILING = {
    True: 15.0,
    False: 60.0,
}  # seconds it takes, about: of one client's run, of the stack's
COMPILED_GAIN = 1.3  # one by one gains more by compiling than all others: slower by this is faster
COMPILED_SAVES = 0.3  # share of training time that it saves, about


@dataclass(frozen=True)
class EngineChoice:
    """Which engine, how many clients it takes at once (0: all), with how many threads, and why.

    `kernels` are those of the convolutions in their order, `models_at_once` how many models loss
    vectors are measured on at a time (0: all).
    """

    engine: str
    group_size: int
    threads: int
    reason: str
    kernels: tuple[str, ...] = ()
    models_at_once: int = 1
    evaluation_kernel: str = KERNELS[0]
    compiled: bool = False
    seconds: float = 0.0  # that training a client for a step took in the trial


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
    memory: float = 0.0,
    kernels: str = "auto",
    models_at_once: int = -1,
    evaluation_kernel: str = "auto",
    compiled: str = "auto",
    rounds: int = 1,
    **options: Any,
) -> tuple[Simulation, EngineChoice]:
    """Make the engine of that name; `auto` measures which is faster here for this work.

    What is left open (a group size, threads or models at once of 0 or less, kernels "auto") is
    measured too, and remembered for the next time.
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if threads:
        torch.set_num_threads(threads)
    keep_memory()
    if name == "sequential":
        choice = EngineChoice(name, 0, torch.get_num_threads(), "as asked")
        return Sequential(clients, task, **options), choice
    vectorized = Vectorized(clients, task, group_size=group_size, **options)
    fits = fitting_group(vectorized, training, memory_limit(memory, vectorized.device))
    vectorized.most_at_once = fits
    if name == "vectorized" and not group_size:
        vectorized.group_size = _standard_group(vectorized, fits)
    given = tuple(kernels.split(",")) if kernels != "auto" else None
    said = (given, models_at_once, evaluation_kernel)
    trial = Trial(vectorized, training, fits, threads, *said)
    choice = trial.remembered(name) or trial.measured(name)
    trial.remember(name, choice)
    torch.set_num_threads(choice.threads)
    if choice.engine == "sequential":
        return Sequential.over(vectorized), choice
    if _compiles(compiled, choice, vectorized, training, rounds):
        choice = trial.compiled(choice)
    trial.set_up(choice)
    return vectorized, choice


def _standard_group(engine: Vectorized, fits: int) -> int:
    most = fits if engine.device.type == "cuda" else min(fits, CPU_GROUPS[1])
    return min(most, engine.clients)


def _compiles(
    wanted: str, choice: EngineChoice, engine: Vectorized, training: LocalTraining, rounds: int
) -> bool:
    """Say whether to compile: as told, or where the run is long enough to pay for it.

    On a CPU it never paid: compiled steps are the slower ones there (docs/speed.md).
    """
    if TILED in choice.kernels or wanted != "auto":
        return wanted == "on" and TILED not in choice.kernels
    if engine.device.type != "cuda" or not can_compile(engine.device):
        return False
    steps = np.ceil(engine.train_pool.sizes / training.batch_size).sum() * training.epochs
    lasts = COMPILING[ONE_BY_ONE in choice.kernels]
    return bool(COMPILED_SAVES * choice.seconds * steps * rounds > lasts)


# ------------------------------------------------------------------------------------ the trial


class Trial:
    """Measures what is fastest for this work on this machine, as far as nobody said."""

    def __init__(
        self,
        engine: Vectorized,
        training: LocalTraining,
        fits: int,
        threads: int,
        kernels: tuple[str, ...] | None,
        models_at_once: int,
        evaluation_kernel: str,
    ) -> None:
        self.engine, self.training, self.fits, self.threads = engine, training, fits, threads
        self.kernels, self.models_at_once = kernels, models_at_once
        self.evaluation_kernel = one_kernel(evaluation_kernel)
        self._check_kernels()

    def _check_kernels(self) -> None:
        engine, layers = self.engine, self.engine.stack.convolutions
        asked = (*(self.kernels or ()), self.evaluation_kernel)
        if TILED in asked and not can_tile(engine.device, engine.dtype):
            raise CloveError(
                f"the kernel {TILED!r} needs a GPU, Triton and single precision; this run is on "
                f"{engine.device} in {engine.precision}: choose another, or leave it to 'auto'"
            )
        if self.kernels is None:
            return
        for kernel in self.kernels if layers else ():
            one_kernel(kernel)
        if layers and len(self.kernels) != len(layers):
            raise CloveError(
                f"kernels names {len(self.kernels)}, but the network has {len(layers)} "
                "convolutions that one can be chosen for"
            )

    def set_up(self, choice: EngineChoice) -> None:
        """Make the engine work as chosen."""
        engine = self.engine
        engine.group_size = choice.group_size
        engine.models_at_once = choice.models_at_once or None
        engine.stack.use(choice.kernels, choice.evaluation_kernel)
        engine.stack.compiled = choice.compiled
        engine.forget_steps()

    def measured(self, name: str) -> EngineChoice:
        """Choose by time: engine, group size, threads, kernels, models at once."""
        engine = self.engine
        usual = self.kernels or [USUAL_KERNEL[engine.device.type]] * len(engine.stack.convolutions)
        engine.stack.use(usual)
        with kernels_of(engine.precision, engine.device):
            try:
                choice = self._vectorized(name)
            except CloveError as error:
                if name == "vectorized" or is_out_of_memory(error):
                    raise
                threads = torch.get_num_threads()
                return EngineChoice(
                    "sequential", 0, threads, f"the network cannot be stacked: {error}"
                )
            return choice if choice.engine == "sequential" else self._tuned(choice)

    def _vectorized(self, name: str) -> EngineChoice:
        """Choose the engine, its groups and threads."""
        engine, training = self.engine, self.training
        if name == "vectorized":
            threads = torch.get_num_threads()
            return EngineChoice(name, engine.group_size, threads, "as asked")
        alone: dict[int, float] = {}
        together: dict[tuple[int, int], float] = {}
        for number in [self.threads] if self.threads else sorted({1, torch.get_num_threads()}):
            torch.set_num_threads(number)
            for most in _group_sizes(engine, self.fits):
                size, seconds = _fitting(engine, training, most)
                together[size, number] = seconds
            alone[number] = _seconds_per_client(
                Sequential.over(engine), training, SEQUENTIAL_CLIENTS
            )
        return _fastest(alone, together)

    def _tuned(self, choice: EngineChoice) -> EngineChoice:
        """Choose kernels one convolution at a time, then how loss vectors are measured."""
        engine = self.engine
        torch.set_num_threads(choice.threads)
        size = min(choice.group_size or engine.clients, engine.clients)
        best = [layer.kernel for layer in engine.stack.convolutions]
        least = self._seconds(best, size)
        while least == np.inf and size > 1:  # it does not fit in memory
            size = -(-size // 2)
            choice = replace(choice, group_size=size)
            least = self._seconds(best, size)
        for at in range(len(best)) if self.kernels is None else ():
            tries = [[*best[:at], kernel, *best[at + 1 :]] for kernel in KERNELS]
            if at == 0:  # the whole run: what one layer gains is lost where others are grouped
                tries += [[kernel] * len(best) for kernel in (ONE_BY_ONE, TILED)]
            for tried in (one for one in tries if one != best and self._worth_trying(one, size)):
                seconds = self._seconds(tried, size)
                if seconds < least:
                    best, least = tried, seconds
        engine.stack.use(best)
        at_once, kernel = self._evaluation()
        return replace(
            choice,
            kernels=tuple(best),
            models_at_once=at_once,
            evaluation_kernel=kernel,
            seconds=least / TRIAL_STEPS,
        )

    def compiled(self, choice: EngineChoice) -> EngineChoice:
        """Return the choice for compiled steps, whose best kernels on a GPU are others.

        Compiling takes long, so few are tried: grouped ones, and unfolded from the last layer on,
        and neither where single clients are about as fast.
        """
        known = self.remembered("compiled")
        if known is not None:
            return known
        if self.kernels is None and self.engine.device.type == "cuda":
            with kernels_of(self.engine.precision, self.engine.device):
                kernels = self._one_by_one(choice) or self._compiled_kernels(choice)
                choice = replace(choice, kernels=kernels)
        choice = replace(choice, compiled=True)
        self.remember("compiled", choice)
        return choice

    def _one_by_one(self, choice: EngineChoice) -> tuple[str, ...]:
        """Return kernels that run client by client, if they are nearly the fastest uncompiled."""
        size = min(choice.group_size or self.engine.clients, self.engine.clients)
        kernels = (ONE_BY_ONE,) * len(choice.kernels)
        if not kernels or not self._worth_trying(kernels, size):
            return ()
        seconds = self._seconds(kernels, size) / TRIAL_STEPS
        return kernels if seconds <= COMPILED_GAIN * choice.seconds else ()

    def _compiled_kernels(self, choice: EngineChoice) -> tuple[str, ...]:
        engine = self.engine
        size = min(choice.group_size or engine.clients, engine.clients)
        engine.stack.compiled = True
        best = ["grouped"] * len(engine.stack.convolutions)
        least = self._seconds(best, size) if best else 0.0
        for at in reversed(range(len(best))):
            tried = [*best[:at], "unfolded", *best[at + 1 :]]
            seconds = self._seconds(tried, size)
            if seconds > least:
                break
            best, least = tried, seconds
        return tuple(best)

    def _evaluation(self) -> tuple[int, str]:
        """Choose how many models loss vectors are measured on at once (0: all), and the kernel."""
        engine, given = self.engine, self.models_at_once
        seconds = {}
        for at_once in (0, 1) if given < 0 else (given,):
            kernels = (*KERNELS[:2], ONE_BY_ONE) if engine.stack.convolutions else KERNELS[:1]
            kernels = (*kernels, TILED) if self._can_tile() else kernels
            for kernel in kernels if self.evaluation_kernel == "auto" else [self.evaluation_kernel]:
                engine.stack.use((), kernel)
                engine.forget_steps()  # captured with another kernel
                seconds[at_once, kernel] = _seconds_of_losses(engine, at_once)
        return min(seconds, key=seconds.__getitem__)

    def _worth_trying(self, kernels: Sequence[str], size: int) -> bool:
        if TILED in kernels and not self._can_tile():
            return False
        return size > 1 and (ONE_BY_ONE not in kernels or size <= MOST_ONE_BY_ONE)

    def _can_tile(self) -> bool:
        """Say whether tiles are to be had here, and suit a convolution of the network.

        In single precision they cannot use the tensor cores, and gain nothing.
        """
        engine = self.engine
        suited = any(one.suits_tiles for one in engine.stack.convolutions)
        return suited and engine.precision != "fp32" and can_tile(engine.device, engine.dtype)

    def _seconds(self, kernels: Sequence[str], size: int) -> float:
        self.engine.stack.use(kernels)
        self.engine.forget_steps()
        if self.engine.stack.compiled:
            torch.compiler.reset()  # a function is compiled anew only so many times
        return _seconds_per_client(self.engine, self.training, size)

    # --------------------------------------------------- remembering, so that a repeat is the same

    def remembered(self, name: str) -> EngineChoice | None:
        """Return what an earlier trial of the same work on this machine chose."""
        try:
            found = json.loads(_choices_file().read_text())[self._work(name)]
            return EngineChoice(**{**found, "kernels": tuple(found["kernels"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, name: str, choice: EngineChoice) -> None:
        """Note the outcome for the next time."""
        path, work = _choices_file(), self._work(name)
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            known = {}
        if not isinstance(known, dict):
            known = {}
        if work in known and known[work] == json.loads(json.dumps(asdict(choice))):
            return
        known[work] = asdict(choice)
        try:
            write_atomically(path, json.dumps(known, indent=1).encode())
        except OSError:
            return  # a cache that cannot be written costs a trial next time, nothing more

    def _work(self, name: str) -> str:
        """Name the work and the machine: what the trial's outcome depends on."""
        engine = self.engine
        cuda = engine.device.type == "cuda"
        parts = (
            f"8 {name} {engine.network!r} {engine.task.name} {engine.train_pool.x.shape[1:]} "
            f"{engine.precision} {self.training} {engine.clients} {engine.group_size} "
            f"{self.kernels} {self.models_at_once} {self.evaluation_kernel} "
            f"{min(self.fits, engine.clients)} {part_of_memory():g} {os.cpu_count()} "
            f"{torch.cuda.get_device_name(engine.device) if cuda else 'cpu'} "
            f"{self.threads or torch.get_num_threads()} {torch.__version__}"
        )
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _fastest(alone: dict[int, float], together: dict[tuple[int, int], float]) -> EngineChoice:
    """Choose by seconds a client: sequential by threads, vectorized by group size and threads."""
    fewest = min(alone, key=alone.__getitem__)
    size, number = min(together, key=together.__getitem__)
    if min(alone[fewest], together[size, number]) == np.inf:
        raise TooLittleMemory(
            "training 1 client at once does not fit in memory: use smaller batches, or a smaller "
            "network"
        )
    ratio = alone[fewest] / together[size, number]
    if ratio == 0:
        return EngineChoice("sequential", 0, fewest, "a stack of one client does not fit in memory")
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


def _fitting(engine: Vectorized, training: LocalTraining, size: int) -> tuple[int, float]:
    """Time a group; where it does not fit in memory, one half as large. Return its size, too."""
    while (seconds := _seconds_per_client(engine, training, size)) == np.inf and size > 1:
        size = -(-size // 2)
    return size, seconds


def _seconds_per_client(engine: Simulation, training: LocalTraining, clients: int) -> float:
    """Return how long a client's few steps take; infinitely long where memory does not suffice."""
    work = _trial(engine, training, min(clients, engine.clients))
    with draws_from(0, engine.device):
        whole = _or_never(engine, lambda: _seconds_of(engine, lambda: engine.train_group(work)))
    return whole / len(work.clients)


def _or_never(engine: Simulation, measure: Callable[[], float]) -> float:
    """Measure seconds; infinitely many where memory does not suffice."""
    try:
        return measure()
    except (RuntimeError, CloveError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    if engine.device.type == "cuda":
        torch.cuda.empty_cache()
    return np.inf


def _seconds_of(engine: Simulation, do: Callable[[], object]) -> float:
    """Return the least time of a few repeats: the shorter, the more it varies, and the more."""
    do()  # warm up: the first call pays for allocations and kernel choice
    seconds: list[float] = []
    least, most = TRIAL_REPEATS
    while len(seconds) < least or (len(seconds) < most and sum(seconds) < TRIAL_SECONDS):
        _wait(engine)
        start = time.perf_counter()
        do()
        _wait(engine)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _trial(engine: Simulation, training: LocalTraining, clients: int) -> Work:
    """Return a few steps of training for the first clients."""
    cohort = np.arange(clients)
    model = stacks.move(engine.network.state_dict(), engine.device, engine.dtype)
    question = Train(stacks.repeat(model, 1), np.zeros(clients, dtype=np.int64), cohort, training)
    return replace(work := engine.work(question, cohort), plans=work.plans.first(TRIAL_STEPS))


def _wait(engine: Simulation) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize(engine.device)


def _seconds_of_losses(engine: Vectorized, at_once: int) -> float:
    """Return how long loss vectors take on a chunk of samples."""
    model = stacks.move(engine.network.state_dict(), engine.device, engine.dtype)
    models = stacks.repeat(model, TRIAL_MODELS)
    rows = [np.arange(min(EVALUATION_BATCH[engine.device.type], len(engine.train_pool.x)))]
    engine.models_at_once = at_once or None
    return _or_never(
        engine,
        lambda: _seconds_of(engine, lambda: engine.run_models(models, rows, engine.train_pool)),
    )


def one_kernel(name: str) -> str:
    """Return the name of a kernel, or `auto`; refuse any other."""
    if name not in (*KERNELS, "auto"):
        raise unknown_name("kernel", name, KERNELS)
    return name


def _choices_file() -> Path:
    return cache_folder() / "engine-choices.json"
