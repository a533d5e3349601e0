from __future__ import annotations

import os
from pathlib import Path

import pytest

from clove.folders import cache_folder, half_written, write_atomically


def test_content_is_written_into_folders_made_for_it(tmp_path):
    path = tmp_path / "runs" / "mine" / "settings.toml"
    write_atomically(path, b"seed = 0")
    assert path.read_bytes() == b"seed = 0"
    assert [file.name for file in path.parent.iterdir()] == ["settings.toml"]


def test_content_replaces_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"a long old content")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_others_may_read_what_is_written(tmp_path):
    write_atomically(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failing_write_leaves_the_old_content_and_nothing_else(
    tmp_path, monkeypatch, step, failure
):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise failure

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(type(failure)):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_write_leaves_can_be_found(tmp_path, monkeypatch):
    write_atomically(tmp_path / "run" / "whole", b"")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "run" / "half", b"")
    (left,) = half_written(tmp_path)
    assert left.name.startswith(".half.")


def test_content_is_on_the_disk_before_it_takes_the_files_place(tmp_path, monkeypatch):
    path, done = tmp_path / "file", []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda _: done.append("synced"))
    monkeypatch.setattr(Path, "replace", lambda *ends: done.append("moved") or replace(*ends))
    write_atomically(path, b"new")
    assert done == ["synced", "moved"]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("CLOVE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "clove"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "clove"
