"""The table of a comparison: mean ± std over seeds, the best in bold."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from clove.report.tables import (
    OF_A_RUN,
    as_latex,
    as_markdown,
    as_rich,
    as_text,
    cells,
    figures,
    latex,
    megabytes,
    rounds,
    runs_table,
)


def summary(algorithm: str, **changed: Any) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "accuracy": 0.5,
        "test_loss": 0.25,
        "ari": 1.0,
        "first_round_ari_0.9": 1,
        "stability_round": 3,
        "bytes_up": 1000,
        "bytes_down": 2000,
        "seconds": 1.5,
        **changed,
    }


def column(title: str, *summaries: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the cells of one column: what is shown, and whether as the best."""
    titles, rows = cells(figures(summaries))
    return [row[titles.index(title)] for row in rows]


# -------------------------------------------------------------------------------------- figures


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_figures_are_mean_and_population_std_over_seeds(values: list[float]) -> None:
    table = figures([summary("clove", accuracy=value) for value in values])
    assert table.loc[0, "seeds"] == len(values)
    assert table.loc[0, "accuracy"] == pytest.approx(np.mean(values))
    assert table.loc[0, "accuracy_std"] == pytest.approx(np.std(values, ddof=0))


def test_algorithms_keep_the_order_in_which_they_came() -> None:
    table = figures([summary(name) for name in ("local", "clove", "local", "ifca")])
    assert table["algorithm"].tolist() == ["local", "clove", "ifca"]
    assert table["seeds"].tolist() == [2, 1, 1]


def test_a_seed_that_never_got_there_leaves_the_cell_empty() -> None:
    found = [summary("clove"), summary("clove", **{"first_round_ari_0.9": None}), summary("ifca")]
    assert pd.isna(figures(found).loc[0, "first_round_ari_0.9"])
    assert column("ARI≥0.9", *found)[0] == ("–", False)


# ---------------------------------------------------------------------------------------- cells


def test_one_seed_has_no_spread() -> None:
    assert column("accuracy %", summary("clove", accuracy=0.912)) == [("91.2", False)]


def test_several_seeds_are_shown_with_their_spread() -> None:
    found = [
        summary(
            "clove",
            **dict(zip(("accuracy", "seconds", "bytes_up", "bytes_down"), one, strict=True)),
        )
        for one in ((0.9, 1.0, 2_000_000, 900), (0.8, 2.0, 3_000_000, 900))
    ]
    assert column("accuracy %", *found) == [("85.0 ± 5.0", False)]
    assert column("seconds", *found) == [("1.5 ± 0.5", False)]
    assert column("up", *found) == [("2.5 ± 0.5 MB", False)]
    assert column("down", *found) == [("900 ± 0 B", False)]
    assert column("stable", *found) == [("3 ± 0", False)]


@pytest.mark.parametrize(
    ("title", "key", "values", "best"),
    [
        ("accuracy %", "accuracy", (0.9, 0.8, 0.9), [True, False, True]),
        ("ARI", "ari", (None, 0.5, 1.0), [False, False, True]),
        ("ARI≥0.9", "first_round_ari_0.9", (4, 2, None), [False, True, False]),
        ("stable", "stability_round", (4, 2, 3), [False, False, False]),
        ("up", "bytes_up", (4000, 2000, 3000), [False, True, False]),
        ("down", "bytes_down", (0, 2000, 0), [True, False, True]),
        ("seconds", "seconds", (4, 2, 3), [False, True, False]),
        ("ARI", "ari", (None, 0.5, None), [False, False, False]),
    ],
)
def test_the_best_is_marked_where_more_or_less_is_better(
    title: str, key: str, values: tuple[float | None, ...], best: list[bool]
) -> None:
    found = [summary(f"method {n}", **{key: value}) for n, value in enumerate(values)]
    assert [marked for _, marked in column(title, *found)] == best


def test_a_reference_is_marked_and_takes_nobodys_bold() -> None:
    found = [
        summary("clove", accuracy=0.8, bytes_up=3000),
        summary("centralized", accuracy=0.9, bytes_up=10, reference=True),
        summary("fedavg", accuracy=0.5, bytes_up=2000),
    ]
    assert [best for _, best in column("accuracy %", *found)] == [True, False, False]
    assert [best for _, best in column("up", *found)] == [False, False, True]
    names = ["clove", "centralized (reference)", "fedavg"]
    assert [name for name, _ in column("algorithm", *found)] == names
    partly = figures(found, [{"algorithm": "centralized", "seed": 1, "error": "no data"}])
    assert cells(partly)[1][1][0][0] == "centralized (reference, 1 of 2 seeds)"
    # One method beside a reference has nobody to be better than.
    assert not any(best for _, best in column("accuracy %", *found[:2]))


def test_the_loss_is_shown_only_where_there_is_no_accuracy() -> None:
    titles, _ = cells(figures([summary("clove")]))
    assert "test loss" not in titles
    found = [summary(name, accuracy=None, test_loss=loss) for name, loss in (("a", 0.1), ("b", 2))]
    titles, _ = cells(figures(found))
    assert "accuracy %" not in titles
    assert column("test loss", *found) == [("0.1", True), ("2", False)]


def test_columns_that_nobody_fills_are_left_out() -> None:
    found = [summary("fedavg", ari=None, stability_round=None, **{"first_round_ari_0.9": None})]
    assert cells(figures(found))[0] == ["algorithm", "accuracy %", "up", "down", "seconds"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (72_156_000, "72.2 MB"), (3e10, "30.0 GB")],
)
def test_bytes_are_shown_in_a_unit_to_read(value: float, shown: str) -> None:
    assert megabytes(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(3, "3"), (3.0, "3"), (10 / 3, "3.3")])
def test_rounds_are_whole_where_they_are(value: float, shown: str) -> None:
    assert rounds(value) == shown


# --------------------------------------------------------------------------------- as text


def long_runs(seeds: int) -> list[dict[str, Any]]:
    """Return summaries whose figures are about as long as they come."""
    return [
        summary(
            algorithm,
            accuracy=0.1 + 0.27 * seed,
            ari=0.98 - 0.4 * seed,
            stability_round=31 + 9 * seed,
            bytes_up=724.5e6,
            bytes_down=724.5e6,
            seconds=1234.5,
            **{"first_round_ari_0.9": 12 + 3 * seed},
        )
        for algorithm in ("clove", "per-fedavg", "ifca")
        for seed in range(seeds)
    ]


def printed(found: list[dict[str, Any]], width: int) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(as_rich(figures(found), "a title", width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(("seeds", "width"), [(1, 80), (3, 80), (3, 100)])
def test_the_table_fits_a_terminal(seeds: int, width: int) -> None:
    text = printed(long_runs(seeds), width)
    assert "…" not in text
    assert ("724.5 MB" if seeds == 1 else "724.5 ± 0.0 MB") in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("width", "gone"),
    [(110, []), (100, ["stable"]), (80, ["stable", "up"]), (70, ["ARI≥0.9", "stable", "up"])],
)
def test_a_narrow_terminal_does_without_the_columns_least_missed(
    width: int, gone: list[str]
) -> None:
    everything = cells(figures(long_runs(3)))[0]
    titles = printed(long_runs(3), width).replace("accuracy %", "accuracy").split("seconds")[0]
    missing = [t for t in everything if t.split()[0] not in titles.split() and t != "seconds"]
    assert missing == gone
    named = f"no room here for {', '.join(gone)}" in printed(long_runs(3), width)
    assert named == bool(gone)


def test_the_best_stands_out_in_a_terminal() -> None:
    found = [summary("clove", accuracy=0.9), summary("ifca", accuracy=0.8)]
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system="standard")
    console.print(as_rich(figures(found), "a title"))
    assert "\x1b[1;32m90.0\x1b[0m" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table_is_markdown() -> None:
    found = [
        summary("clove", accuracy=0.9, seconds=1),
        summary("fedavg", accuracy=0.8, ari=None, bytes_down=1000),
    ]
    assert as_markdown(figures(found)).splitlines() == [
        "| algorithm | accuracy % | ARI | ARI≥0.9 | stable | up | down | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| clove | **90.0** | 1.00 | **1** | 3 | **1.0 kB** | 2.0 kB | **1.0** |",
        "| fedavg | 80.0 | – | **1** | 3 | **1.0 kB** | **1.0 kB** | 1.5 |",
    ]


def test_names_do_not_break_the_markdown() -> None:
    lines = as_markdown(figures([summary("one|two", accuracy=0.9)])).splitlines()
    assert lines[2].startswith(r"| one\|two | 90.0 |")


# ------------------------------------------------------------------------------------------- LaTeX


def parsed(text: str) -> list[list[str]]:
    """Read a LaTeX table strictly: return its rows, the titles first, as they are written."""
    lines = [line.partition(" % ")[0] for line in text.splitlines()]
    needs, begin, top, titles, middle, *rows, bottom, end = lines
    assert needs == r"% needs \usepackage{booktabs}"
    assert (top, middle, bottom, end) == (
        *(r"\toprule", r"\midrule", r"\bottomrule"),
        r"\end{tabular}",
    )
    layout = re.fullmatch(r"\\begin\{tabular\}\{(l(r*))\}", begin)
    assert layout is not None
    table = []
    for line in (titles, *rows):
        assert line.endswith(r" \\")
        row = re.split(r"(?<!\\) & ", line.removesuffix(r" \\"))
        assert len(row) == len(layout[1]), line
        assert all(balanced(cell) for cell in row), line
        table.append(row)
    return table


def balanced(cell: str) -> bool:
    """Say whether braces and dollars of a cell come in pairs, and it holds nothing unprintable."""
    plain = re.sub(r"\\[&%$#_{}]", "", cell)
    braces = plain.count("{") == plain.count("}")
    return braces and plain.count("$") % 2 == 0 and not re.search(r"[&%#_±≥–]", plain)


def test_the_table_is_latex() -> None:
    found = [
        *(summary("clove", accuracy=value) for value in (0.9, 0.8)),
        *(summary("my_method", accuracy=0.5, ari=None, bytes_up=n) for n in (4000, 5000)),
    ]
    assert parsed(as_latex(figures(found)))[:3] == [
        ["algorithm", r"accuracy \%", "ARI", r"ARI$\geq$0.9", "stable", "up", "down", "seconds"],
        [
            *("clove", r"\textbf{85.0 $\pm$ 5.0}", r"1.00 $\pm$ 0.00", r"\textbf{1 $\pm$ 0}"),
            *(r"3 $\pm$ 0", r"\textbf{1.0 $\pm$ 0.0 kB}", r"\textbf{2.0 $\pm$ 0.0 kB}"),
            r"\textbf{1.5 $\pm$ 0.0}",
        ],
        [
            *(r"my\_method", r"50.0 $\pm$ 0.0", "--", r"\textbf{1 $\pm$ 0}"),
            *(r"3 $\pm$ 0", r"4.5 $\pm$ 0.5 kB", r"\textbf{2.0 $\pm$ 0.0 kB}"),
            r"\textbf{1.5 $\pm$ 0.0}",
        ],
    ]


@settings(deadline=None)
@given(name=st.text(st.sampled_from("ab &%$#_{}~^\\"), min_size=1, max_size=8))
def test_any_name_is_safe_in_latex(name: str) -> None:
    shown = latex(name)
    left = re.sub(r"\\(textbackslash|textasciitilde|textasciicircum)\{\}|\\[&%$#_{}]", "", shown)
    assert re.fullmatch("[ab ]*", left)


# ---------------------------------------------------------------------------------------- failures

FAILURE = {"algorithm": "mine", "seed": 0, "error": "TypeError: [red] 50 % & more"}


def test_what_failed_comes_last_with_its_error() -> None:
    table = figures([summary("clove"), summary("local")], [FAILURE])
    assert table["algorithm"].tolist() == ["clove", "local", "mine"]
    assert table["seeds"].tolist() == [1, 1, 0]
    assert table["failed"].tolist() == [0, 0, 1]
    assert table["error"].isna().tolist() == [True, True, False]
    _, rows = cells(table)
    assert rows[2] == [("mine", False), ("failed", False), *[("–", False)] * 6]


def test_an_error_is_in_every_format() -> None:
    table = figures([summary("clove")], [FAILURE])
    assert "mine failed: TypeError: [red] 50 % & more" in as_text(table, "a title")
    assert as_markdown(table).endswith("\n\n- mine failed: TypeError: [red] 50 % & more\n")
    assert as_latex(table).splitlines()[6].endswith(r" \\ % TypeError: [red] 50 % & more")
    assert parsed(as_latex(table))[2][:2] == ["mine", "failed"]


def test_errors_of_several_lines_stay_in_their_place() -> None:
    table = figures([summary("clove")], [{**FAILURE, "error": "one\n| two"}])
    assert as_markdown(table).splitlines()[-1] == "- mine failed: one | two"
    assert as_latex(table).splitlines()[6].endswith("% one | two")


def test_seeds_that_failed_count_for_no_mean() -> None:
    found = [summary("mine", accuracy=0.5), summary("mine", accuracy=0.7)]
    table = figures(found, [{**FAILURE, "seed": 2}])
    assert table.loc[0, "accuracy"] == pytest.approx(0.6)
    assert cells(table)[1][0][0] == ("mine (2 of 3 seeds)", False)
    assert table.loc[0, "error"] == "seed 2: TypeError: [red] 50 % & more"


def test_an_error_of_several_seeds_is_told_once() -> None:
    table = figures([], [FAILURE, {**FAILURE, "seed": 1}])
    assert table.loc[0, "error"] == FAILURE["error"]
    table = figures([], [FAILURE, {**FAILURE, "seed": 1}, {**FAILURE, "seed": 2, "error": "b"}])
    assert table.loc[0, "error"] == f"seed 0, 1: {FAILURE['error']}; seed 2: b"


def test_runs_are_a_row_each_and_failures_too() -> None:
    runs = runs_table([{**summary("clove"), "seed": 0, "history": [1, 2]}], [FAILURE])
    assert list(runs.columns) == list(OF_A_RUN)
    assert runs["algorithm"].tolist() == ["clove", "mine"]
    assert runs["error"].fillna("").tolist() == ["", FAILURE["error"]]
    assert runs["accuracy"].tolist()[0] == 0.5
