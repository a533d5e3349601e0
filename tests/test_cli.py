"""The command line: what it prints, where, and how it fails."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from clove import __version__, cli
from clove.algorithms import ALGORITHMS
from clove.cli import app
from clove.runs import folder as folder_module
from clove.runs.settings import Settings, algorithm_options, data_options

QUICK = [
    *("--engine", "vectorized", "--device", "cpu", "--rounds", "2"),
    *("--set", "clusters=2", "--set", "clients_per_cluster=2"),
]
SUMMARY = {
    *("algorithm", "dataset", "mixing", "seed", "rounds", "clients", "models", "accuracy"),
    *("test_loss", "ari", "first_round_ari_0.9", "stability_round", "history", "bytes_up"),
    *("bytes_down", "seconds", "seconds_per_round", "engine", "device"),
}
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Let torch use one thread: these networks are too small to share out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run commands in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def clove(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="clove")


def works(*words: str | Path) -> Any:
    outcome = clove(*words)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def fails(*words: str | Path) -> str:
    """Return what is said where a command fails: one error, without a traceback."""
    outcome = clove(*words)
    assert outcome.exit_code == 1, outcome.output
    assert isinstance(outcome.exception, SystemExit), outcome.exception
    assert outcome.stdout == ""
    *_, said = outcome.stderr.partition("error: ")
    return str(said)


# ------------------------------------------------------------------------------------------- run


@pytest.mark.usefixtures("drawn")
def test_a_run_ends_in_a_table_its_folder_and_its_picture(here: Path) -> None:
    outcome = works("run", *QUICK, "--out", "mine")
    *table, folder, picture = outcome.stdout.splitlines()
    assert "digits, label-skew-1: 4 clients, 2 rounds" in table[0]
    assert any(line.split()[:1] == ["clove"] for line in table)
    assert folder.split() == ["folder", "mine"]
    assert picture.split() == ["picture", str(Path("mine", "picture.png"))]
    assert (here / "mine" / "picture.png").is_file()


def test_json_is_one_object_and_all_there_is_on_stdout() -> None:
    outcome = works("run", *QUICK, "--json", "--out", "mine")
    (line,) = outcome.stdout.splitlines()
    found = json.loads(line)
    assert found.keys() >= SUMMARY
    assert isinstance(found["history"], list)
    assert found == json.loads(Path("mine/summary.json").read_text()) | {"folder": "mine"}


def test_json_never_holds_what_is_no_number() -> None:
    wild = ("--set", "optimizer=sgd", "--set", "learning_rate=1e30")
    outcome = works("run", *QUICK, *wild, "--json")
    assert json.loads(outcome.stdout, parse_constant=pytest.fail)["test_loss"] is None
    assert "warning: " in outcome.stderr


def test_warnings_of_others_are_shown_as_ever() -> None:
    with pytest.warns(DeprecationWarning, match="by somebody else"), cli.plain_words():
        warnings.warn("by somebody else", DeprecationWarning, stacklevel=1)


def test_quiet_is_quiet() -> None:
    assert works("run", *QUICK, "--quiet", "--out", "mine").stderr == ""


def test_without_a_terminal_there_are_no_bars() -> None:
    outcome = works("run", *QUICK, "--out", "mine")
    assert outcome.stderr == "vectorized engine on cpu: as asked\n"
    assert not CONTROL.search(outcome.stdout)


@pytest.mark.slow
def test_the_command_itself_prints_one_json_object_and_no_control_characters(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clove.cli", "run", *QUICK, "--json", "--out", "mine"],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if "COLOR" not in k and "TTY" not in k},
    )
    assert json.loads(done.stdout)["rounds"] == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == "vectorized engine on cpu: as asked\n"


def test_a_run_without_a_folder_gets_a_new_one_each_time(here: Path) -> None:
    for _ in range(3):
        works("run", *QUICK, "--seed", "4", "--quiet")
    names = sorted(path.name for path in (here / "runs").iterdir())
    name = "digits-label-skew-1-clove-seed4"
    assert names == [name, f"{name}-2", f"{name}-3"]


def test_a_settings_file_repeats_a_run() -> None:
    works("run", *QUICK, "--out", "first")
    works("run", "first/settings.toml", "--out", "second")
    first, second = (Path(name, "metrics.jsonl").read_bytes() for name in ("first", "second"))
    assert first == second


def test_options_and_set_go_before_the_file() -> None:
    Path("mine.toml").write_text('seed = 1\nrounds = 3\nalgorithm = "ifca"\n[data]\nclusters = 2\n')
    words = ("run", "mine.toml", "--set", "rounds=2", "--seed", "3", "--json")
    found = json.loads(works(*words, "--engine", "vectorized").stdout)
    assert (found["algorithm"], found["rounds"], found["seed"]) == ("ifca", 2, 3)
    assert found["clients"] == 10


@pytest.mark.parametrize("command", [("run",), ("compare", "--algorithms", "fedavg")], ids=str)
def test_a_setting_is_given_once(command: tuple[str, ...]) -> None:
    words = (*command, "--dataset", "digits", "--out", "mine", "--set")
    said = fails(*words, "dataset=mnist")
    assert "dataset is given twice, by --dataset and by --set: give it once" in said
    assert "rounds is given twice, by --set" in fails(*words, "rounds=1", "--set", "rounds=2")
    assert not Path("mine").exists()


@pytest.mark.parametrize("name", ["algorithm", "algorithms", "seeds", "out", "ray", "watch"])
def test_what_a_comparison_has_options_for_is_not_set(name: str) -> None:
    said = fails("compare", "--algorithms", "fedavg", "--set", f"{name}=2", "--out", "mine")
    assert f"{name} cannot be given by --set in a comparison" in said


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("rounds=3", ("rounds", 3)),
        ("learning_rate=1e-3", ("learning_rate", 1e-3)),
        ("early_stopping=true", ("early_stopping", True)),
        ("probes=trained", ("probes", "trained")),
        ('probes="trained"', ("probes", "trained")),
        ("rotations=[0, 90]", ("rotations", [0, 90])),
        ("data_dir=/a/b=c", ("data_dir", "/a/b=c")),
        (" rounds = 3 ", ("rounds", 3)),
    ],
)
def test_a_value_is_read_as_toml_where_it_is_and_else_as_text(text: str, pair: Any) -> None:
    assert cli.pair(text) == pair


def test_what_a_user_should_know_of_the_data_is_said_once() -> None:
    words = ("run", "--engine", "vectorized", "--rounds", "1", "--out", "mine")
    few = works(*words, "--mixing", "none").stdout
    assert few.count("note: points_per_client=50, but 50 of 50 clients get fewer") == 1


# ------------------------------------------------------------------------------------ comparisons


@pytest.mark.usefixtures("drawn")
def test_a_comparison_ends_in_one_table_its_folder_and_its_picture(here: Path) -> None:
    words = ("compare", "--algorithms", "clove, fedavg", "--seeds", "2", *QUICK)
    text = works(*words).stdout
    assert [line.split()[0] for line in text.splitlines() if "±" in line] == ["clove", "fedavg"]
    assert "…" not in text
    folder = Path("runs", "compare-digits-label-skew-1")
    assert f"folder   {folder}" in text
    assert (here / folder / "picture.png").is_file()


@pytest.mark.parametrize("algorithms", ["clove,fedavg", "clove"])
def test_the_json_of_a_comparison_is_a_list_of_runs(algorithms: str) -> None:
    outcome = works("compare", "--algorithms", algorithms, *QUICK, "--json", "--out", "mine")
    found = json.loads(outcome.stdout)
    assert [run["algorithm"] for run in found["runs"]] == algorithms.split(",")
    assert all(run.keys() >= SUMMARY for run in found["runs"])
    assert found["folder"] == "mine"
    assert json.loads(works("resume", "mine", "--json").stdout) == found


def test_a_comparison_takes_any_setting_of_a_run() -> None:
    words = ("compare", "--algorithms", "fedavg", *QUICK, "--set", "task=reconstruction")
    assert "test loss" in works(*words, "--out", "mine").stdout


def test_a_comparison_takes_a_runs_settings_file() -> None:
    works("run", *QUICK, "--algorithm", "ifca", "--out", "run")
    words = ("compare", "run/settings.toml", "--algorithms", "ifca,fedavg", "--json")
    found = json.loads(works(*words, "--out", "mine").stdout)
    assert [run["algorithm"] for run in found["runs"]] == ["ifca", "fedavg"]


def test_a_method_that_fails_is_shown_with_its_error_and_so_fails_the_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    words = ("compare", "--algorithms", "local,fedavg", *QUICK, "--out", "mine")
    with monkeypatch.context() as patched:
        patched.setattr("clove.algorithms.FedAvg.evaluation", fail)
        outcome, again = clove(*words), clove(*words, "--json")
    assert (outcome.exit_code, again.exit_code) == (1, 1)
    text = outcome.stdout
    rows = [line.split()[:2] for line in text.splitlines() if line.split()[:1] == ["fedavg"]]
    assert rows == [["fedavg", "failed"], ["fedavg", "failed:"]]
    assert "fedavg failed: ZeroDivisionError: of all things" in text
    assert text.splitlines()[-1].split() == ["error", str(Path("mine", "fedavg", "error.txt"))]
    found = json.loads(again.stdout)
    assert [run["algorithm"] for run in found["runs"]] == ["local"]
    error = "ZeroDivisionError: of all things"
    assert found["failures"] == [{"algorithm": "fedavg", "seed": 0, "error": error}]
    assert "failed" not in works("resume", "mine").stdout


def test_all_methods_that_apply_are_compared(here: Path) -> None:
    words = ("compare", "--algorithms", "all", *QUICK, "--set", "task=reconstruction", "--json")
    outcome = works(*words, "--out", "mine")
    compared = [run["algorithm"] for run in json.loads(outcome.stdout)["runs"]]
    left_out = re.findall(r"warning: (\S+) is left out: ", outcome.stderr)
    assert [name for name in ALGORITHMS if name not in left_out] == compared
    assert {"clove", "fedavg", "local"} <= set(compared)


# ----------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("command", ["run", "compare"])
def test_ctrl_c_leaves_something_to_resume_and_says_how(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    words = [*QUICK, "--out", "mine", "--json"]
    words += ["--algorithms", "clove,local"] if command == "compare" else []
    with monkeypatch.context() as patched:
        patched.setattr("clove.report.live.Live.update", interrupt)
        patched.setattr("clove.report.live_table.LiveTable.update", interrupt)
        stopped = clove(command, *words)
    assert stopped.exit_code == 130
    assert stopped.stdout == ""
    assert stopped.stderr == "stopped. Continue with: clove resume mine\n"
    resumed = json.loads(works("resume", "mine", "--json").stdout)
    runs = resumed["runs"] if command == "compare" else [resumed]
    assert [run["rounds"] for run in runs] == [2] * len(runs)


def test_a_single_run_is_not_spread_over_a_cluster() -> None:
    works("run", *QUICK, "--out", "mine")
    assert "--ray spreads the runs of a comparison: mine holds none" in fails(
        *("resume", "mine", "--ray", "local")
    )


def test_a_cluster_that_cannot_be_joined_is_an_error_before_anything_is_written() -> None:
    said = fails("compare", "--algorithms", "fedavg", "--ray", "nowhere", "--out", "mine")
    assert "--ray takes local, auto, or HOST:PORT" in said
    assert not Path("mine").exists()


def test_ctrl_c_before_anything_is_written_promises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    Path("mine").mkdir()
    monkeypatch.setattr("clove.runs.api.prepare", interrupt)
    stopped = clove("run", *QUICK, "--out", "mine")
    assert (stopped.exit_code, stopped.output) == (130, "")


def test_resuming_a_finished_run_shows_it_again() -> None:
    first = works("run", *QUICK, "--out", "mine").stdout
    assert works("resume", "mine").stdout == first


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algorithm", "clov"), "unknown algorithm 'clov': did you mean 'clove'?"),
        (("--dataset", "digit"), "unknown dataset 'digit': did you mean 'digits'?"),
        (("--mixing", "labelskew1"), "unknown mixing 'labelskew1': did you mean 'label-skew-1'?"),
        (("--set", "batchsize=3"), "unknown setting 'batchsize': did you mean 'batch_size'?"),
        (("--set", "batch_size"), "--set takes KEY=VALUE, not 'batch_size'"),
        (("--set", "=3"), "--set takes KEY=VALUE, not '=3'"),
        (("--set", "batch_size=many"), "batch_size must be int, not 'many'"),
        (("--set", "clustering=dbscan"), "unknown clustering 'dbscan'"),
        (("--set", "clusters=20"), "20 clusters of 2 classes need 40 classes"),
        (("--rounds", "0"), "rounds must be 1 or more, not 0"),
        (("--engine", "vector"), "unknown engine 'vector': did you mean 'vectorized'?"),
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--dataset", "linear"), "mixing 'label-skew-1' needs class labels"),
        (("nowhere.toml",), "there is no settings file nowhere.toml"),
        ((".",), "cannot read the settings file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_slip_is_one_clear_error(here: Path, words: tuple[str, ...], message: str) -> None:
    assert fails("run", *words).startswith(message)
    assert list(here.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said_to_be_missing() -> None:
    assert fails("run", "--device", "cuda").startswith(
        "device 'cuda' was asked for, but torch sees"
    )


def test_folders_that_cannot_take_a_run_are_refused(here: Path) -> None:
    works("run", *QUICK, "--out", "mine")
    assert "holds a run already: continue it with `clove resume mine`" in fails(
        *("run", *QUICK, "--out", "mine")
    )
    assert "is not empty: choose another folder" in fails("run", *QUICK, "--out", here)
    file = here / "mine" / "settings.toml"
    assert "is a file: choose another folder" in fails("run", *QUICK, "--out", file)
    assert "cannot write the run folder" in fails("run", *QUICK, "--out", file / "run")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EACCES, "no permission to write there"),
        (errno.EROFS, "it is on a read-only disk"),
    ],
)
def test_a_disk_that_cannot_be_written_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_module, "write_atomically", refuse)
    assert message in fails("run", *QUICK, "--out", "mine")


def test_only_runs_and_comparisons_can_be_resumed(here: Path) -> None:
    assert "nowhere is not a run folder" in fails("resume", "nowhere")
    assert "is not a run folder" in fails("resume", here)


def test_comparisons_that_cannot_be_meant_are_refused() -> None:
    assert "name each algorithm to compare once" in fails(
        *("compare", "--algorithms", "clove,clove", "--out", "mine")
    )
    assert "unknown algorithm 'fedavgg': did you mean 'fedavg'?" in fails(
        *("compare", "--algorithms", "fedavgg", "--out", "mine")
    )
    assert "'probes' is an option of algorithm clove, not of fedavg" in fails(
        *("compare", "--algorithms", "fedavg", "--set", "probes=trained", "--out", "mine")
    )
    works("compare", "--algorithms", "fedavg", *QUICK, "--out", "mine")
    assert "mine holds another comparison" in fails(
        *("compare", "--algorithms", "local", *QUICK, "--out", "mine")
    )


def test_data_that_are_not_there_are_named_with_where_to_put_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOVE_DATA", str(here / "data"))
    monkeypatch.setenv("CLOVE_CACHE", str(here / "cache"))
    said = fails("run", "--dataset", "mnist")
    assert "clove data fetch mnist" in said
    assert str(here / "data") in said


# ----------------------------------------------------------------------------------- what there is


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_options_lists_every_setting(algorithm: str) -> None:
    text = works("options", "--algorithm", algorithm, "--mixing", "feature-skew").stdout
    listed = {line.split()[1] for line in text.splitlines() if line.startswith("│")}
    assert listed >= {
        *Settings().flat(),
        *algorithm_options(algorithm),
        *data_options("digits", "feature-skew"),
    }


def test_options_of_what_nobody_knows_are_refused() -> None:
    assert fails("options", "--algorithm", "clov").startswith("unknown algorithm 'clov'")
    assert fails("options", "--dataset", "digit").startswith("unknown dataset 'digit'")


def test_help_names_every_command() -> None:
    text = works("--help").stdout
    assert all(command in text for command in ("run", "compare", "resume", "options"))
    for command in ("run", "compare", "resume", "options"):
        assert "Usage: clove " + command in works(command, "--help").stdout


def test_no_command_shows_the_help() -> None:
    assert "Usage: clove" in clove().output


def test_the_version_is_told() -> None:
    assert works("--version").stdout == f"clove {__version__}\n"


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clove", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: clove [OPTIONS] COMMAND" in done.stdout
