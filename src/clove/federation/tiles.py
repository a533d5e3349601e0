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
import triton.language as tl
from torch import Tensor

PLAIN, NOTING, POOLING = 0, 1, 2  # what becomes of a tile: kept, kept and summed up, or pooled


# ------------------------------------------------------------------------------------- kernels


@triton.jit
def _places(row, height: tl.constexpr, width: tl.constexpr, by_window: tl.constexpr):
    """Return sample, line and column of rows; by window, four rows are a window of two by two."""
    if by_window:
        window, within = row // 4, row % 4
        line = (window // (width // 2)) % (height // 2) * 2 + within // 2
        column = window % (width // 2) * 2 + within % 2
        sample = window // (height // 2 * (width // 2))
    else:
        line, column = row // width % height, row % width
        sample = row // (height * width)
    return sample, line, column


@triton.jit
def _convolve(
    images,
    filters,
    shift,
    outputs,
    noted,
    rows,
    stride,
    channels: tl.constexpr,
    number: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    size: tl.constexpr,
    padding: tl.constexpr,
    mode: tl.constexpr,
    turned: tl.constexpr,
    shifts: tl.constexpr,
    precision: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_filters: tl.constexpr,
    tile_depth: tl.constexpr,
):
    """Make a tile of one client's outputs: some places by some filters."""
    client = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = (number + tile_filters - 1) // tile_filters
    tile = tl.program_id(0) // across
    row = tile * tile_rows + tl.arange(0, tile_rows)
    of = tl.program_id(0) % across * tile_filters + tl.arange(0, tile_filters)
    real, known = row < rows, of < number
    depth: tl.constexpr = size * size * channels
    lines: tl.constexpr = height + size - 1 - 2 * padding
    columns: tl.constexpr = width + size - 1 - 2 * padding
    sample, line, column = _places(row, height, width, mode == 2)
    line, column = line - padding, column - padding
    corner = ((sample.to(tl.int64) * lines + line) * columns + column) * channels
    image = images + client * stride + corner
    filter = filters + (client * number + of) * depth
    found = tl.zeros((tile_rows, tile_filters), tl.float32)
    inner = tl.arange(0, tile_depth)
    for step in range(tl.cdiv(depth, tile_depth)):
        if channels % tile_depth == 0:  # one place under the filter
            place = step // (channels // tile_depth)
            down, right = place // size, place % size
            first = step % (channels // tile_depth) * tile_depth
            within = (down * columns + right) * channels + first
            here = (line + down >= 0) & (line + down < lines)
            here = here & (column + right >= 0) & (column + right < columns) & real
            left = tl.load(image[:, None] + (within + inner)[None, :], here[:, None], 0.0)
            if turned:
                place = size * size - 1 - place
            at = place * channels + first + inner
            matrix = tl.load(filter[:, None] + at[None, :], known[:, None], 0.0)
        else:  # several at once
            at = step * tile_depth + inner
            place = at // channels
            down, right = place // size, place % size
            within = (down * columns + right) * channels + at % channels
            y, x = line[:, None] + down[None, :], column[:, None] + right[None, :]
            here = (y >= 0) & (y < lines) & (x >= 0) & (x < columns)
            here = here & real[:, None] & (at < depth)[None, :]
            left = tl.load(image[:, None] + within[None, :], here, 0.0)
            known_at = known[:, None] & (at < depth)[None, :]
            if turned:
                at = (size * size - 1 - place) * channels + at % channels
            matrix = tl.load(filter[:, None] + at[None, :], known_at, 0.0)
        found = tl.dot(left, tl.trans(matrix), found, input_precision=precision)
    if shifts:
        found = found + tl.load(shift + client * number + of, known, 0.0)[None, :]
    if mode == 2:
        largest = tl.max(tl.reshape(found, (tile_rows // 4, 4, tile_filters)), 1)
        largest = tl.maximum(largest, 0.0)
        window = tile * (tile_rows // 4) + tl.arange(0, tile_rows // 4)
        place = (client * (rows // 4) + window)[:, None] * number + of[None, :]
        tl.store(outputs + place, largest, (window < rows // 4)[:, None] & known[None, :])
    else:
        place = (client * rows + row)[:, None] * number + of[None, :]
        tl.store(outputs + place, found, real[:, None] & known[None, :])
    if mode == 1:
        count = tl.minimum(rows - tile * tile_rows, tile_rows).to(tl.float32)
        mean = tl.sum(tl.where(real[:, None], found, 0.0), 0) / count
        away = tl.where(real[:, None], found - mean[None, :], 0.0)
        note = noted + (client * tl.cdiv(rows, tile_rows) + tile) * 2 * number + of
        tl.store(note, mean, known)
        tl.store(note + number, tl.sum(away * away, 0), known)


@triton.jit
def _filter_gradient(
    images,
    gradient,
    outputs,
    rows,
    stride,
    steps: tl.constexpr,
    channels: tl.constexpr,
    number: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    size: tl.constexpr,
    padding: tl.constexpr,
    precision: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_filters: tl.constexpr,
    tile_depth: tl.constexpr,
):
    """Make a tile of the gradient of one client's filters, from a share of the places."""
    client = tl.program_id(2).to(tl.int64)
    depth: tl.constexpr = size * size * channels
    along: tl.constexpr = (depth + tile_depth - 1) // tile_depth
    of = tl.program_id(0) // along * tile_filters + tl.arange(0, tile_filters)
    at = tl.program_id(0) % along * tile_depth + tl.arange(0, tile_depth)
    lines: tl.constexpr = height + size - 1 - 2 * padding
    columns: tl.constexpr = width + size - 1 - 2 * padding
    if channels % tile_depth == 0:  # one place under the filter
        place = tl.program_id(0) % along // (channels // tile_depth)
        down, right = place // size, place % size
    else:
        place = at // channels
        down, right = (place // size)[None, :], (place % size)[None, :]
    known, inside = of < number, at < depth
    first = tl.program_id(1) * steps * tile_rows
    found = tl.zeros((tile_filters, tile_depth), tl.float32)
    for step in range(steps):
        row = first + step * tile_rows + tl.arange(0, tile_rows)
        real = row < rows
        sample, line, column = _places(row, height, width, False)
        line, column = line - padding, column - padding
        corner = ((sample.to(tl.int64) * lines + line) * columns + column) * channels
        y, x = line[:, None] + down, column[:, None] + right
        here = (y >= 0) & (y < lines) & (x >= 0) & (x < columns) & real[:, None]
        if channels % tile_depth == 0:
            within = (down * columns + right) * channels + at % channels
            image = tl.load(images + client * stride + corner[:, None] + within[None, :], here, 0.0)
        else:
            within = (down * columns + right) * channels + (at % channels)[None, :]
            image = tl.load(
                images + client * stride + corner[:, None] + within, here & inside[None, :], 0.0
            )
        slope = tl.load(
            gradient + (client * rows + row)[:, None] * number + of[None, :],
            real[:, None] & known[None, :],
            0.0,
        )
        found = tl.dot(tl.trans(slope), image, found, input_precision=precision)
    part = client * tl.num_programs(1) + tl.program_id(1)
    within = at % channels * (size * size) + at // channels  # as torch has filters
    place = (part * number + of)[:, None] * depth + within[None, :]
    tl.store(outputs + place, found, known[:, None] & inside[None, :])


@triton.jit
def _normalise_and_pool(
    values,
    scale,
    shift,
    outputs,
    windows,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    tile_windows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Scale and shift, then keep the largest of each window of two by two, or nought."""
    client = tl.program_id(2).to(tl.int64)
    window = tl.program_id(0) * tile_windows + tl.arange(0, tile_windows)
    of = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    here = (window < windows)[:, None] & (of < channels)[None, :]
    times = tl.load(scale + client * channels + of, of < channels, 0.0)[None, :]
    plus = tl.load(shift + client * channels + of, of < channels, 0.0)[None, :]
    largest = tl.zeros((tile_windows, tile_channels), tl.float32)
    for within in tl.static_range(4):
        sample, line, column = _places(window * 4 + within, height, width, True)
        row = (client * windows * 4 + (sample * height + line) * width + column)[:, None]
        value = tl.load(values + row * channels + of[None, :], here, 0.0).to(tl.float32)
        largest = tl.maximum(largest, value * times + plus)
    place = (client * windows + window)[:, None] * channels + of[None, :]
    tl.store(outputs + place, largest, here)


@triton.jit
def _largest(
    values,
    gradient,
    mean,
    rate,
    scale,
    shift,
    client,
    window,
    of,
    here,
    windows,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
):
    """Return which of a window was the first largest, its normalised value, and its gradient."""
    middle = tl.load(mean + client * channels + of, of < channels, 0.0)[None, :]
    over = tl.load(rate + client * channels + of, of < channels, 0.0)[None, :]
    times = tl.load(scale + client * channels + of, of < channels, 0.0)[None, :]
    plus = tl.load(shift + client * channels + of, of < channels, 0.0)[None, :]
    best = tl.full(here.shape, float("-inf"), tl.float32)
    which = tl.zeros(here.shape, tl.int32)
    normal = tl.zeros(here.shape, tl.float32)
    for within in tl.static_range(4):
        sample, line, column = _places(window * 4 + within, height, width, True)
        row = (client * windows * 4 + (sample * height + line) * width + column)[:, None]
        value = tl.load(values + row * channels + of[None, :], here, 0.0).to(tl.float32)
        result = value * times + plus
        larger = result > best
        best = tl.where(larger, result, best)
        which = tl.where(larger, within, which)
        normal = tl.where(larger, (value - middle) * over, normal)
    place = (client * windows + window)[:, None] * channels + of[None, :]
    slope = tl.load(gradient + place, here, 0.0).to(tl.float32)
    return which, normal, tl.where(best > 0, slope, 0.0)


@triton.jit
def _pooled_sums(
    values,
    gradient,
    mean,
    rate,
    scale,
    shift,
    sums,
    windows,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    tile_windows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Add up gradients of each channel's shift and scale over some windows."""
    client = tl.program_id(2).to(tl.int64)
    window = tl.program_id(0) * tile_windows + tl.arange(0, tile_windows)
    of = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    here = (window < windows)[:, None] & (of < channels)[None, :]
    _, normal, slope = _largest(
        values, gradient, mean, rate, scale, shift, client, window, of, here, windows, channels,
        height, width,
    )  # fmt: skip
    note = sums + (client * tl.num_programs(0) + tl.program_id(0)) * 2 * channels + of
    tl.store(note, tl.sum(slope, 0), of < channels)
    tl.store(note + channels, tl.sum(slope * normal, 0), of < channels)


@triton.jit
def _pooled_gradient(
    values,
    gradient,
    mean,
    rate,
    scale,
    shift,
    totals,
    outputs,
    windows,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    tile_windows: tl.constexpr,
    tile_channels: tl.constexpr,
):
    """Make the gradient of what was normalised and pooled."""
    client = tl.program_id(2).to(tl.int64)
    window = tl.program_id(0) * tile_windows + tl.arange(0, tile_windows)
    of = tl.program_id(1) * tile_channels + tl.arange(0, tile_channels)
    here = (window < windows)[:, None] & (of < channels)[None, :]
    which, _, slope = _largest(
        values, gradient, mean, rate, scale, shift, client, window, of, here, windows, channels,
        height, width,
    )  # fmt: skip
    middle = tl.load(mean + client * channels + of, of < channels, 0.0)[None, :]
    over = tl.load(rate + client * channels + of, of < channels, 0.0)[None, :]
    times = tl.load(scale + client * channels + of, of < channels, 0.0)[None, :]
    total = totals + client * 2 * channels + of
    all_shift = tl.load(total, of < channels, 0.0)[None, :]
    all_scale = tl.load(total + channels, of < channels, 0.0)[None, :]
    count = (windows * 4).to(tl.float32)
    for within in tl.static_range(4):
        sample, line, column = _places(window * 4 + within, height, width, True)
        row = (client * windows * 4 + (sample * height + line) * width + column)[:, None]
        value = tl.load(values + row * channels + of[None, :], here, 0.0).to(tl.float32)
        normal = (value - middle) * over
        mine = tl.where(which == within, slope, 0.0)
        result = times * (mine - (all_shift + normal * all_scale) / count)
        tl.store(outputs + row * channels + of[None, :], result, here)


# ------------------------------------------------------------------------------------ launching


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
    _convolve[tiles * triton.cdiv(number, tile.filters), clients](
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
    _filter_gradient[tiles, shares, clients](
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
    _normalise_and_pool[grid](values, scale, shift, outputs, *shape, **sizes)
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
    _pooled_sums[grid](values, gradient, *moments, sums, *shape, **sizes)
    totals = sums.sum(1)
    slopes = torch.empty_like(values)
    through = torch.zeros_like(totals) if fixed else totals  # what goes by way of the moments
    _pooled_gradient[grid](values, gradient, *moments, through, slopes, *shape, **sizes)
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
