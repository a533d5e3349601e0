"""Every command and every Python block of the documents is run here, as a reader would run it.

Blocks run in the order they stand in, in one folder; one that starts with a file name is saved.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from clove.algorithms import ALGORITHMS, OURS
from clove.cli import app

ROOT = Path(__file__).resolve().parents[1]
NEEDS = {  # packages that a document is about
    "flower.md": ("flwr",),
    "newcomers.md": ("fastapi", "uvicorn", "onnxscript"),
    "tracking.md": ("tensorboard", "mlflow"),
}
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each block that a reader would run."""
    return re.findall(r"^```(console|python|toml)\n(.*?)^```", document.read_text(), re.M | re.S)


def file_name(text: str) -> str | None:
    """Return the name of the file that a block is, if it is one."""
    found = re.match(r"# (\w+\.(?:py|toml))\n", text)
    return None if found is None else found[1]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run in a folder of one's own, and forget methods and modules that a document adds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    methods, modules = set(ALGORITHMS), set(sys.modules)
    yield tmp_path
    for name in set(ALGORITHMS) - methods:
        del ALGORITHMS[name]
    for file in tmp_path.glob("*.py"):
        if file.stem not in modules:
            sys.modules.pop(file.stem, None)


@pytest.fixture
def serving() -> Iterator[list[subprocess.Popen[str]]]:
    """Hold the processes of commands that go on until they are stopped."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_works_from_top_to_bottom(
    document: Path,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    serving: list[subprocess.Popen[str]],
) -> None:
    for package in NEEDS.get(document.name, ()):
        pytest.importorskip(package, reason=f"no {package} here: see the extras in pyproject.toml")
    names: dict[str, object] = {"__name__": "reader"}
    for language, text in blocks(document):
        file = file_name(text)
        if file:
            (elsewhere / file).write_text(text)
        elif language == "python":
            exec(compile(text, str(document), "exec"), names)
        elif language == "console":
            for line in text.splitlines():
                type_in(line, monkeypatch, serving)


def type_in(
    line: str, monkeypatch: pytest.MonkeyPatch, serving: list[subprocess.Popen[str]]
) -> None:
    """Do as the reader of a console block does: run what stands after the prompt."""
    if not line.startswith("$ "):
        return
    program, *words = shlex.split(line[2:].partition(" #")[0])
    if program == "make":
        assert words[0] in re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
        return
    if (program, words) == ("pip", ["install", "."]):
        install_here(monkeypatch)
        return
    assert program == "clove"
    if "--ray" in words and find_spec("ray") is None:
        return
    if words[0] == "watch":
        look_at(words)
        return
    if words[0] == "serve":
        serving.append(begin(words))
        return
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, f"{line}\n{outcome.output}"


def look_at(words: list[str]) -> None:
    """Start what stays until Ctrl-C, look at what it shows, and press Ctrl-C."""
    command = [sys.executable, "-m", "clove.cli", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        with urlopen(address) as page:
            assert b"<title>" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def begin(words: list[str]) -> subprocess.Popen[str]:
    """Start a command that goes on, and wait for its first words."""
    command = [sys.executable, "-m", "clove.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline(), f"clove {shlex.join(words)} said nothing"
    return process


def install_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package in this folder beside it, with pip, and without a network."""
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--target", "installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "."]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.syspath_prepend("installed")


def test_the_method_of_the_documents_is_short_and_none_of_ours() -> None:
    text = next(t for _, t in blocks(ROOT / "docs" / "adding-a-method.md") if file_name(t))
    assert len(text.splitlines()) < 60
    assert re.findall(r'name = "(.*)"', text) == ["by-labels"]
    assert "by-labels" not in OURS


def test_the_readme_names_every_method() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith("| methods |"))
    own = {name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("clove.")}
    assert set(re.findall(r"`([a-z-]+)`", row)) >= own


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_a_document_points_at_exist(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    for target in [t for t in targets if "://" not in t]:
        assert (document.parent / target).exists(), target
