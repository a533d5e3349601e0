"""What stands beside a result: which commit, which processor, which day."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import origin

OLD = {"date": "2026-11-16", "commit": float("nan"), "cpu": float("nan")}
NEW = {"date": "2026-11-18", "commit": "abc1234", "cpu": "Some 9"}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a folder of benchmarks, all committed."""
    if shutil.which("git") is None:
        pytest.skip("no git here")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "a.py").write_text("a = 1\n")
    (tmp_path / "benchmarks" / "results" / "a.md").write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def at(tree: Path) -> str:
    """Return what is said of a tree now: what was said before is remembered otherwise."""
    origin.commit.cache_clear()
    return origin.commit(tree / "benchmarks")


@pytest.fixture(autouse=True)
def forgotten() -> None:
    origin.commit.cache_clear()


def test_the_commit_is_named_and_marked_where_files_were_changed(tree: Path) -> None:
    short = git(tree, "rev-parse", "--short", "HEAD")
    assert at(tree) == short
    (tree / "benchmarks" / "results" / "a.md").write_text("2\n")
    assert at(tree) == short, "what a benchmark writes changes nothing that it measures"
    (tree / "new.py").write_text("")
    assert at(tree) == f"{short} (changed)"


def test_a_tree_without_its_repository_is_unknown(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tree / "copy"
    (copy / "benchmarks").mkdir(parents=True)
    assert at(copy) == "unknown", "the repository around a copy is not its own"
    assert at(tmp_path_factory.mktemp("plain")) == "unknown"
    monkeypatch.setenv("PATH", "")
    assert at(tree) == "unknown"


def test_the_processor_is_named_as_the_system_does(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Some 9: fast\nmodel name\t: Some 9: fast\n")
    assert origin.cpu(info) == "Some 9: fast"
    assert origin.cpu(tmp_path / "none")


def test_rows_of_before_say_what_they_have() -> None:
    assert origin.in_words(OLD) == "2026-11-16"
    assert origin.in_words(NEW) == "Some 9, commit abc1234, 2026-11-18"
    assert origin.all_in_words([OLD, NEW, OLD, {}]) == (
        "2026-11-16; Some 9, commit abc1234, 2026-11-18"
    )


def test_all_of_it_is_there() -> None:
    assert set(origin.origin()) == {"commit", "cpu", "date"}
    assert all(origin.origin().values())
