"""Which data sets are here, where, and are they whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clove.data.card import Array, DataCard
from clove.data.dataset import Dataset, Part
from clove.data.datasets import CARDS, dataset_card, load_dataset
from clove.data.decoded import cache_entries, decoded, verify_entry
from clove.data.digest import md5_of
from clove.data.idx import idx_md5
from clove.data.places import named_folder
from clove.data.rows import Rows
from clove.data.sources import Source, find_source, locate
from clove.errors import CloveError

CHUNK = 1 << 20
PARTS: tuple[Part, ...] = ("train", "test")


@dataclass(frozen=True)
class DataStatus:
    """Whether a data set is here.

    `where` is its file or folder, or what makes files needless; None if it is absent. `size_bytes`
    is the size of its files, None if there are none. `how_to_get` says what to do to have it.
    """

    name: str
    present: bool
    where: str | None
    size_bytes: int | None
    licence: str
    description: str
    how_to_get: str


class Check(NamedTuple):
    """One thing that was looked at, whether it is as it should be, and what was found."""

    what: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class CheckReport:
    """What came of looking at a data set closely."""

    name: str
    where: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as it should be."""
        return all(check.ok for check in self.checks)


def data_status(data_dir: str | Path | None = None) -> list[DataStatus]:
    """Say of each data set whether it is here, and where; nothing is read but folders."""
    folder = named_folder(data_dir)
    return [_status(card, folder) for card in CARDS.values()]


def _status(card: DataCard, data_dir: Path | None) -> DataStatus:
    found = [find_source(part, data_dir) for part in _with_needs(card) if part.forms]
    sources = [source for source in found if source is not None]
    present = len(sources) == len(found)
    where = str(sources[0].where) if sources else card.by_hand
    sample = any(source.form.sample for source in sources)
    return DataStatus(
        name=card.name,
        present=present,
        where=where if present else None,
        size_bytes=sum(source.size for source in sources) if present and sources else None,
        licence=card.licence,
        description=card.description + (" (here perhaps a sample of them)" if sample else ""),
        how_to_get=card.how_to_get,
    )


def _with_needs(card: DataCard) -> list[DataCard]:
    return [card, *(CARDS[name] for name in card.needs)]


def check_dataset(name: str, data_dir: str | Path | None = None) -> CheckReport:
    """Look closely at a data set: checksums where published, counts, shapes, labels, values.

    Raises a `CloveError` only if there is nothing to look at; what is wrong with files that are
    there is in the report.
    """
    card, folder = dataset_card(name), named_folder(data_dir)
    sources = [locate(part, folder) for part in _with_needs(card) if part.forms]
    checks = [check for source in sources for check in _file_checks(source)]
    try:
        dataset = load_dataset(name, folder)
    except CloveError as error:
        checks.append(Check("readable", False, str(error)))
    else:
        sample = any(source.form.sample for source in sources)
        checks += _content_checks(card, dataset, sample)
        checks += [check for source in sources for check in _decoded_checks(source)]
    where = str(sources[0].where) if sources else card.by_hand
    return CheckReport(name, where, tuple(checks))


def _file_checks(source: Source) -> Iterator[Check]:
    sums = source.card.checksums
    for file in source.files:
        if file.name in sums:
            found = md5_of(file)
            ok = found == sums[file.name]
            detail = "as published" if ok else f"{found}, published is {sums[file.name]}"
            yield Check(f"md5 of {file.name}", ok, detail)


def _content_checks(card: DataCard, dataset: Dataset, sample: bool) -> Iterator[Check]:
    shape = dataset.feature_shape
    yield Check("shape of a point", shape == card.shape, f"{shape}, expected {card.shape}")
    for part in PARTS:
        expected = card.train if part == "train" else card.test
        yield _count(dataset.size(part), expected, part, sample and part == "train")
        if card.classes is not None:
            yield _labels(dataset.labels(part), card.classes, part, all_occur=expected is not None)
        yield _values(dataset.x_train if part == "train" else dataset.x_test, part)


def _count(found: int, expected: int | None, part: Part, sample: bool) -> Check:
    if expected is None or found == expected:
        return Check(f"{part} points", found > 0, f"{found:,}")
    ok = sample and found < expected
    return Check(f"{part} points", ok, f"{found:,} of {expected:,}{': a sample' if ok else ''}")


def _labels(y: Array | None, classes: int, part: Part, all_occur: bool) -> Check:
    # That they lie in the range was seen when the data set was made.
    found = 0 if y is None else len(np.unique(y))
    return Check(f"{part} labels", found == classes or not all_occur, f"{found} of {classes}")


def _values(x: Array | Rows, part: Part) -> Check:
    values = x.stored if isinstance(x, Rows) else x
    if values.dtype.kind != "f":
        return Check(f"{part} values", True, f"whole numbers ({values.dtype})")
    rows = max(CHUNK // max(math.prod(values.shape[1:]), 1), 1)
    flawed = sum(
        int((~np.isfinite(values[start : start + rows])).sum())
        for start in range(0, len(values), rows)
    )
    return Check(f"{part} values", flawed == 0, f"{flawed} that are not finite")


def _decoded_checks(source: Source) -> Iterator[Check]:
    """Compare decoded arrays with what is published of them, and with what was written."""
    sums = source.card.contents
    arrays = decoded(source) if sums else {}
    for name, md5 in sums.items():
        values = arrays[name].astype(np.uint8, copy=False)
        # A single channel has no axis of its own in an idx file.
        values = values[:, 0] if values.shape[1:2] == (1,) else values
        ok = idx_md5(values) == md5
        yield Check(f"{source.card.name} {name}", ok, f"{'as' if ok else 'not as'} published")
    for entry in cache_entries(source):
        ok = verify_entry(entry)
        detail = str(entry) if ok else f"{entry} is damaged: delete it"
        yield Check(f"decoded {source.card.name}", ok, detail)
