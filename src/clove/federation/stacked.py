"""A network for a stack of models: what torch.func.vmap does, with the client axis where it pays.

Samples, activations and parameters of many clients are single tensors. Convolutions of all clients
are one grouped convolution, whose input has clients and channels on one axis; pooling, activation
and batch normalisation work on the same tensor, without a copy between layers. Layers that are not
known here, and networks that are no `nn.Sequential`, go through vmap. Where convolutions are large,
they and what follows them may run client by client instead (see `one_by_one`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from clove.errors import CloveError
from clove.federation.layers import (
    KERNELS,
    ONE_BY_ONE,
    TILED,
    At,
    Convolution,
    Elementwise,
    Flatten,
    Layer,
    Linear,
    Normalisation,
    Other,
    PooledConvolution,
    Pooling,
    Spread,
    Stack,
    usual,
)
from clove.federation.norm import Tape, TapedBatchNorm
from clove.federation.one_by_one import OneByOne, can_run_alone

ELEMENTWISE = (nn.ReLU, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Dropout)
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)


class StackedNetwork:
    """A network that runs many models at once."""

    def __init__(self, network: nn.Module, tape: Tape) -> None:
        """Take a network whose batch normalisation is on the tape (see `norm.taped`)."""
        self.tape, self.compiled = tape, False
        self.layers = _cheaper(_layers(network, ""))
        self._by_compiler: Callable[..., tuple[Tensor, At, dict[str, Tensor]]] | None = None
        self._one_by_one: dict[tuple[int, int], OneByOne] = {}
        self.use(())

    @property
    def convolutions(self) -> list[Convolution]:
        """All convolutions, whose kernels may be chosen."""
        found = [_convolution(layer) for layer in self.layers]
        return [layer for layer in found if layer is not None]

    @property
    def client_axis(self) -> int:
        """Where samples should have the clients' axis: second for convolutions, else first."""
        return 1 if self.convolutions else 0

    def use(self, kernels: Sequence[str], in_evaluation: str = KERNELS[0]) -> None:
        """Choose the kernels of the convolutions, in their order; in evaluation one for all."""
        for layer, kernel in zip(self.convolutions, kernels, strict=False):
            layer.kernel = kernel
        for layer in self.convolutions:
            layer.evaluation_kernel = in_evaluation
        self._in_training = self._planned(lambda one: one.kernel)
        self._in_evaluation = self._planned(lambda one: one.evaluation_kernel)

    def _planned(self, kernel: Callable[[Convolution], str]) -> list[Layer]:
        """Return the layers as they run: those that go client by client joined."""
        alone, going = [], False
        for layer in self.layers:
            convolution = _convolution(layer)
            chosen = going if convolution is None else kernel(convolution) == ONE_BY_ONE
            going = chosen and can_run_alone(layer)
            alone.append(going)
        plan: list[Layer] = []
        for going, run in groupby(range(len(alone)), alone.__getitem__):
            places = list(run)
            joined = self._joined(places[0], places[-1] + 1) if going else None
            plan += [joined] if joined else [self.layers[at] for at in places]
        return plan

    def _joined(self, start: int, end: int) -> OneByOne:
        """Return the layers from start to end as one, always the same: it may be compiled."""
        return self._one_by_one.setdefault((start, end), OneByOne(self.layers[start:end]))

    def __call__(self, own: Stack, x: Tensor, at: At) -> Spread:
        """Run each client's model over its samples, or over those all share."""
        if not self.compiled or self._compiled_in_part():
            return self._run(own, x, at)
        if self._by_compiler is None:
            self._by_compiler = torch.compile(self._run_apart, dynamic=False)
        outputs, axis, self.tape.updates = self._by_compiler(own, x, at, self.tape.updates)
        return Spread(outputs, axis)

    def _compiled_in_part(self) -> bool:
        """Say whether layers are compiled by themselves, or have kernels that are compiled."""
        by_tiles = any(layer.kernel == TILED for layer in self.convolutions)
        return by_tiles or any(isinstance(one, OneByOne) for one in self._in_training)

    def with_features(self, own: Stack, x: Tensor, at: At, head: str) -> tuple[Spread, Spread]:
        """Run likewise; return also what goes into the head."""
        tape = self.tape
        tape.head, tape.features = head, None
        try:
            outputs, features = self._run(own, x, at), tape.features
        finally:
            tape.head = tape.features = None
        if features is None:
            raise CloveError(
                f"the head {head!r} is no linear layer of a plain nn.Sequential: its features "
                "cannot be stacked. Use --engine sequential"
            )
        return outputs, features

    def _run(self, own: Stack, x: Tensor, at: At) -> Spread:
        spread = Spread(x, at)
        for layer in self._in_evaluation if self.tape.weight is None else self._in_training:
            if isinstance(layer, OneByOne):
                layer.compiles = self.compiled
            spread = layer(own, spread, self.tape)
        return spread

    def _run_apart(
        self, own: Stack, x: Tensor, at: At, updates: dict[str, Tensor]
    ) -> tuple[Tensor, At, dict[str, Tensor]]:
        """Run, with all that goes in and comes out where a compiler can see it."""
        self.tape.updates = updates
        spread = self._run(own, x, at)
        return spread.tensor, spread.at, self.tape.updates


def can_compile(device: torch.device) -> bool:
    """Say whether torch's compiler has what it needs here: Triton on a GPU, or a C++ compiler."""
    if device.type == "cuda":
        return find_spec("triton") is not None
    return any(map(shutil.which, ("g++", "clang++", "c++")))


def can_tile(device: torch.device, dtype: torch.dtype) -> bool:
    """Say whether convolutions can go by tiles: Triton writes them for a GPU's tensor cores."""
    return device.type == "cuda" and dtype == torch.float32 and can_compile(device)


class OneOfStack(torch.autograd.Function):
    """Lets code that vmap runs for one client call something that runs for all of them.

    Under vmap torch calls the rule below with the tensors of all clients: parameters by name, and
    others (samples, weights). The rule runs what it is given on the stack; the result is
    differentiated from outside, like any other function of tensors.
    """

    @staticmethod
    def forward(*_inputs: Any) -> Any:
        """Refuse: there is no stack outside vmap."""
        raise RuntimeError("a stacked network runs under vmap only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[At, ...],
        run: Callable[..., tuple[Spread, ...]],
        names: tuple[str, ...],
        *tensors: Tensor,
    ) -> tuple[tuple[Tensor, ...], tuple[At, ...]]:
        """Run for all clients: parameters come first, in the order of their names."""
        spread = [Spread(t, at) for t, at in zip(tensors, in_dims[2:], strict=True)]
        own = {
            name: one.tensor.expand(info.batch_size, *one.tensor.shape)
            if one.at is None
            else one.front()
            for name, one in zip(names, spread, strict=False)
        }
        found = run(own, *spread[len(names) :])
        return tuple(one.tensor for one in found), tuple(one.at for one in found)


def _convolution(layer: Layer) -> Convolution | None:
    inner = layer.convolution if isinstance(layer, PooledConvolution) else layer
    return inner if isinstance(inner, Convolution) else None


def _layers(module: nn.Module, name: str) -> list[Layer]:
    if type(module).forward is nn.Sequential.forward and _as_it_seems(module):
        return [
            layer
            for child, inner in module._modules.items()  # `named_children` has each module once
            if inner is not None
            for layer in _layers(inner, f"{name}{child}.")
        ]
    return [_layer(module, name)]


def _as_it_seems(module: nn.Module) -> bool:
    """Say whether a module does what its class says: no hooks, and no other way forward."""
    hooks = (
        *(module._forward_hooks, module._forward_pre_hooks),
        *(module._backward_hooks, module._backward_pre_hooks),
    )
    return "forward" not in vars(module) and not any(hooks)


def _layer(module: nn.Module, name: str) -> Layer:
    kind = type(module)
    if not _as_it_seems(module):
        return Other(module, name)
    if kind in ELEMENTWISE:
        return Elementwise(module)
    if (
        isinstance(module, nn.Flatten)
        and kind is nn.Flatten
        and (module.start_dim, module.end_dim) == (1, -1)
    ):
        return Flatten()
    if kind is nn.Linear:
        return Linear(name)
    if kind in POOLS and not getattr(module, "return_indices", False):
        return Pooling(module)
    if isinstance(module, nn.Conv2d) and kind is nn.Conv2d and usual(module):
        return Convolution(module, name)
    if isinstance(module, TapedBatchNorm):
        return Normalisation(module, name)
    return Other(module, name)


def _cheaper(layers: list[Layer]) -> list[Layer]:
    """Join convolution, normalisation, ReLU and max-pooling where they follow each other."""
    joined: list[Layer] = []
    at = 0
    while at < len(layers):
        first = layers[at]
        norm, rest = None, layers[at + 1 : at + 4]
        if rest and isinstance(rest[0], Normalisation):
            norm, rest = rest[0], rest[1:]
        if isinstance(first, Convolution) and len(rest) >= 2 and _relu_then_max(*rest[:2]):
            assert isinstance(rest[1], Pooling)
            joined.append(PooledConvolution(first, norm, rest[1]))
            at += 3 if norm is None else 4
        else:
            joined.append(first)
            at += 1
    return joined


def _relu_then_max(relu: Layer, pool: Layer) -> bool:
    return (
        isinstance(relu, Elementwise)
        and isinstance(relu.module, nn.ReLU)
        and isinstance(pool, Pooling)
        and isinstance(pool.module, nn.MaxPool2d)
    )
