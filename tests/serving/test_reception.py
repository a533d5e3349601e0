"""Placing newcomers by their losses alone, whatever the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.torch import load

import clove
from clove.errors import CloveError
from clove.federation import Losses, LossVectors, Sequential
from clove.serving.reception import Reception
from tests.runs.small import TINY, digits_of


def measured(result: clove.Result, reception: Reception) -> np.ndarray:
    """Return what a newcomer with digits of its own would send."""
    x, y = digits_of((2, 3))
    alone = Sequential([clove.ClientData((x, y), (x, y))], result.task(), seed=0)
    question = reception.question
    answer = alone.answer(Losses(question.models, np.array([0]), question.batch_statistics))
    assert isinstance(answer, LossVectors)
    return answer.losses[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"probes": "random", "probe_models": 7},
        {"probes": "trained", "probe_models": 3, "rounds": 1},
        {"transform": "log"},
        {"algorithm": "ifca"},
        {"algorithm": "fedgwc"},
        {"algorithm": "centralized"},
    ],
    ids=str,
)
def test_a_vector_of_losses_is_placed_as_the_data_are(options: dict[str, Any]) -> None:
    result = clove.run(**{**TINY, **options})
    reception = Reception(result)
    found, expected = (
        reception.place(measured(result, reception)),
        result.assign(*digits_of((2, 3))),
    )
    assert found.models.tolist() == [expected.model]
    assert found.distances[0].tolist() == expected.distances.tolist()
    assert found.margins.tolist() == [expected.sure]


@pytest.mark.parametrize("options", [{}, {"probes": "random", "probe_models": 3, "rounds": 1}])
def test_probes_are_handed_out_as_they_are_measured(options: dict[str, Any]) -> None:
    result = clove.run(**{**TINY, **options})
    reception = Reception(result)
    x, y = digits_of((2, 3))
    alone = Sequential([clove.ClientData((x, y), (x, y))], result.task(), seed=0)
    found = []
    for number in range(reception.probes):
        model = {name: t[None] for name, t in load(reception.probe(number)).items()}
        answer = alone.answer(Losses(model, np.array([0])))
        assert isinstance(answer, LossVectors)
        found.append(answer.losses[0, 0])
    np.testing.assert_allclose(found, measured(result, reception), rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("local", "local has no model to give to a newcomer"),
        ("fedavg", "fedavg has one model for everybody, .*`clove export`"),
        ("fesem", "fesem places newcomers by more than their losses: `clove assign`"),
        ("pacfl", "pacfl places newcomers by more than their losses: `clove assign`"),
    ],
)
def test_methods_that_cannot_be_served_are_refused_at_once(algorithm: str, said: str) -> None:
    with pytest.raises(CloveError, match=said):
        Reception(clove.run(**TINY, algorithm=algorithm))


def test_a_run_without_clusters_yet_is_refused_at_once() -> None:
    with pytest.raises(CloveError, match="nothing has been clustered yet"):
        Reception(clove.run(**{**TINY, "rounds": 1}, first_round="random"))
