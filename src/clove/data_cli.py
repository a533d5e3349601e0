"""`clove data`: which data sets are here, are they whole, and what a mixing makes of them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
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

from clove.errors import CloveError, unknown_name
from clove.terminal import err, given_once, note, out, plain_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        from clove.data import check_dataset, dataset_card

        report = check_dataset(name, data_dir)
        about = dataset_card(name).description
    table = Table(title=f"{name}, {report.where}", box=SIMPLE_HEAD, pad_edge=False)
    for title in ("", "what", "found"):
        table.add_column(title, overflow="fold")
    for one in report.checks:
        mark = "[green]ok[/]" if one.ok else "[bold red]WRONG[/]"
        table.add_row(mark, escape(one.what), escape(one.detail))
    out.print(table)
    out.print(escape(about))
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
    seed: Annotated[int | None, typer.Option(help="Seed of the partition (default 0).")] = None,
    data_dir: DataDir = None,
    picture: Annotated[Path, typer.Option(help="Where to write the figure.")] = Path("clients.png"),
    set_: Set = None,
) -> None:
    """Show what a mixing gives each client: a table and a figure of label counts."""
    with plain_words():
        from clove.report.data_figure import draw_clients
        from clove.runs.build import mixed_clients
        from clove.runs.settings import from_names

        picture = _checked_picture(picture)
        options = {"dataset": dataset, "mixing": mixing, "seed": seed, "data_dir": data_dir}
        settings = from_names(**given_once(set_, options))
        data, mixed = mixed_clients(settings)
        from clove.data import describe

        counts = describe(mixed, data)
        variant = settings.data.get("variant", "paper")
        title = f"{dataset}, {mixing}{'' if variant == 'paper' else f' ({variant})'}"
        title = f"{title}: {len(mixed.clients)} clients"
        figure = draw_clients(
            counts.train, counts.groups, title, labels=counts.labels, about=mixed.about
        )
        _save(figure, picture)
    _print_counts(counts.rows(), title)
    note(mixed.shortfall)
    out.print(f"picture  {escape(str(picture))}", soft_wrap=True)


def _checked_picture(picture: Path) -> Path:
    """Return where the figure goes, with a suffix that says its kind; refuse what cannot be."""
    from matplotlib.figure import Figure

    if picture.is_dir():
        raise CloveError(f"{picture} is a folder: name a file in it for the picture")
    kinds = Figure().canvas.get_supported_filetypes()
    kind = picture.suffix.removeprefix(".").lower()
    if kind and kind not in kinds:
        raise unknown_name("kind of picture", picture.suffix, [f".{known}" for known in kinds])
    return picture if kind else picture.with_name(f"{picture.name}.png")


def _save(figure: Figure, picture: Path) -> None:
    from clove.folders import plain_errors

    with plain_errors(picture, "the picture"):
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture)


def _print_counts(rows: list[dict[str, int | None]], title: str) -> None:
    """Print a row a client; on a terminal only as many labels as fit, but these in full."""
    columns = {name.removeprefix("label "): [row[name] for row in rows] for name in rows[0]}
    texts = {
        name: ["" if value is None else str(value) for value in values]
        for name, values in columns.items()
    }
    # A blank before each column, one at either end.
    widths = [1 + max(map(len, [name, *column])) for name, column in texts.items()]
    ends = list(accumulate(widths, initial=1))[1:]
    width = out.width if out.is_terminal else ends[-1]
    fitting = list(texts)[: max(sum(end <= width for end in ends), 1)]
    table = Table(title=title, box=SIMPLE_HEAD, padding=0)
    for name in fitting:
        table.add_column(name, justify="right", no_wrap=True)
    for row in zip(*(texts[name] for name in fitting), strict=True):
        table.add_row(*row)
    roomy = out if out.is_terminal else Console(width=max(width, len(title)))
    roomy.print(table)
    if left_out := len(texts) - len(fitting):
        note(f"{left_out} columns do not fit here: widen the window, or write to a file")


def _downloads() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=err,
        disable=not err.is_terminal,
    )
