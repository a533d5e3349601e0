"""Functions that questions carry, by name and options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from clove.errors import CloveError
from clove.federation.objectives import objective, task_loss
from clove.federation.registry import REGISTRIES, Registry, described, made
from clove.federation.summaries import label_counts


@dataclass(frozen=True)
class Scaled:
    factor: float
    shift: int = 0

    def __call__(self, value: float) -> float:
        return self.factor * value + self.shift


def plain(value: float) -> float:
    return value


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry("toy")
    registry("scaled")(Scaled)
    registry("plain")(plain)
    yield registry
    del REGISTRIES["toy"]


@pytest.mark.parametrize("function", [Scaled(2.0), Scaled(0.5, shift=3), plain])
def test_a_function_is_made_again_from_what_is_told_of_it(registry, function):
    kind, name, options = described(function)
    again = made(kind, name, options)
    assert again == function
    assert again(7.0) == function(7.0)


def test_what_is_told_of_a_function_is_its_name_and_its_options(registry):
    assert described(Scaled(2.0)) == ("toy", "scaled", {"factor": 2.0, "shift": 0})
    assert described(plain) == ("toy", "plain", {})
    assert described(task_loss) == ("objective", "task-loss", {})
    assert described(label_counts) == ("summary", "label-counts", {})


def test_a_function_without_a_name_cannot_travel():
    with pytest.raises(CloveError, match=r"plain has no name to travel by: register it"):
        described(plain)
    with pytest.raises(CloveError, match=r"test_registry\.Scaled has no name to travel by"):
        described(Scaled(1.0))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (("toy", "scale", {}), "unknown toy 'scale': did you mean 'scaled'"),
        (("to", "scaled", {}), "unknown kind of function 'to': did you mean 'toy'"),
        (("toy", "scaled", {"factr": 1.0}), "unknown option of toy 'scaled' 'factr'.*'factor'"),
        (("toy", "plain", {"factor": 1.0}), "unknown option of toy 'plain' 'factor'"),
        (("toy", "scaled", {}), "toy 'scaled' cannot be made: .*factor"),
    ],
    ids=str,
)
def test_what_nobody_knows_is_refused(registry, what, message):
    with pytest.raises(CloveError, match=message):
        made(*what)


def test_a_name_is_given_once_but_the_same_thing_may_be_registered_again(registry):
    registry("plain")(plain)
    with pytest.raises(CloveError, match="a toy named 'plain' is registered already"):
        registry("plain")(Scaled)
    with pytest.raises(CloveError, match="an objective named 'task-loss' is registered already"):
        objective("task-loss")(plain)


def test_a_class_must_be_a_dataclass(registry):
    class Loose:
        pass

    with pytest.raises(CloveError, match=r"Loose must be a frozen dataclass"):
        registry("loose")(Loose)
    assert registry.names == ["plain", "scaled"]
