"""A run is a folder: what it holds, and clear words where it cannot be written or read."""

from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import load_file

import clove
from clove.errors import CloveError
from clove.folders import plain_errors
from clove.runs import folder as folder_module
from clove.runs.folder import RunFolder
from clove.runs.settings import from_names, read_settings
from tests.runs.small import QUICK, TINY, records

# ------------------------------------------------------------------------------------ contents


def test_a_finished_folder_holds_all_there_is_to_know(run_folder: Path) -> None:
    assert {path.name for path in run_folder.iterdir()} == {
        *("settings.toml", "metrics.jsonl", "timings.jsonl", "checkpoint.safetensors"),
        *("loss_vectors", "models", "clients.csv", "data.json", "summary.json", "picture.png"),
    }


def test_metrics_and_timings_have_a_line_a_round(run_folder: Path) -> None:
    rounds = list(range(1, 9))
    timings = (run_folder / "timings.jsonl").read_text().splitlines()
    assert [record["round"] for record in records(run_folder)] == rounds
    assert [json.loads(line)["round"] for line in timings] == rounds


def test_metrics_hold_nothing_of_the_machines_speed(run_folder: Path) -> None:
    assert set(records(run_folder)[0]) == {
        *("round", "accuracy", "test_loss", "ari", "ari_seen", "participants", "stable"),
        *("bytes_up", "bytes_down", "assignment", "clusters"),
    }


def test_every_model_is_a_safetensors_file_with_the_parameters_of_the_module(
    run_folder: Path, finished: clove.Result
) -> None:
    assert len(list((run_folder / "models").iterdir())) == 5
    for index in range(5):
        stored = load_file(run_folder / "models" / f"model-{index}.safetensors")
        state = finished.model(index).state_dict()
        assert stored.keys() == state.keys()
        assert all(stored[name].equal(state[name]) for name in state)


def test_models_that_stay_with_clients_are_called_after_them(tmp_path: Path) -> None:
    clove.run(algorithm="local", **TINY, out=tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "models").iterdir())
    assert names == [f"client-{index}.safetensors" for index in range(4)]


def test_loss_vectors_are_kept_round_by_round(run_folder: Path, finished: clove.Result) -> None:
    files = sorted(path.name for path in (run_folder / "loss_vectors").iterdir())
    assert files == [f"round-{number:05d}.npz" for number in range(1, 9)]
    vectors = RunFolder(run_folder).loss_vectors(8)
    assert vectors is not None
    assert (vectors.losses == finished.loss_vectors().losses).all()
    assert RunFolder(run_folder).loss_vectors(9) is None


def test_the_table_of_clients_has_a_row_each(run_folder: Path) -> None:
    with (run_folder / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == [str(client) for client in range(25)]
    assert set(rows[0]) == {"client", "loss", "accuracy", "model", "group"}


def test_the_summary_is_what_the_result_says(run_folder: Path, finished: clove.Result) -> None:
    assert RunFolder(run_folder).summary() == finished.summary()


def test_the_picture_is_a_picture(run_folder: Path) -> None:
    height, width, _ = imread(run_folder / "picture.png").shape
    assert width > height > 100


def test_settings_record_what_auto_came_out_as(tmp_path: Path) -> None:
    clove.run(**{**TINY, "engine": "auto"}, out=tmp_path / "run")
    settings = from_names(**read_settings(tmp_path / "run" / "settings.toml"))
    assert settings.engine in ("sequential", "vectorized")
    assert settings.device != "auto"
    assert (settings.task, settings.model) == ("classification", "mlp")
    assert settings.threads > 0


def test_options_of_the_data_are_recorded_as_they_came_out(run_folder: Path) -> None:
    read = read_settings(run_folder / "settings.toml")
    assert (read["clients_per_cluster"], read["points_per_client"]) == (5, 50)


# ---------------------------------------------------------------------------- refusing a folder


def test_a_folder_that_holds_a_run_is_refused(run_folder: Path) -> None:
    with pytest.raises(CloveError, match="holds a run already: continue it with `clove resume"):
        clove.run(**QUICK, out=run_folder)


def test_a_folder_that_holds_anything_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CloveError, match="is not empty: choose another folder"):
        clove.run(**QUICK, out=tmp_path)


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CloveError, match="is a file: choose another folder"):
        clove.run(**QUICK, out=tmp_path / "file")
    with pytest.raises(
        CloveError, match=r"cannot write the run folder .*a part of that path is a file"
    ):
        clove.run(**QUICK, out=tmp_path / "file" / "run")


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert clove.run(**TINY, out=tmp_path).folder == tmp_path


def test_what_a_kill_left_half_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / ".settings.toml.abc.part").write_text("rounds =")
    assert clove.run(**TINY, out=tmp_path).folder == tmp_path


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"the disk is full: free some space, then continue with `clove resume"),
        (errno.EACCES, "no permission to write there: choose another folder"),
        (errno.EPERM, "no permission to write there: choose another folder"),
        (errno.EROFS, "it is on a read-only disk: choose another folder"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def refuse(path: Path, content: bytes, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(folder_module, "write_atomically", refuse)
    with pytest.raises(CloveError, match=f"cannot write the run folder .*run: .*{message}"):
        clove.run(**TINY, out=tmp_path / "run")


def test_a_disk_that_fills_up_costs_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(self: RunFolder, *_: object) -> None:
        with plain_errors(self.path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_checkpoint", fill_up)
        with pytest.raises(CloveError, match="the disk is full"):
            clove.run(**TINY, out=tmp_path / "run")
    assert len(clove.resume(tmp_path / "run").history) == TINY["rounds"]


# ------------------------------------------------------------------------------ reading a folder


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        for read in (clove.load, clove.resume):
            with pytest.raises(
                CloveError, match=r"is not a run folder: there is no settings\.toml"
            ):
                read(path)


def test_the_summary_of_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("rounds = 3\n")
    with pytest.raises(CloveError, match="is not finished: `clove resume"):
        RunFolder(tmp_path).summary()


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.9])
def test_settings_that_were_cut_off_are_not_taken_for_complete(tmp_path: Path, kept: float) -> None:
    folder = clove.run(**TINY, out=tmp_path / "run").folder
    assert folder is not None
    lines = (folder / "settings.toml").read_text().splitlines()
    (folder / "settings.toml").write_text("\n".join(lines[: int(kept * len(lines))]))
    (folder / "summary.json").unlink()
    for read in (clove.resume, clove.load):
        with pytest.raises(CloveError, match=r"settings\.toml is not complete"):
            read(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04half", b"\xff\xfe"])
@pytest.mark.parametrize(
    "name", ["loss_vectors/round-00001.npz", "metrics.jsonl", "checkpoint.safetensors"]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    folder = clove.run(**TINY, out=tmp_path / "run").folder
    assert folder is not None
    (folder / name).write_bytes(content)
    with pytest.raises(CloveError, match=Path(name).name):
        clove.load(folder)


def test_a_run_in_double_precision_has_models_in_double_precision() -> None:
    result = clove.run(**TINY, precision="fp64")
    assert {p.dtype for p in result.model(0).parameters()} == {torch.float64}


def test_threads_by_the_thousand_are_refused() -> None:
    with pytest.raises(CloveError, match="threads must be at most"):
        clove.run(**TINY, threads=100_000)
