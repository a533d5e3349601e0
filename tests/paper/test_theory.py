"""Section 4 of the paper in numbers: hand-worked cases, and where recovery works and cannot."""

from __future__ import annotations

from dataclasses import replace
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from clove.cli import app
from clove.errors import CloveError
from clove.paper import theory_convergence
from clove.paper.theory import (
    ALIKE,
    BASE,
    COLLECTIONS,
    GRIDS,
    SPREAD,
    SPREAD_CLIENTS,
    Mixture,
    Points,
    along,
    concentration,
    draw_points,
    mixtures,
    one_shot,
    orthonormal_models,
    proximity,
    root_moments,
    scales,
    separated,
)
from clove.paper.theory_convergence import (
    DESCENTS,
    Descent,
    Rate,
    Watch,
    descend,
    mean_and_interval,
)
from clove.paper.theory_figures import FIGURES, picture_name, write_figures
from clove.paper.theory_report import STATEMENTS, theory_section, where, write_section
from clove.paper.theory_tables import Plan, Tables, check_theory

SMALL = Mixture(clusters=2, clients=8, points=40, dimension=4)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------ loss vectors


def test_the_loss_of_a_model_is_worked_out_by_hand() -> None:
    """y = 2 x₁ + 0.5, at x₁ = 1 and 3: residuals of θ = (1, 0) are -1.5 and -3.5."""
    points = Points(
        x=np.array([[[1.0, 7.0], [3.0, -1.0]]]),
        errors=np.array([[0.5, 0.5]]),
        truth=np.array([[2.0, 0.0]]),
    )
    losses = points.losses(np.array([[1.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_allclose(losses, [[(1.5**2 + 3.5**2) / 2, 0.25]])


def test_a_loss_is_the_squared_distance_plus_the_noise_in_expectation() -> None:
    mixture = Mixture(clusters=2, clients=2, points=200_000, dimension=3, noise=0.5)
    truth = mixture.parameters(0)
    models = np.vstack([truth, 2 * truth[:1]])
    losses = draw_points(mixture, truth, generator()).losses(models)
    expected = np.square(np.linalg.norm(truth[:, None] - models, axis=2)) + 0.25
    np.testing.assert_allclose(losses, expected, rtol=0.02)
    np.testing.assert_allclose(scales(truth, models, 0.5) ** 2, expected)


def test_moments_of_a_root_are_those_of_a_chi_variable() -> None:
    mean, deviation = root_moments(1)
    assert mean == pytest.approx(sqrt(2 / pi))
    assert deviation == pytest.approx(sqrt(1 - 2 / pi))
    mean, deviation = root_moments(1000)
    assert mean == pytest.approx(1 - 1 / 4000, rel=1e-6)
    assert deviation == pytest.approx(1 / sqrt(2000), rel=1e-3)


def test_roots_of_losses_scatter_as_expected() -> None:
    for row in one_shot(replace(SMALL, clients=200, points=30), 10, 0):
        assert row["spread"] == pytest.approx(row["spread_expected"], rel=0.1)


@given(count=st.integers(1, 8), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_orthonormal_models_are_orthonormal(count: int, seed: int) -> None:
    models = orthonormal_models(count, 8, generator(seed))
    np.testing.assert_allclose(models @ models.T, np.eye(count), atol=1e-12)


def test_more_orthonormal_models_than_dimensions_are_refused() -> None:
    with pytest.raises(CloveError, match="5 orthonormal models do not exist in 3 dimensions"):
        one_shot(Mixture(dimension=3), 1, 0)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_collections_have_the_models_the_section_speaks_of(name: str) -> None:
    truth = BASE.parameters(0)
    models = COLLECTIONS[name](BASE, truth, generator())
    if name == "proximal":
        np.testing.assert_allclose(np.linalg.norm(models - truth, axis=1), BASE.separation / 4)
    else:
        np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1)
    assert len(models) == (BASE.dimension if name in ("orthonormal", "random") else BASE.clusters)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"clients": 3}, "3 clients cannot be of 5 clusters"),
        ({"points": 0}, "points must be 1 or more, not 0"),
        ({"dimension": 1}, "dimension must be 2 or more"),
        ({"noise": -1.0}, "noise must not be negative"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(CloveError, match=message):
        Mixture(**setting)


def test_clients_are_divided_evenly_among_clusters() -> None:
    assert np.bincount(Mixture(clients=52).groups).tolist() == [11, 10, 11, 10, 10]


# ------------------------------------------------------------------------- conditions of the proof


def test_the_proximity_constant_is_worked_out_by_hand() -> None:
    """Two clusters of one client at 0 and 4, one of which is at 1: |A - C| = 1, gap 3 - 1."""
    vectors, centres = np.array([[1.0], [4.0]]), np.array([[0.0], [4.0]])
    found = proximity(vectors, centres, np.array([0, 1]))
    assert found == {"proximity": pytest.approx(2 / 4), "proximity_roots": pytest.approx(2 / 4)}


def test_roots_of_sizes_ask_for_more() -> None:
    vectors = np.array([[1.0], [1.0], [1.0], [1.0], [4.0], [4.0], [4.0], [4.0]])
    found = proximity(vectors, np.array([[0.0], [4.0]]), np.arange(8) // 4)
    assert found["proximity"] == pytest.approx(2 / (2 * (2 / 4) * 2))
    assert found["proximity_roots"] == pytest.approx(2 / (2 * (2 / 2) * 2))


def test_a_client_nearer_to_another_centre_makes_the_constant_negative() -> None:
    found = proximity(np.array([[3.0], [4.0]]), np.array([[0.0], [4.0]]), np.array([0, 1]))
    assert found["proximity"] < 0


def test_concentration_is_worked_out_by_hand() -> None:
    found = concentration(np.array([[3.0, 4.0]]), np.array([[1.0, 2.0]]))
    assert found["farthest"] == pytest.approx(25 / 4)
    assert found["spread"] == pytest.approx(sqrt(12.5))
    assert found["spread_expected"] == pytest.approx(sqrt(2.5))
    assert found["tolerated"] == pytest.approx(4.5 * np.log(2 / 0.05) ** 2)


# ------------------------------------------------------------------------------------- recovery


def rows_of(mixture: Mixture, draws: int = 5, seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame(one_shot(mixture, draws, seed)).set_index("models")


def test_clusters_are_recovered_where_clients_have_many_points() -> None:
    rows = rows_of(replace(BASE, clients=20, points=2000))
    assert rows["probability"].min() == 1
    assert rows["probability_from_means"].min() == 1
    assert rows["low"].max() < 1
    assert (rows["recovered"] == 5).all()


def test_nothing_is_recovered_where_noise_drowns_everything() -> None:
    rows = rows_of(replace(BASE, noise=20.0))
    assert rows["probability"].max() == 0
    assert rows["mean_ari"].max() < 0.1
    assert rows["nearest_own_centre"].max() == 0


def test_models_near_the_true_ones_need_fewer_points() -> None:
    rows = rows_of(replace(BASE, points=30))
    assert rows.loc["proximal", "probability"] == 1
    assert rows.loc["orthonormal", "probability"] == 0


def test_a_draw_is_the_same_every_time_and_another_with_another_seed() -> None:
    pd.testing.assert_frame_equal(rows_of(SMALL), rows_of(SMALL))
    assert not rows_of(SMALL).equals(rows_of(SMALL, seed=1))


def test_a_grid_varies_one_thing() -> None:
    table = pd.DataFrame([vars(one) for one in mixtures()])
    for name, values in GRIDS.items():
        assert along(table, name)[name].tolist() == sorted(values)
    assert along(table, "clients", SPREAD)["clients"].tolist() == list(SPREAD_CLIENTS)
    assert len(table) == len(set(mixtures()))


# ------------------------------------------------------------------------------------ the centres


def test_centres_are_as_far_apart_as_the_lemmas_say() -> None:
    rows = pd.DataFrame(separated(1.0, 5, 0)).set_index(["models", "noise"])
    assert (rows.loc["orthonormal", "c_largest"] <= rows.loc["orthonormal", "c_claimed"]).all()
    assert rows.loc[("proximal", 0.2), "c_largest"] < 2
    np.testing.assert_allclose(rows["smallest_distance"] * rows["c_largest"], 1.0)
    assert rows.loc[("orthonormal-k", 0.1), "within"] < 1


# ------------------------------------------------------------------------------------ convergence


def test_a_step_of_a_quarter_halves_the_distance_and_the_clustering_is_right() -> None:
    watch = descend(Descent(learning_rate=0.25), 0, rounds=6)
    assert watch.ari == [None, *[1.0] * 6]
    assert watch.right_from == 1
    ratios = np.divide(watch.distances[1:], watch.distances[:-1])
    assert ((ratios > 0.45) & (ratios < 0.57)).all()


def test_a_clustering_is_right_from_the_round_after_its_last_error() -> None:
    assert Watch(ari=[None, 0.9, 1.0, 0.8, 1.0]).right_from == 4
    assert Watch(ari=[None, 1.0, 0.5]).right_from == 3


def test_the_first_distance_is_that_of_the_initial_models() -> None:
    watch = descend(Descent(), 0, rounds=1)
    assert 0.5 < watch.distances[0] < 2


def test_a_rate_is_fitted_above_the_floor_only() -> None:
    rate = Rate([1.0, 0.5, 0.25, 0.125, 0.01, 0.01], floor=0.02)
    assert rate.rounds == 4
    assert rate.value == pytest.approx(0.5)
    assert rate.c1 == pytest.approx(2.0)


def test_no_rate_is_told_of_what_is_at_the_floor() -> None:
    with pytest.raises(CloveError, match="lower the noise"):
        Rate([1.0, 0.01], floor=0.1).value  # noqa: B018


def test_contractions_are_those_of_gradient_descent() -> None:
    assert Descent(learning_rate=0.25).contraction() == 0.5
    assert Descent("models", 0.25, batch_size=500).contraction() == 0.25
    assert Descent(learning_rate=0.25).slowest == pytest.approx(1 - (1 - sqrt(0.004)) ** 2 / 2)


def test_an_interval_is_students() -> None:
    mean, low, high = mean_and_interval([1.0, 3.0])
    assert (mean, high - mean) == (2.0, pytest.approx(12.706, rel=1e-4))
    assert mean - low == pytest.approx(high - mean)
    assert np.isnan(mean_and_interval([1.0])[1])


# ------------------------------------------------------------------------------- tables and report


def little(**changed: Any) -> Plan:
    """Return a plan with every kind of row that the report asks for, and few draws."""
    some = [replace(one, clients=min(one.clients, 10 * one.clusters)) for one in mixtures()]
    wanted = [replace(SPREAD, clients=10), ALIKE]
    keep = [one for one in some if one.points <= 200 and one.dimension <= 50]
    plan = {"draws": 2, "runs": 1, "separations": (1.0,), "descents": DESCENTS[:3]}
    return Plan(**{**plan, "mixtures": list(dict.fromkeys([*keep, *wanted])), **changed})


@pytest.fixture(scope="module")
def found() -> Tables:
    return check_theory(little(), lambda: None)


def test_tables_are_kept_with_what_they_were_made_with(found: Tables, tmp_path: Path) -> None:
    found.write(tmp_path)
    again = Tables.read(tmp_path)
    for name in ("recovery", "separation", "rates"):
        assert {"seed", "clove", "numpy", "machine", "date"} <= set(getattr(again, name))
    pd.testing.assert_frame_equal(again.rounds, found.rounds, rtol=1e-5, check_dtype=False)


def test_a_folder_without_tables_says_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="`clove paper theory` makes it"):
        theory_section(tmp_path)


@pytest.mark.slow
def test_processes_side_by_side_find_the_same() -> None:
    plan = little(mixtures=[SMALL], descents=DESCENTS[2:3])
    told: list[None] = []
    one = check_theory(plan, lambda: told.append(None))
    two = check_theory(plan, lambda: None, workers=2)
    assert len(told) == plan.size() == 3
    for name in Tables.__annotations__:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(two, name))


def test_every_figure_is_drawn_for_screen_and_print(found: Tables, tmp_path: Path) -> None:
    write_figures(found, tmp_path)
    for name in FIGURES:
        assert (tmp_path / picture_name(name, "pdf")).read_bytes().startswith(b"%PDF")
        with Image.open(tmp_path / picture_name(name)) as picture:
            assert min(picture.size) > 500


def test_the_section_states_every_statement(found: Tables, tmp_path: Path) -> None:
    found.write(tmp_path)
    text = theory_section(tmp_path, pictures="there/")
    for make in STATEMENTS:
        assert f"| {make(found).claim} |" in text
    assert "![recovery](there/theory_recovery.png)" in text
    write_section(tmp_path)
    assert (tmp_path / "theory.md").read_text().startswith("# Section 4")


def test_verdicts_follow_the_tables(found: Tables) -> None:
    def verdicts(tables: Tables) -> list[bool]:
        return [make(tables).holds for make in STATEMENTS]

    perfect = found.recovery.assign(probability=1.0, proximity=2.0, high=1.0, concentrated=1.0)
    good = Tables(
        perfect.assign(probability_from_means=1.0, spread=perfect["spread_expected"]),
        found.separation.assign(within=1.0),
        found.rates.assign(after_one_round=0.1, last=1.0, right_from=1, c1=2.0),
        found.rounds,
    )
    assert all(verdicts(good))
    bad = Tables(
        perfect.assign(
            probability=found.recovery["separation"] * 0.5,
            probability_from_means=0.0,
            proximity=0.1,
            low=found.recovery["separation"] * 0.4,
            high=found.recovery["separation"] * 0.6,
            spread=3 * perfect["spread_expected"],
            concentrated=0.0,
        ),
        found.separation.assign(within=0.5),
        found.rates.assign(after_one_round=0.9, last=0.0, right_from=2, c1=0.9),
        found.rounds,
    )
    assert not any(verdicts(bad))


@pytest.mark.parametrize(
    ("good", "words"),
    [
        ([True] * 4, "everywhere"),
        ([False] * 4, "nowhere"),
        ([False, False, True, True], "from 5 on"),
        ([True, True, True, False], "up to 5"),
        ([True, False, True, False], "at 1, 5"),
    ],
)
def test_where_something_holds_is_said_in_words(good: list[bool], words: str) -> None:
    assert where([1, 2, 5, 10], good) == words


# ------------------------------------------------------------------------------- the command line


def test_the_command_writes_tables_figures_and_the_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Tables
) -> None:
    monkeypatch.setattr("clove.paper.theory_tables.check_theory", lambda plan, tell, workers: found)
    outcome = CliRunner().invoke(app, ["paper", "theory", "--draws", "3", "--out", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    names = {path.name for path in tmp_path.iterdir()}
    assert {"theory.md", "theory_recovery.csv", "theory_rounds.csv"} <= names
    assert {picture_name(name) for name in FIGURES} <= names


@pytest.mark.parametrize(
    ("option", "message"),
    [("--draws", "draws must be 1 or more, not 0"), ("--runs", "runs must be 1 or more, not 0")],
)
def test_nothing_to_draw_is_refused(option: str, message: str) -> None:
    outcome = CliRunner().invoke(app, ["paper", "theory", option, "0"])
    assert outcome.exit_code == 1
    assert message in outcome.output


def test_the_runs_are_the_theorems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orthonormal models, square roots of losses and the appendix's step."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(theory_convergence, "run", lambda **settings: asked.update(settings))
    descend(Descent(), 3)
    assert (asked["initial_models"], asked["transform"]) == ("orthonormal", "sqrt")
    assert (asked["averaging"], asked["seed"]) == ("gradients", 3)
    assert asked["learning_rate"] == pytest.approx(0.5 * (1 - 1 / 12))
