"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch is loaded: networks here are too small to share out over threads, and tests run side
# by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Properties are tried on fewer examples than usual, so that everything runs often; `make test-all`
# tries more.
settings.register_profile("quick", max_examples=30)
settings.register_profile("thorough", max_examples=100)
settings.load_profile("quick")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let tests find real data beside the checkout, and keep the user's cache folder out of it."""
    if "CLOVE_DATA" not in os.environ and SHARED_DATA.is_dir():
        os.environ["CLOVE_DATA"] = str(SHARED_DATA)
    os.environ["CLOVE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
