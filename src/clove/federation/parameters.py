"""Parameters of many models as one stack: every tensor has a leading model axis.

Trainable parameters and buffers (running statistics) travel and are averaged together. Stacks are
never changed in place: a function that changes one returns a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clove.federation.precision import exact_products

Parameters = Mapping[str, Tensor]
Indices = NDArray[np.int64]


def stack(models: Sequence[Parameters]) -> dict[str, Tensor]:
    """Stack single models (tensors without a model axis) into one; one alone is not copied."""
    if len(models) == 1:
        return {name: tensor.unsqueeze(0) for name, tensor in models[0].items()}
    return {name: torch.stack([model[name] for model in models]) for name in models[0]}


def concatenate(stacks: Sequence[Parameters]) -> dict[str, Tensor]:
    """Join stacks along the model axis."""
    return {name: torch.cat([one[name] for one in stacks]) for name in stacks[0]}


def count(models: Parameters) -> int:
    """Return how many models a stack holds."""
    return len(next(iter(models.values()), ()))


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device, without waiting for what that is doing."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def download(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """Set off a tensor's way to the host; return what waits for it, and for nothing after it."""
    if not tensor.is_cuda:
        return tensor.numpy
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()

    def wait() -> NDArray[Any]:
        arrived.synchronize()
        return host.numpy()

    return wait


def pick(models: Parameters, index: Indices) -> dict[str, Tensor]:
    """Return the stack of the models named by `index`, repeats allowed."""
    if not models:
        return {}
    where = upload(np.asarray(index, dtype=np.int64), _device(models))
    return {name: tensor.index_select(0, where) for name, tensor in models.items()}


def one(models: Parameters, index: int) -> dict[str, Tensor]:
    """Return a single model of a stack, without the model axis."""
    return {name: tensor[index] for name, tensor in models.items()}


def repeat(model: Parameters, times: int) -> dict[str, Tensor]:
    """Return a stack of the same single model."""
    return {n: t.unsqueeze(0).repeat(times, *[1] * t.dim()) for n, t in model.items()}


def replace_rows(models: Parameters, index: Indices, rows: Parameters) -> dict[str, Tensor]:
    """Return the stack with the models named by `index` replaced by `rows`, in that order.

    Entries that the rows lack stay as they are.
    """
    where = upload(np.asarray(index, dtype=np.int64), _device(models))
    return {
        name: tensor.index_copy(0, where, rows[name].to(tensor)) if name in rows else tensor
        for name, tensor in models.items()
    }


def move(models: Parameters, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the stack on a device, floating tensors in the given precision."""
    return {
        name: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in models.items()
    }


def model_bytes(models: Parameters) -> int:
    """Return the size of one model of a stack."""
    return sum(_size(t) * t.element_size() for t in models.values()) if count(models) else 0


def finite_rows(models: Parameters) -> Callable[[], NDArray[np.bool_]]:
    """Find out of each model of a stack whether all its numbers are finite; wait for it later."""
    # Nought times a number is nought, unless the number is not finite.
    numbers = [
        p for kind, parts in _by_kind(models).items() if kind.is_floating_point for p in parts
    ]
    return download(torch.stack([part.mul(0).sum(1) for part in numbers]).sum(0) == 0)


def difference(models: Parameters, others: Parameters) -> dict[str, Tensor]:
    """Return what each model of a stack has more than that of another in its place."""
    return {name: tensor - others[name] for name, tensor in models.items()}


def inner_products(
    models: Parameters, others: Parameters, leave_out: Collection[str] = ()
) -> NDArray[np.float64]:
    """Return the inner product of each model of a stack with each of another, `[models, others]`.

    Lengths, distances and angles all follow from these, for thousands of clients at once. Numbers
    are multiplied in double precision, so that small differences of long vectors come out right,
    and tensor by tensor, so that there is never such a copy of all.
    """
    total = torch.zeros(count(models), count(others), dtype=torch.float64, device=_device(models))
    for name, tensor in models.items():
        if tensor.is_floating_point() and name not in leave_out:
            one, other = (t.reshape(len(t), _size(t)).double() for t in (tensor, others[name]))
            total += one @ other.T
    return np.asarray(total.cpu().numpy())


def squared_lengths(models: Parameters, leave_out: Collection[str] = ()) -> NDArray[np.float64]:
    """Return the inner product of each model of a stack with itself."""
    total = torch.zeros(count(models), dtype=torch.float64, device=_device(models))
    for name, tensor in models.items():
        if tensor.is_floating_point() and name not in leave_out:
            total += tensor.reshape(len(tensor), _size(tensor)).double().square().sum(1)
    return np.asarray(total.cpu().numpy())


def combined(models: Parameters, shares: NDArray[np.float64]) -> dict[str, Tensor]:
    """Return weighted sums of the models of a stack, by a table of shares `[sums, models]`."""
    sums = _weighted_sums(models, shares)
    return _unflat({kind: _rounded(kind, total) for kind, total in sums.items()}, models)


def _device(models: Parameters) -> torch.device:
    return next(iter(models.values())).device


class GroupSums:
    """Weighted sums of models per group, added up stack by stack.

    So the average of a thousand clients never needs a thousand models in memory. What a stack adds
    to is one matrix for each type of number: a few large operations instead of many small ones,
    on the groups alone that are in the stack.
    """

    def __init__(self, groups: int) -> None:
        self.weights = np.zeros(groups)
        self._like: Parameters = {}  # a model, for names, shapes and types
        self._sums: dict[torch.dtype, dict[int, Tensor]] = {}

    def copy(self) -> GroupSums:
        """Return the sums as they are now, whatever is added later."""
        same = GroupSums(0)
        same.weights, same._sums, same._like = self.weights.copy(), self._copied(), self._like
        return same

    def _copied(self) -> dict[torch.dtype, dict[int, Tensor]]:
        """Return the sums, to be added to: the tensors themselves never change."""
        return {kind: dict(sums) for kind, sums in self._sums.items()}

    def add(self, models: Parameters, groups: Indices, weights: NDArray[np.float64]) -> None:
        """Add each model, times its weight, to its group."""
        met, rows = np.unique(groups, return_inverse=True)
        table = np.zeros((len(met), len(groups)))
        table[rows, np.arange(len(groups))] = weights
        sums, more = self._copied(), self.weights.copy()
        for kind, totals in _weighted_sums(models, table).items():
            so_far = sums.setdefault(kind, {})
            for group, total in zip(met.tolist(), totals, strict=True):
                so_far[group] = so_far[group] + total if group in so_far else total
        more[met] += table.sum(1)
        # All at the end: where memory runs out on the way, nothing has been added.
        self.weights, self._sums = more, sums
        self._like = {name: tensor[:1] for name, tensor in models.items()}

    def means(self) -> dict[str, Tensor]:
        """Return the weighted mean of each group; a group of no weight comes out as zeros."""
        device = _device(self._like)
        safe = upload(np.where(self.weights > 0, self.weights, 1.0)[:, None], device)
        means = {}
        for kind, sums in self._sums.items():
            nothing = torch.zeros_like(next(iter(sums.values())))
            total = torch.stack([sums.get(g, nothing) for g in range(len(self.weights))])
            means[kind] = _rounded(kind, total.div_(safe.to(total.dtype)))
        return _unflat(means, self._like)


def _weighted_sums(models: Parameters, shares: NDArray[np.float64]) -> dict[torch.dtype, Tensor]:
    """Return weighted sums of models, a matrix `[sums, numbers]` for each type of number.

    Whole numbers are added up in double precision.
    """
    weights, sums = upload(shares, _device(models)), {}
    # A matrix product adds in a fixed order on every device; scattered adds do not.
    with exact_products():
        for kind, parts in _by_kind(models).items():
            exact = kind if kind.is_floating_point else torch.float64
            sums[kind] = torch.cat([weights.to(exact) @ part.to(exact) for part in parts], 1)
    return sums


def _rounded(kind: torch.dtype, numbers: Tensor) -> Tensor:
    """Return numbers as they are, or as the whole numbers they stand for."""
    return numbers if kind.is_floating_point else numbers.round().to(kind)


def _by_kind(models: Parameters) -> dict[torch.dtype, list[Tensor]]:
    """Return a stack as matrices `[models, numbers]` by type of number.

    On a GPU those of a type are joined, for few large operations; elsewhere that would cost more
    than it saves.
    """
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in models.values():
        kinds.setdefault(tensor.dtype, []).append(tensor.reshape(count(models), _size(tensor)))
    if _device(models).type != "cuda":
        return kinds
    return {kind: [torch.cat(parts, 1)] for kind, parts in kinds.items()}


def _unflat(flat: Mapping[torch.dtype, Tensor], like: Parameters) -> dict[str, Tensor]:
    """Return matrices as the stack of models they are of, each shaped as those in `like`."""
    parts = {
        kind: iter(torch.split(whole, [_size(t) for t in like.values() if t.dtype == kind], 1))
        for kind, whole in flat.items()
    }
    return {
        name: next(parts[t.dtype]).reshape(-1, *t.shape[1:]).contiguous()
        for name, t in like.items()
    }


def _size(tensor: Tensor) -> int:
    """Return how many numbers a model has in this tensor of a stack."""
    return tensor.shape[1:].numel()
