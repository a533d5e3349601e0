"""What a run leaves in the hands of its user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Sequential
from clove.federation.parameters import move, one
from clove.runs.folder import PICTURE, RunFolder, plain_errors
from clove.runs.loop import Progress, Record, drive
from clove.runs.made import made, settings_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Newcomer:
    """Where a newcomer belongs: its model, how sure that is, and what it was decided on."""

    model: int
    sure: float  # 0: two groups fit equally well, 1: no other comes near
    distances: NDArray[np.float64]


class Result:
    """A finished run: figures, models, and a place for newcomers."""

    def __init__(self, progress: Progress, folder: RunFolder | None = None) -> None:
        self._progress = progress
        self._folder = folder

    def __repr__(self) -> str:
        settings = self.settings
        score = f"accuracy {self.accuracy:.3f}" if self.accuracy is not None else ""
        if not score and self.test_loss is not None:
            score = f"test loss {self.test_loss:.4g}"
        ari = "" if self.ari is None else f", ARI {self.ari:.2f}"
        where = "" if self.folder is None else f", in {self.folder}"
        return (
            f"<{settings.algorithm} on {settings.dataset}, {settings.mixing}: {score}{ari} "
            f"after {self._progress.round} rounds{where}>"
        )

    # --------------------------------------------------------------------------------- figures

    @property
    def settings(self) -> Any:
        """The settings, with what `auto` came out as."""
        return self._progress.prepared.settings

    @property
    def folder(self) -> Path | None:
        """Where the run is on disk, if it is."""
        return None if self._folder is None else self._folder.path

    @property
    def history(self) -> pd.DataFrame:
        """One row a round: metrics, bytes, assignment, and the time each phase took."""
        timings = pd.DataFrame(self._progress.timings).drop(columns="round")
        return pd.concat([pd.DataFrame(self._progress.records), timings], axis=1)

    @property
    def accuracy(self) -> float | None:
        """Mean over clients of their model's accuracy on their own test data, at the end."""
        return self._figure("accuracy")

    @property
    def test_loss(self) -> float | None:
        """Mean over clients of their model's loss on their own test data, at the end."""
        return self._figure("test_loss")

    @property
    def ari(self) -> float | None:
        """Agreement of the groups found with the true ones, over the last round's participants."""
        return self._figure("ari")

    @property
    def assignment(self) -> NDArray[np.int64]:
        """The model each client was last assigned to; -1: it never took part."""
        return self._progress.assignment

    @property
    def client_scores(self) -> pd.DataFrame:
        """Loss and accuracy of every client at the end, with its group where known."""
        scores = self._progress.scores
        if scores is None:
            raise CloveError("a run read from disk keeps no scores by client yet: run it again")
        table = pd.DataFrame({"client": scores.clients, "loss": scores.loss})
        if scores.accuracy is not None:
            table["accuracy"] = scores.accuracy
        table["model"] = self.assignment[scores.clients]
        groups = self._progress.prepared.clients.groups
        if groups is not None:
            table["group"] = groups[scores.clients]
        return table

    def summary(self) -> Record:
        """Return everything that `clove run --json` prints."""
        return summarise(self._progress)

    @property
    def _last(self) -> Record:
        return self._progress.records[-1]

    def _figure(self, name: str) -> float | None:
        value: float | None = self._last[name]
        return value

    # ------------------------------------------------------------------------ models, newcomers

    def model(self, index: int) -> nn.Module:
        """Return a model as a torch module: of a group, or of a client for Local-only."""
        prepared = self._progress.prepared
        models = prepared.algorithm.server_models(self._progress.state)
        if models is None:
            everyone = np.arange(prepared.federation.clients)
            models = prepared.federation.memory.kept("model", everyone)
        number = len(next(iter(models.values())))
        if not 0 <= index < number:
            raise CloveError(f"there is no model {index}: this run has {number}, from 0")
        module = prepared.clients.task.build()
        module.load_state_dict({n: t.detach().cpu() for n, t in one(models, index).items()})
        return module.eval()

    def assign(self, x: ArrayLike, y: ArrayLike | None = None) -> Newcomer:
        """Say which model a newcomer with these data should use, and how sure that is."""
        prepared = self._progress.prepared
        newcomer = ClientData(train=(x, y), test=(x, y), name="the newcomer")
        expected, found = prepared.clients.inputs, newcomer.train[0].shape[1:]
        if found != expected:
            raise CloveError(f"the newcomer's samples have shape {found}, the run's {expected}")
        alone = Sequential(
            [newcomer],
            prepared.clients.task,
            seed=prepared.settings.seed,
            dtype=prepared.federation.dtype,
        )
        state = on_cpu(self._progress.state, prepared.federation.dtype)
        asking = prepared.algorithm.newcomers(state, np.array([0]))
        with torch.no_grad():
            found_model = drive(asking, alone.answer)
        return Newcomer(
            int(found_model.models[0]), float(found_model.margins[0]), found_model.distances[0]
        )

    # ------------------------------------------------------------------------------------ disk

    def plot(self) -> Figure:
        """Draw ARI and accuracy by round, and the loss vectors coloured by model."""
        from clove.report.figures import Curves, Embedding, draw

        progress, settings = self._progress, self.settings
        embedding = None
        if progress.loss_vectors:
            number = max(progress.loss_vectors)
            vectors, groups = progress.loss_vectors[number], progress.prepared.clients.groups
            assignment = np.array(progress.records[number - 1]["assignment"])
            embedding = Embedding(
                round=number,
                losses=vectors.losses,
                models=assignment[vectors.clients],
                groups=None if groups is None else groups[vectors.clients],
                algorithm=settings.algorithm,
            )
        title = f"{settings.algorithm} on {settings.dataset}, {settings.mixing}"
        return draw([Curves(settings.algorithm, [progress.records])], embedding, title)

    def save(self, path: str | Path) -> Path:
        """Write the run as a folder."""
        settings = settings_text(self._progress.prepared)
        folder = RunFolder.create(path, settings)
        folder.write_all(self._progress)
        finish(self, folder)
        self._folder = folder
        return folder.path

    def loss_vectors(self, number: int | None = None) -> Any:
        """Return (clients, losses) of a round: the last that had any, unless told which."""
        known = self._progress.loss_vectors
        if not known:
            raise CloveError(f"{self.settings.algorithm} does not ask for loss vectors")
        if number is not None and number not in known:
            raise CloveError(f"round {number} had no loss vectors; rounds that had: {list(known)}")
        return known[max(known) if number is None else number]


def finish(result: Result, folder: RunFolder) -> None:
    """Write the picture, the models and the summary: after this the run is finished."""
    with plain_errors(folder.path):
        result.plot().savefig(folder.path / PICTURE)
    folder.finish(result._progress, result.summary())


def on_cpu(state: Any, dtype: torch.dtype) -> Any:
    """Return a state with its stacks on the CPU."""
    from dataclasses import fields, replace

    moved = {
        f.name: move(value, torch.device("cpu"), dtype)
        for f in fields(state)
        if isinstance(value := getattr(state, f.name), dict)
    }
    return replace(state, **moved)


def first_round_reaching(records: list[Record], ari: float) -> int | None:
    """Return the first round, from 1, whose ARI is at least so high."""
    hits = [r["round"] for r in records if r["ari"] is not None and r["ari"] >= ari - 1e-12]
    return hits[0] if hits else None


def stability_round(records: list[Record]) -> int | None:
    """Return after how many rounds the participants first called their assignments stable."""
    return next((r["round"] for r in records if r["stable"]), None)


def summarise(progress: Progress) -> Record:
    """Return a run's figures as one flat record, with the rounds as `history`."""
    prepared, last = progress.prepared, progress.records[-1]
    settings, seconds = prepared.settings, sum(t["seconds"] for t in progress.timings)
    models = prepared.algorithm.server_models(progress.state)
    number = prepared.federation.clients if models is None else len(next(iter(models.values())))
    groups = prepared.clients.groups
    history = [
        {k: v for k, v in record.items() if k != "assignment"} for record in progress.records
    ]
    return {
        "algorithm": settings.algorithm,
        "dataset": settings.dataset,
        "mixing": settings.mixing,
        "seed": settings.seed,
        "rounds": progress.round,
        "clients": prepared.federation.clients,
        "models": number,
        "clusters": len(np.unique(progress.assignment[progress.assignment >= 0])),
        "accuracy": last["accuracy"],
        "test_loss": last["test_loss"],
        "ari": last["ari"],
        "ari_seen": last["ari_seen"],
        "first_round_ari_0.9": first_round_reaching(progress.records, 0.9),
        "stability_round": stability_round(progress.records),
        "bytes_up": sum(record["bytes_up"] for record in progress.records),
        "bytes_down": sum(record["bytes_down"] for record in progress.records),
        "seconds": seconds,
        "seconds_per_round": seconds / progress.round,
        "engine": settings.engine,
        "device": settings.device,
        "made": made(prepared),
        "assignment": progress.assignment.tolist(),
        "groups": None if groups is None else groups.tolist(),
        "history": history,
    }
