"""What a loader declares about its data set: facts, forms it comes in, where to download it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
Chunks = Iterable[tuple[str, Array]]
"""Arrays by name, piece after piece along the first axis: whole ones need not fit into memory."""
Parts = Mapping[str, Path]
"""The files (or folders of files) a data set was found in, by the part of it they hold."""
Progress = Callable[[str, int, int | None], None]
"""Told how far a download is: file name, bytes there, bytes in all or None if unknown."""


@dataclass(frozen=True)
class Form:
    """One form a data set comes in: which files make it up, where, and how they are read.

    Parameters
    ----------
    words : str
        What to put there, for messages.
    parts : mapping
        For each part, the names its file may have, the best first. All parts must be there.
    folders : tuple of str
        Where to look, below a data folder; "" is the data folder itself.
    decode : callable
        `decode(parts, **options)` gives the arrays in the files, whole or piece by piece.
    system_folders : tuple of paths
        Where an operating system's package puts the files; looked at last.
    pattern : str
        A part may also be a folder that holds files of this pattern; "": it may not.
    sample : bool
        The training points may be a sample of all there are.
    """

    words: str
    parts: Mapping[str, tuple[str, ...]]
    folders: tuple[str, ...]
    decode: Callable[..., Chunks]
    system_folders: tuple[Path, ...] = ()
    pattern: str = ""
    sample: bool = False


@dataclass(frozen=True)
class RemoteFile:
    """A file of the original distribution: its published MD5 sum and where it can be had."""

    name: str
    md5: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class DataCard:
    """The facts about a data set.

    Parameters
    ----------
    name, description, licence, citation : str
        What a user should know, and say, when using it.
    shape : tuple of int
        Shape of one point's features.
    classes : int or None
        Number of classes; None for regression.
    train, test : int or None
        How many points there are when it is whole, with the default options; None where that
        depends on how it was made.
    forms : tuple of Form
        The forms it is read in; empty where no file is needed.
    files : tuple of RemoteFile
        What `clove data fetch` downloads; empty where nothing can be downloaded.
    by_hand : str
        What to do where nothing can be downloaded, or why nothing needs to be.
    checksums : mapping
        Published MD5 sums of files of the original distribution, by file name.
    contents : mapping
        For decoded arrays of bytes, the MD5 sum of an idx file that holds them: the published
        one where the data set is published so.
    needs : tuple of str
        Other data sets it is made from.
    groups : int or None
        Natural groups other than its classes, with the default options; None where it has none, or
        their number depends on how it was made.
    brings : mapping
        Its own defaults for `clients_per_cluster` and `points_per_client`.
    version : int
        Version of the decoding; raised when the decoded arrays change.
    """

    name: str
    description: str
    licence: str
    citation: str
    shape: tuple[int, ...]
    classes: int | None
    train: int | None = None
    test: int | None = None
    forms: tuple[Form, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    by_hand: str = ""
    checksums: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    groups: int | None = None
    brings: Mapping[str, int] = field(default_factory=dict)
    version: int = 1

    @property
    def how_to_get(self) -> str:
        """What to do to have it, in a line."""
        if not self.forms:
            return self.by_hand
        fetch = f"clove data fetch {self.name}"
        return f"run: {fetch}" if self.files else f"by hand: {fetch} says how"


def remote_files(sums: Mapping[str, str], *bases: str) -> tuple[RemoteFile, ...]:
    """Return files, given by name and MD5 sum, that all lie at the same addresses."""
    return tuple(
        RemoteFile(name, md5, tuple(base + name for base in bases)) for name, md5 in sums.items()
    )
