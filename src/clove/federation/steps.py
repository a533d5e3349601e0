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

from clove.federation.graphs import capture
from clove.federation.optimizer import Optimizer
from clove.federation.parameters import Indices, upload
from clove.federation.questions import Train
from clove.federation.work import Told, Updated, Work

if TYPE_CHECKING:
    from clove.federation.vectorized import Vectorized

MOST_GRAPHS = 16
MOMENTUM = "momentum of "


class GroupTraining:
    """A group of clients in training: their tensors, and the steps that act on them."""

    def __init__(self, engine: Vectorized, work: Work) -> None:
        assert isinstance(work.question, Train)
        self.engine, self.question = engine, work.question
        self.trained, self.changing = work.trained, work.changing
        self.clients, self.reports = len(work.clients), work.reports
        self.stack = {name: t.clone() for name, t in work.starts.items()}
        self.optimizer = Optimizer(
            [self.stack[name] for name in self.trained], work.question.training
        )
        self.told: Told | None = None
        self.losses = torch.full(
            (self.clients,), torch.nan, dtype=engine.dtype, device=engine.device
        )
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
        question = work.question
        assert isinstance(question, Train)
        shapes = tuple((name, tuple(t.shape)) for name, t in work.told.by_name().items())
        rules = replace(question.training, epochs=1, purpose="", steps=0)
        functions = question.objective, question.project, work.reports
        sizes = len(work.clients), work.plans.width
        return *sizes, rules, functions, work.trained, work.changing, shapes

    def train(self, work: Work) -> Updated:
        """Train the clients from their starts; return the trained stack, and losses if asked."""
        steps = work.plans.steps
        order = np.argsort(-steps, kind="stable")
        self._begin(work, order)
        active = [int(np.sum(steps > step)) for step in range(int(steps.max()) + 1)]
        plan = [work.plans.stacked(order[: self._rows(n)], at) for at, n in enumerate(active[:-1])]
        indices = [upload(rows, self.index.device) for rows, _ in plan]
        moving = self._moving(work)
        result = {name: torch.empty_like(t) for name, t in moving.items()}
        losses = None
        if work.reports:
            losses = self.losses.new_full((self.clients, len(plan)), torch.nan)
        self.engine.one.train()
        for at, (_, sizes) in enumerate(plan):
            self._step(indices[at], sizes)
            if losses is not None:
                losses[: active[at], at] = self.losses[: active[at]]
            if active[at + 1] < active[at]:  # these are done: later steps may run over their rows
                for name, tensor in moving.items():
                    done = slice(active[at + 1], active[at])
                    result[name][done] = tensor[done]
        back = upload(np.argsort(order), self.index.device)
        trained = {name: result[name][back] for name in self.stack}
        kept = {name: result[MOMENTUM + name][back] for name in self.trained if work.momentum}
        return Updated(trained, None if losses is None else losses[back], kept or None)

    def _moving(self, work: Work) -> dict[str, Tensor]:
        """Return the tensors of which something is kept: parameters, and momentum if it is."""
        if work.momentum is None:
            return self.stack
        kept = zip(self.trained, self.optimizer.momentum, strict=True)
        return self.stack | {MOMENTUM + name: tensor for name, tensor in kept}

    def _begin(self, work: Work, order: Indices) -> None:
        where = upload(order, self.index.device)
        for name, tensor in self.stack.items():
            tensor.copy_(work.starts[name][where])
        told = work.told.pick(order)
        if self.told is None:  # from now on its tensors stay where they are
            self.told = replace(told, shared={n: t.clone() for n, t in told.shared.items()})
        else:
            new = told.by_name()
            for name, tensor in self.told.by_name().items():
                tensor.copy_(new[name])
        self.optimizer.begin(self.engine.round, work.momentum_of(where))

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
        engine, told = self.engine, self.told
        assert told is not None
        sizes = self.sizes[:rows] if padded else torch.full_like(self.sizes[:rows], width)
        batch = engine.stacked_batch(self.index[:rows, :width], sizes)
        own = {name: t[:rows] for name, t in self.stack.items()}
        found = engine.gradients(
            self.question.objective, self.trained, own, batch, told.first(rows), padded=padded
        )
        self.optimizer.step([found.gradients[name] for name in self.trained], rows)
        if self.question.project is not None:
            moved = engine.for_each(self.question.project, {n: own[n] for n in self.trained})
            for name, tensor in moved.items():
                self.stack[name][:rows] = tensor
        for name, update in found.updates.items():
            if name in self.changing:
                self.stack[name][:rows] = update
        if self.reports:
            self.losses[:rows] = found.losses

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
