"""What a server may ask of its clients, and the answers. This is all that crosses the network.

An algorithm yields questions and is sent answers; who answers (a simulation, a real network) it
does not know. Every answer names the clients that replied: the ones missing are stragglers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clove.federation.parameters import Indices, Parameters

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


# ---------------------------------------------------------------- the parts questions are made of


@dataclass(frozen=True)
class Seeded:
    """Models that every client makes itself from a seed, so that only integers travel."""

    seed: int
    count: int = 1


@dataclass(frozen=True)
class Kept:
    """The model a client keeps for itself under a name; before it has one, it makes one."""

    name: str
    otherwise: Seeded


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: optimiser, step size, batches, passes over its data."""

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    batch_size: int = 64
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    purpose: str = "batches"  # which named random stream orders the samples


@dataclass(frozen=True)
class Unseen:
    """Which entry of its loss vector a client measures on data it held back from training.

    `model[i]` is the entry of the i-th client asked, -1 for none. The data are those left out by a
    `Train` question with the same `share`.
    """

    model: Indices
    share: float


@dataclass(frozen=True)
class Extras:
    """What else the server sends for training: the same to all, or a row to each client asked."""

    shared: Mapping[str, Tensor] = field(default_factory=dict)
    per_client: Mapping[str, Tensor] = field(default_factory=dict)


class Batch(Protocol):
    """Samples of one step. `weight` is 1 for a sample and 0 for padding."""

    @property
    def x(self) -> Tensor:
        """Features."""
        ...

    @property
    def y(self) -> Tensor:
        """Targets."""
        ...

    @property
    def weight(self) -> Tensor:
        """Which samples count."""
        ...


class Learner(Protocol):
    """What an objective may use: the network, and the task's mean loss."""

    def outputs(self, parameters: Parameters, x: Tensor) -> Tensor:
        """Run the network with these parameters."""
        ...

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss, averaged over the samples that count."""
        ...


class Objective(Protocol):
    """A local objective: a pure function of parameters, a batch, and what the server sent."""

    def __call__(
        self, learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the scalar to be minimised."""
        ...


def task_loss(
    learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
) -> Tensor:
    """Return the plain objective: the task's loss on the batch."""
    return learner.loss(learner.outputs(parameters, batch.x), batch)


# ----------------------------------------------------------------------------------- questions


@dataclass(frozen=True)
class Losses:
    """Ask for the mean loss of every model on each client's training data.

    `batch_statistics`: batch normalisation uses its running statistics (0), or those of consecutive
    batches of the given size.
    """

    models: Parameters | Seeded
    clients: Indices
    batch_statistics: int = 0
    unseen: Unseen | None = None


@dataclass(frozen=True)
class Train:
    """Ask each client to train the model `start` names, on its own data.

    - `reduce`: a group per client; the answer then holds the sample-weighted mean of each group.
    - `keep`: the client keeps the trained model under this name and sends no parameters.
    - `share`: train on this share of the data only (a fixed random part, see `Unseen`).
    - `assigns`: `start` is the client's assignment, which it adds to its history; it then reports
      whether its last `stable_rounds` assignments are the same.
    """

    models: Parameters | Kept
    start: Indices
    clients: Indices
    training: LocalTraining
    objective: Objective = task_loss
    extras: Extras | None = None
    reduce: Indices | None = None
    keep: str | None = None
    share: float = 1.0
    assigns: bool = False
    stable_rounds: int = 0


@dataclass(frozen=True)
class Gradients:
    """Ask each client for the gradient of its loss over all its training data.

    Buffers in the answer (running statistics) are values, not gradients.
    """

    models: Parameters
    start: Indices
    clients: Indices
    training: LocalTraining
    objective: Objective = task_loss
    extras: Extras | None = None
    reduce: Indices | None = None
    assigns: bool = False
    stable_rounds: int = 0


@dataclass(frozen=True)
class Recall:
    """Ask each client which model it was last assigned to (-1: none yet)."""

    clients: Indices


@dataclass(frozen=True)
class Evaluate:
    """Ask how well a model does on each client's own data.

    `index` names each client's model; None leaves it to the assignment the client remembers, and
    clients never assigned do not answer.
    """

    models: Parameters | Kept
    clients: Indices
    index: Indices | None = None
    split: Literal["train", "test"] = "test"


Question = Losses | Train | Gradients | Recall | Evaluate


# ------------------------------------------------------------------------------------- answers


@dataclass(frozen=True)
class LossVectors:
    """A row of losses for each client that replied."""

    clients: Indices
    losses: Floats


@dataclass(frozen=True)
class Trained:
    """Trained parameters (or gradients), by client, or by group with each group's samples.

    `samples` are the clients' sample counts, `weights` the groups' totals (None when by client),
    `stable` the clients' reports (None when not asked for). `values` names the entries of a
    gradient answer that are values to be taken as they are (running statistics).
    """

    clients: Indices
    samples: Floats
    models: Parameters | None = None
    weights: Floats | None = None
    stable: Flags | None = None
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Recalled:
    """The model each client was last assigned to, -1 for none."""

    clients: Indices
    models: Indices


@dataclass(frozen=True)
class Scores:
    """Mean loss and, where the task has right and wrong answers, accuracy of each client."""

    clients: Indices
    loss: Floats
    accuracy: Floats | None

    def pick(self, places: Indices) -> Scores:
        """Return the scores at some places."""
        accuracy = None if self.accuracy is None else self.accuracy[places]
        return Scores(self.clients[places], self.loss[places], accuracy)


Answer = LossVectors | Trained | Recalled | Scores
