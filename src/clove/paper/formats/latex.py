"""The paper's tables for a paper."""

from __future__ import annotations

from collections.abc import Sequence

from clove.paper.formats.text import pieces
from clove.paper.measured import Measured
from clove.paper.tables import LEGEND, PaperTable, sign
from clove.report.tables import latex

SIGNS = {
    "≈": r"$\approx$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "≠": r"$\neq$",
    "Δ": r"$\Delta$",
}


def as_latex(tables: Sequence[PaperTable]) -> str:
    """Return tables for a paper: for every column ours and theirs, the best of each in bold."""
    head = r"% needs \usepackage{booktabs, amssymb}" + "\n\n"
    return head + "\n".join(_table(table) for table in tables) + f"\n% {LEGEND}\n"


def _table(table: PaperTable) -> str:
    lines = [f"% {table.title}; {table.made_of}"]
    for piece in pieces(table):
        lines += [*_piece(piece, table), ""]
    notes = [f"% {number}. {note.text}" for number, note in enumerate(table.footnotes, 1)]
    return "\n".join([*lines, *notes, *(f"% {remark}" for remark in table.remarks), ""])


def _piece(piece: PaperTable, whole: PaperTable) -> list[str]:
    count = len(piece.columns)
    titles = [_title(piece, index) for index in range(count)]
    lines = [
        rf"\begin{{tabular}}{{l{'rr' * count}}}",
        r"\toprule",
        " & ".join(["", *titles]) + r" \\",
        " ".join(rf"\cmidrule(lr){{{2 * i + 2}-{2 * i + 3}}}" for i in range(count)),
        " & ".join(["", *["ours", "paper"] * count]) + r" \\",
        r"\midrule",
    ]
    for index, row in enumerate(piece.rows):
        if row.extra and index and not piece.rows[index - 1].extra:
            lines.append(r"\midrule")
        name = _tex(row.name) + _raised(piece.numbers("row", row.entries))
        cells = [cell for one in row.entries for cell in _cells(whole, one)]
        lines.append(" & ".join([name, *cells]) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _title(piece: PaperTable, index: int) -> str:
    numbers = _raised(piece.numbers("column", piece.of_column(index)))
    return rf"\multicolumn{{2}}{{c}}{{{_tex(piece.columns[index].title)}{numbers}}}"


def _cells(whole: PaperTable, one: Measured | None) -> tuple[str, str]:
    if one is None:
        return "", ""
    remarks = ", ".join(one.remarks(whole.seeds))
    parts = [
        _bold(_tex(one.ours_text()), whole.is_best(one)),
        f"({_tex(remarks)})" if remarks else "",
        _tex(sign(one)),
    ]
    theirs = _bold(_tex(one.theirs_text()), one.theirs is not None and one.theirs.bold)
    return " ".join(filter(None, parts)), theirs + _raised(whole.numbers("cell", [one]))


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{text}}}" if best and text else text


def _raised(numbers: Sequence[int]) -> str:
    return f"$^{{{','.join(map(str, numbers))}}}$" if numbers else ""


def _tex(text: str) -> str:
    return "".join(SIGNS.get(character) or latex(character) for character in text)
