"""`clove report` and `clove watch`: the page of a run, as a file or live in the browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from clove.terminal import err, out, plain_words

if TYPE_CHECKING:
    from clove.report.page.server import Server


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of comparisons.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Write a page about a run, or about several side by side: one HTML file for any browser."""
    with plain_words():
        from clove.report.page.render import write_report

        path = write_report(folders, output)
    out.print(f"page     {escape(str(path))}", soft_wrap=True)


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of a run or comparison, begun or not.")],
    host: Annotated[
        str, typer.Option(help="Address to serve on; from others than this machine's, by a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port to serve on; by default 8321, or a free one.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="What visitors must bring; by default made up, if needed.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Show a run's page in the browser while it goes on; Ctrl-C ends it, not the run."""
    with plain_words():
        server = _server(folder, host, port, token)
        _tell(server, browser)
        err.print("Ctrl-C ends the page, not the run.", style="dim")
        server.serve_here()


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Show a run's page in the browser as long as it goes on."""
    server = _server(folder, "127.0.0.1", None, None)
    with server.in_background():
        _tell(server, browser=True)
        yield


def _server(folder: Path, host: str, port: int | None, token: str | None) -> Server:
    from clove.extras import require

    require("a live page", "page", "plotly", "starlette", "uvicorn", "sse_starlette", "watchfiles")
    from clove.report.page.server import Server

    return Server(folder, host, port, token)


def _tell(server: Server, browser: bool) -> None:
    err.print(f"page     {escape(server.address)}", soft_wrap=True, highlight=False)
    if browser:
        webbrowser.open(server.address)
