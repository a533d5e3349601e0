"""Fetching data sets from where their makers publish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clove.data.card import DataCard, Progress, RemoteFile
from clove.data.datasets import CARDS, dataset_card
from clove.data.sources import find_source
from clove.errors import CloveError
from clove.folders import cache_folder


def fetch_dataset(
    name: str,
    folder: str | Path | None = None,
    progress: Progress | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download a data set's original files, and what else it is made from; return their folder.

    Files that are there as published are not downloaded again, and what an earlier call left half
    done goes on where it stopped.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    folder : path, optional
        The data folder to put it in, under the data set's name; by default clove's own, where it
        is found by itself.
    progress : callable, optional
        `progress(file name, bytes there, bytes in all or None)`, called as bytes arrive.
    mirrors : sequence of str, optional
        Addresses to download from instead of the known ones; file names are appended.
    timeout : float
        Seconds without a byte after which the next address is tried.
    pause : float
        Seconds to wait before the addresses are tried again.
    """
    # What talks to the network is slow to import and seldom needed.
    from clove.data.download import download

    card = dataset_card(name)
    base = cache_folder() / "data" if folder is None else Path(folder).expanduser()
    if not card.files:
        raise CloveError(_by_hand(card, base))
    for other in card.needs:
        if find_source(CARDS[other], base) is None:
            fetch_dataset(other, base, progress, mirrors=mirrors, timeout=timeout, pause=pause)
    for file in card.files:
        download(_from(file, mirrors), base / name, progress, timeout=timeout, pause=pause)
    return base / name


def _from(file: RemoteFile, mirrors: Sequence[str] | None) -> RemoteFile:
    if mirrors is None:
        return file
    return replace(file, urls=tuple(f"{mirror.rstrip('/')}/{file.name}" for mirror in mirrors))


def _by_hand(card: DataCard, base: Path) -> str:
    if not card.forms:
        return f"data set {card.name!r} needs no files: {card.by_hand}"
    wanted = " or ".join(form.words for form in card.forms)
    return (
        f"data set {card.name!r} has to be fetched by hand. {card.by_hand} "
        f"Then put {wanted} in {base / card.name}"
    )
