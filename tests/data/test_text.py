from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clove.data.text import FIRST, PAD, UNKNOWN, encoded, vocabulary, words_of

texts = st.lists(st.text(alphabet="abc ,.A'", max_size=20), max_size=8)


def test_words_are_runs_of_letters_and_digits_in_lower_case() -> None:
    assert words_of("Reuters - Oil's #36;50; up_1 ÄRGER") == [
        *["reuters", "oil", "s", "36", "50", "up_1", "ärger"]
    ]
    assert words_of("... !") == []


def test_the_most_frequent_words_get_the_first_ids_and_of_equals_the_first_seen() -> None:
    assert vocabulary(["d c b", "c b a", "x"], most=4) == {"c": 2, "b": 3, "d": 4, "a": 5}


@settings(deadline=None, max_examples=100)
@given(texts=texts, most=st.integers(1, 5), length=st.integers(1, 6))
def test_rows_hold_the_ids_of_the_words_in_order(texts: list[str], most: int, length: int) -> None:
    ids = vocabulary(texts, most)
    rows = encoded(texts, ids, length)
    assert rows.shape == (len(texts), length)
    assert rows.dtype == np.int32
    names = {number: word for word, number in ids.items()}
    assert set(names) == set(range(FIRST, FIRST + len(ids)))
    for text, row in zip(texts, rows, strict=True):
        words = words_of(text)[:length]
        assert [names.get(i, UNKNOWN) for i in row[: len(words)]] == [
            word if word in ids else UNKNOWN for word in words
        ]
        assert (row[len(words) :] == PAD).all()


@settings(deadline=None, max_examples=50)
@given(texts=texts, most=st.integers(1, 5))
def test_no_word_left_out_is_more_frequent_than_one_let_in(texts: list[str], most: int) -> None:
    ids = vocabulary(texts, most)
    counts = Counter(word for text in texts for word in words_of(text))
    inside = [counts[word] for word in ids]
    assert inside == sorted(inside, reverse=True)
    assert all(counts[word] <= min(inside) for word in counts.keys() - ids.keys())
