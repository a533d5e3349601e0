"""Logs where people already look. They know no run: numbers by name and step, settings, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from clove.errors import unknown_name
from clove.extras import require

PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow"}


class Log(Protocol):
    """One run's log, new or gone on with."""

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note the settings, unless that was done before."""

    def last(self) -> dict[str, int]:
        """Return the last step that each metric has."""

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note metrics at a step."""

    @property
    def ended(self) -> bool:
        """Whether the run's end has been noted."""

    def end(self, files: Mapping[str, Path], metrics: Mapping[str, float]) -> None:
        """Note the run's end: its files by their names, and what it came to."""

    def close(self) -> None:
        """Let go of the log, which may be gone on with."""


def check_kinds(kinds: list[str]) -> None:
    """Refuse logs that nobody knows, or whose package is not here."""
    for kind in kinds:
        if kind not in PACKAGES:
            raise unknown_name("tracker", kind, PACKAGES)
        require(f"tracking by {kind}", "tracking", PACKAGES[kind])
