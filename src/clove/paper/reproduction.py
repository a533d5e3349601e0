"""The page "Reproduction": what came of every experiment, which claims hold, and where not, why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pandas as pd

from clove.errors import unknown_name
from clove.folders import plain_errors, write_atomically
from clove.paper.claims import Verdict, all_claims, verdict
from clove.paper.experiment import EXPERIMENTS, READINGS, Experiment
from clove.paper.figures import Drawn, figures_of
from clove.paper.formats.markdown import one_table
from clove.paper.results import Results
from clove.paper.tables import ABOVE, tables_of
from clove.paper.written import has_results

PAGE, IMAGES, FINDINGS = "reproduction.md", "images/paper", "findings.md"
GENERAL = "All"
TOLD = {"paper": "as the paper prints them", "authors": "as the authors' code has them"}


def write_page(results: Results, folder: Path) -> Path:
    """Write the page and its figures, and return where."""
    drawn = {one.number: _drawn(one, results) for one in EXPERIMENTS.values()}
    wanted = [one for some in drawn.values() for one in some]
    with plain_errors(folder, "the page"):
        for path in (folder / IMAGES).glob("*.png"):
            if path.stem not in {one.name for one in wanted}:
                path.unlink()
        for one in wanted:
            one.save(folder / IMAGES, ["png"])
        write_atomically(folder / PAGE, page(results).encode())
    return folder / PAGE


def page(results: Results) -> str:
    """Return the page."""
    findings = read_findings(results.folder / FINDINGS)
    introduction = files("clove.paper").joinpath("introduction.md").read_text(encoding="utf-8")
    parts = [introduction, *_overview(results), findings.get(GENERAL, "")]
    parts += [f"{ABOVE}\n" if len(results.runs) else ""]
    for one in EXPERIMENTS.values():
        parts += _section(one, results, findings.get(one.number, ""))
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


# --------------------------------------------------------------------------------------- overview


def _overview(results: Results) -> list[str]:
    """Return a table of all experiments, and with what their runs were made."""
    lines = [
        "| | experiment | printed | runs, `paper` | claims that hold | runs, `authors` "
        "| claims that hold | device seconds |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in EXPERIMENTS.values():
        cells = [f"[{one.number}](#{_anchor(one)})", one.title, one.printed]
        for reading in READINGS:
            cells += [_runs(one, reading, results), _held(one, reading, results)]
        lines.append(f"| {' | '.join([*cells, _seconds(one, results)])} |")
    if results.runs.empty:
        return ["## Overview\n", "\n".join(lines), "There are no results yet."]
    runs = results.runs
    total = (
        f"{len(runs)} runs took {runs['seconds'].sum():,.0f} device seconds in all: the sum of "
        "their rounds' times, of which several run side by side. Runs that several experiments "
        "read count for the first.\n"
    )
    return ["## Overview\n", "\n".join(lines), total, _made(runs)]


def _anchor(one: Experiment) -> str:
    return re.sub(r"[^a-z0-9 -]", "", _heading(one).lower()).replace(" ", "-")


def _heading(one: Experiment) -> str:
    return f"{one.number}: {one.title}"


def _runs(one: Experiment, reading: str, results: Results) -> str:
    """Return how many cells have whole runs, of how many."""
    cells = one.cells(reading)
    there = sum(bool(len(results.of(cell))) for cell in cells)
    return f"{there} of {len(cells)} cells" if cells else ""


def _verdicts(one: Experiment, reading: str, results: Results) -> list[Verdict]:
    claims = [claim for claim in all_claims() if claim.experiment == one.number]
    return [verdict(claim, reading, results) for claim in claims]


def _held(one: Experiment, reading: str, results: Results) -> str:
    verdicts = [v for v in _verdicts(one, reading, results) if v.cells]
    decided = [v for v in verdicts if v.is_decided]
    undecided = f"{len(verdicts) - len(decided)} undecided" if len(decided) < len(verdicts) else ""
    held = f"{sum(v.holds == v.cells for v in decided)} of {len(decided)}" if decided else ""
    return ", ".join(filter(None, (held, undecided)))


def _seconds(one: Experiment, results: Results) -> str:
    """Return the seconds of the runs that are an experiment's own."""
    if one.runs_of:
        return f"(of {', '.join(one.runs_of)})"
    own = {cell.key for reading in READINGS for cell in one.cells(reading)}
    for other in EXPERIMENTS.values():
        if other.number == one.number:
            break
        own -= {cell.key for reading in READINGS for cell in other.cells(reading)}
    if results.runs.empty:
        return ""
    seconds = results.runs[results.runs["key"].isin(own)]["seconds"].sum()
    return f"{seconds:,.0f}" if seconds else ""


def _made(runs: pd.DataFrame) -> str:
    """Return on which machines, with which versions and when runs were made."""
    names = ["machine", "precision", "clove", "torch", "python"]
    lines = [
        f"| {' | '.join(names)} | dates | runs | seconds |",
        "| --- |" + " --- |" * 5 + " ---: |" * 2,
    ]
    for told, some in runs.groupby(names, dropna=False):
        dates = sorted(set(some["date"]))
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        cells = [*map(str, told), span, str(len(some)), f"{some['seconds'].sum():,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------ one experiment each


def _section(one: Experiment, results: Results, finding: str) -> list[str]:
    parts = [f"## {_heading(one)}\n", f"*{one.printed}.* The paper: {one.claim}\n"]
    made = [reading for reading in READINGS if has_results(one, reading, results)]
    parts += [_claims(one, made, results)] if made else []
    parts += [finding]
    parts += [_image(drawn) for drawn in _drawn(one, results)]
    for reading in made:
        tables = "\n".join(one_table(table) for table in tables_of(one, reading, results))
        if tables:
            summary = f"Tables of {one.number}, settings {TOLD[reading]} (<code>{reading}</code>)"
            opened = f"<details>\n<summary>{summary}</summary>\n"
            parts += [f"{opened}\n{tables.rstrip()}\n\n</details>\n"]
    if not made and one.cells("paper"):
        parts.append("No runs yet.\n")
    return parts


def _claims(one: Experiment, readings: Sequence[str], results: Results) -> str:
    lines = []
    for reading in readings:
        verdicts = _verdicts(one, reading, results)
        if verdicts:
            lines += [f"Settings {TOLD[reading]} (`{reading}`):\n"]
            lines += [f"- {_sentence(v)}: **{_bold(str(v))}" for v in verdicts]
            lines += [""]
    return "\n".join(lines)


def _sentence(one: Verdict) -> str:
    words = one.claim.says
    words = words if words.startswith("k-") else words[0].upper() + words[1:]
    return f"{words} (our own goal)" if one.claim.ours else words


def _bold(words: str) -> str:
    """Return the words of a verdict with the end of its bold part marked."""
    short = re.match(r"not run yet|does not hold|holds so far|holds in \d+ of \d+|holds", words)
    assert short is not None
    return f"{short[0]}**{words[short.end() :]}."


def _drawn(one: Experiment, results: Results) -> list[Drawn]:
    """Return the figures of both readings, each once."""
    some = [drawn for reading in READINGS for drawn in figures_of(one, reading, results)]
    return list({drawn.name: drawn for drawn in some}.values())


def _image(drawn: Drawn) -> str:
    reading = next((r for r in READINGS if drawn.name.endswith(f"-{r}")), None)
    told = f", settings {TOLD[reading]}" if reading else ""
    return f"![{drawn.title}{told}]({IMAGES}/{drawn.name}.png)\n"


# ------------------------------------------------------------------------------------ hand-written


def read_findings(path: Path) -> dict[str, str]:
    """Return findings by experiment: `## E1` begins what is said of E1, `## All` what of all."""
    if not path.exists():
        return {}
    _, *parts = re.split(r"^## +", path.read_text(encoding="utf-8"), flags=re.M)
    found = {}
    for part in parts:
        name, _, text = part.partition("\n")
        if name.strip() not in (GENERAL, *EXPERIMENTS):
            raise unknown_name(f"experiment in {path}", name.strip(), [GENERAL, *EXPERIMENTS])
        found[name.strip()] = text.strip() + "\n"
    return found
