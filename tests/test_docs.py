"""Every command and every Python block of the documents is run here, as a reader would run it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clove.algorithms import ALGORITHMS
from clove.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)


def commands(document: Path) -> list[str]:
    lines = [line for block in blocks(document, "console") for line in block.splitlines()]
    return [line[2:].partition(" #")[0].strip() for line in lines if line.startswith("$ ")]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_a_document_works(document: Path, elsewhere: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    for command in commands(document):
        words = shlex.split(command)
        if words[0] == "make":
            assert words[1] in targets
            continue
        assert words[0] == "clove"
        outcome = CliRunner().invoke(app, words[1:])
        assert outcome.exit_code == 0, f"{command}\n{outcome.output}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_of_a_document_runs_from_top_to_bottom(document: Path, elsewhere: Path) -> None:
    known = set(ALGORITHMS)
    names: dict[str, object] = {"__name__": "reader"}
    try:
        for block in blocks(document, "python"):
            exec(compile(block, str(document), "exec"), names)
    finally:
        for name in set(ALGORITHMS) - known:
            del ALGORITHMS[name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_a_document_points_at_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    for target in [t for t in targets if "://" not in t]:
        assert (document.parent / target).exists(), target
