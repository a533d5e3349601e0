"""The layers of a stacked network: each runs for many clients at once, or for one of them.

`at` says where the client axis of a tensor is: 0, 1, or None where all clients share it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from clove.federation.heads import noting_input, prefix
from clove.federation.norm import Tape, TapedBatchNorm

Stack = Mapping[str, Tensor]
At = int | None

KERNELS = ("grouped", "channels-last", "unfolded", "one by one", "tiled")
ONE_BY_ONE, TILED = KERNELS[3:]
MANY_CHANNELS = 16  # fill a processor's vectors


@dataclass(frozen=True)
class Spread:
    """A tensor of many clients, and where their axis is."""

    tensor: Tensor
    at: At

    def front(self) -> Tensor:
        """Return it with the clients' axis first."""
        assert self.at is not None
        return self.tensor.movedim(self.at, 0)

    def placed(self, clients: int, axis: int) -> Tensor:
        """Return it with the axis of so many clients here, also where they share the tensor."""
        if self.at is None:
            return self.tensor.unsqueeze(axis).expand(
                *self.tensor.shape[:axis], clients, *self.tensor.shape[axis:]
            )
        return self.tensor.movedim(self.at, axis)

    def channels_last(self) -> Tensor:
        """Return images with clients first and channels last; shared ones as those of one."""
        images = self.tensor.unsqueeze(0) if self.at is None else self.front()
        return images.movedim(2, -1)

    def second(self) -> Tensor:
        """Return it with the clients' axis second, after the samples."""
        assert self.at is not None
        return self.tensor.movedim(self.at, 1)


class Layer(ABC):
    """One layer of a stacked network."""

    @abstractmethod
    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Run it with the parameters of each client."""


class ImageLayer(Layer):
    """A layer that can also run for one client alone, whose images lie as suits the device."""

    #: what the names of its parameters and buffers begin with
    prefixes: tuple[str, ...] = ()

    @abstractmethod
    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Run it with one client's parameters.

        In training new statistics are left in `updates`; None: this is an evaluation.
        """


class Elementwise(ImageLayer):
    """A layer that treats every number alike, so that axes do not matter to it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Run the module on the tensor as it is."""
        return Spread(self.module(x.tensor), x.at)

    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Run the module."""
        y: Tensor = self.module(x)
        return y


class Flatten(Layer):
    """Everything of a sample on one axis."""

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Flatten behind samples and clients."""
        return Spread(x.tensor.flatten(1 if x.at is None else 2), x.at)


class Pooling(ImageLayer):
    """Pooling of images: clients join the channels, or the samples, wherever they stand."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.in_pairs = isinstance(module, nn.MaxPool2d) and by_two(module)

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Pool each channel by itself."""
        if self.in_pairs and not x.tensor.requires_grad:
            return Spread(largest_of_four(x.tensor), x.at)
        images = x.tensor if x.at is None else x.tensor.flatten(x.at, x.at + 1)
        if self.in_pairs and not suits_torch(images):
            return Spread(LargestOfFour.apply(x.tensor), x.at)  # type: ignore[no-untyped-call]
        pooled = self.module(images)
        if x.at is not None:
            pooled = _split(pooled, x.at, x.tensor.shape[x.at : x.at + 2])
        return Spread(pooled, x.at)

    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Pool each channel by itself."""
        if self.in_pairs and updates is None:
            return largest_of_four(x)
        y: Tensor = self.module(x)
        return y


class Linear(Layer):
    """A matrix for each client."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Multiply each client's samples by its matrix."""
        if tape.head is not None and self.name == prefix(tape.head):
            tape.features = x
        weight, bias = own[f"{self.name}weight"], own.get(f"{self.name}bias")
        if x.at is None:
            y = x.tensor @ weight.flatten(0, 1).mT
            y = y if bias is None else y + bias.flatten()
            return Spread(_split(y, -1, weight.shape[:2]).movedim(-2, 1), 1)
        inputs = x.front()
        between = inputs.shape[1:-1]
        # The matrices come first: so their gradients are laid out as they are, and need no copy.
        inputs = inputs.flatten(1, -2).mT
        y = weight @ inputs if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, inputs)
        return Spread(_split(y.mT, 1, between), 0)


class Convolution(ImageLayer):
    """A set of filters for each client, by one of `KERNELS`.

    Client by client it is `one_by_one` that runs it; what cannot be run so is grouped.
    """

    def __init__(self, module: nn.Conv2d, name: str) -> None:
        self.module, self.name, self.prefixes = module, name, (name,)
        self.kernel = self.evaluation_kernel = KERNELS[0]

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Convolve each client's images with its filters."""
        bias = own.get(f"{self.name}bias")
        return self.convolve(own[f"{self.name}weight"], bias, x, tape)

    def convolve(self, weight: Tensor, bias: Tensor | None, x: Spread, tape: Tape) -> Spread:
        """Convolve with these filters."""
        clients, kernel = len(weight), self.chosen(tape)
        if kernel == TILED and self.suits_tiles:
            return self._tiled(weight, bias, x)
        if x.at is None or clients == 1:
            return self._shared(weight, bias, x, tape)
        if kernel == "unfolded":
            return self._unfolded(weight, bias, x.front())
        images = x.second().flatten(1, 2)
        if kernel == "channels-last":
            images = channels_last(images)
        y = self.plain(images, weight.flatten(0, 1), _flat(bias), groups=clients)
        return Spread(_split(y, 1, (clients, -1)), 1)

    def chosen(self, tape: Tape) -> str:
        """Return the kernel for training, or for evaluation."""
        return self.evaluation_kernel if tape.weight is None else self.kernel

    def plain(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
        """Convolve as torch does."""
        module = self.module
        return F.conv2d(
            x, weight, bias, module.stride, module.padding, module.dilation, groups=groups
        )

    def _shared(self, weight: Tensor, bias: Tensor | None, x: Spread, tape: Tape) -> Spread:
        """Convolve images that are everybody's: all filters are those of one convolution."""
        images = x.tensor if x.at is None else x.tensor.squeeze(x.at)
        if tape.weight is None and self.evaluation_kernel == "channels-last":
            images = channels_last(images)
        y = self.plain(images, weight.flatten(0, 1), _flat(bias))
        return Spread(_split(y, 1, (len(weight), -1)), 1)

    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Convolve this client's images."""
        return self.plain(x, own[f"{self.name}weight"], own.get(f"{self.name}bias"))

    def _tiled(self, weight: Tensor, bias: Tensor | None, x: Spread) -> Spread:
        """Convolve by tiles of all clients at once."""
        y = tiles().convolution(x.channels_last(), weight, self.padding)
        y = y if bias is None else y + bias.to(y.dtype)[:, None, None, None]
        return Spread(y.movedim(-1, 2), 0)

    @property
    def suits_tiles(self) -> bool:
        """Say whether filters are square and go from place to place."""
        (rows, columns), stride = self.module.kernel_size, self.module.stride
        padding = self.module.padding
        return rows == columns and stride == (1, 1) and padding in [(n, n) for n in range(rows)]

    @property
    def padding(self) -> int:
        """How far images are continued by noughts, on all sides alike."""
        assert isinstance(self.module.padding, tuple)
        return self.module.padding[0]

    def _unfolded(self, weight: Tensor, bias: Tensor | None, x: Tensor) -> Spread:
        """Write out the window under each place of a filter, and multiply matrices."""
        windows = self._windows(x)  # clients, samples, channels, height, width, rows, columns
        clients, samples, _, height, width = windows.shape[:5]
        columns = windows.permute(0, 1, 3, 4, 5, 6, 2).flatten(4).flatten(1, 3)
        filters = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
        y = torch.bmm(columns, filters)
        y = y if bias is None else y + bias.unsqueeze(1)
        return Spread(y.view(clients, samples, height, width, -1).movedim(-1, 2), 0)

    def _windows(self, x: Tensor) -> Tensor:
        assert not isinstance(self.module.padding, str)
        (top, left), (down, right) = self.module.padding, self.module.stride
        x = F.pad(x, (left, left, top, top)) if top or left else x
        rows, columns = self.module.kernel_size
        return x.unfold(-2, rows, down).unfold(-2, columns, right)


class Normalisation(ImageLayer):
    """Batch normalisation of each client's own batch."""

    def __init__(self, module: TapedBatchNorm, name: str) -> None:
        self.module, self.name, self.prefixes = module, name, (name,)

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Normalise by running statistics in evaluation, by those of the real samples else."""
        if x.at is None or (tape.padded and tape.weight is not None) or self._by_count():
            return by_vmap(self.module, self.name, own, x, tape)
        clients = x.tensor.shape[x.at]
        mean, variance = (self._running(own, tape, which) for which in ("mean", "var"))
        training = tape.weight is not None or mean is None
        y = F.batch_norm(
            x.second().flatten(1, 2),
            _flat(mean),
            _flat(variance),
            _flat(own.get(f"{self.name}weight")),
            _flat(own.get(f"{self.name}bias")),
            training=training,
            momentum=self.module.momentum or 0.0,
            eps=self.module.eps,
        )
        if training and mean is not None and variance is not None:
            seen = f"{self.name}num_batches_tracked"
            tape.updates |= {
                f"{self.name}running_mean": mean,
                f"{self.name}running_var": variance,
                seen: tape.updates.get(seen, own[seen]) + 1,
            }
        return Spread(_split(y, 1, (clients, -1)), 1)

    def _by_count(self) -> bool:
        return self.module.momentum is None

    @property
    def runs_alone(self) -> bool:
        """Say whether torch's own function does all of it."""
        return self.module.running_mean is not None and not self._by_count()

    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Normalise this client's batch."""
        mean, variance = own[f"{self.name}running_mean"], own[f"{self.name}running_var"]
        if updates is not None:  # copies, which torch moves on
            mean, variance = mean.detach().clone(), variance.detach().clone()
        y = F.batch_norm(
            x,
            mean,
            variance,
            own.get(f"{self.name}weight"),
            own.get(f"{self.name}bias"),
            training=updates is not None,
            momentum=self.module.momentum or 0.0,
            eps=self.module.eps,
        )
        if updates is not None:
            updates |= {
                f"{self.name}running_mean": mean,
                f"{self.name}running_var": variance,
                f"{self.name}num_batches_tracked": own[f"{self.name}num_batches_tracked"] + 1,
            }
        return y

    def _running(self, own: Stack, tape: Tape, which: str) -> Tensor | None:
        """Return running statistics; in training a copy, which torch then moves on."""
        name = f"{self.name}running_{which}"
        latest = tape.updates.get(name, own.get(name))
        if latest is None or tape.weight is None:
            return latest
        return latest.detach().clone()

    def affine(self, own: Stack) -> tuple[Tensor, Tensor]:
        """Return the scale and shift that follow normalisation."""
        mean = own[f"{self.name}running_mean"]
        weight, bias = own.get(f"{self.name}weight"), own.get(f"{self.name}bias")
        return (
            torch.ones_like(mean) if weight is None else weight,
            torch.zeros_like(mean) if bias is None else bias,
        )

    def note(self, own: Stack, tape: Tape, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics on by those of a batch."""
        momentum = self.module.momentum or 0.0
        for name, value in (("running_mean", mean), ("running_var", variance)):
            before = tape.updates.get(self.name + name, own[self.name + name])
            tape.updates[self.name + name] = torch.lerp(before.detach(), value, momentum)
        seen = f"{self.name}num_batches_tracked"
        tape.updates[seen] = tape.updates.get(seen, own[seen]) + 1

    def folded(self, own: Stack) -> tuple[Tensor, Tensor]:
        """Return the scale and shift it comes to in evaluation, `[clients, channels]` each."""
        mean, variance = own[f"{self.name}running_mean"], own[f"{self.name}running_var"]
        scale = (variance + self.module.eps).rsqrt()
        scale = scale * own[f"{self.name}weight"] if f"{self.name}weight" in own else scale
        shift = -mean * scale
        return scale, shift + own[f"{self.name}bias"] if f"{self.name}bias" in own else shift


class PooledConvolution(ImageLayer):
    """Convolution, batch normalisation if any, ReLU and max-pooling, in a cheaper order.

    Adding a bias and cutting off below nought change no order between numbers, so the largest of a
    window can be taken first: the same result but for rounding, from a quarter of the work. In
    evaluation batch normalisation is a scale and a shift, which join the filters and the bias.
    """

    def __init__(
        self, convolution: Convolution, normalisation: Normalisation | None, pool: Pooling
    ) -> None:
        self.convolution, self.normalisation, self.pool = convolution, normalisation, pool
        self.prefixes = convolution.prefixes + (normalisation.prefixes if normalisation else ())

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Run all of them."""
        if self._by_tiles(x, tape):
            return self._tiled(own, x, tape)
        if self.normalisation is not None and (
            tape.weight is not None or self.normalisation.module.running_mean is None
        ):
            y = self.normalisation(own, self.convolution(own, x, tape), tape)
            y = self.pool(own, y, tape)
            return Spread(y.tensor.relu(), y.at)
        weight, shift = self._folded(own)
        # On a CPU a bias costs nothing where it is added, and its gradient less after pooling.
        early = None if x.tensor.is_cuda or torch.is_grad_enabled() else shift
        y = self.pool(own, self.convolution.convolve(weight, early, x, tape), tape)
        if shift is not None and early is None:
            shift = shift if y.at == 1 else shift.unsqueeze(1)  # as wide as the channels' axis
            y = Spread(y.tensor + shift.to(y.tensor.dtype)[..., None, None], y.at)
        return Spread(y.tensor.relu(), y.at)

    def alone(self, own: Stack, x: Tensor, updates: dict[str, Tensor] | None) -> Tensor:
        """Run all of them for one client."""
        if self.normalisation is not None and updates is not None:
            x = self.convolution.alone(own, x, updates)
            x = self.normalisation.alone(own, x, updates)
            return self.pool.alone(own, x, updates).relu()
        weight, shift = self._folded(own)
        y = self.pool.alone(own, self.convolution.plain(x, weight, None), updates)
        y = y if shift is None else y + shift.to(y.dtype)[..., None, None]
        return y.relu()

    def _by_tiles(self, x: Spread, tape: Tape) -> bool:
        """Say whether tiles can do all of it; if not, they may do the convolution."""
        norm, convolution = self.normalisation, self.convolution
        if convolution.chosen(tape) != TILED or not convolution.suits_tiles:
            return False
        grown = 2 * convolution.padding + 1 - convolution.module.kernel_size[0]
        if not self.pool.in_pairs or any((side + grown) % 2 for side in x.tensor.shape[-2:]):
            return False
        if norm is None:
            return True
        if tape.weight is None:  # on the way to a gradient outputs must be kept
            return not torch.is_grad_enabled() and norm.runs_alone
        return norm.runs_alone and not tape.padded

    def _tiled(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Run all of them by tiles; a bias has no effect on what is normalised by the batch."""
        norm, padding, name = self.normalisation, self.convolution.padding, self.convolution.name
        images = x.channels_last()
        if norm is None or tape.weight is None:
            kept = torch.is_grad_enabled()
            run = tiles().activated_convolution if kept else tiles().pooled_convolution
            y = run(images, *self._folded(own), padding)
            return Spread(y.movedim(-1, 2), 0)
        weight, bias = own[f"{name}weight"], own.get(f"{name}bias")
        y, mean, variance, count = tiles().normalised_convolution(
            images, weight, *norm.affine(own), padding, norm.module.eps
        )
        mean = mean if bias is None else mean + bias.detach()
        norm.note(own, tape, mean, variance * (count / max(count - 1, 1)))
        return Spread(y.movedim(-1, 2), 0)

    def _folded(self, own: Stack) -> tuple[Tensor, Tensor | None]:
        name = self.convolution.name
        weight, bias = own[f"{name}weight"], own.get(f"{name}bias")
        if self.normalisation is None:
            return weight, bias
        scale, shift = self.normalisation.folded(own)
        shift = shift if bias is None else shift + bias * scale
        return weight * scale[..., None, None, None], shift


class Other(Layer):
    """Any other module, by vmap."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Map the module over the clients."""
        return by_vmap(self.module, self.name, own, x, tape)


def by_vmap(module: nn.Module, name: str, own: Stack, x: Spread, tape: Tape) -> Spread:
    """Run a module for each client by vmap, and take its new statistics off the tape."""
    mine = {n.removeprefix(name): t for n, t in own.items() if n.startswith(name)}
    known = {n for n, _ in [*module.named_parameters(), *module.named_buffers()]}
    mine = {n: t for n, t in mine.items() if n in known}
    before, weight, axis = tape.updates, tape.weight, tape.at

    def run(
        one: Stack, sample: Tensor, counts: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        tape.updates, tape.weight = {}, counts
        met: list[Tensor] = []
        with _noting_head(module, name, tape, met):
            outputs: Tensor = functional_call(module, dict(one), (sample,))
        return outputs, dict(tape.updates), met[-1:]

    latest = {n: before.get(name + n, t) for n, t in mine.items()}
    try:
        outputs, updates, features = vmap(
            run, in_dims=(0, x.at, None if weight is None else axis), randomness="different"
        )(latest, x.tensor, weight)
    finally:
        tape.updates, tape.weight = before, weight
    tape.updates = before | updates
    if features:
        tape.features = Spread(features[0], 0)
    return Spread(outputs, 0)


def _noting_head(
    module: nn.Module, name: str, tape: Tape, met: list[Tensor]
) -> AbstractContextManager[None]:
    """Note what goes into the head, if it is in this module and somebody wants to know."""
    if tape.head is None or not prefix(tape.head).startswith(name):
        return nullcontext()
    return noting_input(module.get_submodule(tape.head[len(name) :]), met.append)


def tiles() -> ModuleType:
    """Load the kernels in Triton: not every machine has it, and it takes a second."""
    from clove.federation import tiles

    return tiles


def by_two(module: nn.MaxPool2d) -> bool:
    """Say whether this pools windows of two by two, each beside the next."""
    sizes = (module.kernel_size, module.stride)
    plain = (
        not module.ceil_mode and module.padding in (0, (0, 0)) and module.dilation in (1, (1, 1))
    )
    return plain and all(size in (2, (2, 2)) for size in sizes)


def suits_torch(images: Tensor) -> bool:
    """Say whether torch pools such images fast: on a CPU by many channels that lie side by side."""
    if images.is_cuda:
        return True
    side_by_side = images.is_contiguous(memory_format=torch.channels_last)
    return side_by_side and images.shape[1] >= MANY_CHANNELS


def usual(module: nn.Conv2d) -> bool:
    """Say whether all kernels can do this convolution."""
    plain = module.groups == 1 and module.dilation == (1, 1)
    return plain and module.padding_mode == "zeros" and not isinstance(module.padding, str)


def channels_last(images: Tensor) -> Tensor:
    """Lay images out with their channels last.

    Those of a single channel lie so as they are, but torch takes them for the other layout, and
    what a convolution makes of them would be in that one: so their strides are said.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    if images.shape[1] > 1 or images.requires_grad:
        return images
    _, channels, height, width = images.shape
    return images.as_strided(images.shape, (height * width, channels, width, 1))


def largest_of_four(x: Tensor) -> Tensor:
    """Return the largest of each window of two by two, without where it was."""
    height, width = (side // 2 * 2 for side in x.shape[-2:])
    taller = torch.maximum(x[..., :height:2, :], x[..., 1:height:2, :])
    return torch.maximum(taller[..., :width:2], taller[..., 1:width:2])


class LargestOfFour(torch.autograd.Function):
    """The largest of each window of two by two; among equals the first has the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Compare columns, then rows."""
        height, width = (side // 2 * 2 for side in x.shape[-2:])
        left, right = x[..., :height, :width:2], x[..., :height, 1:width:2]
        beside = torch.maximum(left, right)
        upper, lower = beside[..., ::2, :], beside[..., 1::2, :]
        if x.requires_grad:
            ctx.save_for_backward(right > left, lower > upper)
        ctx.shape, ctx.strides = x.shape, torch.empty_like(x, device="meta").stride()
        return torch.maximum(upper, lower)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Hand each gradient to where its number came from."""
        in_right, in_lower = ctx.saved_tensors
        height, width = in_right.shape[-2], 2 * in_right.shape[-1]
        # As the images lie: the convolution before needs no copy then.
        whole = gradient.new_empty_strided(ctx.shape, ctx.strides)
        if ctx.shape[-2:] != (height, width):
            whole.zero_()
        lower = gradient * in_lower
        for row, part in ((0, gradient - lower), (1, lower)):
            right = whole[..., row:height:2, 1:width:2]
            torch.mul(part, in_right[..., row::2, :], out=right)
            torch.sub(part, right, out=whole[..., row:height:2, :width:2])
        return whole


def _split(tensor: Tensor, axis: int, sizes: Sequence[int]) -> Tensor:
    """Make several axes of one."""
    whole: Tensor = tensor.unflatten(axis, sizes)  # type: ignore[no-untyped-call]
    return whole


def _flat(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.flatten(0, 1)
