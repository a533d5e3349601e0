"""What summaries must look like is found out from one of noughts, for every summary there is."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import clove
from clove.algorithms.combining import feature_statistics
from clove.algorithms.k_fed import LocalCentres
from clove.algorithms.pacfl import PrincipalVectors
from clove.federation import Sequential, initial_models
from clove.federation.flower.forms import expected_form, form_of
from clove.federation.questions import Kept, Summary
from clove.federation.summaries import class_means, label_counts

from .runs import digits

TASK = clove.classification("mlp").for_data((1, 8, 8), 10)
MODEL = initial_models(TASK, 1, "same", 0)
ALONE = np.array([0])
SUMMARIES = {
    "counts": Summary(label_counts, ALONE),
    "means": Summary(class_means, ALONE, MODEL, ALONE),
    "statistics": Summary(feature_statistics, ALONE, MODEL, ALONE),
    "centres": Summary(LocalCentres(3), ALONE),
    "centres, with targets": Summary(
        LocalCentres(2, local="plain", clustered="inputs-and-targets"), ALONE
    ),
    "vectors": Summary(PrincipalVectors(3), ALONE),
    "vectors of classes": Summary(PrincipalVectors(2, per_class=True), ALONE),
}


@pytest.mark.parametrize("question", SUMMARIES.values(), ids=SUMMARIES.keys())
def test_a_summary_of_noughts_looks_as_any_clients_does(question: Summary) -> None:
    engine = Sequential(digits()[:1], TASK)
    engine.begin_round(1)
    expected = expected_form(question, TASK, MODEL, (1, 8, 8), 10, "fp32")
    assert form_of(engine.answer(question)) == expected


def test_it_does_so_where_clients_use_a_model_they_keep() -> None:
    kept = Summary(class_means, ALONE, Kept("own"))
    sent = SUMMARIES["means"]
    assert expected_form(kept, TASK, MODEL, (1, 8, 8), 10, "fp32") == expected_form(
        sent, TASK, MODEL, (1, 8, 8), 10, "fp32"
    )


def test_words_are_whole_numbers() -> None:
    def of_words() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(20, 3))

    task = clove.classification(of_words)
    model = initial_models(task, 1, "same", 0)
    question = Summary(class_means, ALONE, model, ALONE)
    found = expected_form(question, task, model, (5,), 3, "fp32")
    assert found == {"means": ("float32", (3, 20)), "counts": ("int64", (3,))}


def test_where_noughts_do_not_do_nothing_is_expected() -> None:
    def picky(learner, model, data, seed):
        return {"inverse": data.x.flatten(1)[:10, :10].inverse()}

    assert expected_form(Summary(picky, ALONE), TASK, MODEL, (1, 8, 8), 10, "fp32") is None
