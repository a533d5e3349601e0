"""Programs in Triton for convolutions of many clients: each makes one tile of one client's numbers.

`tiles.py` launches them, and says what they are for.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
def convolve(
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
def filter_gradient(
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
def normalise_and_pool(
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
def pooled_sums(
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
def pooled_gradient(
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
