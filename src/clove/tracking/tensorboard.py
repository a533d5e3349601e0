"""A TensorBoard log: `tensorboard --logdir FOLDER` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

PICTURE = ".png"
END = "hparam/"  # what figures at the end are called, beside the settings


class TensorBoardLog:
    """Scalars by round, settings as text and as hyperparameters, pictures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = EventAccumulator(str(folder), {"scalars": 1, "images": 1, "tensors": 1})
        if folder.is_dir():
            self._before.Reload()
        self._settings: dict[str, Any] = {}
        self._open: SummaryWriter | None = None

    @property
    def _writer(self) -> SummaryWriter:
        """The writer, made when there is something to write: it begins a file of its own."""
        if self._open is None:
            self._open = SummaryWriter(str(self._folder))
        return self._open

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note the settings, unless that was done before."""
        self._settings = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in settings.items()
            if value is not None
        }
        if not self._before.Tags()["tensors"]:
            rows = [f"| {name} | {value} |" for name, value in self._settings.items()]
            text = "\n".join(["| setting | value |", "| --- | --- |", *rows])
            self._writer.add_text("settings", text, 0)

    def last(self) -> dict[str, int]:
        """Return the last step that each metric has."""
        tags = self._before.Tags()["scalars"]
        return {tag: self._before.Scalars(tag)[-1].step for tag in tags}

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note metrics at a step."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    @property
    def ended(self) -> bool:
        """Whether the run's end has been noted."""
        return any(tag.startswith(END) for tag in self._before.Tags()["scalars"])

    def end(self, files: Mapping[str, Path], metrics: Mapping[str, float]) -> None:
        """Show the pictures among the files, and the settings beside what they came to."""
        for name, path in files.items():
            if path.suffix == PICTURE:
                self._writer.add_image(name, np.asarray(Image.open(path)), 0, dataformats="HWC")
        figures = {f"{END}{name}": value for name, value in metrics.items()}
        self._writer.add_hparams(self._settings, figures, run_name=".")

    def close(self) -> None:
        """Let go of the log."""
        if self._open is not None:
            self._open.close()
