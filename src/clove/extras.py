"""Optional packages, found before they are imported, and kept quiet."""

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
RAY_CALM = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""What keeps Ray from reporting home and from warning of a change to come."""
RAY_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""What keeps Ray to this machine's loopback, for a cluster that nobody else shall reach."""


def require(what: str, extra: str, *packages: str) -> None:
    """Refuse to go on without packages of an extra, in a line that says how to install it."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise CloveError(f"{what} needs {missing[0]}: pip install 'clove-fl[{extra}]'")


def require_flower() -> None:
    """Set Flower to be quiet, unless the user said otherwise; or say how to install it."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    require("a federation on Flower", "flower", "flwr")
