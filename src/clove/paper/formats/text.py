"""The paper's tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clove.paper.measured import Measured
from clove.paper.tables import ABOVE, PaperTable, Row, sign

WIDTH, NAME = 100, 26  # of a table, and of the names of its rows
RAISED = str.maketrans("0123456789,", "⁰¹²³⁴⁵⁶⁷⁸⁹\u2009")
STYLES = {"≈": "green", "▲": "bold green", "▼": "red", "≠": "yellow"}


def as_text(tables: Sequence[PaperTable], width: int = WIDTH) -> str:
    """Return tables as plain text."""
    file = StringIO()
    console = Console(width=width, color_system=None, file=file)
    for table in tables:
        console.print(as_rich(table, width))
        console.print()
    console.print(ABOVE)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def as_rich(table: PaperTable, width: int = WIDTH) -> Group:
    """Return a table for a terminal, its notes below it."""
    head = Text.assemble((table.title, "bold"), f"\n{table.experiment.title}; {table.made_of}")
    numbered = [f"{_raised([n])} {note.text}" for n, note in enumerate(table.footnotes, 1)]
    notes = [Text(line, style="dim") for line in (*numbered, *table.remarks)]
    drawn = [_drawn(piece, table) for piece in pieces(table, width)]
    return Group(head, *drawn, *(Padding(one, (0, 0, 0, 1)) for one in notes))


def _drawn(piece: PaperTable, whole: PaperTable) -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("", max_width=NAME)
    for index in range(len(piece.columns)):
        shown.add_column(Text(_heading(piece, index)), justify="right", no_wrap=True)
    for row, following in zip(piece.rows, [*piece.rows[1:], None], strict=True):
        cells = [_cell(whole, one) for one in row.entries]
        last_of_paper = not row.extra and following is not None and following.extra
        shown.add_row(Text(_name(piece, row)), *cells, end_section=last_of_paper)
    return shown


def _cell(whole: PaperTable, one: Measured | None) -> Text:
    if one is None:
        return Text()
    ours = Text(one.ours_text(), style="bold" if whole.is_best(one) else "")
    if sign(one):
        ours.append(f" {sign(one)}", STYLES[sign(one)])
    below = [Text(line, style="dim") for line in _lines(whole, one)[1:] if line]
    return Text("\n").join([ours, *below])


def _lines(table: PaperTable, one: Measured | None) -> list[str]:
    """Return the lines of a cell: ours, the paper's, and what else is to be said."""
    if one is None:
        return [""]
    theirs = one.theirs_text() + _raised(table.numbers("cell", [one]))
    return [f"{one.ours_text()} {sign(one)}".strip(), theirs, *one.remarks(table.seeds)]


def _heading(table: PaperTable, index: int) -> str:
    first, second = table.columns[index].lines
    numbers = _raised(table.numbers("column", table.of_column(index)))
    return f"{first}\n{second}{numbers}".strip()


def _name(table: PaperTable, row: Row) -> str:
    return row.name + _raised(table.numbers("row", row.entries))


def _raised(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers)).translate(RAISED)


# -------------------------------------------------------------------------------------- in pieces


def pieces(table: PaperTable, width: int = WIDTH) -> list[PaperTable]:
    """Cut a table where it is too wide: by data set, and within one where that is not enough."""
    if len(table.columns) == 1 or _width(table) <= width:
        return [table]
    names = dict.fromkeys(column.dataset for column in table.columns)
    if len(names) == 1:
        half = (len(table.columns) + 1) // 2
        halves = table.columns[:half], table.columns[half:]
        return [piece for some in halves for piece in pieces(table.part(some), width)]
    found: list[PaperTable] = []
    for name in names:
        part = [column for column in table.columns if column.dataset == name]
        both = table.part([*found[-1].columns, *part]) if found else table
        if _width(both) <= width:
            found[-1] = both
        else:
            found += pieces(table.part(part), width)
    return found


def _width(table: PaperTable) -> int:
    """Return how wide a table is in a terminal."""
    widths = [min(NAME, max(cell_len(_name(table, row)) for row in table.rows))]
    for index in range(len(table.columns)):
        lines = _heading(table, index).splitlines()
        lines += [line for one in table.of_column(index) for line in _lines(table, one)]
        widths.append(max(cell_len(line) for line in lines))
    return 1 + sum(2 + one for one in widths)
