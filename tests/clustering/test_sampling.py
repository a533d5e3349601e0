from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clove.clustering.sampling import systematic_sample

from .groups import relaxed, seeds


@relaxed
@given(seeds, st.integers(2, 300), st.data())
def test_nobody_is_drawn_twice_and_as_many_as_asked_for(seed, n_clients, data):
    size = data.draw(st.integers(1, n_clients))
    vectors = np.random.default_rng(seed).random((n_clients, 3))
    sample = systematic_sample(vectors, size, seed)
    assert len(set(sample.tolist())) == len(sample) == size
    assert sample.min() >= 0
    assert sample.max() < n_clients
    assert (np.diff(sample) > 0).all()


@relaxed
@given(seeds, st.integers(20, 400), st.integers(5, 20))
def test_every_best_model_has_its_share_to_within_one_client(seed, n_clients, size):
    rng = np.random.default_rng(seed)
    vectors = rng.random((n_clients, 4)) * rng.uniform(0.2, 1, 4)
    best = vectors.argmin(axis=1)
    sample = systematic_sample(vectors, size, seed)
    due = np.bincount(best, minlength=4) * size / n_clients
    assert (np.abs(np.bincount(best[sample], minlength=4) - due) < 1 + 1e-9).all()


def test_a_group_of_its_own_that_is_large_enough_is_never_lost():
    # 20 of 2,000 clients, 1 in 100 drawn: a plain draw would miss them one time in eight.
    vectors = np.tile([0.0, 1.0], (2000, 1))
    vectors[-20:] = [1.0, 0.0]
    for seed in range(200):
        assert (systematic_sample(vectors, 100, seed) >= 1980).sum() == 1


def test_everybody_is_as_likely_as_anybody():
    vectors = np.random.default_rng(0).random((40, 3))
    drawn = np.bincount(
        np.concatenate([systematic_sample(vectors, 10, seed) for seed in range(2000)])
    )
    # 500 times each is expected, with a standard deviation below 20.
    assert np.abs(drawn - 500).max() < 100


def test_the_seed_decides():
    vectors = np.random.default_rng(0).random((100, 3))
    assert np.array_equal(systematic_sample(vectors, 9, 4), systematic_sample(vectors, 9, 4))
    assert not np.array_equal(systematic_sample(vectors, 9, 4), systematic_sample(vectors, 9, 5))
