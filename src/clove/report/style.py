"""One look for all figures: plain, readable in print, safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Okabe and Ito's palette, which stays distinct for colour-blind readers; then Tol's muted colours.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#882255", "#117733", "#999933", "#332288", "#AA4499", "#44AA99", "#661100", "#6699CC"),
)
FIRST = 7  # how many colours are the first palette's
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")


@contextmanager
def print_style() -> Iterator[None]:
    """Draw in the house style, for a while."""
    import matplotlib as mpl  # pages take their colours from here, and need no matplotlib
    from cycler import cycler

    settings: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "figure.dpi": 130,
        "savefig.bbox": "tight",
        "pdf.fonttype": 42,  # whole fonts, as publishers ask for
        "axes.prop_cycle": cycler(color=COLOURS),
    }
    with mpl.rc_context(settings):
        yield


def colour(index: int) -> str:
    """Return the colour of the i-th thing."""
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """Return the marker of the i-th thing."""
    return MARKERS[index % len(MARKERS)]


def dashes(index: int) -> str:
    """Return the line style of the i-th thing: solid, and dashed from the second palette on."""
    return "-" if index < FIRST else "--"
