"""The steps of a group of clients in training, captured as CUDA graphs where there is a GPU.

A captured step replays all its kernels with one call, on tensors that stay where they are. So the
stack of parameters, the optimiser's state, and the index of the batch are made once for a group of
a given size, and only filled anew for each round and step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clove.federation import parameters as stacks
from clove.federation.graphs import capture
from clove.federation.optimizer import Optimizer
from clove.federation.parameters import Indices, Parameters, upload
from clove.federation.simulation import Work

if TYPE_CHECKING:
    from clove.federation.vectorized import Vectorized

MOST_GRAPHS = 16


class GroupTraining:
    """A group of clients in training: their tensors, and the steps that act on them."""

    def __init__(self, engine: Vectorized, work: Work) -> None:
        self.engine, self.objective = engine, work.question.objective
        self.clients = len(work.clients)
        self.stack = {name: t.clone() for name, t in work.starts.items()}
        self.optimizer = Optimizer(
            [self.stack[name] for name in engine.trainable], work.question.training
        )
        extras, shared = client_extras(work, np.arange(self.clients))
        self.extras, self.shared = ({n: t.clone() for n, t in e.items()} for e in (extras, shared))
        self.index = torch.zeros(
            (self.clients, work.plans.width), dtype=torch.int64, device=engine.device
        )
        self.sizes = torch.ones(self.clients, dtype=torch.int64, device=engine.device)
        self.captures = engine.device.type == "cuda"
        self.graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph] = {}
        self._memory: Any = None

    @staticmethod
    def key(work: Work) -> Any:
        """Name what the captured steps depend on."""
        question, extras = work.question, work.question.extras
        shapes = (
            ()
            if extras is None
            else tuple(
                (name, tuple(t.shape))
                for name, t in [*extras.shared.items(), *extras.per_client.items()]
            )
        )
        rules = replace(question.training, epochs=1, purpose="")
        return len(work.clients), work.plans.width, rules, question.objective, shapes

    def train(self, work: Work) -> dict[str, Tensor]:
        """Train the clients from their starts; return the trained stack."""
        steps = work.plans.steps
        order = np.argsort(-steps, kind="stable")
        self._begin(work, order)
        active = [int(np.sum(steps > step)) for step in range(int(steps.max()) + 1)]
        plan = [work.plans.stacked(order[: self._rows(n)], at) for at, n in enumerate(active[:-1])]
        indices = [upload(rows, self.index.device) for rows, _ in plan]
        result = {name: torch.empty_like(t) for name, t in self.stack.items()}
        self.engine.one.train()
        for at, (_, sizes) in enumerate(plan):
            self._step(indices[at], sizes)
            if active[at + 1] < active[at]:  # these are done: later steps may run over their rows
                for name, tensor in self.stack.items():
                    done = slice(active[at + 1], active[at])
                    result[name][done] = tensor[done]
        back = upload(np.argsort(order), self.index.device)
        return {name: t[back] for name, t in result.items()}

    def _begin(self, work: Work, order: Indices) -> None:
        where = upload(order, self.index.device)
        for name, tensor in self.stack.items():
            tensor.copy_(work.starts[name][where])
        extras, shared = client_extras(work, order)
        for kept, new in ((self.extras, extras), (self.shared, shared)):
            for name, tensor in kept.items():
                tensor.copy_(new[name])
        self.optimizer.reset()

    def _rows(self, active: int) -> int:
        """Return how many rows a step of so many clients runs on.

        Each number of rows needs a captured step of its own, so there are only a few: all, half of
        them, a quarter, and so on. The clients beyond are done, and what becomes of them is unread.
        """
        if not self.captures:
            return active
        rows = self.clients
        while -(-rows // 2) >= active and rows > 1:
            rows = -(-rows // 2)
        return rows

    def _step(self, index: Tensor, sizes: Indices) -> None:
        rows, width = index.shape
        padded = bool(np.any(sizes < width))
        self.index[:rows, :width].copy_(index)
        if padded:
            self.sizes[:rows].copy_(upload(sizes, self.index.device))
            width = self.index.shape[1] if self.captures else width
        key = (rows, width, padded)
        if self.captures and key not in self.graphs and len(self.graphs) < MOST_GRAPHS:
            self._capture(key)
        if key in self.graphs:
            self.graphs[key].replay()
        else:
            self._advance(*key)

    def _advance(self, rows: int, width: int, padded: bool) -> None:
        """Move the first rows of the stack by one step."""
        engine = self.engine
        sizes = self.sizes[:rows] if padded else torch.full_like(self.sizes[:rows], width)
        batch = engine.stacked_batch(self.index[:rows, :width], sizes)
        own = {name: t[:rows] for name, t in self.stack.items()}
        extras = {name: t[:rows] for name, t in self.extras.items()}
        gradients, updates = engine.gradients(
            self.objective, own, batch, extras, self.shared, padded=padded
        )
        self.optimizer.step([gradients[name] for name in engine.trainable], rows)
        for name, update in updates.items():
            self.stack[name][:rows] = update

    def _capture(self, key: tuple[int, int, bool]) -> None:
        """Record a step. What the trial runs change is put back; if it cannot be, do without."""
        kept = [t.clone() for t in self._changing()]
        graph = capture(lambda: self._advance(*key), self.index.device, self._memory)
        if graph is None:  # some kernel looks at the host: this network runs step by step
            self.captures = False
        else:
            self._memory, self.graphs[key] = graph.pool(), graph
        for tensor, before in zip(self._changing(), kept, strict=True):
            tensor.copy_(before)

    def _changing(self) -> list[Tensor]:
        return [*self.stack.values(), *self.optimizer.state]


def client_extras(work: Work, order: Indices) -> tuple[Parameters, Parameters]:
    """Return what the server sent along: a row for each client in this order, and to all alike."""
    extras = work.question.extras
    if extras is None:
        return {}, {}
    return stacks.pick(extras.per_client, work.places[order]), dict(extras.shared)
