"""What the commands share: where they print, and how they say what is wrong."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from clove.errors import DEVICE_FAILED, OUT_OF_MEMORY, CloveError, CloveWarning

out = Console()
err = Console(stderr=True)
# What stands in errors of torch that are the machine's, and what to do about them.
OF_THE_MACHINE = {
    OUT_OF_MEMORY: "memory does not suffice: try a smaller --memory or batch_size",
    DEVICE_FAILED: (
        "the GPU failed. That is the machine's doing, or an index or a class out of range in a "
        "network or loss of your own, which --device cpu would name"
    ),
}
_told: set[str] = set()  # what this command has warned of


def roomy() -> Console:
    """Return where wide tables go: a file or a pipe has no edge."""
    return out if out.is_terminal else Console(width=200)


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
            _told.add(str(message))
            err.print(f"[yellow]warning:[/] {escape(str(message))}", soft_wrap=True)
        else:
            show(message, category, filename, lineno, file, line)

    _told.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CloveWarning)
        warnings.showwarning = plain
        try:
            yield
        except CloveError as error:
            _say_wrong(str(error))
            raise typer.Exit(1) from None
        except RuntimeError as error:
            what = [
                said
                for words, said in OF_THE_MACHINE.items()
                if any(w in str(error) for w in words)
            ]
            if not what:
                raise
            _say_wrong(f"{what[0]}: {str(error).splitlines()[0]}")
            raise typer.Exit(1) from None


def _say_wrong(what: str) -> None:
    err.print(f"[bold red]error:[/] {escape(what)}", soft_wrap=True)


def note(remark: str | None) -> None:
    """Print what a user should know, but for what a warning has said already."""
    new = [part for part in (remark or "").split("; ") if part and part not in _told]
    if new:
        out.print(f"[yellow]note:[/] {escape('; '.join(new))}", soft_wrap=True)


def given_once(pairs: list[str] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of --set and of options by name; None: the option was not given."""
    named = {name: value for name, value in options.items() if value is not None}
    for text in pairs or []:
        name, value = pair(text)
        if name in named:
            option = f"--{name.replace('_', '-')}"
            both = f"by {option} and by --set" if options.get(name) is not None else "by --set"
            raise CloveError(f"{name} is given twice, {both}: give it once")
        named[name] = value
    return named


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
