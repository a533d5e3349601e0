"""Comparisons spread over a real cluster of Ray: the same as without, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import clove
from clove.algorithms import ALGORITHMS, FedAvg, find_algorithm
from clove.errors import CloveError, CloveWarning
from clove.folders import held
from clove.runs.build import gather_clients
from clove.runs.cluster import joined
from clove.runs.compare import resume_comparison
from clove.runs.compared import Comparison
from clove.runs.loop import Standing
from clove.runs.settings import from_names
from clove.runs.spread import Apart, Load, Run, Update, spread, work
from tests.outward import asked_for, watched
from tests.runs.small import TINY, MyNet, lasting, own_clients

pytest.importorskip("ray", reason="needs Ray: pip install 'clove-fl[ray]'")

METHODS = ["clove", "fedavg"]
SETTINGS: dict[str, Any] = {**TINY, "rounds": 3, "device": "cpu", "threads": 1}
PATIENCE = 120.0


class Stop(BaseException):
    """Stands in for the end of the process."""


def processes(notes: str) -> int:
    """Return how many processes have left a note in a folder."""
    return len(list(Path(notes).iterdir()))


@dataclass(frozen=True)
class Dying(FedAvg):
    """FedAvg whose first so many processes die in their second round; `notes` is a folder."""

    notes: str = ""
    deaths: int = 1

    name = "dying"

    def round(self, state: Any, cohort: Any) -> Any:
        mine = Path(self.notes, str(os.getpid()))
        with mine.open("a") as file:
            file.write("a round\n")
        if mine.read_text().count("\n") == 2 and processes(self.notes) <= self.deaths:
            os._exit(1)
        return super().round(state, cohort)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster on this machine, to which the tests' process is connected: its address."""
    import ray

    from clove.runs.cluster import joined

    with joined("local"):
        yield ray.get_runtime_context().gcs_address


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The comparison as it is made here. Look, do not touch."""
    return clove.compare(METHODS, seeds=2, out=tmp_path_factory.mktemp("here") / "out", **SETTINGS)


def same(one: Path, other: Path, methods: Sequence[str] = METHODS, seeds: int = 2) -> bool:
    homes = [Path(method, f"seed-{seed}") for method in methods for seed in range(seeds)]
    return all(lasting(one / home) == lasting(other / home) for home in homes)


# ------------------------------------------------------------------------------------- as without


def test_results_are_the_same_as_without(
    cluster: str, expected: Comparison, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []

    def listen(algorithm: str, seed: int, standing: Standing) -> None:
        assert standing.records[-1]["round"] == standing.round
        assert standing.settings.engine == standing.choice.engine == "vectorized"
        told.append((algorithm, seed, standing.round))

    out = tmp_path / "out"
    found = clove.compare(METHODS, seeds=2, out=out, ray="local", watch=listen, **SETTINGS)
    assert same(out, expected.folder)
    order = [(summary["algorithm"], summary["seed"]) for summary in found.summaries]
    assert order == [(method, seed) for method in METHODS for seed in (0, 1)]
    assert {path.name for path in out.iterdir()} == {
        path.name for path in expected.folder.iterdir()
    }
    for run in order:
        assert [number for *whose, number in told if tuple(whose) == run] == [1, 2, 3]


def test_a_finished_comparison_runs_nothing_again(
    cluster: str, expected: Comparison, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a run was run again")

    again = resume_comparison(expected.folder, refuse, ray="local")
    assert again.summaries == expected.summaries


def test_runs_that_are_no_stack_are_sent_one_by_one(cluster: str, tmp_path: Path) -> None:
    given = {**SETTINGS, "mixing": "none", "clients_per_cluster": None, "clusters": None}
    given = {name: value for name, value in given.items() if value is not None}
    given["engine"] = "sequential"
    for out, ray in (("here", None), ("there", "local")):
        clove.compare(["fedavg"], seeds=2, out=tmp_path / out, ray=ray, **given)
    assert same(tmp_path / "here", tmp_path / "there", ["fedavg"])


def test_own_clients_and_networks_travel(cluster: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "clients": own_clients(),
        "task": clove.classification(lambda: MyNet()),
        "engine": "vectorized",
        "threads": 1,
        "rounds": 2,
        "models": 2,
    }
    for out, ray in (("here", None), ("there", "local")):
        clove.compare(METHODS, seeds=2, out=tmp_path / out, ray=ray, **given)
    assert same(tmp_path / "here", tmp_path / "there")


def test_a_method_of_ones_own_travels(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Slow(FedAvg):
        name = "mine"

    monkeypatch.setitem(ALGORITHMS, "mine", Slow)
    found = clove.compare(["mine"], out=tmp_path / "out", ray="local", **SETTINGS)
    assert found.summaries[0]["algorithm"] == "mine"


# ---------------------------------------------------------------------------- what dies on the way


@pytest.mark.parametrize("ray", ["local", None], ids=["there again", "here"])
def test_a_stopped_comparison_goes_on_anywhere(
    cluster: str, expected: Comparison, tmp_path: Path, ray: str | None
) -> None:
    def watch(algorithm: str, seed: int, standing: Standing) -> None:
        if (algorithm, seed, standing.round) == ("clove", 1, 2):
            raise Stop

    told: list[tuple[str, int, int]] = []

    def listen(algorithm: str, seed: int, standing: Standing) -> None:
        told.append((algorithm, seed, standing.round))

    out = tmp_path / "out"
    with pytest.raises(Stop):
        clove.compare(METHODS, seeds=2, out=out, ray="local", watch=watch, **SETTINGS)
    assert not (out / "table.md").exists()
    resume_comparison(out, listen, ray=ray)
    assert ("clove", 0, 1) not in told
    assert ("clove", 1, 3) in told
    assert same(out, expected.folder)


def test_a_run_that_goes_on_elsewhere_is_left_to_it(cluster: str, tmp_path: Path) -> None:
    settings = [from_names(**SETTINGS, algorithm=name) for name in METHODS]
    runs = [Run(one, gather_clients(one), tmp_path / one.algorithm) for one in settings]
    refused: list[tuple[Sequence[Run], CloveError]] = []
    with joined(cluster) as here, held(tmp_path / "clove"):
        stacks = [[run] for run in runs]
        done = list(spread(stacks, here, lambda *failure: refused.append(failure)))
    assert [run.home.name for run in done] == ["fedavg"]
    ((stack, error),) = refused
    assert stack == [runs[0]]
    assert f"is writing to the run folder {runs[0].home}" in str(error)
    with held(tmp_path / "fedavg"):  # it was let go
        pass


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a comparison whose worker dies once."""
    monkeypatch.setitem(ALGORITHMS, "dying", Dying)
    (tmp_path / "notes").mkdir()
    return {**SETTINGS, "notes": str(tmp_path / "notes"), "out": tmp_path / "out"}


def test_a_worker_that_dies_is_replaced(
    cluster: str, expected: Comparison, dying: dict[str, Any]
) -> None:
    found = clove.compare(["dying"], ray="local", **dying)
    assert processes(dying["notes"]) == 2
    assert found.summaries[0]["history"] == expected.summaries[2]["history"]
    assert len(clove.load(dying["out"] / "dying" / "seed-0").history) == 3


@pytest.mark.slow
def test_a_worker_that_dies_twice_is_an_error_that_names_the_run(
    cluster: str, dying: dict[str, Any]
) -> None:
    with pytest.raises(CloveError, match="dying, seed 0: the worker died twice"):
        clove.compare(["dying"], ray="local", **dying, deaths=2)
    assert processes(dying["notes"]) == 2
    again = clove.compare(["dying"], ray="local", **dying, deaths=2)
    assert len(again.summaries[0]["history"]) == 3


def test_an_error_out_there_names_the_run(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="fedavg, seed 0; fedavg, seed 1: unknown device 'gpu'"):
        clove.compare(
            ["fedavg"], seeds=2, out=tmp_path / "out", ray="local", **{**TINY, "device": "gpu"}
        )


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a method that fails."""

    @dataclass(frozen=True)
    class Faulty(FedAvg):
        name = "faulty"

        def round(self, state: Any, cohort: Any) -> Any:
            raise ZeroDivisionError("of all things")

    monkeypatch.setitem(ALGORITHMS, "faulty", Faulty)


@pytest.mark.usefixtures("faulty")
def test_a_fault_out_there_does_not_take_other_methods_down(cluster: str, tmp_path: Path) -> None:
    with pytest.warns(CloveWarning, match="faulty, seed 0: ZeroDivisionError: of all things"):
        found = clove.compare(["faulty", "fedavg"], out=tmp_path / "out", ray="local", **SETTINGS)
    assert [one["algorithm"] for one in found.summaries] == ["fedavg"]
    assert [one["algorithm"] for one in found.failures] == ["faulty"]
    assert "of all things" in (tmp_path / "out" / "faulty" / "error.txt").read_text()


@pytest.mark.usefixtures("faulty")
def test_a_fault_out_there_names_the_run(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="faulty, seed 0: ZeroDivisionError: of all things"):
        clove.compare(["faulty"], out=tmp_path / "out", ray="local", **SETTINGS)


def test_warnings_out_there_are_heard_here(cluster: str, tmp_path: Path) -> None:
    given = {**SETTINGS, "learning_rate": 1e30, "optimizer": "sgd"}
    with pytest.warns(CloveWarning, match="client"):
        clove.compare(["fedavg"], out=tmp_path / "out", ray="local", **given)


# ------------------------------------------------------------------------------ what a worker does


def load(**settings: Any) -> tuple[Load, list[clove.ClientData]]:
    """Return a run as it travels, and its clients' data."""
    chosen = from_names(**{**SETTINGS, **settings})
    clients = gather_clients(chosen)
    kind = find_algorithm(chosen.algorithm)
    return Load(chosen, replace(clients, clients=[]), kind, {}), clients.clients


def worked(*loads: tuple[Load, list[clove.ClientData]]) -> list[Update | Apart]:
    return list(work(1, [one for one, _ in loads], *[data for _, data in loads]))


def test_a_worker_reports_every_round_of_every_run_and_then_each_end() -> None:
    updates = worked(load(seed=0), load(seed=1))
    assert all(isinstance(update, Update) for update in updates)
    said = [(u.place, len(u.records), u.finished) for u in updates if isinstance(u, Update)]
    rounds = [(place, 1, False) for _ in range(3) for place in (0, 1)]
    assert said == [*rounds, (0, 0, True), (1, 0, True)]


def test_a_worker_does_the_same_again_but_for_times() -> None:
    def content(update: Update | Apart) -> Any:
        assert isinstance(update, Update)
        timed = ("timings.jsonl", "summary.json", "picture.png")
        files = {name: text for name, text in update.files.items() if name not in timed}
        return update.place, update.records, files, set(update.files)

    once, again = (worked(load(algorithm="clove")) for _ in range(2))
    assert [content(update) for update in once] == [content(update) for update in again]


def test_runs_of_different_shapes_are_to_be_sent_apart() -> None:
    (answer,) = worked(load(rounds=1), load(rounds=2))
    assert isinstance(answer, Apart)


# ------------------------------------------------------------------------------------- the command

COMPARE = [
    *("compare", "--algorithms", "clove,fedavg", "--seeds", "2", "--engine", "vectorized"),
    *("--device", "cpu", "--set", "clusters=2", "--set", "clients_per_cluster=2"),
    *("--set", "threads=1"),
]


def command(mark: str, *words: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clove.cli", *map(str, words)],
        text=True,
        env={**os.environ, "MARK": mark},
        # Whoever runs the tests may have it ignored, and children would ignore it, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def left(mark: str) -> list[str]:
    """Return the processes that come from a command with this mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.02)


@pytest.mark.slow
def test_the_command_joins_a_cluster_and_leaves_it_running(
    cluster: str, expected: Comparison, tmp_path: Path
) -> None:
    import ray

    out, caught = tmp_path / "out", {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = ("--rounds", "3", "--ray", cluster, "--json", "--quiet", "--out", out)
    printed, said = command("", *COMPARE, *words, **caught).communicate(timeout=PATIENCE)
    assert said == ""
    assert len(json.loads(printed)["runs"]) == 4
    assert same(out, expected.folder)
    assert ray.cluster_resources()["CPU"] >= 1


@pytest.mark.slow
def test_the_commands_own_cluster_asks_for_nobody_outside(tmp_path: Path) -> None:
    compare = ["-m", "clove.cli", *COMPARE, "--rounds", "3", "--ray", "local", "--out", "out"]
    # A number needs no look-up: nobody is asked, but that it would be is seen.
    outside = ["-c", "import socket; socket.getaddrinfo('192.0.2.1', 80)"]
    for name, words in (("compare", compare), ("outside", outside)):
        (tmp_path / name).mkdir()
        environment = {**os.environ, **watched(tmp_path / name)}
        subprocess.run([sys.executable, *words], env=environment, cwd=tmp_path, check=True)
    assert asked_for(tmp_path / "compare") == []
    assert [host for _, host, _ in asked_for(tmp_path / "outside")] == ["192.0.2.1"]


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of more rounds, undisturbed."""
    out = tmp_path_factory.mktemp("longer") / "out"
    return clove.compare(METHODS, seeds=2, out=out, **{**SETTINGS, "rounds": 60}).folder


def stopped(how: signal.Signals, out: Path, errors: Path, mark: str) -> int:
    """Stop the command on a cluster of its own after a round, and return what it exits with."""
    with errors.open("w") as file:
        given = (*COMPARE, "--rounds", "60", "--ray", "local", "--out", out)
        process = command(mark, *given, stdout=subprocess.DEVNULL, stderr=file)
    first = out / "clove" / "seed-1" / "checkpoint.safetensors"
    wait_until(lambda: process.poll() is not None or first.exists())
    assert process.poll() is None, errors.read_text()
    assert any("ray::work" in name for name in left(mark))
    process.send_signal(how)
    return process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_takes_everything_down_and_says_how_to_go_on(tmp_path: Path, longer: Path) -> None:
    mark, out, errors = uuid.uuid4().hex, tmp_path / "out", tmp_path / "errors"
    assert stopped(signal.SIGINT, out, errors, mark) == 130
    assert left(mark) == []
    said = errors.read_text().splitlines()[-1]
    assert said == f"stopped. Continue with: clove resume {out}"
    assert not (out / "table.md").exists()
    resume_comparison(out)
    assert same(out, longer)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_workers_end_with_a_command_that_is_killed_which_can_go_on(
    tmp_path: Path, longer: Path
) -> None:
    mark, out = uuid.uuid4().hex, tmp_path / "out"
    assert stopped(signal.SIGKILL, out, tmp_path / "errors", mark) == -signal.SIGKILL
    # Ray's own agents may take a minute to notice.
    wait_until(lambda: all("Agent" in name for name in left(mark)))
    resume_comparison(out)
    assert same(out, longer)
