"""A run that is stopped at any moment goes on, and ends with the numbers of an undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from torch import nn

import clove
from clove.errors import CloveError, CloveWarning
from clove.folders import CHECKPOINT, METRICS, RECENT
from clove.report import figures
from clove.runs import folder as folder_module
from clove.runs.folder import RunFolder
from clove.runs.loop import Progress
from clove.runs.settings import write_settings
from clove.trees import read_tree
from tests.runs.small import QUICK, TINY, MyNet, lasting, own_clients, records

MOMENTUM_KEPT = {
    **{"optimizer": "sgd", "momentum": 0.9, "keep_momentum": True},
    **{"learning_rate": 0.1, "learning_rate_decay": 0.9},
}


class Killed(BaseException):
    """Stands in for the end of the process."""


def stop_after(rounds: int) -> Any:
    def watch(progress: Progress) -> None:
        if progress.round == rounds:
            raise Killed

    return watch


def stopped(folder: Path, after: int = 1, **settings: Any) -> Path:
    """Leave a run in a folder that was stopped after some rounds."""
    with pytest.raises(Killed):
        clove.run(**settings, out=folder, watch=stop_after(after))
    return folder


@pytest.fixture(autouse=True)
def plain_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: a picture comes from what else is in the folder, and takes its time."""
    monkeypatch.setattr(figures, "draw", lambda *content: Figure())


# ------------------------------------------------------------------------- stopped at any moment


@pytest.mark.parametrize(
    "settings",
    [
        {"participation": 0.6, "early_stopping": True, "stable_rounds": 2},
        {"participation": 0.6, "max_models": 5, "matching": "overlap", "stragglers": 0.2},
        {"probes": "trained", "transform": "row"},
        {"algorithm": "local", "participation": 0.6},
        {"algorithm": "cfl-s", "eps2": 0.1, "participation": 0.6},
        {"algorithm": "cfl-s", "eps2": 0.1, "indices": "as-published"},
        {"algorithm": "cfl-s", "participation": 0.6, **MOMENTUM_KEPT},
        {"algorithm": "fesem", "participation": 0.6},
        {"algorithm": "flexcfl", "participation": 0.6},
        {"algorithm": "fedproto", "participation": 0.6},
        {"algorithm": "fedala", "participation": 0.6, "measured": "blended"},
        {"algorithm": "fedpac", "participation": 0.6},
        {"algorithm": "ifca", "averaging": "gradients", "first_round": "random"},
        {"algorithm": "fedavg", "engine": "sequential", "precision": "fp64"},
        {"algorithm": "pacfl", "participation": 0.6, "stragglers": 0.2},
        {"algorithm": "k-fed", "participation": 0.6, "stragglers": 0.2},
        {"algorithm": "fedgwc", "tolerance": 1e-3},
    ],
    ids=lambda settings: ", ".join(f"{k}={v}" for k, v in settings.items()),
)
def test_a_run_stopped_twice_ends_as_if_undisturbed(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = {**QUICK, "rounds": 6, **settings}
    clove.run(**settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "parts", 2, **settings)
    with pytest.raises(Killed):
        clove.resume(folder, watch=stop_after(5))
    clove.resume(folder)
    assert lasting(folder) == lasting(tmp_path / "whole")


class Disk:
    """Counts the moments at which files change, and kills the process at one of them.

    A file that is added to changes after it is opened, any other when it is complete.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, killed_at: int = 0) -> None:
        self.moments, self.killed_at = 0, killed_at
        replace, open_, unlink = Path.replace, Path.open, Path.unlink

        def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if mode == "a":
                self.moment()
            return open_(path, mode, *rest, **options)

        monkeypatch.setattr(Path, "open", opened)

        def replaced(path: Path, other: Path) -> Path:
            self.moment()
            return replace(path, other)

        monkeypatch.setattr(Path, "replace", replaced)

        def removed(path: Path, missing_ok: bool = False) -> None:
            if self.moments != self.killed_at:  # who was killed does not clean up
                unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", removed)

    def moment(self) -> None:
        self.moments += 1
        if self.moments == self.killed_at:
            raise Killed


# ------------------------------------------------------------------ between two waits for the disk


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the disk after the first round and the last only."""
    monkeypatch.setattr(folder_module, "SAFE_EVERY", 1e9)


def on_disk(folder: Path) -> int:
    """Return the rounds of the checkpoint that was waited for."""
    return int(read_tree(folder / CHECKPOINT)["round"])


@pytest.mark.usefixtures("seldom")
def test_a_kill_costs_no_round_that_nobody_waited_for(tmp_path: Path) -> None:
    settings = {**QUICK, "rounds": 6}
    clove.run(**settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "parts", 4, **settings)
    assert on_disk(folder) == 1
    assert clove.resume(folder, watch=(seen := []).append).history["round"].iloc[-1] == 6
    assert len(seen) == 2
    assert lasting(folder) == lasting(tmp_path / "whole")


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("lost", ["checkpoint", "its end", "a line", "loss vectors"])
def test_a_machine_that_goes_down_costs_no_more_than_what_nobody_waited_for(
    tmp_path: Path, lost: str
) -> None:
    settings = {**QUICK, "rounds": 5}
    clove.run(**settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "parts", 4, **settings)
    recent, metrics = folder / RECENT, folder / METRICS
    if lost == "checkpoint":
        recent.write_bytes(b"")
    elif lost == "its end":
        recent.write_bytes(recent.read_bytes()[:-100])
    elif lost == "a line":
        metrics.write_bytes(metrics.read_bytes()[:-10])
    else:
        (folder / "loss_vectors" / "round-00003.npz").write_bytes(b"")
        with pytest.warns(CloveWarning, match=r"round-00003\.npz is damaged.*left out"):
            clove.resume(folder)
        return
    assert RunFolder(folder).checkpoint()["round"] == on_disk(folder) == 1
    clove.resume(folder)
    assert lasting(folder) == lasting(tmp_path / "whole")


@pytest.mark.usefixtures("seldom")
def test_the_newer_checkpoint_counts_whichever_it_is(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "parts", 3, **{**QUICK, "rounds": 5})
    older = (folder / RECENT).read_bytes()
    clove.resume(folder)
    assert not (folder / RECENT).exists()
    (folder / RECENT).write_bytes(older)  # as if killed before it was removed
    assert RunFolder(folder).checkpoint()["round"] == 5


@pytest.mark.parametrize("algorithm", ["clove", "local"])
def test_a_kill_over_any_file_costs_no_more_than_the_round_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    settings = {**TINY, "algorithm": algorithm}
    clove.run(**settings)  # what it measures of the machine is written down once only
    with monkeypatch.context() as patched:
        disk = Disk(patched)
        clove.run(**settings, out=tmp_path / "whole")
    expected = lasting(tmp_path / "whole")
    for moment in range(1, disk.moments + 1):
        folder = tmp_path / str(moment)
        with monkeypatch.context() as patched:
            Disk(patched, killed_at=moment)
            with pytest.raises(Killed):
                clove.run(**settings, out=folder)
        if (folder / "settings.toml").exists():
            clove.resume(folder)
        else:
            clove.run(**settings, out=folder)
        assert lasting(folder) == expected, f"killed at {moment} of {disk.moments}"


def test_a_resumed_run_knows_the_loss_vectors_of_before(
    tmp_path: Path, finished: clove.Result
) -> None:
    settings = {**QUICK, "rounds": 8, "learning_rate": 0.003}
    resumed = clove.resume(stopped(tmp_path / "stopped", 3, **settings))
    for number in (1, 3, 4, 8):
        vectors = resumed.loss_vectors(number)
        assert (vectors.losses == finished.loss_vectors(number).losses).all()


def test_a_run_stopped_before_its_first_round_begins_anew(tmp_path: Path) -> None:
    clove.run(**TINY, out=tmp_path / "whole")
    folder = tmp_path / "stopped"
    folder.mkdir()
    settings = (tmp_path / "whole" / "settings.toml").read_text()
    (folder / "settings.toml").write_text(settings)
    (folder / "metrics.jsonl").write_text('{"round": 1, "accu')
    clove.resume(folder)
    assert lasting(folder) == lasting(tmp_path / "whole")


def test_lines_beyond_the_checkpoint_and_half_lines_are_dropped(tmp_path: Path) -> None:
    clove.run(**TINY, out=tmp_path / "whole")
    folder = stopped(tmp_path / "stopped", **TINY)
    for name in ("metrics.jsonl", "timings.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"round": 2, "accuracy": 1.0}\n{"round": 3, "acc')
    clove.resume(folder)
    assert lasting(folder) == lasting(tmp_path / "whole")


def test_what_was_left_half_written_is_swept_away(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "stopped", **TINY)
    left = folder / "models" / ".model-0.safetensors.abc.part"
    left.parent.mkdir()
    left.write_bytes(b"half")
    clove.resume(folder)
    assert not left.exists()


def test_resuming_a_finished_run_returns_it(run_folder: Path, finished: clove.Result) -> None:
    before = {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")}
    assert clove.resume(run_folder).summary() == finished.summary()
    assert {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")} == before


def test_a_run_as_far_as_it_has_come_can_be_looked_at(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "stopped", **TINY)
    assert len(clove.load(folder).history) == 1
    assert clove.load(folder).model(0) is not None


def test_clients_have_no_scores_before_they_were_measured(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "stopped", **TINY, evaluate_every=2)
    assert clove.load(folder).client_scores.empty


def test_a_run_without_a_finished_round_cannot_be_looked_at(tmp_path: Path) -> None:
    settings = clove.Settings(rounds=2)
    (tmp_path / "settings.toml").write_text(write_settings(settings, {}))
    with pytest.raises(CloveError, match="has no finished round yet: `clove resume"):
        clove.load(tmp_path)


# -------------------------------------------------------------------------------- damaged folders


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "stopped", **TINY)
    checkpoint = folder / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    for read in (clove.resume, clove.load):
        with pytest.raises(CloveError, match=r"checkpoint\.safetensors is damaged"):
            read(folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
def test_fewer_lines_than_the_checkpoint_has_rounds_mean_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(folder_module, "SAFE_EVERY", 0.0)  # all of it was on the disk
    folder = stopped(tmp_path / "stopped", 2, **QUICK)
    file = folder / name
    file.write_text(file.read_text().splitlines()[0] + "\n")
    for read in (clove.resume, clove.load):
        with pytest.raises(
            CloveError, match=f"{name} has 1 lines, .* 2 rounds are done: the folder is damaged"
        ):
            read(folder)
    assert len(file.read_text().splitlines()) == 1


def test_a_line_that_is_no_json_means_damage(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "stopped", 2, **QUICK)
    first, second = records(folder)
    (folder / "metrics.jsonl").write_text(f"{first}\n{second}\n")
    with pytest.raises(CloveError, match=r"metrics\.jsonl is damaged"):
        clove.resume(folder)


# ------------------------------------------------------------------------ clients handed over


@pytest.mark.parametrize("network", [None, "own"])
def test_a_run_of_ones_own_clients_goes_on_when_they_are_handed_over_again(
    tmp_path: Path, network: str | None
) -> None:
    task = clove.classification(MyNet) if network else None
    given: dict[str, Any] = {"clients": own_clients(test=False), "task": task}
    settings = {**QUICK, **given, "max_models": 4}
    clove.run(**settings, out=tmp_path / "whole")
    folder = stopped(tmp_path / "stopped", **settings)
    with pytest.raises(CloveError, match="hand them over again"):
        clove.resume(folder)
    clove.resume(folder, **given)
    assert lasting(folder) == lasting(tmp_path / "whole")


def test_a_network_of_ones_own_has_to_be_handed_over_again(tmp_path: Path) -> None:
    task = clove.classification(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    folder = stopped(tmp_path / "stopped", **TINY, task=task)
    with pytest.raises(CloveError, match="network of your own: hand it over again with task="):
        clove.resume(folder)
    assert len(clove.resume(folder, task=task).history) == 2


def shorter_training(clients: list[clove.ClientData]) -> list[clove.ClientData]:
    """Move a point of each client from training to testing: all points in the same order."""
    moved = []
    for client in clients:
        assert client.test is not None
        x, test = client.train[0], client.test[0]
        together = [*x, *test]
        moved.append(clove.ClientData(train=together[: len(x) - 1], test=together[len(x) - 1 :]))
    return moved


@pytest.mark.parametrize("change", ["seed", "number", "order", "split"])
def test_other_data_are_refused(tmp_path: Path, change: str) -> None:
    clients = own_clients(labels=False)
    other = {
        "seed": own_clients(labels=False, seed=1),
        "number": clients[:-1],
        "order": clients[::-1],
        "split": shorter_training(clients),
    }[change]
    folder = stopped(tmp_path / "stopped", **QUICK, clients=clients, models=2)
    with pytest.raises(CloveError, match=r"data differ from those the run in .* was made with"):
        clove.resume(folder, clients=other)
