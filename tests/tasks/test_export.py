"""Networks as files: read back by the libraries they are for, they give the same outputs."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn

from clove.errors import CloveError
from clove.tasks import build_model
from clove.tasks.export import example, parameter_bytes, program_bytes
from tests.tasks.test_models import HOME, samples

needs_onnx = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnxscript") is None,
    reason="no ONNX here: pip install 'clove-fl[onnx]' onnxruntime",
)
KINDS = ["torchscript", pytest.param("onnx", marks=needs_onnx)]


def run_torchscript(content: bytes) -> Callable[[Tensor], Tensor]:
    program: Any = torch.jit.load(io.BytesIO(content))
    return lambda x: program(x)


def run_onnx(content: bytes) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(["y"], {"x": x.numpy()})[0])


RUN = {"torchscript": run_torchscript, "onnx": run_onnx}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HOME)
def test_a_program_gives_the_networks_outputs_for_batches_of_any_size(name: str, kind: str) -> None:
    inputs, outputs, _ = HOME[name]
    network = build_model(name, inputs, outputs).eval()
    program = RUN[kind](program_bytes(network, inputs, kind))
    for number in (1, 5):
        x = samples(name, number, inputs)
        with torch.no_grad():
            torch.testing.assert_close(program(x), network(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_double_precision_stays(kind: str) -> None:
    network = build_model("mlp", (4,), 3).double().eval()
    x = torch.rand(3, 4, dtype=torch.float64)
    found = RUN[kind](program_bytes(network, (4,), kind))(x)
    torch.testing.assert_close(found, network(x).detach())


class Noisy(nn.Module):
    """Gives something else every time, which no program can be held to."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + torch.rand_like(x))


class Choosy(nn.Module):
    """Takes another way by what the samples are."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleDict({"low": nn.Linear(4, 2), "high": nn.Linear(4, 2)})

    def forward(self, x: Tensor) -> Tensor:
        return self.ways["high" if float(x.sum()) > 0 else "low"](x)


class Free(nn.Module):
    """Is written in more than TorchScript reads, and does the same for all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})

    def forward(self, x: Tensor, **more: Any) -> Tensor:
        return sum(way(x) for way in self.ways.values()) + more.get("shift", 0.0)


def test_what_torchscript_cannot_read_is_noted_as_it_runs() -> None:
    network, x = Free(), torch.rand(3, 4)
    program = run_torchscript(program_bytes(network, (4,), "torchscript"))
    torch.testing.assert_close(program(x), network(x))


@pytest.mark.parametrize("network", [Noisy(), Choosy()])
def test_a_network_that_is_no_program_has_parameters_all_the_same(network: nn.Module) -> None:
    with pytest.raises(CloveError, match=r"cannot be written as torchscript: .*As safetensors any"):
        program_bytes(network, (4,), "torchscript")
    read = load(parameter_bytes(network.state_dict(), {}))
    assert all(read[name].equal(t) for name, t in network.state_dict().items())


@needs_onnx
def test_what_onnx_cannot_hold_is_said() -> None:
    with pytest.raises(CloveError, match=r"cannot be written as onnx: .*As safetensors any"):
        program_bytes(Choosy(), (4,), "onnx")


def test_examples_are_what_a_network_takes() -> None:
    assert example(nn.Linear(4, 2).double(), (4,), 3).dtype == torch.float64
    words = example(nn.Embedding(5, 2), (4,), 3)
    assert (words.shape, words.dtype) == ((3, 4), torch.int64)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clove.extras.find_spec", lambda name: None)
    with pytest.raises(CloveError, match=r"export to ONNX needs onnx: pip install 'clove-fl\[onnx"):
        program_bytes(nn.Linear(4, 2), (4,), "onnx")
