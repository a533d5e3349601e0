"""Says so where the tests of Flower are left out."""

from __future__ import annotations

import pytest


def test_flower_is_installed() -> None:
    pytest.importorskip("flwr", reason="flwr is missing: tests/federation/flower is left out")
