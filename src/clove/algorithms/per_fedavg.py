"""Per-FedAvg: one model from which every client is a step away from its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from clove.algorithms.grouped import check_names
from clove.algorithms.one_model import OneModel, OneModelState, first_model
from clove.errors import CloveError
from clove.federation.objectives import Batch, Learner, cut, objective, task_loss
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Evaluate, LocalTraining

META_GRADIENTS = ("first-order", "hessian-free")


@objective("meta-loss")
@dataclass(frozen=True)
class MetaLoss:
    """The task's loss after a step of size α, f(w − α∇f(w; D); D'), as a function of w.

    Its gradient is (I − α∇²f(w; D'')) v with v = ∇f(w − α∇f(w; D); D'). First-order leaves the
    Hessian out; Hessian-free has (∇f(w + δv; D'') − ∇f(w − δv; D'')) / 2δ for the product ∇²f v.
    D, D' and D'' are parts of the batch.
    """

    alpha: float
    meta_gradient: str = META_GRADIENTS[0]
    delta: float = 1e-3

    @property
    def parts(self) -> int:
        """How many parts a batch is cut into."""
        return 2 if self.meta_gradient == META_GRADIENTS[0] else 3

    def __call__(
        self, learner: Learner, parameters: Parameters, batch: Batch, extras: Mapping[str, Tensor]
    ) -> Tensor:
        """Return the meta-loss, with the gradient of the chosen kind."""
        inner, outer, *third = cut(batch, self.parts)
        ahead = _moved(parameters, -self.alpha, learner.gradient(parameters, inner))
        loss = task_loss(learner, ahead, outer, extras)
        if not third:
            return loss
        direction = learner.gradient(ahead, outer)
        above, below = (
            task_loss(learner, _moved(parameters, far, direction), third[0], extras)
            for far in (self.delta, -self.delta)
        )
        bend = self.alpha * (above - below) / (2 * self.delta)
        return loss - bend + bend.detach()  # only its gradient belongs to the loss


def _moved(parameters: Parameters, far: float, direction: Parameters) -> Parameters:
    return {name: p + far * direction[name] for name, p in parameters.items()}


@dataclass(frozen=True)
class PerFedAvg(OneModel):
    """Learn the model that serves every client best after it takes a step on its own data.

    In each local step a client looks at the gradient a step of size α ahead (MAML), corrected for
    the curvature or not, and moves along it with the run's optimiser; the server averages by sample
    counts. To use (and to measure) the model, a client first takes `personal_steps` of size α on
    its training data.

    Network: one model down and one up for each participant, as in FedAvg.

    Parameters
    ----------
    personal_learning_rate : α, the size of the step to one's own model; 0.01 is the paper's for
        MNIST. 0: the learning rate, as in PFLlib, which CLoVE's authors compared with. Of a step
        so small little comes on data as few as a client of the digits has: there 0.1 serves.
    meta_gradient : "first-order" (FO, as in PFLlib) or "hessian-free" (HF).
    delta : δ, the distance of the Hessian-free variant's finite difference, times the gradient. We
        know of no number of the authors for it; 0.001 is ours (flgo's implementation has it too).
    personal_steps : steps before a client uses the model; one in the paper.

    β of the paper is the learning rate (0.001 there), with plain steps: `optimizer=sgd`. Its
    independent batches D, D' and D'' have `batch_size` samples each, as far as a client has them.

    References
    ----------
    Fallah, Mokhtari, Ozdaglar. Personalized Federated Learning with Theoretical Guarantees: A
    Model-Agnostic Meta-Learning Approach. NeurIPS 2020.
    """

    personal_learning_rate: float = 0.01
    meta_gradient: str = "first-order"
    delta: float = 1e-3
    personal_steps: int = 1

    name = "per-fedavg"

    def __post_init__(self) -> None:
        check_names(self, {"meta_gradient": META_GRADIENTS})
        if not self.personal_learning_rate >= 0:
            raise CloveError(
                "personal_learning_rate must be above zero, or zero for the learning rate, not "
                f"{self.personal_learning_rate}"
            )
        if not self.delta > 0:
            raise CloveError(f"delta must be above zero, not {self.delta}")
        if self.personal_steps < 1:
            raise CloveError(f"personal_steps must be 1 or more, not {self.personal_steps}")

    @property
    def alpha(self) -> float:
        """The size of the step to one's own model."""
        return self.personal_learning_rate or self.setup.training.learning_rate

    @property
    def objective(self) -> MetaLoss:
        """The loss after a step."""
        return MetaLoss(self.alpha, self.meta_gradient, self.delta)

    @property
    def training(self) -> LocalTraining:
        """Batches large enough for all parts that one is cut into."""
        plain = self.setup.training
        return replace(plain, batch_size=plain.batch_size * self.objective.parts)

    def evaluation(self, state: OneModelState, clients: Indices) -> Evaluate:
        """Everybody takes its steps from the one model, and uses what comes of them."""
        steps = self.personal_steps
        own = LocalTraining(
            "sgd",
            learning_rate=self.alpha,
            batch_size=self.setup.training.batch_size,
            epochs=steps,
            steps=steps,
            purpose="personal-batches",
        )
        return Evaluate(state.models, clients, first_model(clients), adapt=own)
