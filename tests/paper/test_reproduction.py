"""The page "Reproduction": what the results in the repository say, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clove.errors import CloveError
from clove.paper import EXPERIMENTS, Results
from clove.paper.reproduction import page, read_findings, write_page
from tests.paper.made_up import cell, recorded, results

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_in_the_repository_is_the_one_its_results_make() -> None:
    made = page(Results(ROOT / "results" / "paper"))
    assert (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == made, (
        "run `clove paper docs`"
    )
    shown = set(re.findall(r"images/paper/([\w.-]+\.png)", made))
    assert {path.name for path in (ROOT / "docs" / "images" / "paper").glob("*.png")} == shown


def test_a_page_without_results_says_so(tmp_path: Path) -> None:
    text = page(Results(tmp_path))
    assert "There are no results yet." in text
    assert all(f"## {number}: " in text for number in EXPERIMENTS)
    assert "<details>" not in text


def test_results_verdicts_and_findings_stand_with_their_experiment(tmp_path: Path) -> None:
    clove = cell("E2", dataset="mnist", algorithm="clove")
    kept = results(tmp_path, (clove, [1.0, 1.0], "ari"))
    (tmp_path / "findings.md").write_text(
        "Notes.\n\n## E2\n\nIt was the moon.\n\n## All\n\nWell.\n"
    )
    text = page(kept)
    section = text[text.index("## E2: ") : text.index("## E3: ")]
    assert "CLoVE's final ARI is 1.00: **holds so far** (1 of 1; 11 not run yet)." in section
    assert re.search(r"E2\]\(.* \| 1 of \d+ cells \| \d undecided \| 0 of", text)
    assert "It was the moon." in section
    assert "**1.00 ± 0.00**" not in section  # alone, nobody is best
    assert "1.00 ± 0.00 ≈<br><sub>1.00 ± 0.00</sub>" in section
    assert "Well." in text[: text.index("## E1: ")]
    assert "Notes." not in text
    assert "2 runs took 5 device seconds" in text
    assert "| a machine | fp32 | 0.1 | 2 | 3 | 2026-01-02 | 2 | 5 |" in text


def test_runs_cut_short_are_not_counted_among_those_there_are(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    kept.add([recorded(cell("E2", dataset="mnist", algorithm="clove"), 0, rounds=2, ari=1.0)])
    text = page(kept)
    assert re.search(r"E2\]\(.* \| 0 of \d+ cells \|  \| 0 of", text)
    assert "2 rounds" in text[text.index("## E2: ") : text.index("## E3: ")]


def test_every_experiment_is_reached_from_the_overview(tmp_path: Path) -> None:
    text = page(Results(tmp_path))
    headings = re.findall(r"^## (E\d+: .*)$", text, flags=re.M)
    anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
    links = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert len(links) == 24
    assert links == anchors


def test_the_page_is_written_with_its_figures_and_without_stale_ones(tmp_path: Path) -> None:
    stale = tmp_path / "docs" / "images" / "paper" / "E5-old.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"old")
    written = write_page(Results(tmp_path / "results"), tmp_path / "docs")
    assert written.read_text(encoding="utf-8") == page(Results(tmp_path / "results"))
    assert [path.name for path in stale.parent.iterdir()] == ["E6-illustration.png"]


def test_findings_of_an_unknown_experiment_are_refused(tmp_path: Path) -> None:
    (tmp_path / "findings.md").write_text("## E25\n\nNo.\n")
    with pytest.raises(CloveError, match=r"unknown experiment in .*findings\.md 'E25'"):
        read_findings(tmp_path / "findings.md")
