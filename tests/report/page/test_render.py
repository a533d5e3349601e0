"""The page as a file: self-contained, small, and safe whatever a run's folder says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import clove
from clove import extras
from clove.cli import app
from clove.errors import CloveError
from clove.report.page import render
from clove.report.page.read import Vectors, read_run
from clove.report.page.render import html, in_a_script, write_report
from tests.runs.small import TINY

pytest.importorskip("plotly", reason="no plotly here: pip install 'clove-fl[page]'")


def data_in(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_a_report_loads_nothing_and_holds_its_data(runs: Path, tmp_path: Path) -> None:
    path = write_report([runs / "clove"], tmp_path / "report.html")
    page = path.read_text()
    assert data_in(page)["title"] == "clove on digits, label-skew-1"
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_words_from_a_folder_cannot_break_out_of_the_page(runs: Path, tmp_path: Path) -> None:
    bad = Path(shutil.copytree(runs / "own", tmp_path / "bad"))
    known = json.loads((bad / "data.json").read_text())
    known["names"] = ["</script><script>alert(1)</script>"] * 6
    (bad / "data.json").write_text(json.dumps(known))
    page = html(render.page_data([bad]))
    assert "</script><script>alert" not in page
    assert known["names"][0] in json.dumps(data_in(page))


def test_names_that_are_no_text_are_shown_as_well_as_they_can(runs: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(runs / "own", tmp_path / "odd"))
    known = json.loads((odd / "data.json").read_text())
    known["names"] = ["caf\udce9"] * 6
    (odd / "data.json").write_text(json.dumps(known))
    assert write_report([odd], tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", "[1]\n"),
        ("metrics.jsonl", '{"round": 1}\n'),
        ("data.json", "[]"),
        ("data.json", '{"names": 5}'),
    ],
)
def test_files_that_hold_something_else_are_an_error_in_words(
    runs: Path, tmp_path: Path, file: str, content: str
) -> None:
    bad = Path(shutil.copytree(runs / "own", tmp_path / "bad"))
    (bad / file).write_text(content)
    with pytest.raises(CloveError, match=r"bad.*(damaged|does not hold)"):
        write_report([bad], tmp_path / "report.html")


def test_titles_are_escaped() -> None:
    assert "<title>&lt;b&gt;</title>" in html({"title": "<b>"}, live=True)


def test_numbers_that_json_lacks_are_refused_not_written() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        in_a_script({"loss": float("nan")})


def test_a_hundred_rounds_of_fifty_clients_are_under_six_megabytes(
    runs: Path, tmp_path: Path
) -> None:
    large, draw = (
        Path(shutil.copytree(runs / "clove", tmp_path / "large")),
        np.random.default_rng(0),
    )
    lines = (large / "metrics.jsonl").read_text().splitlines()
    record = {**json.loads(lines[0]), "assignment": draw.integers(0, 5, 50).tolist()}
    rounds = [json.dumps({**record, "round": number}) + "\n" for number in range(1, 101)]
    (large / "metrics.jsonl").write_text("".join(rounds))
    timing = (large / "timings.jsonl").read_text().splitlines()[0]
    (large / "timings.jsonl").write_text(f"{timing}\n" * 100)
    (large / "summary.json").write_text('{"rounds": 100}')
    for number in range(1, 101):
        vectors = Vectors(np.arange(50), draw.gamma(2.0, size=(50, 5)))
        path = large / "loss_vectors" / f"round-{number:05d}.npz"
        np.savez(path, clients=vectors.clients, losses=vectors.losses)
    assert len(read_run(large).vectors) == 100
    path = write_report([large], tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000


def test_a_result_writes_its_report_from_memory_or_folder(runs: Path, tmp_path: Path) -> None:
    result = clove.run(**TINY)
    assert result.folder is None
    in_memory = data_in(result.report(tmp_path / "memory.html").read_text())
    assert result.folder is None, "the temporary folder is nobody's"
    assert in_memory["status"]["finished"]
    on_disk = clove.load(runs / "clove").report(tmp_path / "disk.html")
    assert data_in(on_disk.read_text()) == render.page_data([runs / "clove"])


def test_a_comparison_writes_its_report(comparison: Path, tmp_path: Path) -> None:
    from clove.runs.compare import resume_comparison

    path = resume_comparison(comparison).report(tmp_path / "report.html")
    assert data_in(path.read_text())["kind"] == "several"


def test_the_command_writes_the_report_where_it_is_told(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", str(runs / "clove"), "-o", "deep/page.html"])
    assert done.exit_code == 0, done.output
    assert "deep/page.html" in done.output
    assert (
        CliRunner().invoke(app, ["report", str(runs / "clove"), str(runs / "ifca")]).exit_code == 0
    )
    assert data_in(Path("report.html").read_text())["kind"] == "several"


@pytest.mark.parametrize(
    ("folders", "output", "words"),
    [
        (["nowhere"], "report.html", "there is no folder nowhere"),
        (["{run}"], ".", "is a folder: name a file for the report"),
        (["{run}"], "settings.toml/report.html", "cannot write the report"),
    ],
)
def test_a_slip_is_one_clear_error(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: list[str],
    output: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text("")
    given = [folder.format(run=runs / "clove") for folder in folders]
    done = CliRunner().invoke(app, ["report", *given, "-o", output])
    assert done.exit_code == 1
    assert words in done.output
    assert "Traceback" not in done.output


def test_without_plotly_the_error_names_the_extra(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    render.packed_plotly.cache_clear()
    with pytest.raises(CloveError, match=r"pip install 'clove-fl\[page\]'"):
        write_report([runs / "clove"], tmp_path / "report.html")
