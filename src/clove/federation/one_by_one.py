"""Image layers that run client by client, side by side on the streams of a GPU.

Kernels for the convolutions of many clients at once are far from what those for a single one reach,
so where one client's convolution keeps the device busy it is faster to take clients in turn: with
the channels of an image last, as tensor cores want them, and a few clients at once, so that small
kernels fill the gaps that others leave. What is compiled is the run of one client: it compiles in
seconds, and serves any number of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from clove.federation.graphs import side_stream
from clove.federation.layers import (
    Elementwise,
    ImageLayer,
    Layer,
    Normalisation,
    PooledConvolution,
    Spread,
    Stack,
)
from clove.federation.norm import Tape

STREAMS = 4

Alone = Callable[[dict[str, Tensor], Tensor, bool], tuple[Tensor, dict[str, Tensor]]]


def can_run_alone(layer: Layer) -> bool:
    """Say whether a layer can run client by client: it draws nothing, and torch has it whole."""
    if isinstance(layer, Elementwise):
        return not isinstance(layer.module, nn.Dropout)
    norm = normalisation(layer)
    return isinstance(layer, ImageLayer) and (norm is None or norm.runs_alone)


def normalisation(layer: Layer) -> Normalisation | None:
    """Return the batch normalisation in a layer, if there is any."""
    inner = layer.normalisation if isinstance(layer, PooledConvolution) else layer
    return inner if isinstance(inner, Normalisation) else None


class OneByOne(Layer):
    """Layers that follow each other, for one client after the other."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = [layer for layer in layers if isinstance(layer, ImageLayer)]
        self.prefixes = tuple(name for layer in self.layers for name in layer.prefixes)
        self.normalises = any(normalisation(layer) is not None for layer in self.layers)
        self.compiles = False
        self._compiled: Alone | None = None
        self._streams: list[torch.cuda.Stream] = []

    def __call__(self, own: Stack, x: Spread, tape: Tape) -> Spread:
        """Run them; all clients at once where padding must not enter batch statistics."""
        training = tape.weight is not None
        if training and tape.padded and self.normalises:
            for layer in self.layers:
                x = layer(own, x, tape)
            return x
        latest = {
            name: tape.updates.get(name, tensor).unbind(0)
            for name, tensor in own.items()
            if name.startswith(self.prefixes)
        }
        run = self._by_compiler() if training and self.compiles else self._alone
        found: list[tuple[Tensor, dict[str, Tensor]]] = []
        images = _images(x)
        with self._side_by_side(x.tensor.device) as streams:
            for at in range(len(next(iter(latest.values())))):
                with torch.cuda.stream(streams[at % STREAMS]) if streams else nullcontext():
                    mine = {name: some[at] for name, some in latest.items()}
                    found.append(run(mine, images(at), training))
        for name in found[0][1]:
            tape.updates[name] = torch.stack([updates[name] for _, updates in found])
        return Spread(torch.stack([outputs for outputs, _ in found]), 0)

    def _alone(
        self, own: dict[str, Tensor], x: Tensor, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run all layers for one client."""
        updates: dict[str, Tensor] = {}
        for layer in self.layers:
            x = layer.alone(own, x, updates if training else None)
        return x, updates

    def _by_compiler(self) -> Alone:
        if self._compiled is None:
            self._compiled = torch.compile(self._alone, dynamic=False)
        return self._compiled

    @contextmanager
    def _side_by_side(self, device: torch.device) -> Iterator[list[torch.cuda.Stream]]:
        """Lend streams whose work begins after all that was set going, and ends before all else."""
        if device.type != "cuda":
            yield []
            return
        if not self._streams:
            self._streams = [side_stream(device) for _ in range(STREAMS)]
        current = torch.cuda.current_stream()
        for stream in self._streams:
            stream.wait_stream(current)
        yield self._streams
        for stream in self._streams:
            current.wait_stream(stream)


def _images(x: Spread) -> Callable[[int], Tensor]:
    """Return what gives each client's images, with their channels last in memory.

    They are copied where they are asked for: on the stream that works on them.
    """
    last = torch.channels_last
    if x.at is None:
        shared = x.tensor.contiguous(memory_format=last)
        return lambda _: shared
    each, at = x.tensor, x.at
    return lambda client: each.select(at, client).contiguous(memory_format=last)
