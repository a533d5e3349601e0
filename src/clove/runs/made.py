"""With what a run was made: versions, machine, and why this engine."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
import sklearn
import torch

from clove import __version__
from clove.runs.build import Prepared
from clove.runs.settings import write_settings


def made(prepared: Prepared) -> dict[str, Any]:
    """Return what a reader of results must know of how they came about."""
    device = prepared.federation.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {**versions(gpu), "engine_reason": prepared.choice.reason}


def versions(gpu: str | None = None) -> dict[str, str]:
    """Return with what versions anything is made here, and on what machine."""
    return {
        "clove": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": gpu or f"{platform.machine()}, {os.cpu_count()} cores",
    }


def settings_text(prepared: Prepared) -> str:
    """Return a run's settings as the text of its settings file."""
    return write_settings(prepared.settings, made(prepared))
