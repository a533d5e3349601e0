"""What a server may ask of its clients, and the answers. This is all that crosses the network.

An algorithm yields questions and is sent answers; who answers (a simulation, a real network) it
does not know. Every answer names the clients that replied: the ones missing are stragglers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clove.federation.objectives import (
    Objective,
    Prediction,
    Preparation,
    Projection,
    task_loss,
)
from clove.federation.parameters import Indices, Parameters
from clove.federation.summaries import Summariser

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Values = Mapping[str, Tensor | NDArray[Any]]
Part = str | tuple[str, ...]  # of a network: "all", "head", "body", or names of parameters, layers


# ---------------------------------------------------------------- the parts questions are made of


@dataclass(frozen=True)
class Seeded:
    """Models that every client makes itself from a seed, so that only integers travel."""

    seed: int
    count: int = 1


@dataclass(frozen=True)
class Filled:
    """Numbers in the shape of a part of the network, all of one value, made by the client."""

    value: float
    part: Part = "all"


@dataclass(frozen=True)
class Kept:
    """What a client keeps for itself under a name: a model, a head, weights of its own.

    Before it has any, it takes what `otherwise` says; None: the model it is sent.
    """

    name: str
    otherwise: Seeded | Filled | None = None


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: optimiser, step size, batches, passes over its data.

    `steps` is the most steps it makes, however many its passes have (0: all of them). So exactly n
    steps, whatever a client's size, are `epochs=n, steps=n`.

    From round to round the learning rate is multiplied by `learning_rate_decay`. A client begins
    every round with an optimiser that remembers nothing; with `keep_momentum` that of SGD goes on
    where the client's last round left it.
    """

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    batch_size: int = 64
    epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    purpose: str = "batches"  # which named random stream orders the samples
    steps: int = 0
    learning_rate_decay: float = 1.0
    keep_momentum: bool = False

    @property
    def momentum_name(self) -> str:
        """The name under which clients keep their momentum: each kind of training has its own."""
        return f"momentum of {self.purpose}"

    def rate(self, round: int) -> float:
        """Return the learning rate of a round (from 1)."""
        return float(self.learning_rate * self.learning_rate_decay ** max(round - 1, 0))


@dataclass(frozen=True)
class Settle:
    """When the losses of repeated training count as settled.

    That is when the standard deviation of the last `window` mean losses, one of each time, is below
    `threshold`, and after `most` times at the latest.
    """

    window: int = 10
    threshold: float = 0.1
    most: int = 100


@dataclass(frozen=True)
class Unseen:
    """Which entry of its loss vector a client measures on data it held back from training.

    `model[i]` is the entry of the i-th client asked, -1 for none. The data are those left out by a
    `Train` question with the same `share`.
    """

    model: Indices
    share: float

    def pick(self, places: Indices) -> Unseen | None:
        """Return what the clients at these places need to know; None where none has an entry."""
        own = self.model[places]
        return Unseen(own, self.share) if (own >= 0).any() else None


@dataclass(frozen=True)
class Extras:
    """What else the server sends for training: the same to all, or a row to each client asked."""

    shared: Values = field(default_factory=dict)
    per_client: Values = field(default_factory=dict)

    def pick(self, places: Indices) -> Extras:
        """Return what the clients at these places are sent."""
        return Extras(self.shared, {name: v[places] for name, v in self.per_client.items()})


# ----------------------------------------------------------------------------------- questions
#
# Every array of a question has an entry for each client asked, and parts that hold something for
# each client can `pick` that of some. So a network can send each client its own share of any
# question. `reduce` is the server's business.


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
    - `keep`: the client keeps what it trained under this name.
    - `send`: which part of it the client sends; None: all, but nothing of what it keeps.
    - `only`: the part that is trained. The rest comes out as it was.
    - `share`: train on this share of the data only (a fixed random part, see `Unseen`);
      `share_anew`: another random part every round.
    - `assigns`: `start` is the client's assignment, which it adds to its history; it then reports
      whether its last `stable_rounds` assignments are the same.
    - `reads`: what the client keeps that its objective (`learner.kept`) and preparation may see.
    - `prepare`: makes the start of training of the model sent and what the client keeps.
    - `project`: what happens to the trained parameters after every step.
    - `trains`: what is trained is not the model, but this thing of the client's own. The objective
      is given it as parameters, and the model as `learner.start`.
    - `settle`: clients that keep nothing yet under the name of `trains` train again and again,
      until their losses settle.
    - `report_losses`: the answer holds the objective's value at every step.
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
    send: Part | None = None
    only: Part = "all"
    share_anew: bool = False
    reads: tuple[Kept, ...] = ()
    prepare: Preparation | None = None
    project: Projection | None = None
    trains: Kept | None = None
    settle: Settle | None = None
    report_losses: bool = False

    @property
    def is_remembered(self) -> bool:
        """Whether the client remembers anything of it beyond the round."""
        return self.assigns or self.keep is not None or self.training.keep_momentum

    @property
    def sent_part(self) -> Part | None:
        """Which part the client sends; None: nothing."""
        if self.send is None:
            return "all" if self.keep is None else None
        return self.send or None


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

    @property
    def is_remembered(self) -> bool:
        """Whether the client remembers anything of it beyond the round."""
        return self.assigns


@dataclass(frozen=True)
class Recall:
    """Ask each client which model it was last assigned to (-1: none yet)."""

    clients: Indices


@dataclass(frozen=True)
class Evaluate:
    """Ask how well a model does on each client's own data.

    - `index` names each client's model; None leaves it to the assignment the client remembers, and
      clients never assigned do not answer.
    - `prepare`, `reads`: the client first makes its model of the one named and what it keeps.
    - `adapt`: it then trains a copy on its training data, and measures that.
    - `predict`, `extras`: it predicts in this way instead of by the network's outputs.
    """

    models: Parameters | Kept
    clients: Indices
    index: Indices | None = None
    split: Literal["train", "test"] = "test"
    reads: tuple[Kept, ...] = ()
    prepare: Preparation | None = None
    adapt: LocalTraining | None = None
    predict: Prediction | None = None
    extras: Extras | None = None


@dataclass(frozen=True)
class Summary:
    """Ask each client for a summary of its training data, made with a model where it needs one.

    `start` names each client's model, as in `Train`. A model the client keeps is asked of those
    that have it.
    """

    of: Summariser
    clients: Indices
    models: Parameters | Kept | None = None
    start: Indices | None = None


Question = Losses | Train | Gradients | Recall | Evaluate | Summary


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
    `stable` the clients' reports (None when not asked for). `values` names the entries
    that are no parameters but running statistics: in a gradient answer they are values to be taken
    as they are, and a distance between models leaves them out. `losses` holds,
    where asked for, a row a client of the objective at every step, NaN beyond its last.
    """

    clients: Indices
    samples: Floats
    models: Parameters | None = None
    weights: Floats | None = None
    stable: Flags | None = None
    values: frozenset[str] = frozenset()
    losses: Floats | None = None


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


@dataclass(frozen=True)
class Summaries:
    """What the clients' summaries hold, by name: arrays with a row for each client."""

    clients: Indices
    values: Mapping[str, NDArray[Any]]


Answer = LossVectors | Trained | Recalled | Scores | Summaries
ANSWER_TO: dict[type, type[Answer]] = {
    Losses: LossVectors,
    Train: Trained,
    Gradients: Trained,
    Recall: Recalled,
    Evaluate: Scores,
    Summary: Summaries,
}
