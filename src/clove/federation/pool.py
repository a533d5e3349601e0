"""All clients' samples in one tensor on the device, so that a batch is an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clove.federation.parameters import Indices

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]


@dataclass(frozen=True)
class Pool:
    """Samples of all clients, client after client; client i owns rows offsets[i]..offsets[i+1]."""

    x: Tensor
    y: Tensor | None
    offsets: Indices

    @classmethod
    def of(cls, parts: Sequence[Arrays], device: torch.device, dtype: torch.dtype) -> Pool:
        """Pool the (x, y) of each client."""
        sizes = [len(x) for x, _ in parts]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        ys = [y for _, y in parts if y is not None]
        return cls(
            x=_pooled([x for x, _ in parts], offsets, device, dtype),
            y=_pooled(ys, offsets, device, dtype) if len(ys) == len(parts) else None,
            offsets=offsets,
        )

    @property
    def sizes(self) -> Indices:
        """How many samples each client has."""
        return np.diff(self.offsets)

    def rows(self, client: int) -> Indices:
        """Return the rows of one client."""
        return np.arange(self.offsets[client], self.offsets[client + 1])


def _pooled(
    arrays: Sequence[np.ndarray[Any, Any]],
    offsets: Indices,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Copy arrays one after the other into one tensor: floats as `dtype`, the rest as integers."""
    kind = dtype if np.issubdtype(arrays[0].dtype, np.floating) else torch.int64
    pooled = torch.empty((int(offsets[-1]), *arrays[0].shape[1:]), dtype=kind)
    for start, array in zip(offsets, arrays, strict=False):
        pooled[start : start + len(array)] = torch.from_numpy(np.ascontiguousarray(array))
    return pooled.to(device)
