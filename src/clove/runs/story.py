"""A run as it can be told without its clients' data: from memory, or from its folder alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clove.algorithms import Algorithm, Setup, find_algorithm
from clove.errors import CloveError
from clove.federation import LossVectors, Parameters, Scores
from clove.federation.parameters import Indices, count
from clove.folders import METRICS, SETTINGS, TIMINGS
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress, Record
from clove.runs.made import made
from clove.runs.settings import OWN_NETWORK, Settings, from_names, read_run_settings
from clove.tasks import TASKS, Task, named_task

if TYPE_CHECKING:
    from clove.report.figures import Embedding


@dataclass(frozen=True)
class Story:
    """Settings, rounds, models and assignments of a run."""

    settings: Settings
    made: Mapping[str, Any]
    records: list[Record]
    timings: list[Record]
    loss_vectors: Mapping[int, LossVectors]
    clients: int
    groups: Indices | None
    assignment: Indices
    scores: Scores | None
    state: Any
    models: Parameters  # the server's, or one for each client where they are personal
    inputs: tuple[int, ...]
    outputs: int
    remark: str | None  # what a user should know about the data
    task: Task | None  # None: the user's own network, not handed over again

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return len(self.records)

    def algorithm(self) -> Algorithm[Any]:
        """Return the method, for questions about newcomers."""
        return _method(self.settings, self.clients, self.groups)

    def embedding(self) -> Embedding | None:
        """Return the last loss vectors with the models and groups of their clients."""
        from clove.report.figures import Embedding  # drawing is loaded when it is needed

        if not self.loss_vectors:
            return None
        number = max(self.loss_vectors)
        vectors = self.loss_vectors[number]
        return Embedding(
            round=number,
            losses=vectors.losses,
            models=np.array(self.records[number - 1]["assignment"])[vectors.clients],
            groups=None if self.groups is None else self.groups[vectors.clients],
            algorithm=self.settings.algorithm,
        )


def told(progress: Progress) -> Story:
    """Tell a run that is in memory."""
    prepared = progress.prepared
    return Story(
        settings=prepared.settings,
        made=made(prepared),
        records=progress.records,
        timings=progress.timings,
        loss_vectors=progress.loss_vectors,
        clients=prepared.federation.clients,
        groups=prepared.clients.groups,
        assignment=progress.assignment,
        scores=progress.scores,
        state=progress.state,
        models=progress.models(),
        inputs=prepared.clients.inputs,
        outputs=prepared.clients.outputs,
        remark=prepared.clients.remark,
        task=prepared.clients.task,
    )


def read_story(path: str | Path, task: Task | None = None, network: str | None = None) -> Story:
    """Read a run from its folder, as far as it has come.

    A network of one's own is in `task`, or found by its import name.
    """
    folder = RunFolder.open(path)
    saved = folder.checkpoint()
    if saved is None:
        raise CloveError(f"the run in {path} has no finished round yet: `clove resume {path}`")
    settings = from_names(**read_run_settings(folder.path / SETTINGS))
    clients, rounds = saved["clients"], saved["round"]
    algorithm = _method(settings, clients["number"], clients["groups"])
    state = algorithm.state_type(**saved["state"])
    models = algorithm.server_models(state)
    if models is None:
        models = saved["memory"]["kept"].get("model", {})
    vectors = {number: folder.loss_vectors(number) for number in range(1, rounds + 1)}
    return Story(
        settings=settings,
        made=tomllib.loads((folder.path / SETTINGS).read_text(encoding="utf-8")).get("made", {}),
        records=folder.lines(METRICS, rounds),
        timings=folder.lines(TIMINGS, rounds),
        loss_vectors={number: found for number, found in vectors.items() if found is not None},
        clients=clients["number"],
        groups=clients["groups"],
        assignment=saved["assignment"],
        scores=None if saved["scores"] is None else Scores(**saved["scores"]),
        state=state,
        models=models,
        inputs=tuple(clients["inputs"]),
        outputs=clients["outputs"],
        remark=clients["remark"],
        task=task or _named(settings, network, tuple(clients["inputs"]), clients["outputs"]),
    )


def _method(settings: Settings, clients: int, groups: Indices | None) -> Algorithm[Any]:
    """Return the method of a run that makes no new models."""

    def refuse(number: int, how: str) -> Parameters:
        raise CloveError("a finished run makes no new models")

    number = None if groups is None else len(np.unique(groups))
    setup = Setup(clients, number, settings.training, settings.seed, refuse)
    return find_algorithm(settings.algorithm)(setup, **settings.options)


def _named(
    settings: Settings, network: str | None, inputs: tuple[int, ...], outputs: int
) -> Task | None:
    """Return the task that names say; None: its network has none, or the task itself."""
    model = settings.model if network is None else network
    if model == OWN_NETWORK or settings.task not in TASKS:
        return None
    return named_task(settings.task, model, settings.loss).for_data(inputs, outputs)


def summarise(story: Story) -> Record:
    """Return a run's figures as one flat record, with the rounds as `history`."""
    last, settings = story.records[-1], story.settings
    seconds = sum(timing["seconds"] for timing in story.timings)
    history = [{k: v for k, v in record.items() if k != "assignment"} for record in story.records]
    return {
        "algorithm": settings.algorithm,
        "reference": story.algorithm().reference,
        "dataset": settings.dataset,
        "mixing": settings.mixing,
        "seed": settings.seed,
        "rounds": story.round,
        "clients": story.clients,
        "models": story.clients if story.algorithm().personal else count(story.models),
        "clusters": len(np.unique(story.assignment[story.assignment >= 0])),
        "accuracy": last["accuracy"],
        "test_loss": last["test_loss"],
        "ari": last["ari"],
        "ari_seen": last["ari_seen"],
        "first_round_ari_0.9": first_round_reaching(story.records, 0.9),
        "stability_round": stability_round(story.records),
        "bytes_up": sum(record["bytes_up"] for record in story.records),
        "bytes_down": sum(record["bytes_down"] for record in story.records),
        "seconds": seconds,
        "seconds_per_round": seconds / story.round,
        "engine": settings.engine,
        "device": settings.device,
        "remark": story.remark,
        "made": dict(story.made),
        "assignment": story.assignment.tolist(),
        "groups": None if story.groups is None else story.groups.tolist(),
        "history": history,
    }


def first_round_reaching(records: list[Record], ari: float) -> int | None:
    """Return the first round, from 1, whose ARI is at least so high."""
    hits = [r["round"] for r in records if r["ari"] is not None and r["ari"] >= ari - 1e-12]
    return hits[0] if hits else None


def stability_round(records: list[Record]) -> int | None:
    """Return after how many rounds the participants first called their assignments stable."""
    return next((r["round"] for r in records if r["stable"]), None)
