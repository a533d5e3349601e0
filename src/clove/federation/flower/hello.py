"""What a node says of itself before it takes part: its number, its data's shape, its task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from torch import Tensor

from clove import __version__
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation.flower.words import plain
from clove.federation.parameters import Parameters
from clove.tasks import Task, initial_parameters

OWN = "own"  # a network that is not of the zoo
MOST_GROUPS = 1_000_000
MOST_SAMPLES = 10**12
MOST_NUMBERS = 10**8  # of a sample, or of a network's outputs for it
MOST_CLASSES = 100_000
LONGEST_NAME = 200
MOST_WORD = 100  # letters of the other words of a greeting
CLIENTS_A_NODE, SOME_CLIENTS = 100, 1000


@dataclass(frozen=True)
class Hello:
    """A node's own words."""

    number: int | None  # which client of the federation it is, where it was told
    name: str | None
    group: int | None  # its true group, where it is known: only to judge by
    samples: int
    inputs: tuple[int, ...]
    outputs: int
    task: str
    network: str  # the name in the zoo, or that it is one's own
    parameters: str | None  # of a network of one's own: a digest of their names, shapes and types
    version: str


def introduce(data: ClientData, task: Task, node: Mapping[str, object]) -> Hello:
    """Return what a client says of itself."""
    name = node.get("name", data.name)
    own = not isinstance(task.network, str)
    return Hello(
        number=_number(node.get("partition-id")),
        name=None if name is None else str(name),
        group=data.group,
        samples=data.size,
        inputs=tuple(map(int, data.train[0].shape[1:])),
        outputs=_outputs(data, task),
        task=task.name,
        network=OWN if own else str(task.network),
        parameters=outline(initial_parameters(task, 0)) if own else None,
        version=__version__,
    )


def _number(told: object) -> int | None:
    """Return the client's number that a node was told, if it was told one."""
    if told is None or type(told) is int:
        return told
    raise CloveError(
        f"its partition-id is {told!r}, and must be a whole number: "
        "flower-supernode --node-config 'partition-id=3'"
    )


def in_plain_words(hello: Hello) -> Hello:
    """Return what a node says of itself as it can be printed and stored."""
    name = hello.name or ""
    return replace(
        hello,
        # One that is too long is refused: cut, it could be another's.
        name=plain(name, max(1, len(name))) or None,
        task=plain(hello.task, MOST_WORD),
        network=plain(hello.network, MOST_WORD),
        parameters=None if hello.parameters is None else plain(hello.parameters, MOST_WORD),
        version=plain(hello.version, MOST_WORD),
    )


def _outputs(data: ClientData, task: Task) -> int:
    """Return how many outputs the network needs for the labels of this client."""
    labels = [y for _, y in (data.train, data.test or data.train) if y is not None]
    if not labels:
        return 1
    if task.name != "classification":
        return prod(labels[0].shape[1:])
    least = min(float(np.min(y)) for y in labels)
    if least < 0:
        raise CloveError(f"its labels go down to {least:g}: classes are numbered from 0")
    return 1 + max(int(np.max(y)) for y in labels)


def outline(parameters: Mapping[str, Tensor] | Parameters) -> str:
    """Return a digest of the names, shapes and types of a model's parameters."""
    shapes = {name: [list(t.shape), str(t.dtype)] for name, t in parameters.items()}
    return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Terms:
    """What a node must agree with to take part."""

    task: str
    network: str
    parameters: str | None
    inputs: tuple[int, ...]
    outputs: int

    def misfit(self, hello: Hello) -> str | None:
        """Say what about a node does not fit, and what to do."""
        if hello.task != self.task or hello.network != self.network:
            return (
                f"its task is {hello.task} with network {hello.network}, "
                f"the run's {self.task} with network {self.network}"
            )
        if hello.parameters != self.parameters:
            return "its network has parameters of other names or shapes than the server's"
        if hello.inputs != self.inputs:
            return f"its samples have shape {hello.inputs}, the run's {self.inputs}"
        whole = self.task == "classification"
        if hello.outputs > self.outputs if whole else hello.outputs != self.outputs:
            return (
                f"its labels need {hello.outputs} outputs, the run's network has {self.outputs}: "
                "begin the run with outputs=..."
            )
        return None


def unfit(hello: Hello, nodes: int) -> str | None:
    """Say what no run with so many nodes could take."""
    most = max(SOME_CLIENTS, CLIENTS_A_NODE * nodes)  # a server has room for each number
    if hello.number is not None and not 0 <= hello.number < most:
        return (
            f"its partition-id is {hello.number}: clients are numbered from 0, each once, and with "
            f"{nodes} nodes none may have {most} or more"
        )
    most = MOST_CLASSES if hello.task == "classification" else MOST_NUMBERS
    if not (1 <= hello.samples <= MOST_SAMPLES and 1 <= hello.outputs <= most):
        return f"it has {hello.samples} samples, and needs {hello.outputs} outputs"
    if min(hello.inputs, default=1) < 1 or prod(hello.inputs) > MOST_NUMBERS:
        return f"its samples have shape {hello.inputs}"
    if hello.group is not None and not 0 <= hello.group < MOST_GROUPS:
        return f"its group is {hello.group}: groups are numbered from 0"
    if hello.name is not None and len(hello.name) > LONGEST_NAME:
        return f"its name has {len(hello.name)} letters, where {LONGEST_NAME} are the most"
    return None
