"""A run's folder carried to another machine: the same there, and whole at every moment."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.runs import carried
from clove.runs.carried import Carrier, put

NAMES = st.sampled_from(["settings.toml", "metrics.jsonl", "models/model-0.safetensors"])
WRITES = st.lists(st.dictionaries(NAMES, st.binary(max_size=8)), max_size=4)


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@settings(max_examples=30, deadline=None)
@given(WRITES)
def test_what_is_written_here_stands_there(writes: list[dict[str, bytes]]) -> None:
    with TemporaryDirectory() as scratch:
        here, there = Path(scratch, "here"), Path(scratch, "there")
        carrier = Carrier(here)
        for files in writes:
            put(here, files)
            put(there, carrier.news())
            assert content(there) == content(here)
        assert carrier.news() == {}


def test_lines_added_to_a_file_are_noticed(tmp_path: Path) -> None:
    carrier, lines = Carrier(tmp_path), tmp_path / "metrics.jsonl"
    lines.write_text("one\n")
    assert carrier.news() == {"metrics.jsonl": b"one\n"}
    with lines.open("a") as file:
        file.write("two\n")
    assert carrier.news() == {"metrics.jsonl": b"one\ntwo\n"}


def test_files_half_written_stay_behind(tmp_path: Path) -> None:
    (tmp_path / ".metrics.jsonl.x1.part").write_bytes(b"hal")
    assert Carrier(tmp_path).news() == {}


def test_a_checkpoint_arrives_after_what_it_speaks_of_and_the_summary_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(carried, "write_atomically", lambda path, _: order.append(path.name))
    names = ["summary.json", "checkpoint.safetensors", "metrics.jsonl", "settings.toml"]
    put(tmp_path, dict.fromkeys(names, b""))
    assert order == ["settings.toml", "metrics.jsonl", "checkpoint.safetensors", "summary.json"]


def test_a_checkpoint_that_is_gone_where_it_comes_from_goes_once_the_newer_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = tmp_path / "checkpoint-recent.safetensors"
    put(tmp_path, {recent.name: b"4"})

    def killed(path: Path, _: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(carried, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            put(tmp_path, {"checkpoint.safetensors": b"5"})
    assert recent.exists()
    put(tmp_path, {"checkpoint.safetensors": b"5"})
    assert not recent.exists()
