"""FedAvg: one model for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from clove.algorithms.grouped import Averaging
from clove.algorithms.one_model import OneModel


@dataclass(frozen=True)
class FedAvg(OneModel):
    """All participants train the same model; the server averages by sample counts.

    Network: one model down and one up for each participant.

    Parameters
    ----------
    averaging, server_optimizer : "models", or "gradients" (FedSGD) with the server's step.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. AISTATS 2017.
    """

    averaging: str = "models"
    server_optimizer: str = "sgd"

    name = "fedavg"

    def __post_init__(self) -> None:
        Averaging(self.averaging, self.server_optimizer)

    @property
    def averages(self) -> Averaging:
        """How the server averages."""
        return Averaging(self.averaging, self.server_optimizer)
