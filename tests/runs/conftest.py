"""What the tests of runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import clove
from tests.runs.small import QUICK


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Let torch use one thread: these networks are too small to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def finished(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> clove.Result:
    """A finished run of CLoVE on digits, in a folder. Look, do not touch."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    return clove.run(**{**QUICK, "rounds": 8, "learning_rate": 0.003}, out=folder)


@pytest.fixture(scope="package")
def run_folder(finished: clove.Result) -> Path:
    """The folder of that run."""
    assert finished.folder is not None
    return finished.folder
