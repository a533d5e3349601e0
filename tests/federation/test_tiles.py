"""Convolutions by tiles give what torch gives: run here by Triton's interpreter, on the CPU."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clove.errors import CloveError
from clove.federation import LocalTraining, layers
from clove.federation.engines import make_engine
from clove.federation.layers import TILED

from .test_stacked import stack_of
from .worlds import WORLDS, some_clients

CLIENTS, SAMPLES = 2, 3
# channels, filters, side, size of a filter, padding
SHAPES = [(3, 8, 8, 3, 1), (16, 24, 4, 3, 1), (32, 16, 6, 5, 2), (16, 16, 10, 5, 0)]


@pytest.fixture(scope="module")
def tiles() -> ModuleType:
    """Load the kernels, as programs for the interpreter (see `tests/conftest.py`)."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("test_gpu.py runs them on the GPU itself")
    return layers.tiles()


@pytest.fixture(autouse=True)
def _exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def plain(images: Tensor, filters: Tensor, padding: int) -> Tensor:
    """Convolve client by client as torch does; one image may be everybody's."""
    each = images.movedim(-1, 2).expand(len(filters), *[-1] * 4)
    outputs = [F.conv2d(x, w, padding=padding) for x, w in zip(each, filters, strict=True)]
    return torch.stack(outputs).movedim(2, -1)


def made(shape: tuple[int, ...], shared: bool) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    channels, number, side, size, _ = shape
    images = torch.randn(1 if shared else CLIENTS, SAMPLES, side, side, channels)
    filters = torch.randn(CLIENTS, number, channels, size, size) / (channels * size**2) ** 0.5
    return images.requires_grad_(not shared), filters.requires_grad_()


def assert_same_gradients(found: Tensor, expected: Tensor, of: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    of = [tensor for tensor in of if tensor.requires_grad]
    slope = torch.randn_like(expected)
    mine = torch.autograd.grad(found, of, slope)
    torch.testing.assert_close(mine, torch.autograd.grad(expected, of, slope), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_convolution_and_its_gradients(tiles: ModuleType, shape, shared) -> None:
    images, filters = made(shape, shared)
    found = tiles.convolution(images, filters, shape[-1])
    assert_same_gradients(found, plain(images, filters, shape[-1]), [images, filters])


@pytest.mark.parametrize("shape", SHAPES)
def test_normalised_and_pooled_with_its_gradients(tiles: ModuleType, shape) -> None:
    images, filters = made(shape, shared=False)
    scale, shift = (torch.randn(CLIENTS, shape[1], requires_grad=True) for _ in range(2))
    pooled, mean, variance, count = tiles.normalised_convolution(
        images, filters, scale, shift, shape[-1], 1e-5
    )
    values = plain(images, filters, shape[-1])
    expected = torch.stack(
        [
            F.max_pool2d(
                F.batch_norm(y.movedim(-1, 1), None, None, a, b, training=True).relu(), 2
            ).movedim(1, -1)
            for y, a, b in zip(values, scale, shift, strict=True)
        ]
    )
    assert_same_gradients(pooled, expected, [images, filters, scale, shift])
    flat = values.detach().flatten(1, 3)
    assert count == flat.shape[1]
    torch.testing.assert_close(mean, flat.mean(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(variance, flat.var(1, unbiased=False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (1, 6, 8, 5, 0)])
def test_pooled_with_its_gradients(tiles: ModuleType, shape, biased) -> None:
    images, filters = made(shape, shared=False)
    shift = torch.randn(CLIENTS, shape[1], requires_grad=True) if biased else None
    found = tiles.activated_convolution(images, filters, shift, shape[-1])
    values = plain(images, filters, shape[-1])
    values = values if shift is None else values + shift[:, None, None, None]
    expected = F.max_pool2d(values.relu().flatten(0, 1).movedim(-1, 1), 2).movedim(1, -1)
    expected = expected.unflatten(0, (CLIENTS, SAMPLES))
    of = [images, filters] if shift is None else [images, filters, shift]
    assert_same_gradients(found, expected, of)


@pytest.mark.parametrize("shared", [False, True])
def test_pooled_without_gradients(tiles: ModuleType, shared) -> None:
    images, filters = (tensor.detach() for tensor in made(SHAPES[0], shared))
    shift = torch.randn(CLIENTS, 8)
    found = tiles.pooled_convolution(images, filters, shift, 1)
    values = (plain(images, filters, 1) + shift[:, None, None, None]).relu()
    expected = F.max_pool2d(values.flatten(0, 1).movedim(-1, 1), 2).movedim(1, -1)
    torch.testing.assert_close(found, expected.unflatten(0, (CLIENTS, SAMPLES)))


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 4, (1, 2)), nn.Flatten(), nn.Linear(8, 3)),
    )


@pytest.mark.parametrize("padded", [False, True])
def test_a_network_by_tiles_is_the_network(tiles: ModuleType, padded) -> None:
    stack, own, x = stack_of(network)
    own = {n: t.float() if t.is_floating_point() else t for n, t in own.items()}
    x = x.float()
    slopes, updates, evaluated = {}, {}, {}
    for kernel in ("grouped", TILED):
        stack.use([kernel] * len(stack.convolutions), kernel)
        with torch.no_grad():
            evaluated[kernel] = stack(own, x, 0).front()
        free = {n: t.clone().requires_grad_() for n, t in own.items() if t.is_floating_point()}
        weight = torch.ones(x.shape[1], len(x))
        weight[-1, :] = 0.0 if padded else 1.0
        with stack.tape.recording(weight, 1, padded):
            outputs = stack({**own, **free}, x.movedim(0, 1).contiguous(), 1).front()
            outputs.square().sum().backward()
            updates[kernel] = dict(stack.tape.updates)
        differentiated = stack({**own, **free}, x, 0).front()  # an evaluation, on the way to one
        torch.testing.assert_close(differentiated.detach(), evaluated[kernel], rtol=1e-4, atol=1e-4)
        differentiated.sum().backward()
        slopes[kernel] = {n: t.grad for n, t in free.items() if t.grad is not None}
    torch.testing.assert_close(evaluated[TILED], evaluated["grouped"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(updates[TILED], updates["grouped"], rtol=1e-4, atol=1e-4)
    # A bias before statistics of the batch has no effect, which is rounding or is not there.
    expected = {n: t for n, t in slopes["grouped"].items() if n in slopes[TILED]}
    assert set(slopes["grouped"]) - set(slopes[TILED]) <= {"0.bias"}
    torch.testing.assert_close(slopes[TILED], expected, rtol=1e-3, atol=1e-3)


def test_where_there_is_no_gpu_they_are_refused() -> None:
    task, shape, classes = WORLDS["cnn"]
    with pytest.raises(CloveError, match="'tiled' needs a GPU, Triton and single precision"):
        make_engine(
            *("vectorized", some_clients([8] * 2, shape, classes), task, LocalTraining()),
            kernels="tiled,tiled",
            device="cpu",
        )


def test_they_are_no_choice_for_a_network_without_many_filters() -> None:
    task, shape, classes = WORLDS["cnn"]
    clients = some_clients([8] * 2, shape, classes)
    _, choice = make_engine("vectorized", clients, task, LocalTraining(batch_size=8))
    assert TILED not in choice.kernels
