"""Optional packages, found before they are imported, and kept quiet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from clove.errors import CloveError

DASHBOARD = "start_api_server"  # what Ray starts its dashboard's process with

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
RAY_BLIND = {
    "RAY_RUNTIME_ENV_HOOK": "clove.extras.blind_ray",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else `uv run` has a hook of its own in its place
}
"""What makes a program that starts Ray itself call `blind_ray` before."""


@contextmanager
def ray_blind() -> Iterator[None]:
    """Let Ray look for nothing outside while it starts a cluster on this machine.

    Though it is told to start no dashboard and to report nothing, it starts the dashboard's
    process, which asks the network in which cloud it is (169.254.169.254 and
    metadata.google.internal). No setting of Ray's prevents that. But a Ray whose dashboard does not
    start goes on without it, as it does here.
    """
    from ray._private import services

    start = getattr(services, DASHBOARD, None)
    blind_ray()
    try:
        yield
    finally:
        setattr(services, DASHBOARD, start)


def blind_ray(environment: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Let Ray, from now on, start clusters in this process as `ray_blind` does.

    Ray calls this where its environment has `RAY_BLIND`, and goes on with what is returned.
    """
    from ray._private import services

    setattr(services, DASHBOARD, lambda *_, **__: (None, None))  # no address, no process
    return environment


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
