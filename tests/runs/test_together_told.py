"""Questions of several runs that tell clients things of their own are one stack all the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from clove.federation import Extras, Kept, Seeded, Train, Vectorized, task_loss, together
from clove.federation.together import begin_answers, join
from tests.federation.worlds import (
    ASSIGNMENT,
    SGD,
    assert_same_models,
    dense,
    everyone,
    models_for,
    some_clients,
)


@dataclass(frozen=True)
class Everything:
    """The loss, and pulls to all a client was told."""

    uses_start = True

    def __call__(self, learner, parameters, batch, extras):
        away = sum(
            (p - learner.start[n]).square().sum() + (p - learner.kept["own"][n]).square().sum()
            for n, p in parameters.items()
        )
        return task_loss(learner, parameters, batch, extras) + extras["mine"] * away * extras["all"]


def federations() -> list[Vectorized]:
    """Return two federations whose clients keep models."""
    made = []
    for seed, sizes in enumerate([(7, 20, 3, 16, 17), (9, 5, 12, 8, 4)]):
        engine = Vectorized(some_clients(sizes, seed=seed), dense, seed=seed, dtype=torch.float64)
        own = Train(Kept("own", Seeded(seed)), ASSIGNMENT, everyone(engine), SGD, keep="own")
        engine.answer(own)
        engine.begin_round(1)
        made.append(engine)
    return made


def question(engine: Vectorized, **options) -> Train:
    extras = Extras(
        {"all": np.array(0.1 + engine.seed)}, {"mine": np.linspace(0.1, 1, 5) + engine.seed}
    )
    told = {"objective": Everything(), "extras": extras, "reads": (Kept("own"),), **options}
    models = models_for(engine, seed=engine.seed)
    return Train(models, ASSIGNMENT, everyone(engine), SGD, report_losses=True, **told)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many clients every stack holds."""
    sizes, merge = [], together._merged

    def noted(works):
        sizes.append(sum(len(work.clients) for work in works))
        return merge(works)

    monkeypatch.setattr(together, "_merged", noted)
    return sizes


def test_each_run_gets_the_answer_it_would_get_alone(stacks):
    alone = [engine.answer(question(engine)) for engine in federations()]
    joint = federations()
    join(joint)
    answers = [begun() for begun in begin_answers(joint, [question(engine) for engine in joint])]
    assert stacks == [10]
    for found, expected in zip(answers, alone, strict=True):
        assert_same_models(found.models, expected.models)
        np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-9)


@pytest.mark.parametrize(
    "other",
    [
        {"only": "head"},
        {"reads": (Kept("own"), Kept("own"))},
        {"extras": None, "objective": task_loss},
    ],
    ids=["another part", "other things read", "other functions"],
)
def test_questions_of_different_kinds_are_answered_one_by_one(stacks, other):
    joint = federations()
    join(joint)
    begin_answers(joint, [question(joint[0]), question(joint[1], **other)])
    assert stacks == []
