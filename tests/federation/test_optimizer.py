"""Clients' optimisers do what torch's classes do, and what those cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clove.federation import LocalTraining
from clove.federation.optimizer import Optimizer

CLASSES = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def tensors(seed: int = 0) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((4, 3), (4, 5, 2))
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adam", {}),
        ("adam", {"weight_decay": 0.1}),
        ("adamw", {"weight_decay": 0.1}),
        ("sgd", {}),
        ("sgd", {"momentum": 0.9, "weight_decay": 0.01}),
    ],
)
def test_each_moves_as_torchs_class_does_and_starts_anew_when_reset(
    name: str, options: dict[str, Any]
) -> None:
    own = tensors()
    theirs = [t.clone().requires_grad_() for t in own]
    optimizer = Optimizer(own, LocalTraining(name, 0.1, **options))
    for start in range(2):
        optimizer.begin(start + 1)
        reference = CLASSES[name](theirs, lr=0.1, **{"weight_decay": 0.0, **options})
        for step in range(4):
            gradients = tensors(10 * start + step)
            optimizer.step(gradients)
            for tensor, gradient in zip(theirs, gradients, strict=True):
                tensor.grad = gradient.clone()
            reference.step()
    for mine, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-12, atol=1e-12)


def test_momentum_that_is_kept_goes_on_and_the_rate_falls_from_round_to_round() -> None:
    training = LocalTraining("sgd", 0.1, momentum=0.9, learning_rate_decay=0.5, keep_momentum=True)
    own = tensors()
    theirs = [t.clone().requires_grad_() for t in own]
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=0.9)
    kept = None
    for number in range(1, 4):
        optimizer = Optimizer(own, training)
        optimizer.begin(number, kept)
        reference.param_groups[0]["lr"] = 0.1 * 0.5 ** (number - 1)
        for step in range(2):
            gradients = tensors(10 * number + step)
            optimizer.step(gradients)
            for tensor, gradient in zip(theirs, gradients, strict=True):
                tensor.grad = gradient.clone()
            reference.step()
        kept = [t.clone() for t in optimizer.momentum]
    for mine, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-12, atol=1e-12)


def test_only_the_first_rows_move_where_only_they_are_asked_to() -> None:
    own, before = tensors(), tensors()
    Optimizer(own, LocalTraining("adam", 0.1)).step([t[:3] for t in tensors(1)], rows=3)
    for tensor, start in zip(own, before, strict=True):
        assert (tensor[:3] != start[:3]).all()
        assert torch.equal(tensor[3:], start[3:])


def test_gradients_may_lie_in_memory_in_another_order() -> None:
    own, other = tensors(), tensors()
    strided = [t.mT.contiguous().mT for t in tensors(1)]
    Optimizer(own, LocalTraining("adam", 0.1)).step(strided)
    Optimizer(other, LocalTraining("adam", 0.1)).step(tensors(1))
    assert all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


@pytest.mark.parametrize(
    ("name", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0), ("adamw", 0.0)]
)
def test_a_rate_that_is_read_from_the_device_is_as_precise_as_what_it_moves(
    name: str, momentum: float
) -> None:
    decay = {"weight_decay": 0.01, "learning_rate_decay": 0.5}
    training = LocalTraining(name, 0.1, momentum=momentum, **decay)
    results = []
    for on_device in (True, False):
        own = tensors()
        optimizer = Optimizer(own, training)
        if on_device:  # as on a GPU, where steps are captured
            optimizer._rate = torch.zeros((), dtype=own[0].dtype)
        for number in range(1, 4):
            optimizer.begin(number)
            for step in range(3):
                optimizer.step(tensors(10 * number + step))
        results.append(own)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
