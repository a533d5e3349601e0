"""What every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from matplotlib.figure import Figure

# Before torch is loaded: networks here are too small to share out over threads, and tests run side
# by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# Before Triton is loaded, by whatever needs it: without a GPU its programs are interpreted.
if not _has_gpu():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Properties are tried on fewer examples than usual, so that everything runs often; `make test-all`
# tries more. No example has a deadline: a busy machine is no fault of what is tested.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=100, deadline=None)
settings.load_profile("quick")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let tests find real data beside the checkout, and keep the user's cache folder out of it."""
    if "CLOVE_DATA" not in os.environ and SHARED_DATA.is_dir():
        os.environ["CLOVE_DATA"] = str(SHARED_DATA)
    os.environ["CLOVE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def nothing_outlasts_the_power() -> Iterator[None]:
    """Leave out the wait for the disk, which only a machine that goes down would notice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def drawn() -> None:
    """Have a run's picture drawn as for a user: for tests that look at it."""


@pytest.fixture(autouse=True)
def blank_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of a test's own runs blank: drawing takes far longer than a small run.

    Those of runs that tests share are drawn, and all that commands draw in processes of their own.
    """
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("clove.report.figures.draw", lambda *_: Figure())
