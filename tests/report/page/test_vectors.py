"""Loss vectors over the rounds: one plane for all, the losses beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clove.report.page.read import RunRead, Vectors, read_run
from clove.report.page.vectors import in_one_plane, loss_vectors, nearest_groups

ROWS = hnp.arrays(np.float64, (6, 4), elements=st.floats(0, 10))


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_a_plane_brings_no_two_clients_farther_apart_than_they_are(rounds: list) -> None:
    places, explained = in_one_plane(dict(enumerate(rounds)))
    for number, rows in enumerate(rounds):
        apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        shown = np.linalg.norm(places[number][:, None] - places[number][None], axis=2)
        assert (shown <= apart + 1e-6).all()
    assert 0 <= explained.sum() <= 1 + 1e-9


@settings(deadline=None)
@given(ROWS)
def test_what_all_clients_have_in_common_moves_no_point(rows: np.ndarray) -> None:
    places, _ = in_one_plane({1: rows, 2: rows + 3.0})
    np.testing.assert_allclose(places[1], places[2], atol=1e-6)


def test_groups_that_differ_are_apart_and_small_changes_move_points_little() -> None:
    draw = np.random.default_rng(0)
    kinds = np.repeat(np.eye(3) * 5, 4, axis=0)
    rounds = {n: kinds + draw.normal(0, 0.05, kinds.shape) for n in range(5)}
    places, explained = in_one_plane(rounds)
    steps = [np.abs(places[n + 1] - places[n]).max() for n in range(4)]
    assert max(steps) < 0.5
    assert np.linalg.norm(places[0][0] - places[0][4]) > 5
    assert explained.sum() > 0.95


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (1, 1)])
def test_too_few_clients_or_models_leave_zeros(shape: tuple[int, int]) -> None:
    places, explained = in_one_plane({1: np.ones(shape)})
    np.testing.assert_array_equal(places[1], np.zeros((shape[0], 2)))
    assert explained.tolist() == [0, 0]


def test_a_run_has_a_frame_for_each_round_with_loss_vectors(runs: Path) -> None:
    read = read_run(runs / "clove")
    found = loss_vectors(read, np.arange(9))
    assert found is not None
    assert [frame["round"] for frame in found["frames"]] == [1, 2, 3, 4]
    for frame in found["frames"]:
        assert frame["models"] == read.records[frame["round"] - 1]["assignment"]
        assert len(frame["losses"]) == len(frame["x"]) == 9


def test_probes_have_a_frame_with_their_own_number_of_columns(runs: Path) -> None:
    found = loss_vectors(read_run(runs / "probes"), np.arange(9))
    assert found is not None
    assert found["frames"][0]["columns"] == 4
    assert len({frame["columns"] for frame in found["frames"]}) == 2


@pytest.mark.parametrize("kind", ["fedavg", "local"])
def test_methods_without_loss_vectors_have_none(runs: Path, kind: str) -> None:
    assert loss_vectors(read_run(runs / kind), np.arange(9)) is None
    assert nearest_groups(read_run(runs / kind)) == {}


def long_run(read: RunRead, rounds: int, clients: int) -> RunRead:
    """Return a run as if it had been long and large."""
    draw, assignment = np.random.default_rng(0), [c % 3 for c in range(clients)]
    records = [
        {**read.records[0], "round": n, "assignment": assignment} for n in range(1, rounds + 1)
    ]
    vectors = {
        n: Vectors(np.arange(clients), draw.random((clients, 3))) for n in range(1, rounds + 1)
    }
    return replace(read, records=records, vectors=vectors)


@pytest.mark.parametrize(("rounds", "clients", "frames"), [(300, 9, 100), (60, 3000, 20)])
def test_long_and_large_runs_keep_first_and_last_frames_within_bounds(
    runs: Path, rounds: int, clients: int, frames: int
) -> None:
    found = loss_vectors(long_run(read_run(runs / "clove"), rounds, clients), np.arange(clients))
    assert found is not None
    numbers = [frame["round"] for frame in found["frames"]]
    assert len(numbers) <= frames
    assert numbers[:5] == [1, 2, 3, 4, 5]
    assert numbers[-1] == rounds


def test_the_nearest_group_is_the_one_whose_mean_is_nearest(runs: Path) -> None:
    read = replace(
        read_run(runs / "clove"),
        vectors={1: Vectors(np.arange(4), np.array([[0.0], [1.0], [5.0], [7.0]]))},
    )
    read.records[0]["assignment"][:4] = [0, 1, 2, 2]
    assert nearest_groups(read) == {0: (1, 1.0), 1: (0, 1.0), 2: (1, 5.0)}
