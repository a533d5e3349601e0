"""Amazon reviews of four kinds of products, as counts of words, in two forms of amazon.npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array, Arrays, Chunks, DataCard, Form, Parts
from clove.data.dataset import Dataset
from clove.data.decoded import decoded
from clove.data.npz import npz_names, read_npz
from clove.data.options import one_of
from clove.data.rows import Rows
from clove.data.sources import locate
from clove.errors import CloveError
from clove.seeds import stream

WORDS = 5000
DOMAINS = ("books", "dvd", "electronics", "kitchen")
COMPACT = ("data", "indices", "indptr", "shape", "y", "domain")
ORIGINAL = ("xx_data", "xx_col", "xx_row", "xx_shape", "yy", "offset")
# There is no official split for these domains as clients have them. It is fixed once and for all
# (not by a run's seed), so that results can be compared.
SPLIT_SEED = 0
TEST_PART = 10
LABELLED = 2000
SPLITS = ("90/10", "published")


def read_reviews(parts: Parts) -> Chunks:
    """Read either form: compressed rows with labels, or the original of domain adaptation."""
    path = parts["npz"]
    original = "xx_data" in npz_names(path)
    arrays = _original(path) if original else read_npz(path, COMPACT)
    try:
        return _checked(arrays).items()
    except (IndexError, TypeError, ValueError) as error:
        raise CloveError(f"{path} does not hold the Amazon reviews: {error}") from error


def _original(path: Path) -> Arrays:
    """Bring the original form, whose rows are words and columns reviews, into compressed rows."""
    from scipy.sparse import coo_matrix

    arrays = read_npz(path, ORIGINAL)
    try:
        words, reviews = (int(length) for length in arrays["xx_shape"].reshape(-1))
        entries = arrays["xx_data"].reshape(-1)
        places = arrays["xx_col"].reshape(-1), arrays["xx_row"].reshape(-1)
        # Words stand by how frequent they are, so the first are the most frequent.
        rows = coo_matrix((entries, places), shape=(reviews, words)).tocsr()[:, :WORDS]
        offsets = arrays["offset"].reshape(-1).astype(np.int64)[: len(DOMAINS) + 1]
        domain = np.arange(len(DOMAINS)).repeat(np.diff(offsets))
        shape = np.array([reviews, min(words, WORDS)])
    except (IndexError, TypeError, ValueError) as error:
        raise CloveError(f"{path} does not hold the Amazon reviews: {error}") from error
    labels = (arrays["yy"].reshape(-1) + 1) / 2
    matrix = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    return {**matrix, "shape": shape, "y": labels, "domain": domain}


def _checked(arrays: Arrays) -> Arrays:
    reviews, words = (int(length) for length in arrays["shape"])
    if not len(arrays["indptr"]) - 1 == reviews == len(arrays["y"]) == len(arrays["domain"]):
        raise ValueError(f"its arrays are not all of {reviews} reviews")
    if words != WORDS:
        raise ValueError(f"it has {words} words, expected {WORDS}")
    for name, values in (("y", 2), ("domain", len(DOMAINS))):
        if not np.isin(arrays[name], range(values)).all():
            raise ValueError(f"{name} holds other values than 0 to {values - 1}")
    # scipy wants whole numbers of its own size; the counts stay as small as they came.
    types = {"indices": np.int32, "indptr": np.int32, "y": np.int64, "domain": np.int64}
    checked = {name: arrays[name].astype(dtype) for name, dtype in types.items()}
    checked["data"] = arrays["data"]
    _matrix(checked).check_format(full_check=True)
    return checked


def _matrix(arrays: Arrays) -> Any:
    # scipy takes a while to import and only this data set needs it.
    from scipy.sparse import csr_matrix

    rows = arrays["data"], arrays["indices"], arrays["indptr"]
    return csr_matrix(rows, shape=(len(arrays["y"]), WORDS), copy=False)


AMAZON = DataCard(
    name="amazon",
    description=(
        "Amazon reviews of books, DVDs, electronics and kitchen appliances, good or bad: counts "
        "of the 5,000 most frequent words and pairs of words, 27,677 reviews"
    ),
    licence="BSD-style",
    citation=(
        "J. Blitzer, M. Dredze and F. Pereira, Biographies, Bollywood, boom-boxes and blenders: "
        "domain adaptation for sentiment classification, ACL, 2007; M. Chen, Z. Xu, K. Weinberger "
        "and F. Sha, Marginalized denoising autoencoders for domain adaptation, ICML, 2012"
    ),
    shape=(WORDS,),
    classes=2,
    groups=len(DOMAINS),
    train=24_911,
    test=2_766,
    forms=(
        Form(
            words="amazon.npz",
            parts={"npz": ("amazon.npz",)},
            folders=("", "amazon", "AmazonReview"),
            decode=read_reviews,
        ),
    ),
    by_hand=(
        "It is handed out to browsers only: download AmazonReview.zip from "
        "https://drive.google.com/file/d/1QbXFENNyqor1IlCpRRFtOluI2_hMEd1W/view "
        "(linked by the project KD3A, https://github.com/FengHZ/KD3A) and unpack it."
    ),
)


def amazon(data_dir: Path | None, seed: int, *, split: str = "90/10") -> Dataset:
    """Load the Amazon reviews; the four kinds of products are its groups.

    Parameters
    ----------
    split : "90/10" or "published"
        A tenth of each kind of products is for testing, always the same; or, as usual in domain
        adaptation, all but the first 2,000 reviews of each kind are.
    """
    one_of("split", split, SPLITS)
    arrays = decoded(locate(AMAZON, data_dir))
    matrix, test = _matrix(arrays), _test_rows(arrays["domain"], split)
    fields: dict[str, Array | Rows] = {}
    for part, rows in (("train", np.flatnonzero(~test)), ("test", np.flatnonzero(test))):
        fields |= {f"x_{part}": Rows(matrix, rows), f"y_{part}": arrays["y"][rows]}
        fields[f"group_{part}"] = arrays["domain"][rows]
    return Dataset.of(AMAZON, **fields)


def _test_rows(domain: Array, split: str) -> Array:
    """Say which reviews are for testing."""
    test = np.zeros(len(domain), bool)
    for number in range(len(DOMAINS)):
        own = np.flatnonzero(domain == number)
        if split == "published":
            test[own[LABELLED:]] = True
        else:
            order = stream(SPLIT_SEED, "amazon/split", number).permutation(own)
            test[order[: len(own) // TEST_PART]] = True
    return test
