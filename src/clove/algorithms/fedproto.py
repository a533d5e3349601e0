"""FedProto: clients keep their models, and share what a class looks like to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clove.algorithms.base import Algorithm, Asking, Outcome
from clove.algorithms.grouped import check_names
from clove.algorithms.local import KEPT, own_model
from clove.algorithms.prototypes import (
    AVERAGES,
    DISTANCES,
    averaged_prototypes,
    check_classes,
    towards,
)
from clove.errors import CloveError
from clove.federation.objectives import Learner, prediction
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate, Extras, Kept, Summaries, Summary, Train, Trained
from clove.federation.summaries import class_means

PREDICTIONS = ("prototypes", "head")


@prediction("nearest-prototype")
def nearest_prototype(
    learner: Learner, parameters: Parameters, x: Tensor, extras: Mapping[str, Tensor]
) -> Tensor:
    """Predict the class whose prototype is nearest to the features; one without any never wins."""
    features = learner.features(parameters, x).flatten(1)
    apart = (features[:, None] - extras["prototypes"]).square().mean(2)
    beyond = apart.amax(1, keepdim=True) + 1
    return -torch.where(extras["known"], apart, beyond)


@dataclass(frozen=True)
class FedProtoState:
    """The global prototypes; none before the first round."""

    prototypes: Parameters = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True)
class FedProto(Algorithm[FedProtoState]):
    """Clients train models of their own, drawn together by the prototypes of classes.

    A prototype is the mean, over samples of a class, of the features that go into the network's
    head. The server averages each class's over the clients that have it. A client minimises its
    loss plus λ times a distance to the global prototypes, by default each sample's features' to
    that of its class, and predicts the class whose global prototype is nearest.

    Network: prototypes down; mean features and the number of samples of each class up. Models never
    leave the clients.

    Parameters
    ----------
    prototype_weight : λ; 1 in the paper for MNIST and FEMNIST (0.1 for CIFAR-10), and in PFLlib,
        which CLoVE's authors compared with.
    prototype_distance : what is drawn to the global prototypes: the features of "samples", by their
        squared distance, averaged over samples and features (the authors' code and PFLlib); or
        local "prototypes" (the paper): of each class in a batch the mean features, whose distances
        are added up over classes. They are squared and averaged over features as the others are,
        where the paper says "L2 distance".
    prototype_average : a class's prototypes are weighted by "samples" of the class (the paper), or
        all the same, by "clients" (the authors' code and PFLlib).
    predicts : by nearest "prototypes" (the paper, PFLlib), or by the model's own "head".

    Prototypes are made after local training, by the trained model; PFLlib and the authors' code
    average the features they meet while training. In the first round there are none to be drawn to.
    A class that no participant has keeps its last one.

    References
    ----------
    Tan, Long, Liu, Zhou, Lu, Jiang, Zhang. FedProto: Federated Prototype Learning across
    Heterogeneous Clients. AAAI 2022.
    """

    prototype_weight: float = 1.0
    prototype_distance: str = "samples"
    prototype_average: str = "samples"
    predicts: str = "prototypes"

    name = "fedproto"
    state_type = FedProtoState
    personal = True

    def __post_init__(self) -> None:
        known = {"prototype_distance": DISTANCES, "prototype_average": AVERAGES}
        check_names(self, {**known, "predicts": PREDICTIONS})
        if not self.prototype_weight >= 0:
            raise CloveError(f"prototype_weight must not be negative, not {self.prototype_weight}")

    def begin(self) -> FedProtoState:
        """Start without prototypes."""
        check_classes(self.name, self.setup)
        return FedProtoState()

    def server_models(self, state: FedProtoState) -> None:
        """Return nothing: models stay with the clients."""
        return

    def evaluation(self, state: FedProtoState, clients: Indices) -> Evaluate:
        """Every client uses its own model, and the global prototypes."""
        if self.predicts == "head" or not state.prototypes:
            return Evaluate(Kept(KEPT), clients)
        extras = Extras(shared=state.prototypes)
        return Evaluate(Kept(KEPT), clients, predict=nearest_prototype, extras=extras)

    def round(self, state: FedProtoState, cohort: Indices) -> Asking[Outcome[FedProtoState]]:
        """Let clients train towards the prototypes, and average those of their models."""
        objective, extras = towards(
            state.prototypes, self.prototype_weight, self.prototype_distance
        )
        trained: Trained = yield Train(
            own_model(self.setup),
            cohort,
            cohort,
            self.setup.training,
            objective,
            extras,
            keep=KEPT,
        )
        means: Summaries = yield Summary(class_means, trained.clients, Kept(KEPT))
        prototypes = averaged_prototypes(state.prototypes, means, self.prototype_average)
        after = FedProtoState(prototypes, state.round + 1)
        return Outcome(after, trained.clients, trained.clients)
