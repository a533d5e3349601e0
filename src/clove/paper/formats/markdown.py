"""The paper's tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from clove.paper.formats.text import pieces
from clove.paper.measured import Measured
from clove.paper.tables import ABOVE, PaperTable, sign


def as_markdown(tables: Sequence[PaperTable]) -> str:
    """Return tables as Markdown, ours above theirs in a cell."""
    return "\n".join([*(one_table(table) for table in tables), ABOVE, ""])


def one_table(table: PaperTable) -> str:
    """Return one table with its notes."""
    lines = [f"**{table.title}**; {table.made_of}", ""]
    for piece in pieces(table):
        lines += [*_piece(piece, table), ""]
    if any(row.extra for row in table.rows):
        lines += ["In italics: beyond the paper.", ""]
    notes = [f"{number}. {note.text}" for number, note in enumerate(table.footnotes, 1)]
    lines += [*notes, ""] if notes else []
    return "\n".join([*lines, *(f"{remark}\n" for remark in table.remarks)])


def _piece(piece: PaperTable, whole: PaperTable) -> list[str]:
    titles = [
        raised(column.title, piece.numbers("column", piece.of_column(index)))
        for index, column in enumerate(piece.columns)
    ]
    lines = [_row(["", *titles]), "| --- |" + " ---: |" * len(titles)]
    for row in piece.rows:
        name = raised(row.name.replace("|", r"\|"), piece.numbers("row", row.entries))
        cells = [_cell(whole, one) for one in row.entries]
        lines.append(_row([f"*{name}*" if row.extra else name, *cells]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(whole: PaperTable, one: Measured | None) -> str:
    if one is None:
        return ""
    ours = one.ours_text()
    ours = f"**{ours}**" if whole.is_best(one) else ours
    theirs = raised(one.theirs_text(), whole.numbers("cell", [one]))
    small = [f"<sub>{line}</sub>" for line in (theirs, *one.remarks(whole.seeds)) if line]
    return "<br>".join([f"{ours} {sign(one)}".strip(), *small])


def raised(text: str, numbers: Sequence[int]) -> str:
    """Return text with the numbers of its footnotes, as HTML and Markdown have them."""
    return text + (f"<sup>{','.join(map(str, numbers))}</sup>" if numbers else "")
