"""The model zoo: networks by name, made to fit the data's shape.

Sizes follow the code of the paper's authors where the paper gives none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import Parameter, signature
from math import prod
from pathlib import Path
from typing import Any, cast

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
    channels, height, width = _image(inputs, "cnn", least=16)
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


def cifar_cnn(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's network for CIFAR-10: four blocks with batch normalisation, then dropout.

    4,181,002 parameters for 32×32 colour images and ten classes.
    """
    channels, height, width = _image(inputs, "cifar-cnn", least=16)
    blocks: list[nn.Module] = []
    for size in (64, 128, 256, 512):
        blocks += [nn.Conv2d(channels, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU()]
        blocks.append(nn.MaxPool2d(2))
        channels = size
    return nn.Sequential(
        *blocks,
        nn.Flatten(),
        *(nn.Linear(512 * (height // 16) * (width // 16), 1024), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(512, outputs),
    )


class TextCnn(nn.Module):
    """Words in windows of three, four and five, each filter's best match, then one linear layer.

    The paper's network for AG News: 3,321,504 parameters for four classes. Takes word numbers, 0
    being padding; 32,000 words have a place, of which a vocabulary of 20,000 uses fewer.
    """

    def __init__(self, outputs: int, words: int = 32_000, width: int = 100) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.windows = nn.ModuleList(nn.Conv1d(width, width, size) for size in (3, 4, 5))
        self.dropout = nn.Dropout(0.8)
        self.classes = nn.Linear(3 * width, outputs)

    def forward(self, words: Tensor) -> Tensor:
        """Return a logit for each class."""
        embedded = self.words(words).transpose(1, 2)
        found = [window(embedded).relu().amax(dim=2) for window in self.windows]
        logits: Tensor = self.classes(self.dropout(torch.cat(found, dim=1)))
        return logits


def text_cnn(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's network for texts of word numbers."""
    if len(inputs) != 1 or inputs[0] < 5:
        raise CloveError(
            f"model 'text-cnn' needs texts of at least five word numbers, "
            f"but the data have shape {inputs}"
        )
    return TextCnn(outputs)


def amazon_mlp(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's network for Amazon reviews: 5000 → 1000 → 500 → 100 → 2, with ReLU.

    5,551,802 parameters.
    """
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(prod(inputs), 1000), nn.ReLU(), nn.Linear(1000, 500), nn.ReLU()),
        *(nn.Linear(500, 100), nn.ReLU(), nn.Linear(100, outputs)),
    )


def conv_autoencoder(inputs: Shape, outputs: int) -> nn.Module:
    """Build the paper's convolutional autoencoder for colour images, with a code of 128 numbers.

    712,835 parameters for 32×32. Its output is a tanh, in [-1, 1].
    """
    channels, height, width = _image(inputs, "conv-autoencoder", least=8)
    if height % 8 or width % 8:
        raise CloveError(f"model 'conv-autoencoder' needs sides divisible by 8, not {inputs[1:]}")
    small = (128, height // 8, width // 8)
    down: dict[str, Any] = {"kernel_size": 3, "stride": 2, "padding": 1}
    up = down | {"output_padding": 1}
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, **down), nn.ReLU(), nn.Conv2d(32, 64, **down), nn.ReLU()),
        *(nn.Conv2d(64, 128, **down), nn.ReLU(), nn.Flatten(), nn.Linear(prod(small), 128)),
        *(nn.Linear(128, prod(small)), nn.Unflatten(1, small)),
        *(nn.ConvTranspose2d(128, 64, **up), nn.ReLU(), nn.ConvTranspose2d(64, 32, **up)),
        *(nn.ReLU(), nn.ConvTranspose2d(32, channels, **up), nn.Tanh(), nn.Flatten()),
    )


def _image(inputs: Shape, model: str, least: int) -> Shape:
    if len(inputs) != 3 or min(inputs[1:]) < least:
        raise CloveError(
            f"model {model!r} needs images of at least {least}×{least} as "
            f"[channels, height, width], but the data have shape {inputs}"
        )
    return inputs


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
    "cifar-cnn": cifar_cnn,
    "text-cnn": text_cnn,
    "amazon-mlp": amazon_mlp,
    "autoencoder": autoencoder,
    "conv-autoencoder": conv_autoencoder,
    "linear": linear,
}


def check_model(name: str) -> None:
    """Refuse a name that is neither in the zoo nor of one's own, `package.module:name`."""
    if name != "auto" and name not in MODELS and ":" not in name:
        raise unknown_name("model", name, MODELS)


def build_model(name: str, inputs: Shape, outputs: int) -> nn.Module:
    """Make a network for samples of shape `inputs`: of the zoo, or one's own by its import name.

    One's own factory is called with `inputs` and `outputs` if it takes two arguments, else with
    none.
    """
    check_model(name)
    if name in MODELS:
        return MODELS[name](inputs, outputs)
    factory = imported(name)
    required = _required(factory)
    if required not in (0, 2):
        raise CloveError(
            f"{name!r} needs {required} arguments: a factory takes the shape of a sample and the "
            "number of outputs, or nothing"
        )
    network: nn.Module = factory(inputs, outputs) if required else factory()
    return network


def _required(factory: Callable[..., Any]) -> int:
    """Return how many arguments must be given."""
    free = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    known = signature(factory).parameters.values()
    return sum(p.default is p.empty and p.kind not in free for p in known)


def imported(name: str) -> Callable[..., Any]:
    """Return what `package.module:name` names; modules in the working directory are found too."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise CloveError(
            f"{name!r} cannot be imported: {error}. Write package.module:name, and mind the folder "
            "you are in"
        ) from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise CloveError(f"{name!r} is not a function or a class, but {type(found).__name__}")
    return cast(Callable[..., Any], found)
