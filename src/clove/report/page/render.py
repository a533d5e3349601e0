"""The page itself: one HTML file that needs no network, from one run or several."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from numpy.linalg import LinAlgError

from clove.errors import CloveError
from clove.extras import require
from clove.folders import write_atomically
from clove.report.page.data import run_page
from clove.report.page.read import failures, is_comparison, is_going_on, read_run, run_folders
from clove.report.style import COLOURS, ON_DARK

# Shapes of true groups, as Plotly names them; in the order of the house style's markers.
SYMBOLS = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"),
    *("triangle-left", "triangle-right", "star", "pentagon", "hexagon"),
)
LOOK = {"colours": {"light": COLOURS, "dark": ON_DARK}, "symbols": SYMBOLS}
SCRIPTS = ("charts.js", "several.js", "page.js")


def write_report(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write the report of a run, of several, or of a comparison, as one HTML file."""
    target = Path(path)
    if target.is_dir():
        raise CloveError(f"{target} is a folder: name a file for the report, such as report.html")
    content = html(page_data([Path(folder) for folder in folders]))
    try:
        write_atomically(target, content.encode("utf-8", "replace"))
    except OSError as error:
        raise CloveError(f"cannot write the report {target}: {error.strerror}") from error
    return target


def page_data(folders: Sequence[Path]) -> dict[str, Any]:
    """Return all that a page shows of these folders: of one run, or of several."""
    if not folders:
        raise CloveError("name the folder of a run, or several")
    try:
        return _page_data(folders)
    except (LookupError, TypeError, ValueError, AttributeError, LinAlgError) as error:
        raise CloveError(
            f"no page can be made of {', '.join(map(str, folders))}: a file there does not hold "
            f"what a run writes ({type(error).__name__}: {error})"
        ) from error


def _page_data(folders: Sequence[Path]) -> dict[str, Any]:
    found = [run for folder in folders for run in run_folders(folder) or [folder]]
    runs = [read_run(run) for run in dict.fromkeys(found)]
    if len(runs) == 1 and not is_comparison(folders[0]):
        return run_page(runs[0])
    from clove.report.page.several import several_page  # tables are loaded where there are any

    failed = [one for folder in folders for one in failures(folder)]
    return several_page(runs, failed, complete=not any(map(is_going_on, folders)))


def html(data: dict[str, Any], live: bool = False) -> str:
    """Return a page: with its data and Plotly in it, or `live`, to get both from its server."""
    page: str = _template().render(
        title=data["title"],
        data=in_a_script(data),
        look=in_a_script(LOOK),
        css=Markup(asset("page.css")),
        script=Markup("".join(map(asset, SCRIPTS))),
        plotly="" if live else packed_plotly(),
        live=live,
    )
    return page


def in_a_script(data: Any) -> Markup:
    """Return data as JSON that can stand in an HTML script: nothing in it ends the script."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


@cache
def packed_plotly() -> str:
    """Return Plotly's script, compressed: the browser unpacks it, and the file is a third."""
    return base64.b64encode(gzip.compress(plotly_script(), mtime=0)).decode()


def plotly_script() -> bytes:
    """Return Plotly's script, from its Python package."""
    require("a page", "page", "plotly")
    return files("plotly").joinpath("package_data/plotly.min.js").read_bytes()


def asset(name: str) -> str:
    """Return a file of the page."""
    return files("clove.report.page").joinpath("template", name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    loader = PackageLoader("clove.report.page", "template")
    return Environment(loader=loader, autoescape=select_autoescape()).get_template("page.html")
