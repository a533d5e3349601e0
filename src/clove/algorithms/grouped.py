"""What methods with one server model per group of clients have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clove import seeds
from clove.algorithms.base import Asking
from clove.errors import CloveError, unknown_name
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import Gradients, LocalTraining, Train, Trained
from clove.federation.server_step import averaged, descended

AVERAGING = ("models", "gradients")
FIRST_ROUND = ("evaluation", "random")


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
) -> Asking[tuple[Parameters, Trained]]:
    """Let each client train the model it is assigned to, and average per model.

    With `stable_rounds` the clients note the assignment and report whether it is stable.
    """
    noted = {"assigns": stable_rounds > 0, "stable_rounds": stable_rounds}
    if averaging.what == "models":
        trained: Trained = yield Train(models, start, clients, training, reduce=start, **noted)  # type: ignore[arg-type]
        return averaged(models, trained), trained
    gradients: Trained = yield Gradients(models, start, clients, training, reduce=start, **noted)  # type: ignore[arg-type]
    return descended(models, gradients, training, averaging.server_optimizer), gradients


def number_of_models(method: str, models: int | None, groups: int | None) -> int:
    """Return how many models to keep: as told, else as many as there are true groups."""
    number = models if models is not None else groups
    if number is None:
        raise CloveError(
            f"{method} needs the number of models: the clients' true groups are not known. "
            "Set models=K"
        )
    if number < 1:
        raise CloveError(f"{method} needs at least one model, not {number}")
    return number


def random_assignment(seed: int, clients: Indices, models: int) -> Indices:
    """Assign every client a random model, so that no model is empty where clients suffice."""
    draw = seeds.stream(seed, "first-round")
    once = draw.permutation(models)[: len(clients)]
    free = draw.integers(models, size=len(clients) - len(once))
    return draw.permutation(np.concatenate([once, free]))
