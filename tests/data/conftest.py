"""What the tests of the data room share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clove.data import Dataset, load_dataset
from clove.errors import CloveError


@pytest.fixture
def real() -> Callable[[str], Dataset]:
    """Load a real data set, or skip the test where it is absent."""

    def load(name: str) -> Dataset:
        try:
            return load_dataset(name)
        except CloveError as error:
            if "was not found" not in str(error):
                raise
            pytest.skip(f"needs the real data set {name}, which is not on this machine")

    return load


@pytest.fixture
def no_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let data be looked for in an empty folder only."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("CLOVE_DATA", str(folder))
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path / "cache"))
    return folder
