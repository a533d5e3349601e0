"""What methods with one server model per group of clients have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from clove import seeds
from clove.algorithms.base import Asking, Setup
from clove.errors import CloveError, unknown_name
from clove.federation.objectives import Objective, task_loss
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Gradients, LocalTraining, Train, Trained
from clove.federation.server_step import averaged, descended

AVERAGING = ("models", "gradients")
FIRST_ROUND = ("evaluation", "random")
MOST_SPARE_MODELS = 1000
BATCH_NORM = ("running", "batch")


@dataclass(frozen=True)
class Averaging:
    """How the models of a group become one: by models, or by gradients and a server step."""

    what: str = "models"
    server_optimizer: str = "sgd"

    def __post_init__(self) -> None:
        if self.what not in AVERAGING:
            raise unknown_name("averaging", self.what, AVERAGING)
        if self.server_optimizer not in ("sgd", "adam"):
            raise unknown_name("server_optimizer", self.server_optimizer, ("sgd", "adam"))


def train_groups(
    models: Parameters,
    start: Indices,
    clients: Indices,
    training: LocalTraining,
    averaging: Averaging,
    stable_rounds: int = 0,
    objective: Objective = task_loss,
) -> Asking[tuple[Parameters, Trained]]:
    """Let each client train the model it is assigned to, and average per model.

    With `stable_rounds` the clients note the assignment and report whether it is stable.
    """
    ask = Train if averaging.what == "models" else Gradients
    if ask is Gradients and (training.learning_rate_decay != 1 or training.keep_momentum):
        raise CloveError(
            "learning_rate_decay and keep_momentum are for local training: with "
            "averaging=gradients clients take no steps"
        )
    trained: Trained = yield ask(
        models=models,
        start=start,
        clients=clients,
        training=training,
        objective=objective,
        reduce=start,
        assigns=stable_rounds > 0,
        stable_rounds=stable_rounds,
    )
    if averaging.what == "models":
        return averaged(models, trained), trained
    return descended(models, trained, training, averaging.server_optimizer), trained


def number_of_models(method: str, models: int | None, setup: Setup, hint: str = "") -> int:
    """Return how many models to keep: as told, else as many as there are true groups."""
    number = models if models is not None else setup.groups
    if number is None:
        raise CloveError(
            f"{method} needs the number of models: the clients' true groups are not known. "
            f"Set models=K{hint}"
        )
    if number < 1:
        raise CloveError(f"{method} needs at least one model, not {number}")
    # A few more than clients do no harm: others may join. Millions would only fill the memory.
    if number > max(setup.clients, MOST_SPARE_MODELS):
        raise CloveError(f"{number} models are far more than the {setup.clients} clients can use")
    return number


def check_names(method: object, known: Mapping[str, Collection[str]]) -> None:
    """Refuse options whose value is none of the names known for them."""
    for option, names in known.items():
        if getattr(method, option) not in names:
            raise unknown_name(option, getattr(method, option), names)


def check_stability(rounds: int, share: float) -> None:
    """Refuse rules of stability that cannot be met."""
    if rounds < 1 or not 0 < share <= 1:
        raise CloveError("stable_rounds must be 1 or more, and stable_share in (0, 1]")


def random_assignment(seed: int, clients: Indices, models: int) -> Indices:
    """Assign every client a random model, so that no model is empty where clients suffice."""
    draw = seeds.stream(seed, "first-round")
    once = draw.permutation(models)[: len(clients)]
    free = draw.integers(models, size=len(clients) - len(once))
    return draw.permutation(np.concatenate([once, free]))
