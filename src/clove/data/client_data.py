"""One client's data, checked on the way in, and the checks over a whole federation."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clove.errors import CloveError
from clove.seeds import stream

Array = NDArray[Any]
Points = tuple[Array, Array | None]
"""Features and labels, one of each per point; labels are None where nobody labelled them."""

Split = tuple[ArrayLike, ArrayLike | None] | ArrayLike
"""What a user may hand over as points: `(x, y)`, `(x, None)` or `x` alone."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ClientData:
    """The data of one client: its own training points and the test points it is judged by.

    Parameters
    ----------
    train : tuple (x, y), tuple (x, None) or array x
        Training points, first axis the points. Without `y` the client is unsupervised.
    test : likewise, or None
        Test points, of the same kind as the training points. None: some training points can be
        held out for it, see `holdout`.
    name : str, optional
        What to call the client in messages and tables.
    group : int, optional
        The client's true cluster, where it is known; only ever used to judge a clustering.

    Examples
    --------
    >>> ClientData(train=([[0.0], [1.0]], [0, 1]), name="ward A")
    ClientData('ward A': 2 training points of shape (1,), no test points)
    """

    train: Points
    test: Points | None
    name: str | None
    group: int | None

    def __init__(
        self,
        train: Split,
        test: Split | None = None,
        name: str | None = None,
        group: SupportsIndex | None = None,
    ) -> None:
        who = "an unnamed client" if name is None else f"client {name}"
        points = _points(train, who, "training")
        held_back = None if test is None else _points(test, who, "test")
        if held_back is not None:
            _same_traits(held_back, points, f"{who}'s test data", "its training data")
        object.__setattr__(self, "train", points)
        object.__setattr__(self, "test", held_back)
        object.__setattr__(self, "name", None if name is None else str(name))
        object.__setattr__(self, "group", None if group is None else _whole(group, who))

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}: "
        test = "no" if self.test is None else len(self.test[0])
        shape = self.train[0].shape[1:]
        return f"ClientData({name}{self.size} training points of shape {shape}, {test} test points)"

    @property
    def size(self) -> int:
        """Number of training points."""
        return len(self.train[0])

    @property
    def labelled(self) -> bool:
        """Whether the points have labels."""
        return self.train[1] is not None


def check_clients(clients: Iterable[ClientData]) -> list[ClientData]:
    """Check that clients can learn together, and return them as a list.

    They must agree in the shape and type of their features and labels; the first client says what
    is expected of the others.
    """
    if isinstance(clients, ClientData) or not isinstance(clients, Iterable):
        raise CloveError(f"clients must be a list of ClientData, not {clients!r:.60}")
    checked = list(clients)
    if not checked:
        raise CloveError("a federation needs at least one client, got none")
    for index, client in enumerate(checked):
        if not isinstance(client, ClientData):
            raise CloveError(
                f"client {index} is of type {type(client).__name__}, expected ClientData"
            )
        _same_traits(client.train, checked[0].train, _who(index, client), "client 0")
    return checked


def holdout(
    clients: Sequence[ClientData],
    share: float = 0.2,
    *,
    seed: int,
    numbers: Sequence[int] | None = None,
) -> tuple[list[ClientData], int]:
    """Hold out a share of the training points of every client that brings no test points.

    Returns the clients and how many of them had points held out, so that the caller can say so.
    `numbers` are the clients' in their federation, where these are only some of it.
    """
    if not 0 < share < 1:
        raise CloveError(f"the share held out for testing must lie between 0 and 1, got {share}")
    complete = [
        _hold_out(index, client, share, seed) if client.test is None else client
        for index, client in zip(numbers or range(len(clients)), clients, strict=True)
    ]
    return complete, sum(client.test is None for client in clients)


def _hold_out(index: int, client: ClientData, share: float, seed: int) -> ClientData:
    if client.size < 2:
        raise CloveError(
            f"{_who(index, client)} has one training point and no test data: "
            "nothing can be held out. Give it test data or leave it out"
        )
    count = min(max(round(share * client.size), 1), client.size - 1)
    order = stream(seed, "holdout", index).permutation(client.size)
    # Sorted: the points left keep the order in which they came.
    train, test = np.sort(order[count:]), np.sort(order[:count])
    return replace(client, train=_take(client.train, train), test=_take(client.train, test))


def _take(points: Points, indices: Array) -> Points:
    x, y = points
    return x[indices], None if y is None else y[indices]


def _who(index: int, client: ClientData) -> str:
    return f"client {index}" if client.name is None else f"client {index} ({client.name})"


def _points(split: Split, who: str, part: str) -> Points:
    if isinstance(split, tuple) and len(split) != 2:
        raise CloveError(f"{who}: {part} data must be (x, y) or x, got a tuple of {len(split)}")
    features, labels = split if isinstance(split, tuple) else (split, None)
    x = _numbers(features, f"{who}: {part} x")
    y = None if labels is None else _numbers(labels, f"{who}: {part} y")
    if y is not None and y.dtype.kind in "biu" and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]  # a column of classes is a class a point
    if y is not None and len(x) != len(y):
        raise CloveError(f"{who}: {part} x has {len(x)} points but y has {len(y)}")
    if len(x) == 0:
        raise CloveError(f"{who} has no {part} data")
    if 0 in x.shape:
        raise CloveError(f"{who}: {part} x has shape {x.shape}: its points have no features")
    return x, y


def _whole(group: Any, who: str) -> int:
    try:
        return operator.index(group)
    except TypeError:
        raise CloveError(f"{who}: group must be a whole number, not {group!r}") from None


def _numbers(values: Any, what: str) -> Array:
    if hasattr(values, "detach"):  # a tensor, perhaps with a gradient or on another device
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise CloveError(
            f"{what} is no array of numbers ({error}); x and y together are given as a tuple (x, y)"
        ) from error
    if array.dtype.kind not in "biuf":
        raise CloveError(
            f"{what} holds values of type {array.dtype}, expected numbers; classes have one "
            "number each, the same for all clients"
        )
    if array.ndim == 0:
        raise CloveError(f"{what} is a single number, expected an array with one entry per point")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        first = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise CloveError(f"{what} holds NaN or infinite values, first at point {first}")
    return array


def _same_traits(points: Points, expected: Points, who: str, other: str) -> None:
    ours, theirs = _traits(points), _traits(expected)
    for trait, value in ours.items():
        if value != theirs[trait]:
            raise CloveError(f"{who} has {trait} {value}, expected {theirs[trait]} as in {other}")


def _traits(points: Points) -> dict[str, object]:
    x, y = points
    return {
        "features of shape": x.shape[1:],
        "features of type": _kind(x),
        "labels of shape": "none" if y is None else y.shape[1:],
        "labels of type": "none" if y is None else _kind(y),
    }


def _kind(array: Array) -> str:
    return "float" if array.dtype.kind == "f" else "integer"
