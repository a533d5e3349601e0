from __future__ import annotations

import pytest
import torch
from torch import nn

from clove.federation.norm import TapedBatchNorm, always_by_batch, has_batch_norm, taped

LAYERS = [
    (nn.BatchNorm1d, ()),
    (nn.BatchNorm1d, (5,)),
    (nn.BatchNorm2d, (4, 3)),
    (nn.BatchNorm3d, (2, 2, 3)),
]
OPTIONS = [
    {},
    {"momentum": 0.3, "eps": 0.1},
    {"momentum": None},
    {"affine": False},
    {"track_running_stats": False},
]
WIDTH, REAL = 7, 4

each_layer = pytest.mark.parametrize(("kind", "inner"), LAYERS)
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def made(kind, options):
    """Return torch's layer with weights that matter, our twin of it, and the twin's tape."""
    torch.manual_seed(0)
    layer = kind(3, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer, *taped(layer)


def padded(inner):
    """Draw a batch whose last samples are padding far off, and the weights that say so."""
    x = torch.randn(WIDTH, 3, *inner, dtype=torch.float64)
    x[REAL:] = 1e6
    return x, (torch.arange(WIDTH) < REAL).double()


@each_layer
@each_option
def test_padding_enters_no_statistic(kind, inner, options):
    layer, twin, tape = made(kind, options)
    for _ in range(3):
        x, tape.weight = padded(inner)
        torch.testing.assert_close(twin(x)[:REAL], layer.train()(x[:REAL]))
        state = dict(layer.state_dict())
        tracked = {name for name in state if name not in ("weight", "bias")}
        assert set(tape.updates) == tracked
        for name, value in tape.updates.items():
            torch.testing.assert_close(value, state[name])
        twin.load_state_dict({**twin.state_dict(), **tape.updates})
        tape.updates = {}
    tape.weight = None
    x = torch.randn(5, 3, *inner, dtype=torch.float64)
    torch.testing.assert_close(twin(x), layer.eval()(x))


@each_layer
def test_gradients_flow_as_through_torchs_layer(kind, inner):
    layer, twin, tape = made(kind, {})
    x, tape.weight = padded(inner)
    ours, theirs = x.clone().requires_grad_(), x[:REAL].clone().requires_grad_()
    twin(ours)[:REAL].pow(3).sum().backward()
    layer(theirs).pow(3).sum().backward()
    torch.testing.assert_close(ours.grad[:REAL], theirs.grad)
    assert ours.grad[REAL:].count_nonzero() == 0
    torch.testing.assert_close(twin.weight.grad, layer.weight.grad)
    torch.testing.assert_close(twin.bias.grad, layer.bias.grad)


@each_option
def test_two_passes_of_one_step_move_the_statistics_twice(options):
    layer, twin, tape = made(nn.BatchNorm1d, options)
    for _ in range(2):
        x, tape.weight = padded(())
        twin(x)
        layer(x[:REAL])
    for name, value in tape.updates.items():
        torch.testing.assert_close(value, layer.state_dict()[name])


def test_a_forward_pass_writes_to_the_tape_alone():
    layer, twin, tape = made(nn.BatchNorm2d, {})
    before = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    x, tape.weight = padded((4, 3))
    twin(x)
    for name, tensor in twin.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert layer.num_batches_tracked == 0


def test_layers_are_replaced_at_any_depth_under_their_own_names():
    network = nn.Sequential(
        nn.Linear(4, 3), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()), nn.BatchNorm1d(3)
    )
    stacked, tape = taped(network)
    assert isinstance(stacked[1][0], TapedBatchNorm)
    assert isinstance(stacked[2], TapedBatchNorm)
    assert isinstance(network[1][0], nn.BatchNorm1d)
    assert list(stacked.state_dict()) == list(network.state_dict())
    tape.weight = torch.ones(5)
    stacked(torch.randn(5, 4))
    assert {name.rpartition(".")[0] for name in tape.updates} == {"1.0", "2"}
    assert set(tape.updates) <= set(network.state_dict())


def test_batch_norm_is_found_at_any_depth():
    assert has_batch_norm(nn.Sequential(nn.Sequential(nn.BatchNorm2d(2))))
    assert not has_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)))


def test_only_layers_without_running_statistics_normalise_by_batch_in_evaluation():
    assert always_by_batch(nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)))
    assert not always_by_batch(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
