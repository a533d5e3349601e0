"""Functions that a question may name, so that they travel by name and options.

A question carries functions: a local objective, a projection, a summary. On a network no code
travels, only the name under which a client knows a function and its options, and a client runs only
what it has registered. A function is a plain one, or a frozen dataclass that can be called, whose
fields are its options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

from clove.errors import CloveError, unknown_name

Function = TypeVar("Function", bound=Callable[..., Any])
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

REGISTRIES: dict[str, Registry[Any]] = {}  # by kind: "objective", "summary", ...


class Registry(Generic[Function]):
    """The functions of one kind that are known by name; used as a decorator, it adds one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._known: dict[str, Callable[..., Any]] = {}
        REGISTRIES[kind] = self

    def __call__(self, name: str) -> Callable[[Decorated], Decorated]:
        """Return the decorator that makes a function, or a dataclass, known by this name."""

        def add(function: Decorated) -> Decorated:
            before = self._known.get(name)
            if before is not None and _place(before) != _place(function):
                raise CloveError(
                    f"{_article(self.kind)} named {name!r} is registered already: {_place(before)}"
                )
            if inspect.isclass(function) and not is_dataclass(function):
                raise CloveError(f"{_place(function)} must be a frozen dataclass to be registered")
            self._known[name] = function
            return function

        return add

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def made(self, name: str, options: Mapping[str, Any] | None = None) -> Function:
        """Return the function of that name, with these options."""
        if name not in self._known:
            raise unknown_name(self.kind, name, self._known)
        known, given = self._known[name], dict(options or {})
        names = [f.name for f in fields(known)] if is_dataclass(known) else []
        for option in given:
            if option not in names:
                raise unknown_name(f"option of {self.kind} {name!r}", option, names)
        made: Any = known
        if inspect.isclass(known):
            try:
                made = known(**given)
            except TypeError as error:
                raise CloveError(f"{self.kind} {name!r} cannot be made: {error}") from None
        function: Function = made
        return function

    def described(self, function: Function) -> tuple[str, dict[str, Any]] | None:
        """Return the name and options from which `made` makes it again; None: it has no name."""
        whole: Any = type(function) if is_dataclass(function) else function
        for name, known in self._known.items():
            if known is whole:
                options = fields(function) if is_dataclass(function) else ()
                return name, {f.name: getattr(function, f.name) for f in options}
        return None


def described(function: Callable[..., Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the kind, name and options of a function that a question carries."""
    for kind, registry in REGISTRIES.items():
        found = registry.described(function)
        if found is not None:
            return kind, *found
    what = type(function) if is_dataclass(function) else function
    raise CloveError(
        f"{_place(what)} has no name to travel by: register it, for instance with "
        "@objective('its-name') of clove.federation.objectives"
    )


def made(kind: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """Return the function that `described` told of, if it is registered here."""
    if kind not in REGISTRIES:
        raise unknown_name("kind of function", kind, REGISTRIES)
    return REGISTRIES[kind].made(name, options)


def _place(function: object) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
