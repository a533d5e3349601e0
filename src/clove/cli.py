"""The command line: thin. What it does is done by `clove.runs`; what it shows, by rich."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from clove import data_cli, flower_cli, page_cli, paper_cli, serving_cli
from clove.errors import CloveError
from clove.terminal import err, given_once, note, out, pair, plain_words, roomy

if TYPE_CHECKING:
    from clove.report.live import Live
    from clove.report.live_table import LiveTable
    from clove.runs.compared import Comparison
    from clove.runs.loop import Progress

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_cli.app, name="data")
app.add_typer(flower_cli.app, name="flower")
app.add_typer(paper_cli.app, name="paper")

# Settings that have an option of their own, beside --set.
OPTIONS = [
    *("dataset", "mixing", "algorithm", "rounds", "seed"),
    *("device", "engine", "precision", "memory", "data_dir", "clients"),
]

SettingsFile = Annotated[
    Path | None, typer.Argument(help="A settings file, such as a run folder's settings.toml.")
]
Dataset = Annotated[str | None, typer.Option(help="Data set, e.g. digits.")]
Mixing = Annotated[str | None, typer.Option(help="How clients differ, e.g. label-skew-1.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of training.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Engine = Annotated[str | None, typer.Option(help="auto, sequential or vectorized.")]
Precision = Annotated[str | None, typer.Option(help="auto, fp32, tf32, bf16 or fp64.")]
Memory = Annotated[
    float | None, typer.Option(help="Gigabytes training may take; by default half of what is free.")
]
OwnClients = Annotated[
    str | None,
    typer.Option(help="Your own clients: a folder with a file each, or one table."),
]
DataDir = Annotated[str | None, typer.Option(help="Folder to look for data sets in first.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Spread the runs over a Ray cluster: local, auto or HOST:PORT."
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(help="A log that follows: tensorboard or mlflow. May be given more than once."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, last.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show no progress, only the table at the end.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; see `clove options`."),
]


def _version(asked: bool) -> None:
    if asked:
        from clove import __version__

        print(f"clove {__version__}")
        raise typer.Exit


@app.callback()
def everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Clustered, personalised federated learning: find the groups, train a model for each."""


@app.command()
def run(
    settings: SettingsFile = None,
    dataset: Dataset = None,
    mixing: Mixing = None,
    algorithm: Annotated[str | None, typer.Option(help="Method, e.g. clove.")] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    device: Device = None,
    engine: Engine = None,
    precision: Precision = None,
    memory: Memory = None,
    data_dir: DataDir = None,
    clients: OwnClients = None,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Folder for the run.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the run's page in the browser as it goes.")
    ] = False,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
    set_: Set = None,
) -> None:
    """Run one method on one federation."""
    given = locals()
    with plain_words(), _live(quiet) as live:
        from clove.runs.api import run_settings
        from clove.runs.build import gather_clients
        from clove.runs.settings import from_names

        named = _named(settings, set_, given)
        chosen = from_names(**named)
        gathered = gather_clients(chosen)
        home = out_folder or free_folder(
            f"{chosen.dataset}-{chosen.mixing}-{chosen.algorithm}-seed{chosen.seed}"
        )
        with resumable(home), page_cli.watched(home) if watch else nullcontext():
            tell = live.watch(chosen.algorithm, chosen.seed)
            result = run_settings(chosen, gathered, home, tell, track or ())
    _show(result.summary(), home, as_json)


@app.command()
def compare(
    algorithms: Annotated[
        str, typer.Option(help="Methods, separated by commas; `all`: every one that applies.")
    ],
    settings: SettingsFile = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 1,
    dataset: Dataset = None,
    mixing: Mixing = None,
    rounds: Rounds = None,
    seed: Seed = None,
    device: Device = None,
    engine: Engine = None,
    precision: Precision = None,
    memory: Memory = None,
    data_dir: DataDir = None,
    clients: OwnClients = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the comparison.")
    ] = None,
    ray: Ray = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
    set_: Set = None,
) -> None:
    """Run several methods on the same clients and put them side by side.

    Done again with the same folder and settings, it goes on where it was stopped. A method that
    fails is shown with its error, and the command fails at the end.
    """
    given = locals()
    with plain_words(), _live_table(quiet) as live:
        from clove.runs.compare import compare as run_comparison

        _refuse_own_options(set_)
        named = _named(settings, set_, given)
        named.pop("algorithm", None)
        what = f"{named.get('dataset', 'digits')}-{named.get('mixing', 'label-skew-1')}"
        what = "own-clients" if named.get("clients") else what
        home = out_folder or free_folder(f"compare-{what}")
        with resumable(home), redirect_stdout(sys.stderr):  # where Ray's remarks belong
            comparison = run_comparison(
                algorithms, seeds=seeds, out=home, display=live, ray=ray, track=track or (), **named
            )
    _show_comparison(comparison, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run or a comparison.")],
    ray: Ray = None,
    track: Track = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run or a comparison that was stopped."""
    with plain_words(), resumable(folder):
        from clove.runs.compare import is_comparison

        several = is_comparison(folder)
        if ray is not None and not several:
            raise CloveError(f"--ray spreads the runs of a comparison: {folder} holds none")
        if several:
            _resume_comparison(folder, ray, track or [], quiet, as_json)
        else:
            _resume_run(folder, track or [], quiet, as_json)


def _resume_comparison(
    folder: Path, ray: str | None, track: list[str], quiet: bool, as_json: bool
) -> None:
    from clove.runs.compare import resume_comparison

    with _live_table(quiet) as live, redirect_stdout(sys.stderr):  # where Ray's remarks belong
        comparison = resume_comparison(folder, ray=ray, display=live, track=track)
    _show_comparison(comparison, as_json)


def _resume_run(folder: Path, track: list[str], quiet: bool, as_json: bool) -> None:
    from clove.runs.api import resume

    with _live(quiet) as live:

        def watch(progress: Progress) -> None:
            live.update(*_whose(progress), progress)

        result = resume(folder, watch=watch, track=track)
    _show(result.summary(), folder, as_json)


@app.command()
def options(
    algorithm: Annotated[str, typer.Option(help="Method whose options to list.")] = "clove",
    dataset: Annotated[str, typer.Option(help="Data set whose options to list.")] = "digits",
    mixing: Annotated[str, typer.Option(help="Mixing whose options to list.")] = "label-skew-1",
) -> None:
    """List every setting, for files, --set and Python, with its default."""
    with plain_words():
        from clove.runs.settings import SECTIONS, algorithm_options, data_options, from_names

        settings = from_names(algorithm=algorithm, dataset=dataset, mixing=mixing)
        sections: dict[str, dict[str, Any]] = {
            title: {name: getattr(settings, name) for name in names}
            for title, names in SECTIONS.items()
        }
        sections[f"data ({dataset}, {mixing})"] = data_options(dataset, mixing)
        sections[f"algorithm ({algorithm})"] = {
            name: default for name, (_, default) in algorithm_options(algorithm).items()
        }
    table = Table("setting", "default")
    for title, values in sections.items():
        table.add_section()
        table.add_row(f"[bold]{escape(title)}[/]", "")
        for name, value in values.items():
            table.add_row(f"  {name}", "" if value is None else escape(str(value)))
    out.print(table)


@app.command()
def bench(
    model: Annotated[str, typer.Option(help="Network, e.g. cnn.")] = "cnn",
    clients: Annotated[int, typer.Option(help="How many clients.")] = 25,
    points: Annotated[
        int, typer.Option(help="Training samples of each, and as many to test.")
    ] = 500,
    models: Annotated[int, typer.Option(help="Models the server keeps (K).")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds to time.")] = 5,
    engines: Annotated[str, typer.Option(help="Engines, separated by commas.")] = (
        "sequential,vectorized,auto"
    ),
    device: Device = None,
    precision: Precision = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time rounds of CLoVE on this machine: which engine, how many rounds a second."""
    with plain_words(), err.status("", spinner="dots") as status:
        from dataclasses import replace

        from clove.runs.bench import bench as timed
        from clove.runs.bench import shape_for

        shape = replace(shape_for(model), clients=clients, points=points, models=models)
        given = {"device": device, "precision": precision}
        rows = timed(
            shape,
            [name.strip() for name in engines.split(",")],
            rounds=rounds,
            tell=None if quiet else lambda name: status.update(f"{name} engine"),
            **{name: value for name, value in given.items() if value is not None},
        )
    if as_json:
        print(json.dumps({"engines": rows}))
        return
    _show_times(rows, f"{model}, {clients} clients × {points}, K = {models}: a round of CLoVE")


app.command()(page_cli.report)
app.command()(page_cli.watch)
app.command()(serving_cli.assign)
app.command()(serving_cli.export)
app.command()(serving_cli.serve)


# ---------------------------------------------------------------------------------- arguments


def _named(file: Path | None, pairs: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return settings by name: from the file, unless --set or an option says otherwise."""
    from clove.runs.settings import read_settings

    settings = {} if file is None else read_settings(file)
    return settings | given_once(pairs, {name: given.get(name) for name in OPTIONS})


def _refuse_own_options(pairs: list[str] | None) -> None:
    """Refuse in --set what `compare` takes as options, and names that are no settings."""
    for name, _ in map(pair, pairs or []):
        if name in ("algorithm", "algorithms", "seeds", "out", "ray", "watch", "track"):
            option = "--algorithms" if name.startswith("algorithm") else f"--{name}"
            hint = "" if name == "watch" else f": use {option}"
            raise CloveError(f"{name} cannot be given by --set in a comparison{hint}")


def free_folder(name: str) -> Path:
    """Return a folder in runs/ that does not exist yet."""
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder


def _whose(progress: Progress) -> tuple[str, int]:
    settings = progress.prepared.settings
    return settings.algorithm, settings.seed


# ----------------------------------------------------------------------------------- showing


@contextmanager
def _live(quiet: bool) -> Iterator[Live]:
    from clove.report.live import Live

    with Live(err, quiet=quiet) as live:
        yield live


@contextmanager
def _live_table(quiet: bool) -> Iterator[LiveTable]:
    from clove.report.live_table import LiveTable

    with LiveTable(err, quiet=quiet) as live:
        yield live


def _show_times(rows: list[dict[str, Any]], title: str) -> None:
    phases = ("losses", "training", "server", "evaluation")
    table = Table("engine", "threads", "rounds/s", "ms a round", *phases, "times", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        name = row["asked"] if row["asked"] == row["engine"] else f"auto: {row['engine']}"
        times = [f"{1e3 * row[phase]:.1f}" for phase in ("seconds", *phases)]
        rate, ratio = f"{row['rounds_per_second']:.1f}", f"{row['times']:.1f}"
        table.add_row(name, str(row["threads"]), rate, *times, ratio)
    roomy().print(table)
    last = rows[-1]
    out.print(f"{last['machine']}, torch {last['torch']}, {last['precision']}", soft_wrap=True)
    out.print(f"{last['asked']}: {last['engine']}, {last['why']}", soft_wrap=True)


def _show(summary: dict[str, Any], home: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary | {"folder": str(home)}))
        return
    from clove.report.numbers import counted
    from clove.report.tables import as_rich, figures
    from clove.runs.settings import data_title

    what = data_title(summary["dataset"], summary["mixing"])
    title = f"{what}: {summary['clients']} clients, {counted(summary['rounds'], 'round')}"
    console = roomy()
    console.print(as_rich(figures([summary]), title, console.width))
    note(summary["remark"])
    _where(folder=home, picture=home / "picture.png")


def _show_comparison(comparison: Comparison, as_json: bool) -> None:
    """Show all there is of a comparison; where something failed, so does the command."""
    failures, home = comparison.failures, comparison.folder
    if as_json:
        found = {"runs": comparison.summaries, "failures": failures, "folder": str(home)}
        print(json.dumps(found))
    else:
        console = roomy()
        console.print(comparison.rich_table(console.width))
        for remark in dict.fromkeys(one["remark"] for one in comparison.summaries):
            note(remark)
        _where(folder=home, picture=comparison.picture)
        for path in comparison.errors():
            _where(error=path)
    if failures:
        raise typer.Exit(1)


def _where(**paths: Path) -> None:
    for what, path in paths.items():
        out.print(f"{what:<8} {escape(str(path))}", soft_wrap=True)


@contextmanager
def resumable(home: Path) -> Iterator[None]:
    """On Ctrl-C, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if any((home / name).is_file() for name in ("settings.toml", "comparison.json")):
            err.print(f"stopped. Continue with: clove resume {escape(str(home))}", soft_wrap=True)
        raise typer.Exit(130) from None


def main() -> None:
    """Run the command line."""
    app(prog_name="clove")


if __name__ == "__main__":
    main()
