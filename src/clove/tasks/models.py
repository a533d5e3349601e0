"""The model zoo: networks by name, made to fit the data's shape.

Sizes follow the code of the paper's authors where the paper gives none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor, nn

from clove.errors import CloveError, unknown_name

Shape = tuple[int, ...]


def mlp(inputs: Shape, outputs: int, hidden: int = 64) -> nn.Module:
    """One hidden layer with ReLU: enough for digits and small tables."""
    size = prod(inputs)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
    )


def cnn(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's network for 28×28 grey images: two 5×5 convolutions and one linear layer.

    5,142 parameters for ten classes.
    """
    if len(inputs) != 3 or min(inputs[1:]) < 16:
        raise CloveError(
            f"model 'cnn' needs images of at least 16×16 as [channels, height, width], "
            f"but the data have shape {inputs}; use 'mlp'"
        )
    channels, height, width = inputs
    left = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * left[0] * left[1], outputs),
    )


def autoencoder(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's fully connected autoencoder; the code has a quarter of the input's size.

    784 → 784 → 392 → 196 → 392 → 784 → 784, sigmoid output: 2,000,964 parameters for 28×28.
    """
    size = prod(inputs)
    if size < 4:
        raise CloveError(f"model 'autoencoder' needs at least four features, not {size}")
    half, code = size // 2, size // 4
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, half), nn.ReLU()),
        nn.Linear(half, code),
        *(nn.Linear(code, half), nn.ReLU(), nn.Linear(half, size), nn.ReLU()),
        *(nn.Linear(size, size), nn.Sigmoid()),
    )


class Linear(nn.Linear):
    """A linear map without bias that starts as random unit vectors, as in the paper's theory."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        with torch.no_grad():
            self.weight.normal_()
            self.weight /= self.weight.norm(dim=1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return ⟨θ, x⟩."""
        return super().forward(x.flatten(1))


def linear(inputs: Shape, outputs: int) -> nn.Module:
    """Build the model of mixed linear regression."""
    return Linear(prod(inputs), outputs)


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "autoencoder": autoencoder,
    "linear": linear,
}


def build_model(name: str, inputs: Shape, outputs: int) -> nn.Module:
    """Make a network of the zoo for samples of shape `inputs`."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name](inputs, outputs)
