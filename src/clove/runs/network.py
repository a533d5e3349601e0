"""A run whose clients are elsewhere: settings, folder and rounds as of any other run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True)
class Options:
    """What only a run on a network needs to know.

    `min_nodes` must be there before the first round, which is waited for `wait` seconds; a question
    is open for `timeout` seconds, then the round goes on without those that are silent. `outputs`
    are those of the network where it is of the zoo (classes); None: as the first clients need.
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
    if folder.is_run():
        settings, saved = _settings_of(folder, given), folder.checkpoint() or {}
    else:
        settings, saved = _checked(given), {}
    roster = Roster(grid, options.timeout)
    roster.numbers.update(saved.get("memory", {}).get("numbers", {}))
    roster.wait(options.min_nodes, options.wait)
    about = saved.get("clients", {})
    outputs = about.get("outputs", options.outputs)
    terms = roster.settle(lambda hellos: _terms(settings, task, hellos, outputs))
    if len(roster.members) < options.min_nodes:
        raise CloveError(
            f"only {len(roster.members)} of {options.min_nodes} nodes fit this run, by what is "
            "said above of the others: mend those, set the run's task and outputs, or set min-nodes"
        )
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


def _terms(
    settings: Settings, task: Task | None, hellos: Iterable[Hello], outputs: int | None
) -> Terms:
    """Return what is expected of all: the server's task where it has one, else the first's."""
    hellos = list(hellos)
    first = hellos[0]
    needed = max(one.outputs for one in hellos if one.task == first.task)
    if task is None and first.network == OWN:
        raise CloveError(
            "the clients have a network of their own: hand the same task to clove.flower.server"
        )
    if task is not None and not isinstance(task.network, str):
        parameters = outline(initial_parameters(task, 0))
        return Terms(task.name, OWN, parameters, first.inputs, outputs or needed)
    network = str(task.network) if task is not None else settings.model
    return Terms(
        task=task.name if task is not None else _unless_auto(settings.task, first.task),
        network=_unless_auto(network, first.network),
        parameters=None,
        inputs=first.inputs,
        outputs=outputs or needed,
    )


def _unless_auto(name: str, otherwise: str) -> str:
    return otherwise if name in ("auto", OWN_NETWORK) else name


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
