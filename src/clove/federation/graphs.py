"""Recording work on a GPU, so that one call replays all its kernels on the tensors they ran on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from clove.errors import CloveError
from clove.federation.budget import is_out_of_memory

WARM_UP = 3  # runs before a capture, in which libraries choose kernels and allocate


def capture(
    work: Callable[[], object], device: torch.device, memory: Any = None
) -> torch.cuda.CUDAGraph | None:
    """Record what `work` does to tensors that stay where they are, in a graph's `memory` if given.

    None where it cannot be recorded, because something in it looks at the host. The work is done a
    few times on the way; random generators are as they were before.
    """
    random = torch.cuda.get_rng_state(device)
    graph, side = torch.cuda.CUDAGraph(), side_stream(device)
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(side)
        with _nothing_collected(), torch.cuda.graph(graph, pool=memory):
            work()
        return graph
    except (RuntimeError, CloveError) as error:
        if is_out_of_memory(error):
            raise
        torch.cuda.synchronize()
        _renew_generator(device)
        return None
    finally:
        torch.cuda.set_rng_state(random, device)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep Python from collecting garbage: a graph thrown away during a capture would spoil it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _renew_generator(device: torch.device) -> None:
    """Give the device a generator's state of its own: a failed capture never lets go of the old."""
    index = torch.cuda.current_device() if device.index is None else device.index
    fresh = torch.Generator(device).graphsafe_get_state()
    torch.cuda.default_generators[index].graphsafe_set_state(fresh)


def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream beside the current one."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
