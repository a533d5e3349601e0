"""Convolutions of many clients on the tensor cores of a GPU, as kernels of our own (in Triton).

A library's kernel for many small convolutions is far from what a single large one reaches. Here a
convolution of all clients is one launch: each program makes one tile of one client's outputs, as a
product of matrices whose left side is gathered from the images on the way, so that no window is
ever written out. Images lie with their channels last, `[clients, samples, height, width,
channels]`; of an input that all clients share there is one. Nothing is added in an order that
depends on luck, so that runs repeat to the bit.

Batch normalisation, ReLU and max-pooling that follow are kernels of their own: statistics come
from the tiles while these are at hand, and on the way back what was largest is looked up again
instead of being kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from clove.federation import tile_programs as programs

PLAIN, NOTING, POOLING = 0, 1, 2  # what becomes of a tile: kept, kept and summed up, or pooled


@dataclass(frozen=True)
class Tile:
    """How large the tiles of a product are, and how a program works on one."""

    rows: int
    filters: int
    depth: int
    warps: int = 4
    stages: int = 3

    def sizes(self) -> dict[str, int]:
        """Return it as a kernel's settings."""
        return {
            "tile_rows": self.rows,
            "tile_filters": self.filters,
            "tile_depth": self.depth,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


MOST_CHANNELS = 64  # that a program over windows looks at
NUMBERS = 2048  # of these windows' outputs: the fewer channels, the more windows
ENOUGH_PROGRAMS = 528  # four for each processor of a large GPU
LEAST_SHARE = 512  # places a program adds up over: with fewer the partial sums cost more


def tile_for(channels: int, number: int, half: bool) -> Tile:
    """Return the tiles of a convolution's product: what `benchmarks/tiles.py` found fastest."""
    filters = min(128, max(16, triton.next_power_of_2(number)))
    if channels % 16:
        return Tile(128, filters, 32, stages=2)
    return Tile(128, filters, math.gcd(channels, 64 if half else 32))


def tile_for_filters(channels: int, number: int, half: bool) -> Tile:
    """Return the tiles of the product that filters' gradients are, found likewise."""
    filters = min(128 if half else 64, max(16, triton.next_power_of_2(number)))
    if channels % 16:
        return Tile(128, min(filters, 64), 32, stages=2)
    if not half:  # both sides lie the wrong way for a warp group, so pairs of warps do it
        return Tile(32, filters, math.gcd(channels, 128), warps=2)
    depth = math.gcd(channels, 128)
    return Tile(64, filters, depth, warps=8 if depth == filters == 128 else 4)


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _computed(tensor: Tensor) -> torch.dtype:
    """Return the type that networks run in here."""
    if torch.is_autocast_enabled(tensor.device.type):
        return torch.get_autocast_dtype(tensor.device.type)
    return tensor.dtype


def convolved(
    images: Tensor,
    filters: Tensor,
    padding: int,
    *,
    shift: Tensor | None = None,
    mode: int = PLAIN,
    turned: bool = False,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Convolve images `[clients, samples, height, width, channels]`, or `[1, ...]` if shared.

    Filters are `[clients, number, size, size, channels]`, and may be turned round. Returns the
    outputs, and when noting the mean and the sum of squares about it of each tile,
    `[clients, tiles, 2, number]`.
    """
    clients, number, size, _, channels = filters.shape
    shared, samples, lines, columns, _ = images.shape
    height, width = lines + 2 * padding - size + 1, columns + 2 * padding - size + 1
    rows = samples * height * width
    tile = tile or tile_for(channels, number, images.dtype == torch.bfloat16)
    sides = (height // 2, width // 2) if mode == POOLING else (height, width)
    outputs = images.new_empty((clients, samples, *sides, number))
    tiles = triton.cdiv(rows, tile.rows)
    noted = None
    if mode == NOTING:
        noted = images.new_empty((clients, tiles, 2, number), dtype=torch.float32)
    programs.convolve[tiles * triton.cdiv(number, tile.filters), clients](
        *(images, filters, shift, outputs, noted, rows),
        0 if shared == 1 else images.stride(0),
        *(channels, number, height, width, size, padding, mode, turned),
        *(shift is not None, _precision()),
        **tile.sizes(),
    )
    return outputs, noted


def filter_gradient(
    images: Tensor, gradient: Tensor, size: int, padding: int, tile: Tile | None = None
) -> Tensor:
    """Return the gradient of filters as torch has them, `[clients, number, channels, ...]`."""
    clients, samples, height, width, number = gradient.shape
    channels, rows = images.shape[-1], samples * height * width
    tile = tile or tile_for_filters(channels, number, images.dtype == torch.bfloat16)
    depth = size * size * channels
    tiles = triton.cdiv(number, tile.filters) * triton.cdiv(depth, tile.depth)
    most = max(rows // LEAST_SHARE, 1)
    shares = min(max(triton.cdiv(ENOUGH_PROGRAMS, tiles * clients), 1), most)
    steps = triton.cdiv(rows, shares * tile.rows)
    shares = triton.cdiv(rows, steps * tile.rows)
    parts = images.new_empty((clients, shares, number, depth), dtype=torch.float32)
    programs.filter_gradient[tiles, shares, clients](
        *(images, gradient, parts, rows, 0 if len(images) == 1 else images.stride(0), steps),
        *(channels, number, height, width, size, padding, _precision()),
        **tile.sizes(),
    )
    whole = parts[:, 0] if shares == 1 else parts.sum(1)
    return whole.view(clients, number, channels, size, size)


def convolution(images: Tensor, filters: Tensor, padding: int) -> Tensor:
    """Convolve each client's images, channels last, with its filters, as torch has these."""
    found: Tensor = _Convolution.apply(_ready(images), filters, padding)
    return found


def pooled_convolution(
    images: Tensor, filters: Tensor, shift: Tensor | None, padding: int
) -> Tensor:
    """Convolve, shift, cut off below nought, and keep the largest of each window of two by two."""
    return convolved(_ready(images), _last(filters), padding, shift=shift, mode=POOLING)[0]


def activated_convolution(
    images: Tensor, filters: Tensor, shift: Tensor | None, padding: int
) -> Tensor:
    """Do the same in training: what it takes to find the gradients is kept."""
    if shift is None:
        shift = filters.new_zeros(filters.shape[:2])
    found: Tensor = _ActivatedConvolution.apply(_ready(images), filters, shift, padding)
    return found


def normalised_convolution(
    images: Tensor, filters: Tensor, weight: Tensor, bias: Tensor, padding: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Convolve, normalise by the batch, cut off below nought, keep the largest of each window.

    Returns also each channel's mean and variance before it was normalised, and of how many numbers.
    """
    images = _ready(images)
    y, mean, variance = _NormalisedConvolution.apply(images, filters, weight, bias, padding, eps)
    return y, mean, variance, 4 * math.prod(y.shape[1:4])


def _ready(images: Tensor) -> Tensor:
    return images.to(_computed(images)).contiguous()


def _last(filters: Tensor) -> Tensor:
    """Return filters with their channels last, in the type networks run in: one copy does both."""
    last = filters.movedim(2, -1)
    found = torch.empty(last.shape, dtype=_computed(filters), device=filters.device)
    return found.copy_(last)


def _image_gradient(gradient: Tensor, filters: Tensor, padding: int) -> Tensor:
    """Return the gradient of images: a convolution with the filters turned round."""
    across = filters.transpose(1, -1).contiguous()
    return convolved(gradient, across, filters.shape[2] - 1 - padding, turned=True)[0]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, filters: Tensor, padding: int) -> Tensor:
        last = _last(filters)
        ctx.save_for_backward(images, last)
        ctx.padding = padding
        return convolved(images, last, padding)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        images, filters = ctx.saved_tensors
        return *_gradients(ctx, images, filters, gradient.contiguous()), None


class _ActivatedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, filters: Tensor, shift: Tensor, padding: int) -> Tensor:
        last = _last(filters)
        values, _ = convolved(images, last, padding)
        ctx.save_for_backward(images, last, values, shift)
        ctx.padding = padding
        return normalised_and_pooled(values, torch.ones_like(shift), shift)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        images, filters, values, shift = ctx.saved_tensors
        nought = torch.zeros_like(shift)
        moments = [nought, nought, torch.ones_like(shift), shift]  # as if they were of no batch
        slopes, _, of_shift = pooled_gradient(values, gradient.contiguous(), moments, fixed=True)
        return *_gradients(ctx, images, filters, slopes), of_shift, None


class _NormalisedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        filters: Tensor,
        weight: Tensor,
        bias: Tensor,
        padding: int,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        last = _last(filters)
        tile = tile_for(last.shape[-1], last.shape[1], last.dtype == torch.bfloat16)
        values, noted = convolved(images, last, padding, mode=NOTING, tile=tile)
        assert noted is not None
        mean, variance = _moments(noted, math.prod(values.shape[1:4]), tile.rows)
        rate = (variance + eps).rsqrt()
        scale = rate * weight
        shift = bias - mean * scale
        ctx.save_for_backward(images, last, values, mean, rate, scale, shift)
        ctx.padding = padding
        ctx.mark_non_differentiable(mean, variance)
        return normalised_and_pooled(values, scale, shift), mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        images, filters, values, *moments = ctx.saved_tensors
        slopes, of_weight, of_bias = pooled_gradient(values, gradient.contiguous(), moments)
        return *_gradients(ctx, images, filters, slopes), of_weight, of_bias, None, None


def _gradients(
    ctx: Any, images: Tensor, filters: Tensor, gradient: Tensor
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients of images, if they are wanted, and of filters as torch has these."""
    of_filters = filter_gradient(images, gradient, filters.shape[2], ctx.padding)
    if not ctx.needs_input_grad[0]:
        return None, of_filters
    return _image_gradient(gradient, filters, ctx.padding), of_filters


def normalised_and_pooled(values: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Scale and shift values, cut off below nought, and keep the largest of each window."""
    clients, samples, height, width, channels = values.shape
    outputs = values.new_empty((clients, samples, height // 2, width // 2, channels))
    grid, shape, sizes = _windows(values)
    programs.normalise_and_pool[grid](values, scale, shift, outputs, *shape, **sizes)
    return outputs


def pooled_gradient(
    values: Tensor, gradient: Tensor, moments: list[Tensor], fixed: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of what was normalised and pooled, and of its weight and bias.

    Moments are mean, the inverse of the deviation, and the scale and shift these came to. They
    depend on the values, unless they are `fixed`.
    """
    grid, shape, sizes = _windows(values)
    sums = values.new_empty((len(values), grid[0], 2, values.shape[-1]), dtype=torch.float32)
    programs.pooled_sums[grid](values, gradient, *moments, sums, *shape, **sizes)
    totals = sums.sum(1)
    slopes = torch.empty_like(values)
    through = torch.zeros_like(totals) if fixed else totals  # what goes by way of the moments
    programs.pooled_gradient[grid](values, gradient, *moments, through, slopes, *shape, **sizes)
    return slopes, totals[:, 1], totals[:, 0]


def _windows(
    values: Tensor,
) -> tuple[tuple[int, int, int], tuple[int, int, int, int], dict[str, int]]:
    """Return the grid of programs over windows, what these know of the values, and their sizes."""
    clients, samples, height, width, channels = values.shape
    windows = samples * height * width // 4
    of = min(MOST_CHANNELS, triton.next_power_of_2(channels))
    sizes = {"tile_windows": NUMBERS // of, "tile_channels": of}
    grid = triton.cdiv(windows, sizes["tile_windows"]), triton.cdiv(channels, of), clients
    return grid, (windows, channels, height, width), sizes


def _moments(noted: Tensor, rows: int, tile_rows: int) -> tuple[Tensor, Tensor]:
    """Join the tiles' means and sums of squares; return means and variances, a row a client."""
    means, squares = noted.unbind(2)
    counts = noted.new_full((noted.shape[1], 1), tile_rows)
    counts[-1] = rows - tile_rows * (noted.shape[1] - 1)
    mean = (means * counts).sum(1) / rows
    away = (means - mean.unsqueeze(1)).square() * counts
    return mean, (squares + away).sum(1) / rows
