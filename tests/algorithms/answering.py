"""Scripted clients who also send summaries of their data, and their losses at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clove.federation import Summaries, Summary, Train

from .scripted import ScriptedClients


class AnsweringClients(ScriptedClients):
    """Clients with a row each of summaries, by name, and of losses at their steps."""

    def __init__(
        self,
        targets: Sequence[float],
        summaries: Mapping[str, Any] | None = None,
        step_losses: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(targets, **options)
        self.summaries = {name: np.asarray(rows) for name, rows in (summaries or {}).items()}
        self.step_losses = step_losses

    def _answer(self, question: Any) -> Any:
        if isinstance(question, Summary):
            away = list(self.missing.get(Summary, ()))
            clients = question.clients[~np.isin(question.clients, away)]
            clients = clients[::-1] if self.backwards else clients
            names = self.summaries if len(clients) else ()
            return Summaries(clients, {name: self.summaries[name][clients] for name in names})
        answer = super()._answer(question)
        if isinstance(question, Train) and question.report_losses:
            losses = np.asarray(self.step_losses, dtype=float)[answer.clients]
            answer = replace(answer, losses=losses)
        return answer
