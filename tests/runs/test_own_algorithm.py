"""An algorithm of the user's own runs, is written and is read like ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import clove
from clove.algorithms import ALGORITHMS, Asking, FedAvg, OneModelState, Outcome
from clove.errors import CloveError
from clove.runs.settings import from_names, read_settings
from tests.runs.small import TINY, lasting

NAME = "my method. Second try"


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg that has more to say of its rounds."""

    mode: Literal["fast", "slow"] = "fast"
    strength: float | None = None

    name = NAME

    def round(self, state: OneModelState, cohort: np.ndarray) -> Asking[Outcome[OneModelState]]:
        """Note things as they come: numpy's numbers, arrays, and what is no number."""
        outcome = yield from super().round(state, cohort)
        notes = {"spread": np.float64("nan"), "asked": cohort, "strength": np.float32(0.5)}
        return replace(outcome, notes=notes)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    clove.register(Mine)
    yield
    ALGORITHMS.pop(NAME, None)


def test_it_is_run_by_its_name_with_its_options(tmp_path: Path) -> None:
    result = clove.run(**TINY, algorithm=NAME, mode="slow", strength=2, out=tmp_path / "run")
    assert result.settings.options == {"mode": "slow", "strength": 2.0}
    assert result.history.loc[0, ["spread", "asked", "strength"]].tolist() == [
        *(None, [0, 1, 2, 3], 0.5)
    ]


def test_its_run_is_read_and_repeated(tmp_path: Path) -> None:
    result = clove.run(**TINY, algorithm=NAME, mode="slow", out=tmp_path / "run")
    assert clove.load(tmp_path / "run").summary() == result.summary()
    clove.run(**read_settings(tmp_path / "run" / "settings.toml"), out=tmp_path / "again")
    assert lasting(tmp_path / "again") == lasting(tmp_path / "run")


def test_it_is_compared_with_ours(tmp_path: Path) -> None:
    found = clove.compare([NAME, "fedavg"], out=tmp_path / "out", mode="slow", **TINY)
    assert [summary["algorithm"] for summary in found.summaries] == [NAME, "fedavg"]
    assert len({summary["accuracy"] for summary in found.summaries}) == 1


def test_its_options_are_checked() -> None:
    with pytest.raises(CloveError, match="unknown mode 'slo': did you mean 'slow'"):
        from_names(algorithm=NAME, mode="slo")


def test_its_run_needs_it_to_be_registered(tmp_path: Path) -> None:
    clove.run(**TINY, algorithm=NAME, out=tmp_path / "run")
    del ALGORITHMS[NAME]
    with pytest.raises(CloveError, match=r"unknown algorithm 'my method\. Second try'"):
        clove.load(tmp_path / "run")
