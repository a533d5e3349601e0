"""Whether network, task and clients fit together, found out before any round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from clove.errors import CloveError
from clove.federation.budget import is_machine_error
from clove.federation.objectives import Batch
from clove.federation.pool import Pool

if TYPE_CHECKING:
    from clove.federation.simulation import Simulation


@dataclass(frozen=True)
class Tried:
    """What was seen of a network when two samples ran through it."""

    writes_on_input: bool
    output_size: int


def check_fit(engine: Simulation) -> Tried:
    """Refuse, in words, what would fail in some round; return what was seen on the way."""
    if engine.task.target == "y" and engine.train_pool.y is None:
        raise CloveError(
            f"task {engine.task.name!r} needs labels, but the clients have none; "
            "use clove.reconstruction for unsupervised data"
        )
    lone = np.flatnonzero(engine.train_pool.sizes < 2)
    if engine.normalises and len(lone):
        raise CloveError(
            f"client {engine.numbers[lone[0]]} has a single training sample, but the network's "
            "batch normalisation needs at least two; drop that client or the layer"
        )
    _refuse_ties(engine.network)
    return _try_network(engine)


def _refuse_ties(network: nn.Module) -> None:
    """Refuse one parameter or one running statistic under two names."""
    known: dict[Tensor, str] = {}
    kinds = network.named_parameters, network.named_buffers
    for name, tensor in [one for kind in kinds for one in kind(remove_duplicate=False)]:
        if known.setdefault(tensor, name) != name:
            raise CloveError(
                f"the network has {known[tensor]!r} and {name!r}, which are one tensor under "
                "two names (tied weights, or a layer used twice) and cannot be averaged; "
                "register it once and use it twice in forward"
            )


def _try_network(engine: Simulation) -> Tried:
    """Run two samples through the network, and take their loss."""
    rows = torch.arange(min(2, len(engine.train_pool.x)), device=engine.device)
    batch = engine.batch(rows, torch.ones(len(rows)), engine.train_pool)
    before = batch.x.clone()
    try:
        with torch.no_grad():
            outputs = engine.network.eval()(batch.x)
    except Exception as error:
        if is_machine_error(error):
            raise
        if not batch.x.is_floating_point():
            raise CloveError(
                "the network cannot take whole numbers: convert the features to float32 "
                "(images of bytes: divide them by 255)"
            ) from error
        raise CloveError(
            f"the network cannot take samples of shape {tuple(batch.x.shape[1:])}: {error}"
        ) from error
    tried = Tried(
        writes_on_input=not torch.equal(batch.x, before),
        output_size=int(outputs.shape[-1]) if outputs.dim() else 1,
    )
    if engine.task.correct is not None:
        for pool in (engine.train_pool, engine.test_pool):
            _check_labels(engine, pool, outputs.shape[-1])
    _try_loss(engine, outputs, replace(batch, x=before))
    return tried


def _try_loss(engine: Simulation, outputs: Tensor, batch: Batch) -> None:
    """Take the loss of a few samples, so that one of the user's own fails before any round."""
    try:
        losses = engine.task.loss(outputs, batch.y)
    except CloveError:
        raise
    except Exception as error:
        if is_machine_error(error):
            raise
        raise CloveError(
            f"the loss cannot be taken of outputs of shape {tuple(outputs.shape)} and targets "
            f"of shape {tuple(batch.y.shape)}: {type(error).__name__}: {error}"
        ) from error
    shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
    if shape != (len(batch.y),):
        raise CloveError(
            f"the loss must give one number for each of {len(batch.y)} samples, shape "
            f"({len(batch.y)},), but gives {shape}: with torch's losses use reduction='none'"
        )


def _check_labels(engine: Simulation, pool: Pool, logits: int) -> None:
    """Refuse labels that are no outputs of the network, and name the first client with some."""
    labels = pool.y
    if labels is None:
        return
    low, high = labels.min().item(), labels.max().item()
    if not labels.is_floating_point() and low >= 0 and high < logits:
        return
    if labels.is_floating_point():
        raise CloveError(
            "labels are floating-point numbers, but classification needs whole ones: convert "
            "them with .astype(int), or use regression"
        )
    if logits < 2:
        raise CloveError("the network has one output, but classification needs one a class")
    wrong = (labels < 0) | (labels >= logits) | (labels != labels.floor())
    first = int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0]) if wrong.any() else 0
    client = int(np.searchsorted(pool.offsets, first, side="right")) - 1
    name = "" if engine.names[client] is None else f" ({engine.names[client]})"
    raise CloveError(
        f"labels run from {low} to {high}, but the network has {logits} outputs; "
        f"classification needs whole labels 0 to {logits - 1}: see client "
        f"{engine.numbers[client]}{name}"
    )
