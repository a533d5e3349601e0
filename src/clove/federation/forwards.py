"""Running a stack of models over samples on a GPU, captured where the same shape comes again.

Either all models share the samples (loss vectors), or each has its own (test evaluation). Rows are
filled up to one of a few lengths, because every length needs a capture, and kernels, of its own.
Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clove.federation import parameters as stacks
from clove.federation.budget import activations, free_bytes, is_out_of_memory
from clove.federation.graphs import capture
from clove.federation.parameters import Indices, Parameters, upload
from clove.federation.pool import Pool

if TYPE_CHECKING:
    from clove.federation.vectorized import Vectorized

MOST = 65536  # samples times models in one run
LEAST = 256
SHARE = 0.125  # of the free memory that one run may fill with activations
KEPT = 32  # shapes whose captured runs are kept
FEW_ROWS = 2048  # of a model: with more, a run of its own keeps the device as busy
LARGEST_CAPTURED = 2**28  # bytes of models: larger stacks run as they are
LITTLE_PADDING = 1.5  # samples of all models as padded, over those there are

Some = TypeVar("Some")
Found = tuple[Tensor, Tensor | None]  # losses and correctness, [models, samples]


class Forwards:
    """Runs models of one engine over samples."""

    def __init__(self, engine: Vectorized) -> None:
        self.engine = engine
        self.memory: Any = None  # which all captured runs share: none needs its own afterwards
        self._runs: dict[Any, Run] = {}
        self._most = 0

    def shared(self, models: Parameters, rows: Indices, pool: Pool) -> Found:
        """Run every model over the same rows."""
        return self._fitting(lambda: self._shared(models, rows, pool))

    def own(self, models: Parameters, rows: list[Indices], pool: Pool) -> list[Found]:
        """Run each model over its own rows: those of like numbers as one table."""
        return self._fitting(lambda: self._own(models, rows, pool))

    def _fitting(self, run: Callable[[], Some]) -> Some:
        """Run; where that does not fit in memory, again in parts half as large."""
        while True:
            try:
                return run()
            except RuntimeError as error:
                if not is_out_of_memory(error) or self._most <= LEAST:
                    raise
            self.forget()
            if self.engine.device.type == "cuda":
                torch.cuda.empty_cache()
            self._most //= 2

    def _shared(self, models: Parameters, rows: Indices, pool: Pool) -> Found:
        length = self._length(len(rows), stacks.count(models))
        index = np.resize(rows, -(-len(rows) // length) * length)
        return self._run(models, upload(index, self.engine.device), length, len(rows), pool)

    def _own(self, models: Parameters, rows: list[Indices], pool: Pool) -> list[Found]:
        found: dict[int, Found] = {}
        for places in tables(np.array([len(own) for own in rows])):
            some = models if len(places) == len(rows) else stacks.pick(models, places)
            mine = self._table(some, [rows[place] for place in places], pool)
            found |= dict(zip(places.tolist(), mine, strict=True))
        return [found[place] for place in range(len(rows))]

    def _table(self, models: Parameters, rows: list[Indices], pool: Pool) -> list[Found]:
        """Run each model over its own rows, filled up to the longest."""
        sizes = [len(own) for own in rows]
        most = max(sizes)
        length = self._length(most, len(rows))
        width = -(-most // length) * length
        index = np.stack([np.resize(own, width) for own in rows])
        losses, correct = self._run(models, upload(index, self.engine.device), length, most, pool)
        return [
            (losses[at, :size], None if correct is None else correct[at, :size])
            for at, size in enumerate(sizes)
        ]

    def forget(self) -> None:
        """Forget captured runs: what they consist of has changed."""
        self._runs.clear()
        self.memory = None

    def _length(self, rows: int, models: int) -> int:
        """Return how many rows run at once: all, or as many as fit, in equal parts."""
        if not self._most:
            engine = self.engine
            bytes_each = activations(engine) * torch.finfo(engine.dtype).bits // 8
            fits = int(SHARE * free_bytes(engine.device)) // max(bytes_each, 1)
            self._most = min(max(fits, LEAST), MOST)
        parts = -(-rows * models // self._most)
        return round_length(-(-rows // parts))

    def _run(self, models: Parameters, index: Tensor, length: int, rows: int, pool: Pool) -> Found:
        losses, correct = [], []
        run = self._for(models, index, length, pool)
        for part in torch.split(index, length, dim=-1):
            loss, right = run(models, part)
            losses.append(loss)
            if right is not None:
                correct.append(right)
        return _joined(losses, rows), _joined(correct, rows) if correct else None

    def _for(self, models: Parameters, index: Tensor, length: int, pool: Pool) -> Run:
        """Return the run of this shape, the last used last."""
        key = (stacks.count(models), index.dim(), length, pool.x.data_ptr())
        run = self._runs.pop(key, None) or Run(self, pool)
        self._runs[key] = run
        while len(self._runs) > KEPT:
            self._runs.pop(next(iter(self._runs)))
        return run


class Run:
    """A run of one shape: as it is the first time, captured from the second on."""

    def __init__(self, forwards: Forwards, pool: Pool) -> None:
        self.forwards, self.engine, self.pool = forwards, forwards.engine, pool
        self.met = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.models: dict[str, Tensor] = {}
        self.index: Tensor | None = None
        self.found: Found | None = None

    def __call__(self, models: Parameters, index: Tensor) -> Found:
        """Return losses and correctness of each model on each of its samples."""
        self.met += 1
        if self.met == 2 and self._pays(models):
            self._capture(models, index)
        if self.graph is None or self.index is None:
            return self.engine.measure(models, index, self.pool)
        torch._foreach_copy_(list(self.models.values()), [models[name] for name in self.models])
        self.index.copy_(index)
        self.graph.replay()
        assert self.found is not None
        losses, correct = self.found  # the next replay writes over them
        return losses.clone(), None if correct is None else correct.clone()

    def _pays(self, models: Parameters) -> bool:
        size = stacks.model_bytes(models) * stacks.count(models)
        return self.engine.device.type == "cuda" and size < LARGEST_CAPTURED

    def _capture(self, models: Parameters, index: Tensor) -> None:
        self.models = {name: tensor.clone() for name, tensor in models.items()}
        self.index = index.clone()
        self.graph = capture(self._measure, self.engine.device, self.forwards.memory)
        if self.graph is not None:
            self.forwards.memory = self.graph.pool()

    def _measure(self) -> None:
        assert self.index is not None
        self.found = self.engine.measure(self.models, self.index, self.pool)


def tables(sizes: Indices) -> list[Indices]:
    """Return which models run as one table: those of most rows first, as long as little is padding.

    A model of very many rows runs by itself.

    >>> [places.tolist() for places in tables(np.array([400, 90, 410, 40, 5000]))]
    [[4], [0, 1, 2], [3]]
    """
    found: list[list[int]] = []
    held = longest = 0
    for place in np.argsort(-sizes, kind="stable"):
        size = int(sizes[place])
        alone = not found or longest > FEW_ROWS
        if alone or (len(found[-1]) + 1) * longest > LITTLE_PADDING * (held + size):
            found.append([])
            held, longest = 0, size
        found[-1].append(int(place))
        held += size
    return [np.sort(np.array(places, dtype=np.int64)) for places in found]


def round_length(length: int) -> int:
    """Return a number of rows no less, of which there are few: at most an eighth more.

    >>> [round_length(n) for n in (3, 100, 1030, 12500)]
    [64, 104, 1152, 13312]
    """
    step = max(1 << max(int(length - 1).bit_length() - 4, 0), 1)
    return max(-(-length // step) * step, 64)


def _joined(parts: list[Tensor], rows: int) -> Tensor:
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return whole[:, :rows]
