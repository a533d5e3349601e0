"""What somebody else wrote, before it is printed or stored: one line, not long, nothing hidden."""

from __future__ import annotations

MOST_LETTERS = 400


def plain(text: str, most: int = MOST_LETTERS) -> str:
    r"""Return a text as one line of at most so many letters, without signs that cannot be seen.

    Control signs could write over what stands in a terminal or begin a line that looks like ours;
    what turns the direction of writing could make a line read as another.

    >>> plain("ward 7\n\x1b[2Jall is well\u202e")
    'ward 7 [2Jall is well'
    """
    seen = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else line[: most - 1] + "…"
