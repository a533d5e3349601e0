"""How large tiles should be: milliseconds of each product of the CIFAR-10 network, by tile.

    python benchmarks/tiles.py [--clients 15] [--batch 64]

Also checks each against torch's own convolutions.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from clove.federation import tiles
from clove.federation.tiles import Tile

LAYERS = ((3, 64, 32), (64, 128, 16), (128, 256, 8), (256, 512, 4))
FORWARD = {
    torch.bfloat16: [
        Tile(128, 128, 64, 8, 3),
        Tile(128, 128, 64, 8, 4),
        Tile(128, 128, 32, 8, 4),
        Tile(128, 128, 64, 4, 3),
        Tile(128, 64, 64, 4, 4),
        Tile(64, 128, 64, 4, 4),
        Tile(128, 256, 64, 8, 3),
        Tile(256, 128, 64, 8, 3),
    ],
    torch.float32: [
        Tile(128, 128, 32, 8, 3),
        Tile(128, 128, 32, 8, 4),
        Tile(128, 128, 32, 4, 3),
        Tile(128, 64, 32, 4, 4),
        Tile(64, 128, 32, 4, 4),
        Tile(128, 256, 32, 8, 3),
        Tile(128, 128, 16, 8, 4),
    ],
}
FIRST = [Tile(128, 64, 32, 4, 2), Tile(64, 64, 32, 4, 2), Tile(256, 64, 32, 8, 2)]
FILTERS = {
    torch.bfloat16: [
        Tile(64, 64, 128, 4, 3),
        Tile(64, 128, 64, 4, 3),
        Tile(64, 128, 128, 8, 3),
        Tile(64, 128, 128, 8, 4),
        Tile(32, 128, 128, 8, 4),
        Tile(128, 64, 64, 4, 3),
        Tile(64, 64, 64, 4, 4),
    ],
    torch.float32: [
        Tile(32, 128, 128, 8, 3),
        Tile(32, 64, 64, 2, 3),
        Tile(32, 64, 64, 2, 4),
        Tile(32, 64, 128, 2, 3),
        Tile(32, 32, 64, 4, 3),
        Tile(32, 32, 128, 4, 3),
        Tile(32, 32, 128, 2, 3),
        Tile(64, 32, 64, 2, 3),
        Tile(16, 64, 64, 2, 4),
    ],
}
FIRST_FILTERS = [Tile(64, 64, 32, 4, 3), Tile(128, 64, 32, 4, 2), Tile(32, 64, 32, 4, 4)]


def milliseconds(work) -> float:
    for _ in range(3):
        work()
    found = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 4)
    return statistics.median(found)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def tried(kind: str, operations: float, sizes: list[Tile], work, expected: Tensor) -> None:
    rows = []
    for size in sizes:
        try:
            wrong = error(work(size), expected)
            rows.append((milliseconds(lambda size=size: work(size)), size, wrong))
        except Exception as failed:
            print(f"  {kind} {size}: {str(failed).splitlines()[0][:90]}", flush=True)
    for at, (time, size, wrong) in enumerate(sorted(rows, key=lambda row: row[0])):
        speed = operations / time / 1e9
        if at < 3 or wrong > 0.01:
            print(
                f"  {kind} {time:.3f} ms {speed:.0f} TFLOP/s error {wrong:.0e} {size}", flush=True
            )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--clients", type=int, default=15)
    words.add_argument("--batch", type=int, default=64)
    words.add_argument("--types", nargs="*", default=["bfloat16", "float32"])
    given = words.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    for kind in (getattr(torch, name) for name in given.types):
        for channels, number, side in LAYERS:
            shape = (given.clients, given.batch, side, side, channels)
            images = torch.randn(shape, device="cuda").to(kind)
            filters = torch.randn(given.clients, number, channels, 3, 3, device="cuda")
            filters = (filters / (9 * channels) ** 0.5).to(kind)
            slopes = torch.randn(*shape[:-1], number, device="cuda").to(kind)
            own = [images[k].movedim(-1, 1).requires_grad_() for k in range(given.clients)]
            mine = [filters[k].requires_grad_() for k in range(given.clients)]
            outputs = [F.conv2d(x, w, padding=1) for x, w in zip(own, mine, strict=True)]
            pairs = zip(outputs, slopes.movedim(-1, 2), strict=True)
            torch.autograd.backward(*zip(*pairs, strict=True))
            operations = 2.0 * 9 * channels * number * slopes[..., 0].numel()
            print(f"{kind} {channels} → {number}, {side}×{side}", flush=True)
            last = filters.detach().movedim(2, -1).contiguous()
            images = images.detach()
            tried(
                "forward ",
                operations,
                FORWARD[kind] if channels > 3 else FIRST,
                lambda size, images=images, last=last: tiles.convolved(
                    images, last, 1, mode=tiles.NOTING, tile=size
                )[0],
                torch.stack(outputs).movedim(2, -1),
            )
            if channels > 3:
                turned = last.transpose(1, -1).contiguous()
                tried(
                    "images  ",
                    operations,
                    FORWARD[kind],
                    lambda size, slopes=slopes, turned=turned: tiles.convolved(
                        slopes, turned, 1, turned=True, tile=size
                    )[0],
                    torch.stack([x.grad for x in own]).movedim(2, -1),
                )
            tried(
                "filters ",
                operations,
                FILTERS[kind] if channels > 3 else FIRST_FILTERS,
                lambda size, images=images, slopes=slopes: tiles.filter_gradient(
                    images, slopes, 3, 1, tile=size
                ),
                torch.stack([w.grad for w in mine]),
            )
            values = torch.stack(outputs).detach().movedim(2, -1).contiguous()
            ones = torch.ones(given.clients, number, device="cuda")
            pooled = tiles.normalised_and_pooled(values, ones, ones)
            forth = milliseconds(partial(tiles.normalised_and_pooled, values, ones, ones))
            back = milliseconds(partial(tiles.pooled_gradient, values, pooled, [ones] * 4))
            print(f"  pooling {forth:.3f} ms, its gradient {back:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
