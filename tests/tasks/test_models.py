from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.errors import CloveError
from clove.tasks import MODELS, build_model


def size(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "parameters"),
    [
        ("cnn", (1, 28, 28), 10, 5_142),
        ("autoencoder", (784,), 1, 2_000_964),
        ("autoencoder", (1, 28, 28), 1, 2_000_964),
        ("mlp", (8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
        ("linear", (20,), 1, 20),
    ],
)
def test_networks_have_the_papers_sizes(name, inputs, outputs, parameters):
    assert size(build_model(name, inputs, outputs)) == parameters


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=10)
@given(
    channels=st.integers(1, 3),
    height=st.integers(16, 24),
    width=st.integers(16, 24),
    outputs=st.integers(1, 5),
)
def test_networks_are_made_to_measure(name, channels, height, width, outputs):
    shape = (channels, height, width)
    given_back = build_model(name, shape, outputs)(torch.randn(2, *shape))
    numbers = channels * height * width
    assert given_back.shape == (2, numbers if name == "autoencoder" else outputs)


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 15, 28), (1, 28, 15)])
def test_the_cnn_is_for_images_it_can_look_at(shape):
    with pytest.raises(CloveError, match=r"at least 16×16 .* use 'mlp'"):
        build_model("cnn", shape, 10)


def test_an_autoencoder_gives_numbers_between_zero_and_one():
    made = build_model("autoencoder", (16,), 1)(100 * torch.randn(8, 16))
    assert 0 <= made.min() < made.max() <= 1


def test_a_linear_model_starts_as_random_unit_vectors():
    weight = build_model("linear", (5, 4), 3).weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(3))
    assert not torch.allclose(weight[0], weight[1])


def test_a_linear_model_is_a_scalar_product():
    network = build_model("linear", (2, 2), 1)
    x = torch.randn(3, 2, 2)
    torch.testing.assert_close(network(x)[:, 0], x.flatten(1) @ network.weight[0])


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(CloveError, match="unknown model 'cnnn': did you mean 'cnn'"):
        build_model("cnnn", (1, 28, 28), 10)


def test_an_autoencoder_needs_room_for_a_code():
    with pytest.raises(CloveError, match="at least four features"):
        build_model("autoencoder", (3,), 1)
