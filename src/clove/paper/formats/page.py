"""The paper's tables as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from clove.paper.formats.markdown import raised
from clove.paper.formats.text import pieces
from clove.paper.measured import Measured
from clove.paper.tables import ABOVE, PaperTable, sign

WIDTH = 140  # of a page, in characters of a terminal

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
<p>{legend}</p>
</main>
</body>
</html>
"""


def as_html(tables: Sequence[PaperTable]) -> str:
    """Return tables as a page that needs no other file, for light and dark screens."""
    numbers = dict.fromkeys(table.experiment.number for table in tables)
    return PAGE.format(
        title=f"The paper's tables, ours beside theirs: {', '.join(numbers)}",
        style=files("clove.paper.formats").joinpath("page.css").read_text(encoding="utf-8"),
        body="\n".join(_section(table) for table in tables),
        legend=escape(ABOVE),
    )


def _section(table: PaperTable) -> str:
    parts = [
        f"<section>\n<h2>{escape(table.title)}</h2>",
        f"<p>{escape(table.experiment.title)}; {escape(table.made_of)}</p>",
        *(_table(piece, table) for piece in pieces(table, WIDTH)),
    ]
    if table.footnotes:
        items = "".join(f"<li>{escape(note.text)}</li>" for note in table.footnotes)
        parts.append(f"<ol>{items}</ol>")
    parts += [f'<p class="small">{escape(remark)}</p>' for remark in table.remarks]
    return "\n".join([*parts, "</section>"])


def _table(piece: PaperTable, whole: PaperTable) -> str:
    titles = "".join(_title(piece, index) for index in range(len(piece.columns)))
    rows = []
    for row in piece.rows:
        name = raised(escape(row.name), piece.numbers("row", row.entries))
        cells = "".join(_cell(whole, one) for one in row.entries)
        kind = ' class="extra"' if row.extra else ""
        rows.append(f'<tr{kind}><th scope="row">{name}</th>{cells}</tr>\n')
    head = f"<thead><tr><td></td>{titles}</tr></thead>"
    return f"<div><table>\n{head}\n<tbody>\n{''.join(rows)}</tbody>\n</table></div>"


def _title(piece: PaperTable, index: int) -> str:
    numbers = piece.numbers("column", piece.of_column(index))
    title = "<br>".join(filter(None, map(escape, piece.columns[index].lines)))
    return f'<th scope="col">{raised(title, numbers)}</th>'


def _cell(whole: PaperTable, one: Measured | None) -> str:
    if one is None:
        return "<td></td>"
    ours = escape(one.ours_text())
    ours = f"<b>{ours}</b>" if whole.is_best(one) else ours
    mark = f' <span class="{one.mark}">{sign(one)}</span>' if sign(one) else ""
    theirs = raised(escape(one.theirs_text()), whole.numbers("cell", [one]))
    small = [f"<small>{line}</small>" for line in (theirs, *one.remarks(whole.seeds)) if line]
    return f"<td>{ours}{mark}{''.join(small)}</td>"
