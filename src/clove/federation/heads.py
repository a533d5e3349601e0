"""The head of a network, its last linear layer, and the features that go into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clove.errors import CloveError, unknown_name


def find_head(network: nn.Module, x: Tensor, named: str | None = None) -> str:
    """Return the name of the head: the module that the task names, or the last linear layer to run.

    Which one runs last is found out by running a sample.
    """
    modules = dict(network.named_modules())
    if named is not None:
        if named not in modules:
            raise unknown_name("layer of the network", named, [name for name in modules if name])
        return named
    met: list[str] = []
    linear = {name: module for name, module in modules.items() if isinstance(module, nn.Linear)}
    hooks = [
        module.register_forward_pre_hook(partial(_note, met.append, name))
        for name, module in linear.items()
    ]
    was_training = network.training
    try:
        with torch.no_grad():
            network.eval()(x)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    if not met:
        raise CloveError(
            "this method tells the network's head from its body, but the network has no linear "
            "layer to be its head: name the layer with Task(head=...)"
        )
    return met[-1]


def part_names(
    which: str | tuple[str, ...], every: list[str], head: Callable[[], str]
) -> list[str]:
    """Return those of a network's parameters and buffers that are of a part of it."""
    if which == "all":
        return every
    if which in ("head", "body"):
        start = prefix(head())
        return [name for name in every if name.startswith(start) == (which == "head")]
    wanted = (which,) if isinstance(which, str) else which
    for name in wanted:
        if not any(one == name or one.startswith(prefix(name)) for one in every):
            raise unknown_name("part of the network", name, ["all", "head", "body", *every])
    return [one for one in every if any(one == n or one.startswith(prefix(n)) for n in wanted)]


def prefix(module: str) -> str:
    """Return what the names of a module's parameters begin with."""
    return f"{module}." if module else ""


@contextmanager
def noting_input(module: nn.Module, take: Callable[[Tensor], Any]) -> Iterator[None]:
    """Hand the input of a module to `take` whenever it runs."""
    hook = module.register_forward_pre_hook(lambda _module, inputs: _nothing(take(inputs[0])))
    try:
        yield
    finally:
        hook.remove()


def _note(append: Callable[[str], None], name: str, _module: nn.Module, _inputs: Any) -> None:
    append(name)


def _nothing(_result: Any) -> None:
    """Return nothing: a hook's result would take the place of the input."""
