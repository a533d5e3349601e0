"""`clove flower new`: a project that is whole, named after its folder, and never overwrites."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clove.cli import app
from clove.deployment.project import new_project, project_name, template
from clove.errors import CloveError
from clove.runs.settings import from_names, read_settings

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"client.py", "server.py", "task.py"}
FILES = {*MODULES, ".gitignore", "README.md", "pyproject.toml", "settings.toml"}


def test_a_project_has_all_its_files_under_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "Ward 7"
    assert {file.name for file in new_project(folder)} == FILES
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "ward-7"
    assert project["project"]["dependencies"] == [], "Flower would install them for every run"
    assert project["tool"]["flwr"]["app"]["config"]["out"] == "runs/ward-7"
    assert not any("my-federation" in (folder / name).read_text() for name in FILES)


def test_its_settings_are_settings_of_clove(tmp_path: Path) -> None:
    new_project(tmp_path / "fed")
    settings = from_names(**read_settings(tmp_path / "fed" / "settings.toml"))
    assert settings.algorithm == "clove"


def packed(folder: Path) -> set[str]:
    """Return what Flower packs of a project and sends to every node."""
    from flwr.cli.build import build_fab_from_disk

    inside = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))).namelist()
    return {name for name in inside if not name.startswith(".info/")}


def test_runs_networks_and_keys_in_a_project_stay_at_home(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")
    folder = tmp_path / "fed"
    new_project(folder)
    app = FILES - {".gitignore"}
    assert packed(folder) == app
    for name in (
        "runs/fed/settings.toml",
        "runs/second/metrics.jsonl",
        "network/home/config.toml",
        "network/node-0/apps/a/b/c/d/e/f/g/h/i/j/k/client.py",  # deeper than Flower packs
        "network/certificates/ca.key",
        "keys/nodes/node-0.pub",
        ".venv/lib/site.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("private")
    (folder / "losses.py").write_text("of the user's own")
    assert packed(folder) == {*app, "losses.py"}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CloveError, match="not empty"):
        new_project(tmp_path)
    with pytest.raises(CloveError, match="not empty"):
        new_project(tmp_path / "mine.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["...", "ß" * 3, "a" * 33])
def test_a_folder_that_cannot_name_a_project_is_refused(name: str) -> None:
    with pytest.raises(CloveError, match="cannot name a project"):
        project_name(Path(name))


def test_the_command_says_how_to_go_on(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["flower", "new", str(tmp_path / "fed")])
    assert done.exit_code == 0, done.output
    assert f"clove flower run {tmp_path / 'fed'}" in done.output.replace("\n", " ")
    assert (tmp_path / "fed" / "client.py").is_file()


def test_the_template_is_in_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="builds the wheel")
    build = "from setuptools.build_meta import build_wheel; build_wheel({!r})"
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-c", build.format(str(tmp_path))],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    inside = {
        Path(name).name
        for name in zipfile.ZipFile(wheel).namelist()
        if "deployment/template/" in name
    }
    assert inside == FILES == {file.name for file in template()}
