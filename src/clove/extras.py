"""Flower, found and kept quiet: to be called before anything of `flwr` is imported."""

from __future__ import annotations

import os
from importlib.util import find_spec

from clove.errors import CloveError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What keeps Flower and Ray from reporting home, looking for updates and installing packages."""


def require_flower() -> None:
    """Set Flower to be quiet, unless the user said otherwise; or say how to install it."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if find_spec("flwr") is None:
        raise CloveError("a federation on Flower needs flwr: pip install 'clove-fl[flower]'")
