"""What other methods would have sent is what they send when they are run."""

from __future__ import annotations

from pathlib import Path

import pytest

import clove
from clove.report.page.costs import references
from clove.report.page.read import read_run
from tests.report.page.conftest import SMALL


@pytest.mark.parametrize("kind", ["clove", "local"])
@pytest.mark.parametrize("other", ["fedavg", "ifca"])
def test_traffic_is_that_of_a_real_run(runs: Path, kind: str, other: str) -> None:
    found, real = references(read_run(runs / kind))[other], read_run(runs / other).records
    assert found.up == [record["bytes_up"] for record in real]
    assert found.down == [record["bytes_down"] for record in real]


@pytest.mark.parametrize("other", ["fedavg", "ifca"])
def test_only_participants_are_counted(runs: Path, other: str) -> None:
    real = clove.run(**SMALL, algorithm=other, participation=0.5).history
    found = references(read_run(runs / "some"))[other]
    assert found.up == real["bytes_up"].tolist()
    assert found.down == real["bytes_down"].tolist()


def test_a_method_is_not_compared_with_itself(runs: Path) -> None:
    assert set(references(read_run(runs / "ifca"))) == {"fedavg"}
    assert set(references(read_run(runs / "fedavg"))) == {"ifca"}


def test_without_known_groups_ifca_has_as_many_models_as_were_found(runs: Path) -> None:
    read = read_run(runs / "own")
    assert read.groups is None
    assert read.model_bytes is not None
    number, clients = len(set(read.assignment.tolist())), read.clients
    found = references(read)["ifca"].down[0]
    assert found == clients * (number * read.model_bytes + 8)
