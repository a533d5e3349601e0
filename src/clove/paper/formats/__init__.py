"""The paper's tables in the forms people want them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clove.paper.formats.latex import as_latex
from clove.paper.formats.markdown import as_markdown
from clove.paper.formats.page import as_html
from clove.paper.formats.text import as_rich, as_text
from clove.paper.tables import PaperTable, tidy


def as_csv(tables: Sequence[PaperTable]) -> str:
    """Return all figures as tidy CSV, a line each."""
    return str(tidy(tables).to_csv(index=False))


FORMATS: dict[str, tuple[str, Callable[[Sequence[PaperTable]], str]]] = {
    "text": ("txt", as_text),
    "md": ("md", as_markdown),
    "latex": ("tex", as_latex),
    "csv": ("csv", as_csv),
    "html": ("html", as_html),
}
"""The ending of a file, and what makes its content, by the name of the format."""

__all__ = ["FORMATS", "as_csv", "as_html", "as_latex", "as_markdown", "as_rich", "as_text"]
