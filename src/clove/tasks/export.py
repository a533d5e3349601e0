"""A network as a file that others read: its parameters, or all of it, ready to run elsewhere."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod

import torch
from safetensors.torch import save
from torch import Tensor, nn

from clove.errors import CloveError
from clove.extras import require
from clove.tasks.models import Shape

SUFFIXES = {"safetensors": ".safetensors", "torchscript": ".pt", "onnx": ".onnx"}
TOLERANCE = 1e-4  # how far what was written may be from the network, in relation to its outputs


def parameter_bytes(state: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    """Return a state dict in the format of safetensors, with what there is to say about it."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    content: bytes = save(tensors, metadata=dict(about))
    return content


def program_bytes(network: nn.Module, inputs: Shape, kind: str) -> bytes:
    """Return a network as a program, "torchscript" or "onnx", for batches of any size."""
    if kind == "onnx":
        require("export to ONNX", "onnx", "onnx", "onnxscript")
    write = {"torchscript": _torchscript, "onnx": _onnx}[kind]
    try:
        with _quiet(), torch.no_grad():
            return write(network.eval(), lambda size: example(network, inputs, size))
    except Exception as error:  # a network of one's own can be too free for a format in any way
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CloveError(
            f"the network cannot be written as {kind}: {reason}. As safetensors any network can"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from speaking of its own plans for these formats, and of packages it misses."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def example(network: nn.Module, inputs: Shape, size: int) -> Tensor:
    """Return so many samples that a network takes: numbers or, for words, whole ones."""
    kinds = [p.dtype for p in network.parameters() if p.is_floating_point()]
    numbers = torch.linspace(-1, 1, size * prod(inputs), dtype=kinds[0] if kinds else None)
    samples = numbers.reshape(size, *inputs)
    try:
        network(samples)
    except Exception:  # whatever an embedding, or something of the user's own, says of fractions
        return (samples > 0).long()
    return samples


def _torchscript(network: nn.Module, samples: Callable[[int], Tensor]) -> bytes:
    try:
        program = torch.jit.script(network)
    except Exception:  # it is written in more than TorchScript knows: note what it does instead
        # A warning says that what it does depends on the samples' values.
        warnings.simplefilter("error", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        program = torch.jit.trace(network, samples(2))  # type: ignore[no-untyped-call]
    for size in (1, 3):
        _check(program(samples(size)), network(samples(size)))
    buffer = io.BytesIO()
    torch.jit.save(program, buffer)
    return buffer.getvalue()


def _check(found: Tensor, expected: Tensor) -> None:
    """Refuse a program whose outputs are not the network's."""
    scale = float(expected.abs().max()) + 1
    if found.shape != expected.shape or float((found - expected).abs().max()) > TOLERANCE * scale:
        raise ValueError("what it does depends on more than the format can note")


def _onnx(network: nn.Module, samples: Callable[[int], Tensor]) -> bytes:
    program = torch.onnx.export(
        network,
        (samples(2),),
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content
