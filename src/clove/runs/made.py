"""With what a run was made: versions, machine, why this engine, whose data; and its new folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clove import __version__
from clove.data import ClientData
from clove.runs.build import Clients, Prepared
from clove.runs.folder import RunFolder
from clove.runs.settings import command, write_settings

MOST_LABELS = 1000  # of which to keep counts


def new_folder(path: str | Path, prepared: Prepared) -> RunFolder:
    """Make a folder for a run that is about to begin."""
    return RunFolder.create(path, settings_text(prepared), data_text(prepared.clients))


def made(prepared: Prepared) -> dict[str, Any]:
    """Return what a reader of results must know of how they came about."""
    device = prepared.federation.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    again = command(prepared.settings) or ""  # none: what was handed over in Python is needed
    return {
        **versions(gpu),
        "command": again,
        "reference": prepared.algorithm.reference,  # for pages, which know no methods
        "engine_reason": prepared.choice.reason,
    }


def versions(gpu: str | None = None) -> dict[str, str]:
    """Return with what versions anything is made here, and on what machine."""
    return {
        "clove": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": version("scikit-learn"),
        "machine": gpu or f"{platform.machine()}, {os.cpu_count()} cores",
    }


def settings_text(prepared: Prepared) -> str:
    """Return a run's settings as the text of its settings file."""
    return write_settings(prepared.settings, made(prepared))


def data_text(whose: Clients) -> str | None:
    """Return what a simulation knows of its clients' data, for the run's pages: names and sizes."""
    clients = whose.clients
    if not clients:
        return None  # they are elsewhere
    names = [client.name for client in clients]
    known = {
        "names": names if any(names) else None,
        "points": [client.size for client in clients],
        "labels": _label_counts(clients),
        "remark": whose.remark,
    }
    return json.dumps(known) + "\n"


def _label_counts(clients: Sequence[ClientData]) -> list[list[int]] | None:
    """Return training points by client and label; None where labels are no classes, or many."""
    labels = [client.train[1] for client in clients]
    if any(y is None or y.ndim != 1 or y.dtype.kind not in "biu" for y in labels):
        return None
    classes = [np.asarray(y, dtype=np.int64) for y in labels]
    number = 1 + max(int(y.max()) for y in classes)
    if number > MOST_LABELS or min(int(y.min()) for y in classes) < 0:
        return None
    return [np.bincount(y, minlength=number).tolist() for y in classes]
