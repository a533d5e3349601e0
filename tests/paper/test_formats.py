"""The formats of tables: all say the same, and each is what its readers can read."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from rich.cells import cell_len

from clove.paper import EXPERIMENTS
from clove.paper.formats import FORMATS, as_csv, as_html, as_latex, as_markdown, as_text
from clove.paper.formats.text import pieces
from clove.paper.results import Results
from clove.paper.tables import PaperTable, tables_of
from tests.paper.made_up import cell, recorded, results

PLACE = {"dataset": "mnist", "mixing": "label-skew-1"}


@pytest.fixture
def tables(tmp_path: Path) -> list[PaperTable]:
    ifca, clove = (cell("E3", **PLACE, algorithm=name) for name in ("ifca", "clove"))
    log = cell("E3", **PLACE, label="CLoVE, log losses")
    kept = results(
        tmp_path,
        (ifca, [2.0, None, None], "first_round_ari_0.9"),
        (clove, [1.0, 1.0, 1.0], "first_round_ari_0.9"),
    )
    kept.add([recorded(log, 0, rounds=20, **{"first_round_ari_0.9": 3.0})])
    return tables_of(EXPERIMENTS["E3"], "paper", kept)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_every_figure(tables: list[PaperTable], name: str) -> None:
    ending, shown = FORMATS[name]
    text = shown(tables)
    assert ending in ("txt", "md", "tex", "csv", "html")
    for word in ("FlexCFL", "IFCA", "CLoVE, log losses"):
        assert word in text
    if name != "csv":
        assert "1 of 3 reach it" in text
        assert "20 rounds" in text
        assert "1 seed" in text
        assert "---" in text


def test_text_fits_a_hundred_columns(tables: list[PaperTable], tmp_path: Path) -> None:
    wide = [t for one in EXPERIMENTS.values() for t in tables_of(one, "paper", Results(tmp_path))]
    for line in as_text([*tables, *wide]).splitlines():
        assert cell_len(line) <= 100, line


def test_a_wide_table_is_cut_by_data_set(tmp_path: Path) -> None:
    [table] = tables_of(EXPERIMENTS["E1"], "paper", Results(tmp_path))
    parts = pieces(table)
    assert [column for part in parts for column in part.columns] == list(table.columns)
    assert len(parts) > 2
    for name in ("mnist", "fmnist", "cifar10"):
        assert sum(name in {column.dataset for column in part.columns} for part in parts) == 1
    assert pieces(table, 1000) == [table]


def test_a_table_of_one_data_set_is_cut_in_halves(tmp_path: Path) -> None:
    table = tables_of(EXPERIMENTS["E14"], "paper", Results(tmp_path))[0]
    assert [len(part.columns) for part in pieces(table, 70)] == [4, 3]
    assert len(pieces(table, 10)) == 7


def test_rows_beyond_the_paper_stand_below_a_rule(tables: list[PaperTable]) -> None:
    latex = as_latex(tables[1:])
    assert latex.index(r"\midrule", latex.index("CLoVE$")) < latex.index("CLoVE, log losses")
    assert "*CLoVE, log losses*" in as_markdown(tables)
    assert '<tr class="extra"><th scope="row">CLoVE, log losses' in as_html(tables)


def test_the_best_is_bold(tables: list[PaperTable]) -> None:
    kept = tables[1].part(tables[1].columns[:1])
    assert not kept.is_best(kept.rows[-2].entries[0])  # IFCA's dash is no rival
    assert r"\textbf{1.0 $\pm$ 0.0}" in as_latex(tables)  # the paper's own


def test_markdown_tables_have_as_many_cells_in_every_row(tables: list[PaperTable]) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", as_markdown(tables), flags=re.M)
    assert len(blocks) >= 2
    for block in blocks:
        assert len({line.count(" | ") for line in block.splitlines() if "---:" not in line}) == 1


def test_csv_is_read_by_others(tables: list[PaperTable]) -> None:
    table = pd.read_csv(io.StringIO(as_csv(tables)))
    mine = table[(table["row"] == "IFCA") & (table["metric"] == "first_round_ari_0.9")]
    assert mine["reached"].max() == 1
    assert mine["ours"].isna().all()


class Tags(HTMLParser):
    """Checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_needs_no_other_file_and_has_a_dark_side(
    tables: list[PaperTable],
) -> None:
    reader = Tags()
    reader.feed(as_html(tables))
    assert reader.open == []
    assert reader.links == []
    assert "prefers-color-scheme: dark" in as_html(tables)


def test_latex_has_as_many_cells_as_columns(tables: list[PaperTable]) -> None:
    text = as_latex(tables)
    for columns, body in re.findall(r"begin{tabular}{(l[r]+)}(.*?)end{tabular}", text, re.S):
        for line in body.splitlines():
            if line.endswith(r"\\") and "multicolumn" not in line:
                assert line.count("&") == len(columns) - 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_is_typeset(tables: list[PaperTable], tmp_path: Path) -> None:
    head = r"\documentclass{article}\usepackage{booktabs, amssymb}\begin{document}"
    (tmp_path / "t.tex").write_text(f"{head}\n\\tiny {as_latex(tables)}\n\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
