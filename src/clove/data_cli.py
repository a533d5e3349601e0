"""`clove data`: which data sets are here, are they whole, and what a mixing makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from clove.terminal import err, out, pair, plain_words

app = typer.Typer(no_args_is_help=True, help="Data sets: list, check, fetch, show.")

Name = Annotated[str, typer.Argument(help="Data set, e.g. fmnist.")]
DataDir = Annotated[str | None, typer.Option(help="Folder to look in first.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the data set or the mixing."),
]


@app.command("list")
def list_data_sets(data_dir: DataDir = None) -> None:
    """List the data sets: present or not, where, how large, under which licence."""
    with plain_words():
        from clove.data import data_status

        found = data_status(data_dir)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("data set", "here", "size", "licence", "where, or how to get it"):
        table.add_column(title, overflow="fold")
    for status in found:
        size = "" if status.size_bytes is None else f"{status.size_bytes / 1e6:.1f} MB"
        where = status.where if status.present else status.how_to_get
        table.add_row(
            status.name,
            "[green]yes[/]" if status.present else "[red]no[/]",
            size,
            escape(status.licence),
            escape(where or ""),
        )
    out.print(table)


@app.command()
def check(name: Name, data_dir: DataDir = None) -> None:
    """Verify a data set: checksums where published, counts, shapes, labels."""
    with plain_words(), err.status(f"checking {escape(name)}"):
        from clove.data import check_dataset

        report = check_dataset(name, data_dir)
    table = Table(title=f"{name}, {report.where}", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("", "what", "found"):
        table.add_column(title, overflow="fold")
    for one in report.checks:
        mark = "[green]ok[/]" if one.ok else "[bold red]WRONG[/]"
        table.add_row(mark, escape(one.what), escape(one.detail))
    out.print(table)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def fetch(
    name: Name,
    folder: Annotated[Path | None, typer.Option(help="Data folder (default: clove's own).")] = None,
) -> None:
    """Download a data set from where its makers publish it."""
    with plain_words(), _downloads() as bars:
        from clove.data import fetch_dataset

        tasks: dict[str, TaskID] = {}

        def show(file: str, there: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=there, total=total)

        home = fetch_dataset(name, folder, show)
    out.print(f"{name} is in {escape(str(home))}", soft_wrap=True)


@app.command()
def show(
    dataset: Annotated[str, typer.Option(help="Data set, e.g. digits.")],
    mixing: Annotated[str, typer.Option(help="Mixing, e.g. label-skew-1.")],
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    data_dir: DataDir = None,
    picture: Annotated[Path, typer.Option(help="Where to write the figure.")] = Path("clients.png"),
    set_: Set = None,
) -> None:
    """Show what a mixing gives each client: a table and a figure of label counts."""
    with plain_words():
        from clove.report.data_figure import draw_clients
        from clove.runs.build import mixed_clients
        from clove.runs.folder import plain_errors
        from clove.runs.settings import from_names

        named = {"dataset": dataset, "mixing": mixing, "seed": seed, "data_dir": data_dir}
        settings = from_names(**named, **_options(set_))
        data, mixed = mixed_clients(settings)
        from clove.data import describe

        counts = describe(mixed, data)
        title = f"{dataset}, {mixing}: {len(mixed.clients)} clients"
        figure = draw_clients(
            counts.train, counts.groups, title, labels=counts.labels, about=mixed.about
        )
        with plain_errors(picture.parent):
            picture.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(picture)
    out.print(_counts_table(counts, title))
    if mixed.shortfall:
        out.print(f"[yellow]note:[/] {escape(mixed.shortfall)}")
    out.print(f"picture  {escape(str(picture))}", soft_wrap=True)


def _options(pairs: list[str] | None) -> dict[str, Any]:
    return dict(pair(text) for text in pairs or [])


def _counts_table(counts: Any, title: str) -> Table:
    rows = counts.rows()
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in rows[0]:
        table.add_column(name.removeprefix("label "), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    return table


def _downloads() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=err,
        disable=not err.is_terminal,
    )
