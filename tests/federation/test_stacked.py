"""The stacked network does what vmap would, whichever kernels it uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from clove.federation.layers import (
    KERNELS,
    TILED,
    LargestOfFour,
    Other,
    PooledConvolution,
    channels_last,
    largest_of_four,
)
from clove.federation.norm import taped
from clove.federation.stacked import StackedNetwork

CLIENTS, SAMPLES = 3, 4


def images() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 5, 1, bias=False), nn.Sigmoid(), nn.AvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2, bias=False)),
    )


def odd() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, groups=2), nn.Sequential(nn.Conv2d(4, 3, 3, padding="same"))),
        *(nn.BatchNorm2d(3, momentum=None), nn.ELU(), nn.Flatten(2), nn.Linear(64, 5)),
        *(nn.LayerNorm(5), nn.Flatten(), nn.BatchNorm1d(15), nn.Linear(15, 2)),
    )


ANYWHERE = [kernel for kernel in KERNELS if kernel != TILED]
NETWORKS = {"images": images, "odd": odd}


def stack_of(make: Callable[[], nn.Module]) -> tuple[StackedNetwork, dict[str, Tensor], Tensor]:
    torch.manual_seed(0)
    networks = [make().double() for _ in range(CLIENTS)]
    for network in networks:  # statistics that differ from those of a fresh network
        network(torch.randn(8, 2, 10, 10, dtype=torch.float64))
    states = [network.state_dict() for network in networks]
    own = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    one, tape = taped(networks[0].eval())
    return StackedNetwork(one, tape), own, torch.randn(CLIENTS, SAMPLES, 2, 10, 10).double()


@pytest.mark.parametrize("kernel", ANYWHERE)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("at", [0, 1])
def test_evaluation_is_that_of_each_client(name: str, kernel: str, at: int) -> None:
    stack, own, x = stack_of(NETWORKS[name])
    stack.use([kernel] * len(stack.convolutions))
    plain = NETWORKS[name]().double().eval()
    expected = vmap(lambda p, x: functional_call(plain, p, (x,)))(own, x)
    found = stack(own, x.movedim(0, at).contiguous(), at).front()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_samples_may_be_shared_by_all_clients(name: str) -> None:
    stack, own, x = stack_of(NETWORKS[name])
    shared = stack(own, x[0], None).front()
    torch.testing.assert_close(shared, stack(own, x[:1].expand_as(x), 0).front())


@pytest.mark.parametrize("kernel", ANYWHERE)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("padded", [False, True])
def test_training_gives_each_clients_gradients_and_statistics(
    name: str, kernel: str, padded: bool
) -> None:
    stack, own, x = stack_of(NETWORKS[name])
    stack.use([kernel] * len(stack.convolutions))
    free = {n: t.clone().requires_grad_() for n, t in own.items() if t.is_floating_point()}
    stack.tape.weight = torch.ones(SAMPLES, CLIENTS, dtype=torch.float64)
    stack.tape.at, stack.tape.padded = 1, padded
    outputs = stack({**own, **free}, x.movedim(0, 1).contiguous(), 1).front()
    outputs.square().sum().backward()
    for client in range(CLIENTS):
        network = NETWORKS[name]().double()
        network.load_state_dict({n: t[client] for n, t in own.items()})
        network.train()(x[client]).square().sum().backward()
        for parameter, tensor in network.named_parameters():
            assert free[parameter].grad is not None
            torch.testing.assert_close(
                free[parameter].grad[client], tensor.grad, rtol=1e-9, atol=1e-9
            )
        for buffer, tensor in network.named_buffers():
            torch.testing.assert_close(stack.tape.updates[buffer][client], tensor)


def test_the_cheaper_order_of_pooling_changes_rounding_at_most() -> None:
    stack, own, x = stack_of(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    )
    assert isinstance(stack.layers[0], PooledConvolution)
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    plain.double().load_state_dict({n: t[0] for n, t in own.items()})
    found = stack({n: t[:1] for n, t in own.items()}, x[:1], 0).front()[0]
    torch.testing.assert_close(found, plain(x[0]), rtol=1e-14, atol=1e-14)


def test_a_network_of_ones_own_making_goes_through_vmap_as_a_whole() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(200, 200)

        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(1)
            return flat + self.inner(flat)

    stack, own, x = stack_of(Skip)
    assert isinstance(stack.layers[0], Other)
    plain = Skip().double()
    expected = vmap(lambda p, x: functional_call(plain, p, (x,)))(own, x)
    torch.testing.assert_close(stack(own, x, 0).front(), expected)


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (2, 3, 5, 7), (1, 1, 2, 2)])
def test_the_largest_of_four_is_what_torch_pools(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert torch.equal(largest_of_four(x), nn.functional.max_pool2d(x, 2))
    x[0, 0, 1, 1] = torch.nan
    assert torch.isnan(largest_of_four(x)[0, 0, 0, 0])


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_of_pooling_lie_as_the_images_do_and_go_to_the_first_of_equals(
    channels: int, side: int
) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 3, (4, side, side, channels)).double().movedim(-1, 1).requires_grad_()
    found, expected = LargestOfFour.apply(x), nn.functional.max_pool2d(x, 2)
    assert torch.equal(found, expected)
    given = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(found, x, given)
    assert torch.equal(gradient, torch.autograd.grad(expected, x, given)[0])
    assert gradient.stride() == x.stride()


@pytest.mark.parametrize("channels", [1, 2])
def test_images_with_channels_last_are_convolved_into_such(channels: int) -> None:
    x = torch.randn(3, channels, 8, 8)
    laid = channels_last(x)
    assert torch.equal(laid, x)
    convolution = nn.Conv2d(channels, 4, 3)
    assert convolution(laid).stride(1) == 1
    torch.testing.assert_close(convolution(laid), convolution(x))
