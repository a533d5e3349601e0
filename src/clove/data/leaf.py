"""Reading LEAF's json files writer by writer: as Python lists, a whole one fills the memory.

A file holds `{"users": [...], "num_samples": [...], "user_data": {user: {"x": ..., "y": ...}}}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from clove.errors import CloveError

CHUNK = 1 << 24
_AFTER_VALUE = set(" \t\n\r,:]}")
_SPACE = re.compile(r"[ \t\n\r]*")


def writers_in(path: Path) -> Iterator[tuple[str, Any]]:
    """Read the data of one writer after the other, in the order of the file."""
    found = 0
    try:
        with path.open(encoding="utf-8") as file:
            reader = _Reader(file)
            for key in reader.members():
                if key == "user_data":
                    for user in reader.members():
                        found += 1
                        yield user, reader.value()
                else:
                    reader.value()
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise CloveError(f"{path} is damaged or no json file of LEAF: {error}") from error
    if not found:
        raise CloveError(f"{path} is no file of LEAF: 'user_data' holds no writer")


class _Reader:
    """A place in a json file, moved on by reading; only what is around it is in memory."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._place = 0
        self._decoder = json.JSONDecoder()

    def members(self) -> Iterator[str]:
        """Go through an object's members: yields a name, and its value has to be read next."""
        self._expect("{")
        if self._next() == "}":
            self._place += 1
            return
        while True:
            name = self.value()
            self._expect(":")
            yield str(name)
            if self._next() == "}":
                self._place += 1
                return
            self._expect(",")

    def value(self) -> Any:
        """Read one value, whatever it is."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._place)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            # A number at the end of the text, such as "12" or "12.", may go on in the file.
            if self._text[end : end + 1] in _AFTER_VALUE or not self._more():
                self._place = end
                return value

    def _next(self) -> str:
        """Skip white space; return the character there, nothing at the end."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = self._place if space is None else space.end()
            if self._place < len(self._text) or not self._more():
                return self._text[self._place : self._place + 1]

    def _expect(self, mark: str) -> None:
        if (found := self._next()) != mark:
            raise ValueError(f"expected {mark!r}, found {found or 'the end'!r}")
        self._place += 1

    def _more(self) -> bool:
        """Read on, letting go of what is behind; say whether there was more."""
        ahead = len(self._text) - self._place
        # At least as much again: what does not fit is read anew each time.
        chunk = self._file.read(max(CHUNK, ahead))
        if chunk:
            self._text = self._text[self._place :] + chunk
            self._place = 0
        return bool(chunk)
