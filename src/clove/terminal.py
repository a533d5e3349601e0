"""What the commands share: where they print, and how they say what is wrong."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from clove.errors import CloveError, CloveWarning

out = Console()
err = Console(stderr=True)


@contextmanager
def plain_words() -> Iterator[None]:
    """Show errors and warnings as one line each, without a traceback."""
    show: Callable[..., None] = warnings.showwarning

    def plain(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, CloveWarning):
            err.print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True)
        else:
            show(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CloveWarning)
        warnings.showwarning = plain
        try:
            yield
        except CloveError as error:
            err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(1) from None


def pair(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; the value as TOML where it is, else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CloveError(f"--set takes KEY=VALUE, not {text!r}")
    if value in ("True", "False"):  # as Python writes them
        value = value.lower()
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
