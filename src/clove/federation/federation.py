"""What a run needs of a federation, be it simulated or on a network."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Answer, Question
from clove.federation.wire import Ledger


class Federation(Protocol):
    """Clients that answer a server's questions."""

    ledger: Ledger
    precision: str
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """Where the server's models live."""
        ...

    @property
    def clients(self) -> int:
        """How many clients there are; on a network it may grow from round to round."""
        ...

    @property
    def present(self) -> Indices:
        """The clients of whom a round's participants are drawn; on a network some may be away."""
        ...

    @property
    def true_groups(self) -> Indices | None:
        """The clients' true groups where they say them, to judge by."""
        ...

    def begin_round(self, number: int) -> None:
        """Tell the federation that a round begins (from 1)."""
        ...

    def end_round(self, participants: int) -> None:
        """Tell the federation how many took part in a round; on a network it may give up then."""
        ...

    def answer(self, question: Question) -> Answer:
        """Answer a question as the clients do."""
        ...

    def kept_models(self, name: str) -> Parameters:
        """Return the models clients keep under a name; none where they stay out of sight."""
        ...

    def saved(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        ...

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` returned."""
        ...
