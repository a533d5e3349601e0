"""Which machines there are, what a task gets of them, and addresses that lead nowhere."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clove
from clove.errors import CloveError
from clove.runs.cluster import Cluster, Machine, share
from clove.runs.settings import from_names

MACHINES = st.lists(st.builds(Machine, st.integers(0, 24), st.integers(0, 4)), max_size=4)


def places(machines: list[Machine], cores: int, on_gpu: bool) -> int:
    """Return how many tasks of so many cores can work at once."""
    counts = [
        min(one.cores // cores, one.gpus) if on_gpu else one.cores // cores for one in machines
    ]
    return sum(counts)


@given(MACHINES, st.integers(1, 12), st.booleans())
def test_a_share_lets_all_tasks_work_and_is_the_most_that_does(
    machines: list[Machine], tasks: int, on_gpu: bool
) -> None:
    cores = share(machines, tasks, on_gpu=on_gpu)
    wanted = min(tasks, sum(one.gpus for one in machines)) if on_gpu else tasks
    assert cores == 1 or places(machines, cores, on_gpu) >= wanted
    if wanted:
        more = range(cores + 1, 25)
        assert all(places(machines, many, on_gpu) < wanted for many in more)


def test_a_task_has_as_many_cores_as_it_is_told_to_have_threads() -> None:
    cluster = Cluster(None, [Machine(8, 0), Machine(2, 0)])
    assert cluster.cores(5, from_names(threads=3)) == 3
    assert cluster.cores(5, from_names(threads=64)) == 8  # else it would wait for ever
    assert cluster.cores(5, from_names()) == 2


@pytest.mark.parametrize(
    ("gpus", "wanted", "device"),
    [
        (0, "auto", "cpu"),
        (1, "auto", "cuda"),
        (1, "cpu", "cpu"),
        (2, "cuda", "cuda"),
        (2, "cuda:1", "cuda"),
    ],
)
def test_runs_are_on_gpus_where_there_are_any(gpus: int, wanted: str, device: str) -> None:
    assert Cluster(None, [Machine(8, 0), Machine(8, gpus)]).device(wanted) == device


def test_gpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(CloveError, match="no machine of the cluster offers a GPU"):
        Cluster(None, [Machine(8, 0)]).device("cuda")


# -------------------------------------------------------------------------------------- addresses


def refused(ray: Any, out: Path) -> str:
    """Return what a comparison on a cluster says that it cannot begin."""
    with pytest.raises(CloveError) as caught:
        clove.compare(["fedavg"], out=out, ray=ray, rounds=1)
    assert not out.exists()
    return str(caught.value)


@pytest.mark.parametrize(
    "address", ["", "nonsense", "host:", ":6379", "host:port", "host:70000", "ray://host:10001", 1]
)
def test_what_is_no_address_is_refused(address: Any, tmp_path: Path) -> None:
    assert "--ray takes local, auto, or HOST:PORT" in refused(address, tmp_path / "out")


def test_an_address_where_nobody_answers_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = refused(f"127.0.0.1:{port}", tmp_path / "out")
    assert f"no Ray cluster answers at 127.0.0.1:{port}" in said
    assert f"ray start --head --port={port}" in said


def test_without_ray_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refused("local", tmp_path / "out") == "--ray needs Ray: pip install 'clove-fl[ray]'"


def test_where_no_cluster_is_running_none_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")

    def init(*_: Any, **__: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore words.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    said = refused("auto", tmp_path / "out")
    assert "Could not find any running Ray instance" in said
    assert "`ray start --head`, or use --ray local" in said
    assert "More words" not in said
