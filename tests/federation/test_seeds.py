from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clove import seeds

from .worlds import relaxed

places = st.tuples(
    st.integers(0, 2**63 - 1), st.text(max_size=12), st.integers(0, 10**6), st.integers(0, 10**6)
)


@relaxed
@given(places, places)
def test_different_places_give_different_numbers(one, other):
    assert (seeds.integer(*one) == seeds.integer(*other)) == (one == other)
    same = np.array_equal(seeds.stream(*one).random(4), seeds.stream(*other).random(4))
    assert same == (one == other)


@relaxed
@given(places)
def test_integers_fit_what_takes_a_plain_seed(place):
    assert 0 <= seeds.integer(*place) < 2**63


def test_drawing_for_one_purpose_does_not_move_another():
    expected = seeds.stream(0, "participants", 1).random()
    seeds.stream(0, "batches", 1).random(1000)
    assert seeds.stream(0, "participants", 1).random() == expected


def test_purposes_are_independent():
    draws = np.stack([seeds.stream(0, name).random(2000) for name in ("batches", "dropout")])
    assert abs(np.corrcoef(draws)[0, 1]) < 0.1


def test_values_never_change():
    """Runs of years ago must repeat: these numbers are part of the format of a seed."""
    assert seeds.integer(0, "batches", 3, 7) == 6206895357456424773
    assert seeds.stream(0, "batches", 3, 7).integers(1000, size=4).tolist() == [759, 569, 716, 741]


def test_values_are_the_same_in_every_process():
    code = "from clove import seeds; print(seeds.integer(5, 'initial', 1))"
    other = os.environ | {"PYTHONHASHSEED": "1"}
    found = subprocess.check_output([sys.executable, "-c", code], env=other, text=True)
    assert int(found) == seeds.integer(5, "initial", 1)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="non-negative"):
        seeds.stream(-1, "batches")
