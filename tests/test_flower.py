"""The surface of Flower's part: what it needs, and what it keeps quiet."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import clove
from clove import extras


def test_without_flower_the_install_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    needed = r"needs flwr: pip install 'clove-fl\[flower\]'"
    with pytest.raises(clove.CloveError, match=needed):
        clove.flower.client(clove.classification("mlp"), lambda context: None)
    with pytest.raises(clove.CloveError, match=needed):
        clove.flower.server({})


def test_flower_is_kept_from_calling_home_before_it_is_imported() -> None:
    code = (
        "import os, sys; import clove; clove.flower;"
        "assert 'flwr' not in sys.modules;"
        "from clove.extras import QUIET, require_flower;"
        "require_flower();"
        "print(all(os.environ[name] == value for name, value in QUIET.items()))"
    )
    pytest.importorskip("flwr", reason="Flower is not installed")
    bare = {n: v for n, v in os.environ.items() if n not in extras.QUIET}
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: object())
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    extras.require_flower()
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "1"


def test_a_clients_process_loads_nothing_that_only_servers_need() -> None:
    """Flower starts one for every message: what it loads, every exchange costs."""
    pytest.importorskip("flwr", reason="Flower is not installed")
    code = (
        "import sys; import clove; from clove.data import load_dataset, mix;"
        "mix(load_dataset('digits'), 'label-skew-1', seed=0, clusters=2, clients_per_cluster=2);"
        "clove.flower.client(clove.classification('mlp'), lambda context: None);"
        "print({'sklearn', 'scipy', 'pandas', 'matplotlib', 'clove.algorithms'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
