"""A run whose clients are elsewhere: settings, folder and rounds as of any other run."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from clove.errors import CloveError
from clove.federation.engines import EngineChoice
from clove.federation.flower.hello import OWN, Hello, Terms, outline
from clove.federation.flower.roster import Roster
from clove.federation.flower.server import FlowerFederation
from clove.federation.precision import find_precision
from clove.runs.api import go_on_with, run_folder_settings, start
from clove.runs.build import Clients, Prepared, algorithm_for
from clove.runs.folder import RunFolder
from clove.runs.loop import Watcher
from clove.runs.result import Result
from clove.runs.settings import (
    OWN_NETWORK,
    SECTIONS,
    Settings,
    checked_type,
    for_own_clients,
    from_names,
    read_settings,
)
from clove.tasks import TASKS, Task, initial_parameters, named_task

if TYPE_CHECKING:
    from flwr.serverapp import Grid

ENGINE = "flower"
MEMORIES = "memories"  # in a run's folder: what simulated clients keep


@dataclass(frozen=True)
class Options:
    """What only a run on a network needs to know.

    `min_nodes` must be there before the first round, which is waited for `wait` seconds; a question
    is open for `timeout` seconds, then the round goes on without those that are silent. `outputs`
    are those of the network where it is of the zoo (classes); None: as many as the clients need
    that are there at first.
    """

    out: str | None = None
    min_nodes: int = 2
    timeout: float = 600.0
    wait: float = 300.0
    outputs: int | None = None

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Options).items():
            checked_type(name, getattr(self, name), kind)
        for name in ("min_nodes", "timeout", "wait", "outputs"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise CloveError(f"{name} must be above zero, not {value}")


@dataclass(frozen=True)
class FarClients(Clients):
    """Clients of whom only the shape of their samples is known here."""

    shape: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return self.shape

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of what is learned: the data are not here to be compared."""
        text = f"{self.task.name} {self.model} {self.shape} {self.outputs}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def given_settings(settings: Settings | Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return settings by name, from whatever they are in."""
    if isinstance(settings, Settings):
        return settings.flat()
    if isinstance(settings, str | Path):
        return read_settings(Path(settings))
    if isinstance(settings, Mapping):
        return dict(settings)
    raise CloveError(
        f"settings must be a file, names with values, or Settings, not {type(settings).__name__}"
    )


def run_on_network(
    grid: Grid,
    given: Mapping[str, Any],
    options: Options,
    task: Task | None = None,
    watch: Watcher | None = None,
) -> Result:
    """Run to the end on the nodes of a grid, or go on with the unfinished run in the folder."""
    if options.out is None:
        raise CloveError("a run on Flower needs a folder: set out")
    folder = RunFolder(options.out)
    with folder.held():
        return _run_in(folder, grid, given, options, task, watch)


def _run_in(
    folder: RunFolder,
    grid: Grid,
    given: Mapping[str, Any],
    options: Options,
    task: Task | None,
    watch: Watcher | None,
) -> Result:
    if folder.is_run():
        settings, saved = _settings_of(folder, given), folder.checkpoint() or {}
    else:
        settings, saved = _checked(given), {}
    about = saved.get("clients", {})
    said = _said(settings, task) | ({"inputs": tuple(about["inputs"])} if about else {})
    outputs = about.get("outputs", options.outputs)
    roster = Roster(grid, options.timeout)
    roster.restore(saved.get("memory", {}))
    terms = _gathered(roster, options, lambda hellos: agreed(said, hellos, outputs))
    if outputs is None:
        _name_widest(roster, terms)
    federation, clients = _federation(settings, options, roster, terms, task)
    if about.get("groups") is not None and clients.groups is None:  # not all are back yet
        clients = replace(clients, groups=about["groups"])
    settings = _settled(settings, clients, federation)
    choice = EngineChoice(ENGINE, 0, 0, "the clients are nodes of Flower")
    algorithm = algorithm_for(settings, clients, federation.clients, federation.device)
    if algorithm.pools(np.zeros(federation.clients, dtype=np.int64)) is not None:
        raise CloveError(f"{settings.algorithm} puts data together, which on a network stay apart")
    prepared = Prepared(settings, clients, federation, algorithm, choice)
    if folder.is_run():
        return go_on_with(prepared, folder, watch)
    return start(prepared, folder.path, watch)


def _checked(given: Mapping[str, Any]) -> Settings:
    names = dict(given)
    if "dataset" not in names and "mixing" not in names:
        names = for_own_clients(names)
    settings = from_names(**names)
    if settings.stragglers:
        raise CloveError("stragglers are simulated, and on a network they are real: set timeout")
    return settings


def _settings_of(folder: RunFolder, given: Mapping[str, Any]) -> Settings:
    """Return the settings of a run to go on with; what is given must not differ."""
    if folder.finished:
        raise CloveError(
            f"the run in {folder.path} is finished: choose another folder (`clove flower run ... "
            "--set out=FOLDER`)"
        )
    _checked(given)  # names that no run has are an error here, too
    settings = run_folder_settings(folder)
    known = settings.flat()
    for name, value in given.items():
        same = name in SECTIONS["machine"] or value in ("auto", None)
        if not same and name in known and known[name] != value:
            raise CloveError(
                f"the run in {folder.path} has {name}={known[name]!r}, not {value!r}: "
                "choose another folder for another run"
            )
    return settings


def _gathered(roster: Roster, options: Options, terms: Callable[[Sequence[Hello]], Terms]) -> Terms:
    """Wait for enough nodes, and decide by them what is expected of all."""
    start = time.monotonic()
    roster.wait(options.min_nodes, options.wait)
    found = roster.settle(terms)
    # Those that do not fit are left out now: there may be too few again.
    roster.wait(options.min_nodes, max(0.0, options.wait - (time.monotonic() - start)))
    return found


def _name_widest(roster: Roster, terms: Terms) -> None:
    """Name a client for whose labels alone the network is wider than for all others'."""
    if terms.task != "classification" or terms.network == OWN:
        return
    first, *others = sorted(
        roster.members.values(), key=lambda member: member.hello.outputs, reverse=True
    )
    if not others or others[0].hello.outputs == first.hello.outputs:
        return
    logging.getLogger("flwr").warning(
        "the network has %d outputs for the labels of %s, node %d, alone: all others need %d at "
        "most. If its labels are wrong, begin another run with outputs=%d",
        *(first.hello.outputs, first.who, first.node),
        *(others[0].hello.outputs, others[0].hello.outputs),
    )


def _said(settings: Settings, task: Task | None) -> dict[str, Any]:
    """Return what the server says itself of its clients' task, by the names of their greetings."""
    if task is not None and not isinstance(task.network, str):
        parameters = outline(initial_parameters(task, 0))
        return {"task": task.name, "network": OWN, "parameters": parameters}
    kind = settings.task if task is None else task.name
    network = settings.model if task is None else str(task.network)
    said = {"task": kind, "network": network}
    said = {name: one for name, one in said.items() if one not in ("auto", OWN_NETWORK)}
    return said if task is None else {**said, "parameters": None}


def agreed(said: Mapping[str, Any], hellos: Sequence[Hello], outputs: int | None) -> Terms:
    """Return what is expected of all: what the server says, and else what most clients have.

    Where as many have the one as the other, it is what the first of them has. Outputs are as many
    as one of these clients needs for its labels: they may well hold different ones.
    """
    fitting = [h for h in hellos if all(getattr(h, n) == one for n, one in said.items())]
    kinds = Counter(map(_kind, fitting or hellos))
    usual, _ = kinds.most_common(1)[0]
    alike = [hello for hello in hellos if _kind(hello) == usual]
    terms = {name: getattr(alike[0], name) for name in ("task", "network", "parameters", "inputs")}
    if terms["network"] == OWN and "parameters" not in said:
        raise CloveError(
            "the clients have a network of their own: hand the same task to clove.flower.server"
        )
    return Terms(**{**terms, **said}, outputs=outputs or max(one.outputs for one in alike))


def _kind(hello: Hello) -> tuple[Any, ...]:
    outputs = None if hello.task == "classification" else hello.outputs
    return (hello.task, hello.network, hello.parameters, hello.inputs, outputs)


def _federation(
    settings: Settings, options: Options, roster: Roster, terms: Terms, task: Task | None
) -> tuple[FlowerFederation, FarClients]:
    if task is None:
        task = named_task(terms.task, terms.network, settings.loss)
    task = task.for_data(terms.inputs, terms.outputs)
    federation = FlowerFederation(
        roster=roster,
        task=task,
        seed=settings.seed,
        precision=find_precision(settings.precision, FlowerFederation.device),
        timeout=options.timeout,
        inputs=terms.inputs,
        outputs=terms.outputs,
        rounds=settings.rounds,
        wait=options.wait,
        folder=_memories(roster, options),
    )
    clients = FarClients(
        clients=[],
        groups=federation.true_groups,
        task=task,
        model=OWN_NETWORK if terms.network == OWN else terms.network,
        outputs=terms.outputs,
        shape=terms.inputs,
        data=settings.data,
    )
    return federation, clients


def _memories(roster: Roster, options: Options) -> str:
    """Return where the clients of Flower's simulation remember: it forgets, a run's folder not."""
    from flwr.superlink.grid import InMemoryGrid

    simulated = isinstance(roster.grid, InMemoryGrid)
    return str(Path(str(options.out)).absolute() / MEMORIES) if simulated else ""


def _settled(settings: Settings, clients: FarClients, federation: FlowerFederation) -> Settings:
    """Return settings with what came of `auto`."""
    return replace(
        settings,
        engine=ENGINE,
        device=str(federation.device),
        precision=federation.precision,
        task=clients.task.name if clients.task.name in TASKS else settings.task,
        model=clients.model,
    )
