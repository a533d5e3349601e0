"""`clove paper`: the paper's experiments, run by one command, ours beside theirs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from clove.errors import CloveError, unknown_name
from clove.terminal import err, given_once, out, plain_words, roomy

if TYPE_CHECKING:
    from clove.paper.choice import Stack
    from clove.paper.results import Recorded
    from clove.paper.run import Ended

app = typer.Typer(
    no_args_is_help=True,
    help="The paper's experiments: list, run, status, tables, docs, theory.",
)

Names = Annotated[
    list[str], typer.Argument(help="Experiments by number or name, e.g. E1; `all`: every one.")
]
SomeNames = Annotated[
    list[str] | None, typer.Argument(help="Experiments by number or name; by default all.")
]
Reading = Annotated[
    str, typer.Option("--settings", help="As printed (paper) or as the authors' code (authors).")
]
Seeds = Annotated[int, typer.Option(help="How many seeds.")]
Data = Annotated[list[str] | None, typer.Option("--data", help="Only these data sets.")]
Mixings = Annotated[list[str] | None, typer.Option("--mixing", help="Only these mixings.")]
Methods = Annotated[list[str] | None, typer.Option("--algorithm", help="Only these methods.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder of the runs.")]
ResultsFolder = Annotated[Path, typer.Option("--results", help="Folder of the tables of results.")]
DataDir = Annotated[str | None, typer.Option(help="Folder to look for data sets in first.")]

RUNS, RESULTS, DOCS = Path("runs/paper"), Path("results/paper"), Path("docs")


@app.command("list")
def list_experiments(
    reading: Reading = "paper", results: ResultsFolder = RESULTS, data_dir: DataDir = None
) -> None:
    """List the experiments: what each shows, what it needs, and how long it takes about here.

    Times are by the arithmetic, and by what runs like these took here, where there are results.
    """
    with plain_words():
        from clove.data import data_status
        from clove.federation.engines import find_device
        from clove.paper.choice import Choice
        from clove.paper.experiment import EXPERIMENTS
        from clove.paper.pace import Pace
        from clove.paper.results import Results

        here = {status.name for status in data_status(data_dir) if status.present}
        pace = Pace.here(find_device("auto"), Results(results))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in ("", "name", "what it shows", "printed", "data", "runs", "time, about"):
            table.add_column(title, no_wrap=title in ("", "name", "time, about"))
        for one in EXPERIMENTS.values():
            stacks = Choice(reading).stacks([one], RUNS)
            seconds = sum(pace.expected(stack) for stack in stacks)
            data = " ".join(_present(name, name in here) for name in one.datasets)
            shared = f" (of {', '.join(one.runs_of)})" if one.runs_of else ""
            runs, time = f"{3 * len(stacks)}{shared}", _duration(seconds)
            if not stacks:
                runs, time = "none", ""
            table.add_row(one.number, one.name, escape(one.title), one.printed, data, runs, time)
    roomy().print(table)
    out.print("Runs are with three seeds; those shared by several experiments are made once.")


def _present(name: str, here: bool) -> str:
    return f"[green]{name}[/]" if here else f"[red]{name} (not here)[/]"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.0f} h"


@app.command()
def run(
    names: Names,
    reading: Reading = "paper",
    seeds: Seeds = 3,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds.")] = None,
    data: Data = None,
    mixing: Mixings = None,
    algorithm: Methods = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only these rows, as tables name them: 'CLoVE, trained probes'."),
    ] = None,
    extras: Annotated[
        bool, typer.Option("--extras/--no-extras", help="Rows beyond the paper, too.")
    ] = True,
    folder: Folder = RUNS,
    results: ResultsFolder = RESULTS,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only runs that the tables of results lack.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop after so long; begin nothing that would not be done by then."),
    ] = None,
    keep_models: Annotated[bool, typer.Option(help="Keep models and loss vectors.")] = False,
    workers: Annotated[
        int, typer.Option(help="Processes side by side; 0: by the machine.", min=0)
    ] = 0,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Spread over a Ray cluster.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, tf32, bf16 or fp64.")] = None,
    data_dir: DataDir = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the machine, for all runs."),
    ] = None,
) -> None:
    """Run experiments. Stopped at any moment, the same command goes on where it was."""
    with plain_words():
        from clove.paper.choice import Choice
        from clove.paper.experiment import find_experiments
        from clove.paper.results import Results
        from clove.paper.run import end_of, run_stacks, usual_workers

        given = {"device": device, "precision": precision, "data_dir": data_dir}
        machine = given_once(set_, given)
        choice = Choice(
            *(reading, seeds, rounds, data or (), mixing or (), algorithm or (), row or ()),
            *(extras, machine),
        )
        until, kept = end_of(minutes, ray), Results(results)
        stacks = choice.stacks(find_experiments(names), folder, kept if missing else None)
        if not stacks:
            out.print("nothing to run")
            return
        number = workers or usual_workers(machine.get("device", "auto"))
        with _Bar() as bar:
            ended = run_stacks(
                *(stacks, kept, bar),
                workers=number,
                ray=ray,
                keep_models=keep_models,
                until=until,
            )
    _say_what_is_done(stacks, ended, results)


def _say_what_is_done(stacks: Sequence[Stack], ended: Ended, results: Path) -> None:
    """Count the cells that are done, and name those that are not."""
    undone = len(ended.failures) + len(ended.left)
    out.print(f"{len(stacks) - undone} of {len(stacks)} cells are done: {results}")
    if ended.left:
        out.print(f"no time for {len(ended.left)} cells: the same command goes on with them")
    for stack, error in ended.failures:
        err.print(f"[red]failed[/] {escape(str(stack))}: {escape(error)}", soft_wrap=True)
    if ended.failures:
        raise typer.Exit(1)


def _counting(what: str) -> Progress:
    """Return a bar that counts something, with the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
    )


class _Bar:
    """Progress over all cells, with the time left, and a line for every cell that is done."""

    def __init__(self) -> None:
        self.progress = _counting("rounds")
        self.done, self.stacks, self.task = 0, 0, self.progress.add_task("cells")

    def __enter__(self) -> _Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, rounds: int, stacks: int) -> None:
        """Take note of how much there is to do."""
        self.stacks = stacks
        self.progress.update(self.task, total=rounds, description=f"0 of {stacks} cells")

    def rounds_done(self, rounds: int) -> None:
        """Take note of rounds."""
        self.progress.advance(self.task, rounds)

    def stack_done(self, stack: Stack, found: Sequence[Recorded]) -> None:
        """Say what came of a cell."""
        self._count()
        runs = [one.run for one in found]
        words = [
            f"{name} {sum(values) / len(values):.{digits}f}"
            for name, digits in (("accuracy", 1), ("test_loss", 4), ("ari", 2), ("seconds", 1))
            if (values := [run[name] for run in runs if run[name] is not None])
        ]
        self.progress.console.print(f"{escape(str(stack))}: {', '.join(words)}", soft_wrap=True)

    def failed(self, stack: Stack, error: str) -> None:
        """Say that a cell failed."""
        self._count()
        self.progress.advance(self.task, stack.rounds)
        self.progress.console.print(
            f"[red]failed[/] {escape(str(stack))}: {escape(error)}", soft_wrap=True
        )

    def _count(self) -> None:
        self.done += 1
        self.progress.update(self.task, description=f"{self.done} of {self.stacks} cells")


@app.command()
def theory(
    draws: Annotated[int, typer.Option(help="Draws for every point of a grid.")] = 100,
    runs: Annotated[int, typer.Option(help="Runs for every step size and noise.")] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    folder: Annotated[Path, typer.Option("--out", help="Folder of tables and figures.")] = RESULTS,
    workers: Annotated[
        int, typer.Option(help="Processes side by side; 0: by the machine.", min=0)
    ] = 0,
) -> None:
    """Check section 4 on mixed linear regression: recovery, separation, convergence."""
    with plain_words():
        from clove.paper.theory_figures import write_figures
        from clove.paper.theory_report import SECTION, write_section
        from clove.paper.theory_tables import Plan, Tables, check_theory

        plan = Plan(draws, runs, seed)
        with _counting("checks") as progress:
            task = progress.add_task("section 4", total=plan.size())
            tables = check_theory(
                plan, lambda: progress.advance(task), workers or min(8, os.cpu_count() or 1)
            )
        tables.write(folder)
        write_figures(Tables.read(folder), folder)  # of what is kept, digit by digit
        write_section(folder)
    out.print(f"tables, figures and what they say: {folder / SECTION}", soft_wrap=True)


@app.command()
def status(
    names: SomeNames = None,
    reading: Reading = "paper",
    seeds: Seeds = 3,
    folder: Folder = RUNS,
    results: ResultsFolder = RESULTS,
) -> None:
    """Show how many runs of each experiment are done, begun, and in the tables of results."""
    with plain_words():
        from clove.paper.choice import Choice
        from clove.paper.experiment import find_experiments
        from clove.paper.results import Results
        from clove.runs.folder import RunFolder

        kept = Results(results)
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in (
            "",
            "name",
            "runs",
            "in the tables",
            "finished here",
            "begun here",
            "seconds",
        ):
            table.add_column(title, justify="left" if title in ("", "name") else "right")
        for one in find_experiments(names or ["all"]):
            stacks = Choice(reading=reading, seeds=seeds).stacks([one], folder)
            runs = [(stack, seed) for stack in stacks for seed in stack.seeds]
            folders = [RunFolder(stack.home(seed)) for stack, seed in runs]
            there = [
                kept.has(stack.cell.key, seed, int(stack.cell.settings["rounds"]))
                for stack, seed in runs
            ]
            spent = sum(kept.of(stack.cell)["seconds"].sum() for stack in stacks if len(kept.runs))
            table.add_row(
                *(one.number, one.name, str(len(runs)), str(sum(there))),
                str(sum(folder.finished for folder in folders)),
                str(sum(folder.is_run() and not folder.finished for folder in folders)),
                f"{spent:.0f}" if spent else "",
            )
    roomy().print(table)


@app.command()
def tables(
    names: SomeNames = None,
    reading: Reading = "paper",
    results: ResultsFolder = RESULTS,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Write all formats and the figures there.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--format", help="What to print: text, md, latex, csv or html.")
    ] = "text",
) -> None:
    """Show the paper's tables, ours beside theirs, and say where they differ."""
    with plain_words():
        from clove.paper.experiment import find_experiments
        from clove.paper.formats import FORMATS, as_rich
        from clove.paper.results import Results
        from clove.paper.tables import ABOVE, tables_of
        from clove.paper.written import some_with_results, write_all

        if kind not in FORMATS:
            raise unknown_name("format", kind, FORMATS)
        kept = Results(results)
        experiments = find_experiments(names or ["all"])
        if not names:
            experiments = some_with_results(experiments, reading, kept)
        if out_folder is not None:
            for path in write_all(experiments, reading, kept, out_folder):
                out.print(path, soft_wrap=True)
            return
        found = [table for one in experiments for table in tables_of(one, reading, kept)]
        if not found:
            raise CloveError(
                f"{', '.join(one.number for one in experiments)}: figures only, no tables; "
                "`clove paper tables ... --out FOLDER` draws them"
            )
    if kind != "text" or not out.is_terminal:
        typer.echo(FORMATS[kind][1](found), nl=False)
        return
    for table in found:
        out.print(as_rich(table, out.width), "")
    out.print(ABOVE)


@app.command()
def docs(
    results: ResultsFolder = RESULTS,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the documents.")] = DOCS,
) -> None:
    """Write the page "Reproduction" and its figures from the tables of results."""
    with plain_words():
        from clove.paper.reproduction import write_page
        from clove.paper.results import Results

        out.print(write_page(Results(results), folder), soft_wrap=True)
