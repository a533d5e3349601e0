"""FedALA: each client takes of the global model what serves it, number by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.algorithms.grouped import check_names
from clove.algorithms.local import KEPT
from clove.algorithms.one_model import first_model
from clove.errors import CloveError
from clove.federation.objectives import (
    Batch,
    Learner,
    objective,
    preparation,
    projection,
    task_loss,
)
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import (
    Evaluate,
    Filled,
    Kept,
    LocalTraining,
    Settle,
    Train,
    Trained,
)
from clove.federation.server_step import averaged

WEIGHTS = "blending-weights"
MEASURED = ("trained", "blended")
OWN = Kept(KEPT)  # before a client has a model, it takes the one it is sent


def blended(sent: Parameters, own: Parameters, weights: Parameters) -> dict[str, Tensor]:
    """Return own + (sent - own) W where there are weights, and what was sent elsewhere."""
    return {
        name: own[name] + (tensor - own[name]) * weights[name] if name in weights else tensor
        for name, tensor in sent.items()
    }


@objective("blended-loss")
def blended_loss(
    learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
) -> Tensor:
    """Return the loss of the blend that the weights (the parameters here) make."""
    model = blended(learner.start, learner.kept[KEPT], parameters)
    return task_loss(learner, model, batch, extras)


@projection("between-0-and-1")
def between_0_and_1(parameters: Parameters) -> dict[str, Tensor]:
    """Clip numbers to [0, 1]."""
    return {name: tensor.clamp(0, 1) for name, tensor in parameters.items()}


@preparation("blended")
def blended_start(sent: Parameters, kept: Mapping[str, Parameters]) -> dict[str, Tensor]:
    """Start from the blend of the model sent and the client's own."""
    return blended(sent, kept[KEPT], kept[WEIGHTS])


@dataclass(frozen=True)
class FedAlaState:
    """The global model, and who has trained it and who has learned weights, by client's number."""

    models: Parameters
    trained: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weighed: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class FedAla(Algorithm[FedAlaState]):
    """FedAvg whose clients blend the global model with their own before they train.

    In the top layers a client starts from θ + (θ_global - θ) W, θ being the model it trained last;
    below them from the global model. The weights W in [0, 1], one for each number, begin as ones
    and stay with the client. Before it trains, it learns them by gradient descent on a part of its
    data: the first time until the loss settles, then in one pass. The server averages as FedAvg.

    Network: one model down and one up for each participant, as in FedAvg.

    Parameters
    ----------
    layers : p, how many of the network's last layers are blended (0: all of them). 1 in the paper;
        PFLlib, which CLoVE's authors compared with, counts tensors, and its 2 are that layer's.
    weight_share : s, the share of a client's data that weights are learned on, drawn anew every
        round; 0.8 in the paper.
    weight_learning_rate : η of the weights, 1 in the paper.
    settle_window, settle_threshold : losses have settled when the standard deviation of those of
        the last passes, so many, is below the threshold; 10 and 0.1 in the authors' code. (Here a
        pass's loss is the mean of its batches, there that of the last; and the first look is after
        `settle_window` passes, there after one more.) 100 passes at most.
    measured : the client's model as "trained" (the paper), or as "blended", the start of its next
        training: its weights with the new global model. PFLlib measures after the latter.

    References
    ----------
    Zhang, Hua, Wang, Song, Xue, Ma, Guan. FedALA: Adaptive Local Aggregation for Personalized
    Federated Learning. AAAI 2023.
    """

    layers: int = 1
    weight_share: float = 0.8
    weight_learning_rate: float = 1.0
    settle_window: int = 10
    settle_threshold: float = 0.1
    measured: str = "trained"

    name = "fedala"
    state_type = FedAlaState
    personal = True

    def __post_init__(self) -> None:
        check_names(self, {"measured": MEASURED})
        if self.layers < 0:
            raise CloveError(f"layers must be 0 (all) or more, not {self.layers}")
        if not 0 < self.weight_share <= 1:
            raise CloveError(f"weight_share must be in (0, 1], not {self.weight_share}")
        for name in ("weight_learning_rate", "settle_threshold"):
            if not getattr(self, name) > 0:
                raise CloveError(f"{name} must be above zero, not {getattr(self, name)}")
        if self.settle_window < 2:
            raise CloveError(f"settle_window must be 2 or more, not {self.settle_window}")

    def begin(self) -> FedAlaState:
        """Make the global model."""
        models = self.setup.initial(1, "same")
        top_layers(models, self.layers)
        return FedAlaState(models)

    def server_models(self, state: FedAlaState) -> None:
        """Return nothing: the models that are used stay with the clients."""
        return

    def evaluation(self, state: FedAlaState, clients: Indices) -> Evaluate:
        """Every client uses its own model, or what it would start from next."""
        if self.measured == "trained":
            return Evaluate(OWN, clients)
        return Evaluate(
            state.models,
            clients,
            first_model(clients),
            reads=(OWN, self._weights(state)),
            prepare=blended_start,
        )

    def round(self, state: FedAlaState, cohort: Indices) -> Asking[Outcome[FedAlaState]]:
        """Let clients learn their weights, train from the blend, and average."""
        weighed, again = state.weighed, cohort[np.isin(cohort, state.trained)]
        if len(again):  # others have no model of their own to blend
            learned: Trained = yield self._learn_weights(state, again)
            weighed = np.union1d(weighed, learned.clients)
        trained: Trained = yield Train(
            state.models,
            first_model(cohort),
            cohort,
            self.setup.training,
            reduce=first_model(cohort),
            keep=KEPT,
            send="all",
            reads=(OWN, self._weights(state)),
            prepare=blended_start,
        )
        models = averaged(state.models, trained)
        after = FedAlaState(models, np.union1d(state.trained, trained.clients), weighed)
        return Outcome(after, trained.clients, trained.clients)

    def _learn_weights(self, state: FedAlaState, clients: Indices) -> Train:
        """Return the question that lets clients learn the weights of the blend."""
        plain = self.setup.training
        new = not np.isin(clients, state.weighed).all()
        return Train(
            state.models,
            first_model(clients),
            clients,
            LocalTraining(
                "sgd", self.weight_learning_rate, plain.batch_size, purpose="blending-batches"
            ),
            objective=blended_loss,
            keep=WEIGHTS,
            share=self.weight_share,
            share_anew=True,
            reads=(OWN,),
            project=between_0_and_1,
            trains=self._weights(state),
            settle=Settle(self.settle_window, self.settle_threshold) if new else None,
        )

    def _weights(self, state: FedAlaState) -> Kept:
        return Kept(WEIGHTS, Filled(1.0, top_layers(state.models, self.layers)))


def top_layers(model: Parameters, layers: int) -> tuple[str, ...]:
    """Return the names of all parameters of the network's last layers; of 0, of all layers."""
    of = {name: name.rpartition(".")[0] for name in model}
    every = list(dict.fromkeys(of.values()))
    if layers > len(every):
        raise CloveError(
            f"layers={layers}, but the network has {len(every)}: {', '.join(every)} "
            "(0 stands for all of them)"
        )
    return tuple(name for name, layer in of.items() if layer in every[-layers:])
