"""Flower is an extra: without it, these tests are left out (test_flower_there.py says so)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

MISSING = find_spec("flwr") is None
collect_ignore_glob = ["test_*.py"] if MISSING else []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for nodes and replies without a pause: everything here is in this process."""
    monkeypatch.setattr("clove.federation.flower.roster.PAUSE", 0.01)
