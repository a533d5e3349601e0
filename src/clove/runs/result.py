"""What a run leaves in the hands of its user."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import LossVectors, Sequential
from clove.federation.parameters import count, move, one
from clove.federation.precision import dtype_of
from clove.folders import PICTURE, plain_errors
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress, Record, drive
from clove.runs.made import new_folder
from clove.runs.settings import Settings, data_title
from clove.runs.story import Story, summarise
from clove.tasks import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Newcomer:
    """Where a newcomer belongs: its model, how sure that is, and what it was decided on.

    `sure` is 1 where no other group comes near, and 0 where two fit equally well; `distances` are,
    for each model, to the centroid of its group (or losses, for methods without centroids).
    """

    model: int
    sure: float
    distances: NDArray[np.float64]


class Result:
    """A finished run: figures, models, and a place for newcomers."""

    def __init__(
        self, story: Story, folder: RunFolder | None = None, progress: Progress | None = None
    ) -> None:
        self._story, self._folder, self._progress = story, folder, progress

    def __repr__(self) -> str:
        words = []
        if self.accuracy is not None:
            words.append(f"accuracy {self.accuracy:.3f}")
        elif self.test_loss is not None:
            words.append(f"test loss {self.test_loss:.4g}")
        if self.ari is not None:
            words.append(f"ARI {self.ari:.2f}")
        settings, where = self.settings, "" if self.folder is None else f", in {self.folder}"
        return (
            f"<{settings.algorithm} on {settings.dataset}, {settings.mixing}: "
            f"{', '.join(words)} after {self._story.round} rounds{where}>"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the figures in a table, and the picture."""
        from clove.report.notebook import card  # drawing is loaded when it is needed
        from clove.report.tables import cells, figures

        title = f"{self._story.clients} clients, {self._story.round} rounds"
        return card(
            f"{data_title(self.settings.dataset, self.settings.mixing)}: {title}",
            *cells(figures([self.summary()])),
            self.plot(),
        )

    # --------------------------------------------------------------------------------- figures

    @property
    def settings(self) -> Settings:
        """The settings, with what `auto` came out as."""
        return self._story.settings

    @property
    def folder(self) -> Path | None:
        """Where the run is on disk, if it is."""
        return None if self._folder is None else self._folder.path

    @property
    def history(self) -> pd.DataFrame:
        """One row a round: metrics, bytes, assignment, and the time each phase took."""
        timings = pd.DataFrame(self._story.timings).drop(columns="round")
        return pd.concat([pd.DataFrame(self._story.records), timings], axis=1)

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
        return self._story.assignment

    @property
    def client_scores(self) -> pd.DataFrame:
        """Loss and accuracy of every client at the end, with its model, and its group if known."""
        return client_table(self._story)

    def summary(self) -> Record:
        """Return everything that `clove run --json` prints."""
        return summarise(self._story)

    def loss_vectors(self, number: int | None = None) -> LossVectors:
        """Return clients and losses of a round: the last that had any, unless told which."""
        known = self._story.loss_vectors
        if not known:
            raise CloveError(f"{self.settings.algorithm} does not ask for loss vectors")
        if number is not None and number not in known:
            raise CloveError(f"round {number} had no loss vectors; rounds that had: {list(known)}")
        return known[max(known) if number is None else number]

    def plot(self) -> Figure:
        """Draw accuracy and ARI by round, and the loss vectors coloured by model."""
        from clove.report.figures import Curves, draw  # drawing is loaded when it is needed

        settings = self.settings
        title = f"{settings.algorithm} on {data_title(settings.dataset, settings.mixing)}"
        curves = [Curves(settings.algorithm, [self._story.records])]
        return draw(curves, self._story.embedding(), title)

    def report(self, path: str | Path) -> Path:
        """Write the run's page: one HTML file that opens from disk, without a network."""
        from clove.report.page.render import write_report  # pages are loaded when they are needed

        if self.folder is not None:
            return write_report([self.folder], path)
        with TemporaryDirectory() as folder:
            written = Result(self._story, progress=self._progress).save(Path(folder) / "run")
            return write_report([written], path)

    def _figure(self, name: str) -> float | None:
        value: float | None = self._story.records[-1][name]
        return value

    # ------------------------------------------------------------------------ models, newcomers

    def model(self, index: int) -> nn.Module:
        """Return a model as a torch module: of a group, or of a client for Local-only."""
        number = count(self._story.models)
        if number == 0:
            raise CloveError("the models of this run stayed with its clients")
        if not isinstance(index, int | np.integer) or not 0 <= index < number:
            raise CloveError(f"there is no model {index}: this run has {number}, from 0")
        if self._story.algorithm().personal and self._story.assignment[index] < 0:
            raise CloveError(f"client {index} never took part: it has no model")
        state = one(self._story.models, index)
        module = self._task().build().to(dtype_of(self.settings.precision))
        module.load_state_dict({name: t.detach().cpu() for name, t in state.items()})
        return module.eval()

    def assign(self, x: ArrayLike, y: ArrayLike | None = None) -> Newcomer:
        """Say which model a newcomer with these data should use, and how sure that is."""
        newcomer = ClientData(train=(x, y), test=(x, y), name="(the newcomer)")
        expected, got = self._story.inputs, newcomer.train[0].shape[1:]
        if got != expected:
            raise CloveError(f"the newcomer's samples have shape {got}, the run's {expected}")
        dtype = dtype_of(self.settings.precision)
        alone = Sequential([newcomer], self._task(), seed=self.settings.seed, dtype=dtype)
        state = on_cpu(self._story.state, dtype)
        asking = self._story.algorithm().newcomers(state, np.array([0]))
        found = drive(asking, alone.answer)
        return Newcomer(int(found.models[0]), float(found.margins[0]), found.distances[0])

    def _task(self) -> Task:
        if self._story.task is None:
            raise CloveError("this run has a network of your own: clove.load(path, task=...)")
        return self._story.task

    # ------------------------------------------------------------------------------------ disk

    def save(self, path: str | Path) -> Path:
        """Write the run as a folder, or copy the folder it is in."""
        if self._progress is None:
            assert self.folder is not None
            if Path(path).exists():
                raise CloveError(f"{path} exists already: choose another folder")
            with plain_errors(Path(path)):
                return Path(shutil.copytree(self.folder, path))
        folder = new_folder(path, self._progress.prepared)
        folder.write_all(self._progress)
        self._folder = folder
        finish(self)
        return folder.path


def finish(result: Result) -> None:
    """Write what only a finished run has: models, picture, clients, and the summary last."""
    folder, story = result._folder, result._story
    assert folder is not None
    kind = "client" if result._story.algorithm().personal else "model"
    folder.write_models(kind, story.models)
    if story.settings.picture:
        with plain_errors(folder.path):
            result.plot().savefig(folder.path / PICTURE)
    folder.finish(client_table(story).to_csv(index=False), summarise(story))


def client_table(story: Story) -> pd.DataFrame:
    """Return one row a client that has a model: how well it is served."""
    scores = story.scores
    if scores is None:
        return pd.DataFrame(columns=["client", "loss", "model"])
    table = pd.DataFrame({"client": scores.clients, "loss": scores.loss})
    if scores.accuracy is not None:
        table["accuracy"] = scores.accuracy
    table["model"] = story.assignment[scores.clients]
    if story.groups is not None:
        table["group"] = story.groups[scores.clients]
    return table


def on_cpu(state: Any, dtype: torch.dtype) -> Any:
    """Return a state with its stacks of models on the CPU."""
    assert is_dataclass(state)
    moved = {
        field.name: move(value, torch.device("cpu"), dtype)
        for field in fields(state)
        if isinstance(value := getattr(state, field.name), dict)
    }
    return replace(state, **moved)  # type: ignore[type-var]
