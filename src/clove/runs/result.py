"""What a run leaves in the hands of its user."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from clove import __version__
from clove.algorithms import Algorithm, Asking
from clove.clustering import Assignments
from clove.data import ClientData
from clove.data.client_data import Split
from clove.errors import CloveError, CloveWarning, unknown_name
from clove.federation import Evaluate, LossVectors, Scores, Sequential
from clove.federation.parameters import count, move, one
from clove.federation.precision import dtype_of
from clove.folders import LOCK, PICTURE, held, plain_errors, write_atomically
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress, Record, drive
from clove.runs.made import new_folder
from clove.runs.settings import Settings, data_title
from clove.runs.story import Story, summarise
from clove.tasks import Task
from clove.tasks.export import SUFFIXES, parameter_bytes, program_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Newcomer:
    """Where a newcomer belongs: its model, how sure that is, and what it was decided on.

    `sure` is 1 where no other group comes near, and 0 where two fit equally well; `distances` are,
    for each model, to the centroid of its group (or losses, for methods without centroids). `loss`
    and, where answers are right or wrong, `accuracy` are those of every model on its data.
    """

    model: int
    sure: float
    distances: NDArray[np.float64]
    loss: NDArray[np.float64]
    accuracy: NDArray[np.float64] | None


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

    def parameters(self, index: int) -> dict[str, Tensor]:
        """Return the parameters of a model, as a state dict; they need no network."""
        number = count(self._story.models)
        if number == 0:
            raise CloveError("the models of this run stayed with its clients")
        if not isinstance(index, int | np.integer) or not 0 <= index < number:
            raise CloveError(f"there is no model {index}: this run has {number}, from 0")
        if self._story.algorithm().personal and self._story.assignment[index] < 0:
            raise CloveError(f"client {index} never took part: it has no model")
        return {name: t.detach().cpu() for name, t in one(self._story.models, index).items()}

    def model(self, index: int) -> nn.Module:
        """Return a model as a torch module: of a group, or of a client for Local-only."""
        state = self.parameters(index)
        module = self.task().build().to(dtype_of(self.settings.precision))
        module.load_state_dict(state)
        return module.eval()

    def export(
        self,
        path: str | Path | None = None,
        *,
        cluster: int | None = None,
        client: int | None = None,
        format: str = "safetensors",
    ) -> Path:
        """Write the model of a cluster, or the one a client uses, as a file; return where.

        `format` is "safetensors" (the parameters), "torchscript" or "onnx" (a program).
        """
        if format not in SUFFIXES:
            raise unknown_name("format", format, SUFFIXES)
        index = self._index(cluster, client)
        who = f"model-{cluster}" if client is None else f"client-{client}"
        if format == "safetensors":
            content = parameter_bytes(self.parameters(index), self.about(who))
        else:
            content = program_bytes(self.model(index), self._story.inputs, format)
        target = Path(path or f"{who}{SUFFIXES[format]}")
        with plain_errors(target, "the file"):
            write_atomically(target, content)
        return target

    def _index(self, cluster: int | None, client: int | None) -> int:
        """Return which model is a cluster's, or a client's."""
        personal = self._story.algorithm().personal
        if (cluster is None) == (client is None):
            raise CloveError("name either a cluster or a client whose model to export")
        if client is None:
            assert cluster is not None
            if personal:
                name = self.settings.algorithm
                raise CloveError(f"{name} has a model for each client: name a client")
            self._warn_if_unused(cluster)
            return cluster
        number = len(self.assignment)
        if not isinstance(client, int | np.integer) or not 0 <= client < number:
            raise CloveError(f"there is no client {client}: this run has {number}, from 0")
        if self.assignment[client] < 0:
            raise CloveError(f"client {client} never took part: it has no model")
        return client if personal else int(self.assignment[client])

    def _warn_if_unused(self, cluster: int) -> None:
        used = np.unique(self.assignment[self.assignment >= 0])
        if 0 <= cluster < count(self._story.models) and cluster not in used:
            warnings.warn(
                f"model {cluster} has no clients and may be untrained; those with clients: "
                f"{', '.join(map(str, used))}",
                CloveWarning,
                stacklevel=4,
            )

    def about(self, who: str) -> dict[str, str]:
        """Return in words what somebody must know who finds the parameters of a model."""
        settings = self.settings
        return {
            "network": settings.model,
            "task": settings.task,
            "inputs": json.dumps(self._story.inputs),
            "from": f"clove {__version__}, {settings.algorithm} on {settings.dataset}, {who}",
        }

    def assign(
        self, x: ArrayLike, y: ArrayLike | None = None, *, test: Split | None = None
    ) -> Newcomer:
        """Say which model a newcomer with these data should use, and how sure that is.

        All models are measured on `test`, where there is such data, else on what decided.
        """
        own = (x, y)
        newcomer = ClientData(own, own if test is None else test, name="newcomer")
        expected, got = self._story.inputs, newcomer.train[0].shape[1:]
        if got != expected:
            raise CloveError(f"the newcomer's samples have shape {got}, the run's {expected}")
        dtype = dtype_of(self.settings.precision)
        alone = Sequential([newcomer], self.task(), seed=self.settings.seed, dtype=dtype)
        found = drive(self.asking()(), alone.answer)
        models = move(self._story.models, torch.device("cpu"), dtype)
        every = np.arange(count(models))
        scores = alone.answer(Evaluate(models, np.zeros_like(every), every))
        assert isinstance(scores, Scores)
        return Newcomer(
            model=int(found.models[0]),
            sure=float(found.margins[0]),
            distances=found.distances[0],
            loss=scores.loss,
            accuracy=scores.accuracy,
        )

    def method(self) -> Algorithm[Any]:
        """Return the method, with its options."""
        return self._story.algorithm()

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of a sample."""
        return self._story.inputs

    @property
    def outputs(self) -> int:
        """How many outputs the network has, where it is of the zoo."""
        return self._story.outputs

    def users(self) -> NDArray[np.int64]:
        """Return for every model how many clients were last assigned to it."""
        seen = self.assignment[self.assignment >= 0]
        return np.bincount(seen, minlength=count(self._story.models))

    def asking(self) -> Callable[[], Asking[Assignments]]:
        """Return what begins to ask a newcomer, which is client 0 of a federation of its own."""
        state = on_cpu(self._story.state, dtype_of(self.settings.precision))
        return partial(self._story.algorithm().newcomers, state, np.array([0]))

    def task(self) -> Task:
        """Return what was learned, with a network made to measure."""
        if self._story.task is None:
            raise CloveError(
                "this run has a task or a network of your own: clove.load(path, task=...), or for "
                "a network by its import name --network package.module:name"
            )
        return self._story.task

    # ------------------------------------------------------------------------------------ disk

    def save(self, path: str | Path) -> Path:
        """Write the run as a folder, or copy the folder it is in."""
        if self._progress is None:
            assert self.folder is not None
            if Path(path).exists():
                raise CloveError(f"{path} exists already: choose another folder")
            with plain_errors(Path(path)):
                locks = shutil.ignore_patterns(LOCK)
                return Path(shutil.copytree(self.folder, path, ignore=locks))
        with held(Path(path)):
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
