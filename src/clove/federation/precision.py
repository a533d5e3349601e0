"""How exactly a device computes, by name.

`fp64` and `fp32` are exact as torch can be: on a GPU with kernels that give the same bits every
time. `tf32` (the default on a GPU) multiplies with ten bits of mantissa and adds in single
precision, `bf16` runs networks in bfloat16 while parameters and losses stay in single precision;
with both, torch measures which kernels are fastest, so that two runs agree to rounding only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from clove.errors import CloveError, unknown_name

PRECISIONS = ("auto", "fp64", "fp32", "tf32", "bf16")


def find_precision(name: str, device: torch.device) -> str:
    """Return the precision of that name; `auto` is tf32 on a GPU and fp32 elsewhere."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if name == "auto":
        return "tf32" if device.type == "cuda" else "fp32"
    if name == "tf32" and device.type != "cuda":
        raise CloveError(f"tf32 is a precision of GPUs, and this run is on {device}: use fp32")
    return name


def dtype_of(precision: str) -> torch.dtype:
    """Return the type that parameters and samples are stored in."""
    return torch.float64 if precision == "fp64" else torch.float32


def networks_in(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Run networks in this precision: bfloat16 where that is asked for, else as stored."""
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@contextmanager
def kernels_of(precision: str, device: torch.device) -> Iterator[None]:
    """Let torch choose its GPU kernels as the precision demands."""
    if device.type != "cuda":  # what we use of the CPU's kernels gives the same bits anyway
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    exact, cudnn, matmul = precision in ("fp32", "fp64"), torch.backends.cudnn, torch.backends.cuda
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        *(cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.matmul.allow_tf32),
    )
    torch.use_deterministic_algorithms(exact, warn_only=True)
    cudnn.deterministic, cudnn.benchmark = exact, not exact
    cudnn.allow_tf32 = matmul.matmul.allow_tf32 = not exact
    try:
        with torch.cuda.device(device):  # streams, graphs and events are those of the current one
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = before[2:5]
        matmul.matmul.allow_tf32 = before[5]


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply matrices in full precision: averages of models must not lose any."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def draws_from(seed: int, device: torch.device) -> Iterator[None]:
    """Let torch's generators draw from this seed, and afterwards go on where they were.

    What `torch.manual_seed` in `torch.random.fork_rng` does, for the one device that matters: those
    also look after devices that are not there, several times a round.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
