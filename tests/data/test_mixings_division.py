"""Dividing points by shares and by counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data.division import apportion, hand_out


@settings(deadline=None, max_examples=60)
@given(
    totals=st.lists(st.integers(0, 500), min_size=1, max_size=6),
    parties=st.integers(1, 7),
    seed=st.integers(0, 1000),
)
def test_counts_are_shares_rounded_so_that_they_add_up(
    totals: list[int], parties: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(parties, 0.5), size=len(totals)).T
    counts = apportion(np.array(totals), shares)
    assert counts.sum(axis=0).tolist() == totals
    assert counts.min() >= 0
    assert np.abs(counts - shares * totals).max() < 1 + 1e-9


@settings(deadline=None, max_examples=60)
@given(data=st.data(), classes=st.integers(1, 5), parties=st.integers(1, 4))
def test_points_are_handed_out_as_counted_and_none_twice(
    data: st.DataObject, classes: int, parties: int
) -> None:
    size = st.integers(0, 6)
    counts = np.array([[data.draw(size) for _ in range(classes)] for _ in range(parties)])
    spare = np.array([data.draw(size) for _ in range(classes)])
    labels = np.random.default_rng(0).permutation(
        np.repeat(np.arange(classes), counts.sum(axis=0) + spare)
    )
    hands = hand_out(labels, counts, np.random.default_rng(1))
    for hand, own in zip(hands, counts, strict=True):
        assert np.bincount(labels[hand], minlength=classes).tolist() == own.tolist()
    everything = np.concatenate(hands)
    assert len(np.unique(everything)) == len(everything)
