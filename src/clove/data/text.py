"""From texts to numbers: words, a vocabulary of the most frequent ones, and rows of their ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

PAD, UNKNOWN, FIRST = 0, 1, 2
"""Ids of nothing, of a word outside the vocabulary, and of the most frequent word."""

_WORD = re.compile(r"\b\w+\b")


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case.

    >>> words_of("Oil's up 5%, again")
    ['oil', 's', 'up', '5', 'again']
    """
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[str], most: int) -> dict[str, int]:
    """Return the ids of the most frequent words; of equals, the one that came first goes first.

    >>> vocabulary(["b a", "c a"], most=2)
    {'a': 2, 'b': 3}
    """
    counts = Counter(word for text in texts for word in words_of(text))
    return {word: FIRST + rank for rank, (word, _) in enumerate(counts.most_common(most))}


def encoded(texts: Sequence[str], ids: Mapping[str, int], length: int) -> NDArray[np.int32]:
    """Return a row of ids for each text, cut or filled up with `PAD` on the right."""
    rows = np.full((len(texts), length), PAD, np.int32)
    for row, text in zip(rows, texts, strict=True):
        words = words_of(text)[:length]
        row[: len(words)] = [ids.get(word, UNKNOWN) for word in words]
    return rows
