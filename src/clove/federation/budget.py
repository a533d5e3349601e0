"""How much memory there is, and how many clients fit in it at once."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from clove.errors import DEVICE_FAILED, OUT_OF_MEMORY, CloveError, TooLittleMemory
from clove.federation.questions import LocalTraining

if TYPE_CHECKING:
    from clove.federation.vectorized import Vectorized

SHARE = 0.5  # of the free memory, unless told otherwise
OVERHEAD = 10**9  # bytes that a process takes on a GPU for CUDA itself

_part = 1.0  # of the device's memory that is this process's


def memory_limit(gigabytes: float, device: torch.device) -> int:
    """Return the bytes that training may take: as told, or for 0 a share of what is free."""
    if gigabytes < 0:
        raise CloveError(
            "memory must be a number of gigabytes above zero, or 0 for half of what is free, not "
            f"{gigabytes:g}"
        )
    return int(min(gigabytes * 1e9, 2**62)) or int(SHARE * free_bytes(device))


def share_memory(processes: int, device: torch.device) -> None:
    """Let this process take no more of the device's memory than one of so many like it may.

    Each would take what it finds free, and keep it, until there is none left for the next.
    """
    global _part
    _part = 1 / processes
    if device.type == "cuda":
        if processes > 1:
            total = torch.cuda.mem_get_info(device)[1]
            _part = max(total - (processes + 1) * OVERHEAD, OVERHEAD) / total / processes
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.set_per_process_memory_fraction(_part, index)  # which a bare "cuda" lacks


def part_of_memory() -> float:
    """Return what part of the device's memory is this process's."""
    return _part


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether memory ran out, on the device or on the host."""
    if isinstance(error, (TooLittleMemory, MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def is_machine_error(error: BaseException) -> bool:
    """Say whether memory ran out, or the device failed, which then may answer no more.

    Such an error comes up wherever somebody next waits for the device, whatever is done there: its
    cause is the machine, or an index out of range in some earlier kernel.
    """
    if is_out_of_memory(error) or isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in DEVICE_FAILED)


def release_memory(device: torch.device) -> None:
    """Give back what is used no more, so that whoever comes next can have it."""
    gc.collect()  # engines and what they have captured refer to each other
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int:
    """Return how much memory is free on the device, for this process."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        taken = torch.cuda.memory_allocated(device)
        unused = torch.cuda.memory_reserved(device) - taken  # torch holds it ready
        return max(min(free + unused, int(_part * total) - taken), 0)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return int(_part * known["MemAvailable"])
    except (OSError, ValueError, KeyError, IndexError):  # no Linux: half of all there is
        return int(_part * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)


def fitting_group(engine: Vectorized, training: LocalTraining, limit: int) -> int:
    """Return how many clients fit in so many bytes at once, by what a client takes in training."""
    numbers = sum(t.numel() for t in engine.network.state_dict().values())
    batch = min(training.batch_size, int(engine.train_pool.sizes.max()))
    # Parameters, start and result, the result of the group before, gradients, two moments, and one
    # to spare; outputs are kept for the way back.
    per_client = (8 * numbers + 3 * batch * activations(engine)) * torch.finfo(engine.dtype).bits
    return max(1, int(limit // (per_client // 8)))


def activations(engine: Vectorized) -> int:
    """Return how many numbers the network's layers put out for one sample."""
    total = 0

    def add(_module: object, _inputs: object, output: object) -> None:
        nonlocal total
        if torch.is_tensor(output):
            total += output.numel()

    layers = [m for m in engine.network.modules() if not list(m.children())]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    try:
        with torch.no_grad():
            engine.network.eval()(engine.train_pool.x[:1].clone())
    finally:
        for hook in hooks:
            hook.remove()
    return total
