"""The round loop: who takes part, how questions are driven, and what a round's line says."""

from __future__ import annotations

import json
from collections.abc import Generator
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

import clove
from clove.algorithms import FedAvg, Outcome
from clove.errors import CloveError
from clove.runs.build import gather_clients
from clove.runs.loop import drive, participants, plain
from clove.runs.settings import from_names
from clove.runs.story import first_round_reaching, stability_round
from tests.runs.small import QUICK, TINY

shares = st.floats(0, 1, exclude_min=True)
seeds, rounds, numbers = st.integers(0, 2**40), st.integers(1, 1000), st.integers(1, 60)


@settings(deadline=None)
@given(seed=seeds, number=rounds, clients=numbers, share=shares)
def test_participants_are_a_share_of_all_clients_at_least_one_each_once_in_order(
    seed: int, number: int, clients: int, share: float
) -> None:
    drawn = participants(seed, number, np.arange(clients), share)
    assert len(drawn) == max(1, ceil(share * clients - 1e-9))
    assert (np.diff(drawn) > 0).all()
    assert drawn[0] >= 0
    assert drawn[-1] < clients
    assert (participants(seed, number, np.arange(clients), share) == drawn).all()


@pytest.mark.parametrize(("share", "clients", "size"), [(0.1, 30, 3), (0.7, 10, 7), (0.001, 5, 1)])
def test_a_share_that_comes_out_whole_is_not_rounded_up(
    share: float, clients: int, size: int
) -> None:
    assert len(participants(0, 1, np.arange(clients), share)) == size


def test_only_those_that_are_there_are_drawn_and_by_the_same_chance() -> None:
    there = np.array([0, 3, 4, 999_999])
    drawn = participants(0, 1, there, 0.5)
    assert drawn.tolist() == there[participants(0, 1, np.arange(4), 0.5)].tolist()
    assert participants(0, 1, there, 1.0).tolist() == there.tolist()


def test_rounds_and_seeds_draw_other_participants() -> None:
    draws = {
        tuple(participants(seed, n, np.arange(50), 0.3)) for seed in range(3) for n in range(1, 4)
    }
    assert len(draws) == 9


def test_everybody_takes_part_unless_told_otherwise() -> None:
    assert participants(0, 1, np.arange(4), 1.0).tolist() == [0, 1, 2, 3]


def test_driving_sends_each_question_its_answer_and_returns_the_outcome() -> None:
    def asking() -> Generator[Any, Any, str]:
        first = yield 1
        second = yield first + 1
        return f"{first}, {second}"

    assert drive(asking(), lambda question: 10 * question) == "10, 110"


def test_agreement_with_the_true_groups_is_of_participants_and_of_all_seen() -> None:
    settings = {**QUICK, "rounds": 4, "participation": 0.4, "algorithm": "ifca"}
    groups = gather_clients(from_names(**settings)).groups
    assert groups is not None
    result = clove.run(**settings)
    seen: set[int] = set()
    for _, record in result.history.iterrows():
        cohort = participants(0, record["round"], np.arange(25), 0.4)
        seen |= set(cohort.tolist())
        assignment, known = np.array(record["assignment"]), sorted(seen)
        assert record["participants"] == 10
        assert record["ari"] == adjusted_rand_score(groups[cohort], assignment[cohort])
        assert record["ari_seen"] == adjusted_rand_score(groups[known], assignment[known])
        assert set(np.flatnonzero(assignment < 0)) == set(range(25)) - seen
    assert (result.history["ari"] != result.history["ari_seen"]).any()


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_methods_that_do_not_group_have_no_agreement(algorithm: str) -> None:
    assert clove.run(**TINY, algorithm=algorithm).ari is None


def test_models_are_measured_every_so_many_rounds_and_at_the_end() -> None:
    history = clove.run(**{**TINY, "rounds": 5}, evaluate_every=2).history
    assert history["accuracy"].notna().tolist() == [False, True, False, True, True]


def test_all_bytes_of_a_round_are_in_its_line() -> None:
    history = clove.run(**{**QUICK, "rounds": 6}, early_stopping=True).history
    clustering, after = history["bytes_down"].iloc[0], history["bytes_down"].iloc[-1]
    assert 4 * after < clustering


@pytest.mark.parametrize(
    ("algorithm", "said"), [("flexcfl", [False, False, True]), ("pacfl", [None] * 3)]
)
def test_methods_that_do_not_ask_whether_assignments_are_stable_do_not_say(
    algorithm: str, said: list[bool | None]
) -> None:
    result = clove.run(**{**QUICK, "rounds": 3, "algorithm": algorithm})
    assert [record["stable"] for record in result.history.to_dict("records")] == said


def asks_a_number(method: FedAvg, state: Any, cohort: Any) -> Generator[Any, Any, Any]:
    yield 7


def returns_nothing(method: FedAvg, state: Any, cohort: Any) -> Generator[Any, Any, Any]:
    yield from ()


def asks_nothing(method: FedAvg, state: Any, cohort: Any) -> Any:
    return Outcome(state, cohort, None)


@pytest.mark.parametrize(
    ("mistaken", "said"),
    [
        (asks_a_number, "a round of fedavg asked 7, which is no question. Those of .* are .*Train"),
        (returns_nothing, "a round of fedavg must return an Outcome, not None"),
        (asks_nothing, "the round of fedavg must yield its questions"),
    ],
)
@pytest.mark.parametrize("engine", ["sequential", "vectorized"])
def test_mistakes_in_a_method_of_ones_own_are_said(
    mistaken: Any, said: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAvg, "round", mistaken)
    with pytest.raises(CloveError, match=said):
        clove.run(**{**TINY, "engine": engine}, algorithm="fedavg")


def test_a_run_in_which_nobody_ever_replies_says_so() -> None:
    with pytest.raises(CloveError, match="no client has a model: none replied in any round"):
        clove.run(**TINY, algorithm="local", stragglers=0.99999)


# ------------------------------------------------------------------------ what is said of a run


def told(*aris: float | None, stable: int = 0) -> list[dict[str, Any]]:
    numbered = enumerate(aris, start=1)
    return [{"round": n, "ari": ari, "stable": 0 < stable <= n} for n, ari in numbered]


@pytest.mark.parametrize(
    ("aris", "first"),
    [
        ((0.1, 0.95, 0.5, 1.0), 2),
        ((0.9,), 1),
        ((0.9 - 1e-15,), 1),
        ((0.89, 0.899), None),
        ((None, None, 1.0), 3),
        ((None,), None),
    ],
)
def test_the_first_round_that_reaches_an_agreement(
    aris: tuple[float | None, ...], first: int | None
) -> None:
    assert first_round_reaching(told(*aris), 0.9) == first


@pytest.mark.parametrize(("stable", "first"), [(3, 3), (1, 1), (0, None)])
def test_the_first_round_called_stable(stable: int, first: int | None) -> None:
    assert stability_round(told(1.0, 1.0, 1.0, stable=stable)) == first


# ------------------------------------------------------------------------------------- plain values

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(value=values)
def test_lines_are_json_without_numbers_that_are_not_finite(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = json.dumps(plain(value))
    assert json.loads(text, parse_constant=refuse) == plain(plain(value))


def test_arrays_become_lists_and_numpys_numbers_plain_ones() -> None:
    value = {"a": np.array([1.0, np.inf]), "b": np.float32("nan"), "c": np.int64(3), "d": (1, 2)}
    assert plain(value) == {"a": [1.0, None], "b": None, "c": 3, "d": [1, 2]}
