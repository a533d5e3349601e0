"""A run or a comparison as it shows itself in a notebook: its figures in a table, and a picture."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO

from matplotlib.figure import Figure

from clove.report.tables import Cells

DOTS = 80  # an inch: enough for a screen, and a notebook stays small


def card(title: str, titles: Sequence[str], rows: Cells, figure: Figure) -> str:
    """Return HTML that a notebook shows, whatever its colours: rows are of (text, is best)."""
    head = "".join(f"<th>{escape(name)}</th>" for name in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<div><strong>{escape(title)}</strong>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<img alt="{escape(title)}, by round" style="max-width:100%" '
        f'src="{_picture(figure)}"></div>'
    )


def _cell(cell: tuple[str, bool]) -> str:
    text, best = cell
    return f"<td><strong>{escape(text)}</strong></td>" if best else f"<td>{escape(text)}</td>"


def _picture(figure: Figure) -> str:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS, facecolor="white")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
