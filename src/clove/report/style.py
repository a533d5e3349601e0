"""One look for all figures: plain, readable in print, safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# For white paper and for dark screens, in the same order. Every colour stands out from its
# background by 3 to 1 (WCAG 1.4.11). The first are of Okabe and Ito's hues, as far apart in
# lightness as that leaves room for: distinct for colour-blind readers. The others are less so, and
# lines come dashed.
COLOURS = (
    *("#003F7F", "#A02000", "#00884D", "#7A2A5A", "#C27700", "#0092E1", "#000000"),
    *("#EE0DA2", "#679A48", "#82582D", "#2205AA", "#875BF8", "#245335", "#74161C", "#182139"),
)
ON_DARK = (
    *("#1A74DC", "#D9560A", "#4AAB6C", "#BB5F98", "#F0C020", "#34BFFF", "#F2F2F2"),
    *("#BD848F", "#6FD865", "#A17146", "#705FFF", "#8A8BD1", "#14E2F6", "#FF8D84", "#7CB7BF"),
)
FIRST = 7  # how many colours are distinct for everybody
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
