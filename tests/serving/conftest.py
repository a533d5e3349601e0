"""What the tests of the service share; without its extra they are left out (test_extras.py)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

import clove
from tests.runs.small import QUICK

MISSING = [one for one in ("fastapi", "uvicorn", "httpx", "schemathesis") if not find_spec(one)]
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture(scope="package")
def finished() -> clove.Result:
    """A finished run of CLoVE on digits: five groups."""
    return clove.run(**{**QUICK, "rounds": 6, "learning_rate": 0.003})


@pytest.fixture(scope="package")
def at() -> Callable[[Any], Any]:
    """Return what puts an application on a port of this machine for a while, and gives its URL."""
    return on_a_port


@contextmanager
def on_a_port(app: Any) -> Iterator[str]:
    import uvicorn

    ear = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [ear]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    yield f"http://127.0.0.1:{ear.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)
