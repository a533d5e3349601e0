"""A newcomer's side of the service: measure here, send the losses, fetch the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Losses, LossVectors, Seeded, Sequential
from clove.federation.parameters import Parameters, stack
from clove.federation.precision import dtype_of
from clove.tasks import MODELS, TASKS, Task, named_task


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a newcomer belongs, what it sent to find out, and its model.

    `sure` and `distances` are as in `Newcomer`.
    """

    model: int
    sure: float
    distances: NDArray[np.float64]
    losses: NDArray[np.float64]
    network: nn.Module


def newcomer(
    url: str,
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    task: Task | None = None,
    token: str | None = None,
    timeout: float = 30.0,
) -> Placed:
    """Find the model for these data at a service (`clove serve`), without showing them.

    What is sent are the losses of the service's probe models, measured here, and they go to that
    address alone: a service that sends on elsewhere is an error. A run with a network of its own
    needs that as `task`.
    """
    desk = _Desk(url.rstrip("/"), token, timeout)
    with desk.understood():
        about = desk.json("/")
        task = task or _task_of(about)
        alone = _alone(about, x, y, task)
        losses = _measured(about, desk, alone)
        found = desk.json("/newcomers", {"losses": losses.tolist()})
        network = task.build().to(alone.dtype)
        network.load_state_dict(_fitting(desk.tensors(f"/models/{int(found['model'])}"), network))
        return Placed(
            model=int(found["model"]),
            sure=float(found["sure"]),
            distances=np.array([np.inf if far is None else far for far in found["distances"]]),
            losses=losses,
            network=network.eval(),
        )


def _task_of(about: Mapping[str, Any]) -> Task:
    """Return the task of a description; only what clove itself has is made by its name."""
    kind, network, loss = about["task"], about["network"], about["loss"]
    if kind not in TASKS or network not in MODELS or loss != "auto":
        raise CloveError(
            f"this run has a network, a loss or a task of its own ({network}, {loss}, {kind}): "
            "hand over the same as task=..."
        )
    return named_task(kind, network).for_data(
        tuple(map(int, about["inputs"])), int(about["outputs"])
    )


def _alone(about: Mapping[str, Any], x: ArrayLike, y: ArrayLike | None, task: Task) -> Sequential:
    """Return a federation of the newcomer alone."""
    own = ClientData((x, y), (x, y), name="newcomer")
    expected, got = tuple(about["inputs"]), own.train[0].shape[1:]
    if got != expected:
        raise CloveError(f"the newcomer's samples have shape {got}, the run's {expected}")
    return Sequential([own], task, dtype=dtype_of(about["precision"]))


def _measured(about: Mapping[str, Any], desk: _Desk, alone: Sequential) -> NDArray[np.float64]:
    """Return the losses of all probes on the newcomer's data."""
    number = int(about["probes"])
    probes: Parameters | Seeded
    if about["seed"] is not None:
        probes = Seeded(int(about["seed"]), number)
    else:
        found = (desk.tensors(f"/probes/{probe}") for probe in range(number))
        probes = stack([_fitting(probe, alone.network) for probe in found])
    question = Losses(probes, np.array([0]), int(about["batch_statistics"]))
    answer = alone.answer(question)
    assert isinstance(answer, LossVectors)
    if not np.isfinite(answer.losses).all():
        raise CloveError("the newcomer's losses are not finite: check its data")
    losses: NDArray[np.float64] = answer.losses[0]
    return losses


def _fitting(state: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Return parameters from elsewhere; refuse those of another network."""
    ours, theirs = (
        {name: tuple(tensor.shape) for name, tensor in one.items()}
        for one in (network.state_dict(), state)
    )
    if ours != theirs:
        odd = sorted(name for name, _ in ours.items() ^ theirs.items())
        raise CloveError(f"the service's models are of another network than the task's: {odd[0]}")
    return state


class _Staying(HTTPRedirectHandler):
    """Follows nobody elsewhere: losses and token are for the address that the user gave."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the answer as it is, which makes it an error that says where it leads."""


_STAYING = build_opener(_Staying)


@dataclass(frozen=True)
class _Desk:
    """The service, as seen from outside."""

    url: str
    token: str | None
    timeout: float

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise CloveError(f"a service's address begins with http:// or https://: {self.url!r}")

    def json(self, path: str, content: Mapping[str, Any] | None = None) -> Any:
        """Return what there is at a path, or is answered to what is sent there."""
        return json.loads(self._bytes(path, content))

    def tensors(self, path: str) -> dict[str, Tensor]:
        """Return the tensors at a path."""
        tensors: dict[str, Tensor] = load(self._bytes(path))
        return tensors

    def _bytes(self, path: str, content: Mapping[str, Any] | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        body = None if content is None else json.dumps(content, allow_nan=False).encode()
        request = Request(self.url + path, body, headers)
        try:
            with _STAYING.open(request, timeout=self.timeout) as reply:
                whole: bytes = reply.read()
                return whole
        except HTTPError as error:
            if 300 <= error.code < 400:
                raise CloveError(self._sent_on(error)) from None
            raise CloveError(f"{self.url} refuses: {_detail(error)}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise CloveError(f"{self.url} cannot be reached: {reason}") from None

    def _sent_on(self, error: HTTPError) -> str:
        """Say where a service sends on, and that nothing was sent there."""
        where = urljoin(error.url, error.headers.get("Location", ""))
        return (
            f"{self.url} sends on to {where!r}, and nothing was sent there: if it is the service "
            "you mean, give its address"
        )

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Say so where what comes back is not what `clove serve` sends."""
        try:
            yield
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise CloveError(
                f"{self.url} does not answer as `clove serve` does: {error}"
            ) from error


def _detail(error: HTTPError) -> str:
    """Return why a service refuses, in its own words."""
    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
