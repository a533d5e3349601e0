"""What the methods achieve on the digits."""

from __future__ import annotations

import numpy as np
import pytest

import clove
from clove.errors import CloveWarning

from .simulated import SEEDS, digits


def mean(figure, algorithm, **options):
    return np.mean([getattr(digits(algorithm, seed, **options), figure) for seed in SEEDS])


# -------------------------------------------------------------------------------- classification


@pytest.mark.parametrize("seed", SEEDS)
def test_clove_finds_the_true_groups_of_labelled_digits(seed):
    assert digits("clove", seed).ari == 1.0


def test_clove_groups_labelled_digits_better_than_ifca():
    assert mean("ari", "clove") > mean("ari", "ifca")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_for_each_group_is_far_more_accurate_than_one_for_all(seed):
    assert digits("clove", seed).accuracy > digits("fedavg", seed).accuracy + 0.4


# -------------------------------------------------------------------------------- reconstruction

UNLABELLED = {"task": "reconstruction"}


@pytest.mark.parametrize("seed", SEEDS)
def test_clove_finds_the_true_groups_without_any_labels(seed):
    assert digits("clove", seed, **UNLABELLED).ari == 1.0


def test_clove_groups_unlabelled_digits_far_better_than_ifca():
    assert mean("ari", "clove", **UNLABELLED) > mean("ari", "ifca", **UNLABELLED) + 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_for_each_group_reconstructs_far_better_than_one_for_all(seed):
    one_for_all = digits("fedavg", seed, **UNLABELLED).test_loss
    assert digits("clove", seed, **UNLABELLED).test_loss < 0.8 * one_for_all


# ------------------------------------------------------------------------------------- probes


@pytest.mark.parametrize("probes", ["trained", "random"])
@pytest.mark.parametrize("seed", SEEDS)
def test_probes_find_the_groups_and_their_number_at_once(seed, probes):
    options = {"max_models": 10, "selection": "merge-ratio", "transform": "row"}
    result = digits("clove", seed, rounds=2, probes=probes, **options)
    assert result.history["ari"].tolist() == [1.0, 1.0]
    assert result.summary()["models"] == 5


# ----------------------------------------------------------------------------------- newcomers


@pytest.mark.parametrize("probes", ["trained", "random"])
@pytest.mark.parametrize("seed", SEEDS)
def test_clients_first_drawn_after_stability_join_their_own_group(seed, probes):
    options = {"participation": 0.4, "probes": probes, "early_stopping": True, "stable_rounds": 1}
    history = digits("clove", seed, rounds=12, **options).history
    seen = [sum(np.array(models) >= 0) for models in history["assignment"]]
    assert seen[0] == 10
    assert seen[-1] > 20
    assert history["stable"].all()
    assert history["ari_seen"].tolist() == [1.0] * 12


def test_a_newcomer_from_outside_joins_the_group_whose_digits_it_has():
    result = digits("clove")
    clients = result._progress.prepared.clients.clients
    for number in range(0, 25, 6):
        found = result.assign(*clients[number].test)
        assert found.model == result.assignment[number]
        assert found.sure > 0.3


# ----------------------------------------------------------------------------- repeating a run


@pytest.mark.parametrize(
    "algorithm",
    [
        "clove",
        "ifca",
        "fedavg",
        "local",
        "fedprox",
        "per-fedavg",
        "centralized",
        "cfl-s",
        "fesem",
        "flexcfl",
        "fedproto",
        "fedala",
        "fedpac",
        "pacfl",
        "k-fed",
        "fedgwc",
    ],
)
def test_the_same_seed_gives_the_same_history_and_another_seed_another(algorithm):
    options = {"rounds": 2, "participation": 0.6, "stragglers": 0.2}
    first, other = (digits(algorithm, seed, **options) for seed in (0, 1))
    again = digits.__wrapped__(algorithm, 0, **options)
    assert again.summary()["history"] == first.summary()["history"]
    assert other.summary()["history"] != first.summary()["history"]


# ------------------------------------------------------------------------------------ stragglers


@pytest.mark.parametrize("share", [0.3, 0.97])
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "clove"},
        {"algorithm": "clove", "probes": "trained", "max_models": 8, "early_stopping": True},
        {"algorithm": "clove", "averaging": "gradients", "matching": "overlap"},
        {"algorithm": "ifca"},
        {"algorithm": "fedavg"},
        {"algorithm": "local"},
        {"algorithm": "fedprox"},
        {"algorithm": "cfl-s", "eps2": 0.1},
        {"algorithm": "fesem"},
        {"algorithm": "flexcfl"},
        {"algorithm": "per-fedavg", "meta_gradient": "hessian-free"},
        {"algorithm": "fedproto"},
        {"algorithm": "fedala", "measured": "blended"},
        {"algorithm": "fedpac"},
        {"algorithm": "pacfl"},
        {"algorithm": "k-fed"},
        {"algorithm": "fedgwc", "tolerance": 1e-3},
    ],
    ids=str,
)
def test_however_many_do_not_reply_a_run_comes_to_its_end(options, share):
    result = digits(**options, rounds=5, stragglers=share)
    assert len(result.history) == 5
    assert (result.history["participants"] < 25).all()


def test_a_client_whose_data_overflow_is_set_aside_and_the_others_are_grouped():
    clients = list(digits("clove")._progress.prepared.clients.clients)
    x, y = clients[7].train
    clients[7] = clove.ClientData(train=(np.full_like(x, 3e38), y), test=clients[7].test)
    with pytest.warns(CloveWarning, match="client 7 sent losses that are not finite"):
        result = clove.run(clients=clients, algorithm="clove", models=5, rounds=2)
    assert result.assignment[7] == -1
    assert len(set(np.delete(result.assignment, 7))) == 5
