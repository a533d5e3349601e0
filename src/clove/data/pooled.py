"""Clients' data put together, for training that is not federated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clove.data.client_data import ClientData


def pool_training_data(clients: Sequence[ClientData], pools: NDArray[np.int64]) -> list[ClientData]:
    """Hand all training data of a pool to its first client; the others keep theirs too."""
    together = list(clients)
    for pool in np.unique(pools):
        places = np.flatnonzero(pools == pool).tolist()
        members = [clients[place].train for place in places]
        labels = [y for _, y in members if y is not None]
        x, y = np.concatenate([x for x, _ in members]), np.concatenate(labels) if labels else None
        together[places[0]] = replace(clients[places[0]], train=(x, y))
    return together
