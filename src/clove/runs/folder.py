"""A run as a folder: settings, a line of metrics a round, checkpoint, loss vectors, models.

Files appear whole or not at all. After a kill at any moment the checkpoint says how many rounds are
done, and lines beyond it are dropped. To wait for a busy disk takes longer than many a round, so
that this is done once a second, and in between a checkpoint stands beside the one that is on the
disk: what a kill of the process costs is the round under way, and if the machine goes down the last
second.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from safetensors.torch import save

from clove.errors import CloveError
from clove.federation import LossVectors, Parameters
from clove.federation.parameters import count, one
from clove.folders import (
    CHECKPOINT,
    CLIENTS,
    DATA,
    LOSS_VECTORS,
    METRICS,
    MODELS,
    RECENT,
    SETTINGS,
    SUMMARY,
    TIMINGS,
    half_written,
    held,
    is_empty,
    plain_errors,
    put_on_disk,
    write_atomically,
)
from clove.trees import read_tree, write_tree

if TYPE_CHECKING:
    from clove.runs.loop import Progress


SAFE_EVERY = 1.0  # seconds between two waits for the disk


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._safe_at = -inf  # when what was done was last on the disk

    @classmethod
    def create(cls, path: str | Path, settings: str, data: str | None = None) -> RunFolder:
        """Make a folder for a new run; refuse one that holds something already.

        `data` is what the run's pages may tell of the clients' data, where they are known.
        """
        folder = cls(path)
        with plain_errors(folder.path):
            if folder.is_run():
                raise CloveError(
                    f"{path} holds a run already: continue it with `clove resume {path}`, "
                    "or choose another folder"
                )
            if not is_empty(folder.path):
                raise CloveError(f"{path} is not empty: choose another folder for the run")
            folder.path.mkdir(parents=True, exist_ok=True)
            sweep(folder.path)
            write_atomically(folder.path / SETTINGS, settings.encode())
        folder.add_data(data)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open the folder of an existing run."""
        folder = cls(path)
        if not folder.is_run():
            raise CloveError(
                f"{path} is not a run folder: there is no {SETTINGS} in it. A run stopped before "
                "its first round has to be started again"
            )
        return folder

    def held(self) -> AbstractContextManager[None]:
        """Have the folder for oneself, which whoever writes a run must; readers need not."""
        return held(self.path)

    def is_run(self) -> bool:
        """Say whether there is a run here."""
        return (self.path / SETTINGS).is_file()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / SUMMARY).is_file()

    # --------------------------------------------------------------------------------- writing

    def add_data(self, data: str | None) -> None:
        """Write what is known of the clients' data, unless it is there."""
        if data is not None and not (self.path / DATA).exists():
            with plain_errors(self.path):
                write_atomically(self.path / DATA, data.encode())

    def add_round(self, progress: Progress) -> None:
        """Write the round just done: its line, its loss vectors, and last a checkpoint, if due."""
        settings = progress.settings
        last = progress.round == settings.rounds
        due = last or progress.round % settings.checkpoint_every == 0
        safe = due and (last or time.monotonic() >= self._safe_at + SAFE_EVERY)
        with plain_errors(self.path):
            if progress.round in progress.loss_vectors:
                self._write_loss_vectors(progress.round, progress.loss_vectors[progress.round])
            _append(self.path / METRICS, progress.records[-1])
            _append(self.path / TIMINGS, progress.timings[-1])
            if due:
                self.write_checkpoint(progress, safe)

    def write_checkpoint(self, progress: Progress, safe: bool = True) -> None:
        """Save what the next round depends on, and wait until it is on the disk if so said."""
        tree = {
            "round": progress.round,
            "state": progress.state,
            "memory": progress.prepared.federation.saved(),
            "assignment": progress.assignment,
            "scores": progress.scores,
            "clients": {
                "number": progress.prepared.federation.clients,
                "groups": progress.prepared.clients.groups,
                "inputs": progress.prepared.clients.inputs,
                "outputs": progress.prepared.clients.outputs,
                "remark": progress.prepared.clients.remark,
                "fingerprint": progress.prepared.clients.fingerprint,
            },
        }
        if not safe:
            write_tree(self.path / RECENT, tree, durable=False)
            return
        for name in (METRICS, TIMINGS):
            put_on_disk(self.path / name)
        write_tree(self.path / CHECKPOINT, tree)
        (self.path / RECENT).unlink(missing_ok=True)
        self._safe_at = time.monotonic()

    def write_all(self, progress: Progress) -> None:
        """Write a run that was only in memory so far."""
        with plain_errors(self.path):
            for number, vectors in progress.loss_vectors.items():
                self._write_loss_vectors(number, vectors)
            write_lines(self.path / METRICS, progress.records)
            write_lines(self.path / TIMINGS, progress.timings)
            self.write_checkpoint(progress)

    def write_models(self, kind: str, models: Parameters) -> None:
        """Write every model of a stack as a file of its own."""
        with plain_errors(self.path):
            for index in range(count(models)):
                single = {name: t.contiguous().cpu() for name, t in one(models, index).items()}
                path = self.path / MODELS / f"{kind}-{index}.safetensors"
                write_atomically(path, save(single))

    def finish(self, clients: str, summary: Mapping[str, Any]) -> None:
        """Write the table of clients, and the summary: with it the run is finished."""
        with plain_errors(self.path):
            write_atomically(self.path / CLIENTS, clients.encode())
            write_atomically(self.path / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())

    def _write_loss_vectors(self, number: int, vectors: LossVectors) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, clients=vectors.clients, losses=vectors.losses)
        write_atomically(self._loss_file(number), buffer.getvalue(), durable=False)

    def _loss_file(self, number: int) -> Path:
        return self.path / LOSS_VECTORS / f"round-{number:05d}.npz"

    # --------------------------------------------------------------------------------- reading

    def checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint, or None where the first round was not finished."""
        path = self.path / CHECKPOINT
        safe = read_tree(path) if path.exists() else None
        recent = self._recent()
        if safe is None or recent is None:
            return safe
        return max(safe, recent, key=lambda saved: int(saved["round"]))

    def _recent(self) -> dict[str, Any] | None:
        """Return the checkpoint that may not have reached the disk, if it did with its lines."""
        path = self.path / RECENT
        if not path.exists():
            return None
        try:
            saved = read_tree(path)
            for name in (METRICS, TIMINGS):
                self.lines(name, saved["round"])
        except CloveError:  # the machine went down
            return None
        return saved

    def lines(self, name: str, rounds: int) -> list[dict[str, Any]]:
        """Return the records of the first so many rounds from a file of lines."""
        path = self.path / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = text.splitlines()[:rounds]
        if len(lines) < rounds:
            raise CloveError(
                f"{path} has {len(lines)} lines, but the checkpoint says {rounds} rounds are done: "
                "the folder is damaged"
            )
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise CloveError(f"{path} is damaged: {error}") from None

    def cut_back(self, rounds: int) -> None:
        """Drop lines written after the last checkpoint, and files left half written."""
        with plain_errors(self.path):
            sweep(self.path)
            for name in (METRICS, TIMINGS):
                write_lines(self.path / name, self.lines(name, rounds))

    def loss_vectors(self, number: int) -> LossVectors | None:
        """Return the loss vectors of a round, where it had any."""
        path = self._loss_file(number)
        if not path.exists():
            return None
        try:
            with np.load(path) as arrays:
                return LossVectors(arrays["clients"], arrays["losses"])
        except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
            raise CloveError(f"{path} is damaged: {error}") from None

    def summary(self) -> dict[str, Any]:
        """Return the summary of a finished run."""
        if not self.finished:
            raise CloveError(f"the run in {self.path} is not finished: `clove resume {self.path}`")
        return read_json(self.path / SUMMARY)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CloveError(f"{path} is damaged: {error}") from None
    return content


def sweep(folder: Path) -> None:
    """Remove what was left half written in a folder."""
    for left in half_written(folder):
        left.unlink()


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as a file of JSON lines."""
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in records).encode())


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
