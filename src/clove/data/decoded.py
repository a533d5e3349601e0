"""Decoded data on disk: the second start maps arrays into memory instead of decoding files again.

Each data set has a folder of plain npy files, named by what it was decoded from. It is written
under another name and renamed when complete, so whoever looks sees all of it or nothing, however
many processes start at once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array, Arrays, Chunks
from clove.data.npy import ArrayFile, checksum, whole
from clove.data.sources import Source
from clove.errors import CloveWarning
from clove.folders import cache_folder, write_atomically

MANIFEST = "manifest.json"
TRIES = 5
DAY = 24 * 60 * 60


def decoded(source: Source, **options: int) -> Arrays:
    """Return a data set's arrays as read-only maps of the decoded files, made if need be.

    Options are those of the form's decoder. Where nothing can be written the arrays are decoded
    into memory, and a warning says so.
    """
    folder = cache_entry(source, **options)
    arrays = _opened(folder)
    if arrays is not None:
        return arrays
    try:
        _store(folder, source, options)
        return _mapped(folder)
    except OSError as error:
        warnings.warn(
            f"decoded data cannot be kept in {folder.parent} ({error}): every start decodes "
            "anew. Set $CLOVE_CACHE to a folder with room that can be written to",
            CloveWarning,
            stacklevel=2,
        )
    return _joined(source.decode(**options))


def cache_entry(source: Source, **options: int) -> Path:
    """Return the folder of the decoded arrays: another one when the files or the decoder change."""
    stats = [file.stat() for file in source.files]
    state = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    facts = json.dumps([_identity(source, options), source.card.version, state])
    key = hashlib.sha256(facts.encode()).hexdigest()[:16]
    return cache_folder() / "decoded" / f"{source.card.name}-{key}"


def cache_entries(source: Source) -> list[Path]:
    """Return all folders of arrays decoded from these files, whatever the options."""
    made = {}
    with suppress(PermissionError):  # a cache that may not be read is none
        made = {folder: _made_from(folder) for folder in cache_entry(source).parent.glob("[!.]*")}
    files = _identity(source, {})["files"]
    return sorted(folder for folder, what in made.items() if what and what["files"] == files)


def verify_entry(folder: Path) -> bool:
    """Read decoded arrays whole and compare checksums."""
    arrays = _opened(folder)
    if arrays is None:
        return False
    facts = _manifest(folder)["arrays"]
    return all(checksum(array) == facts[name]["crc32"] for name, array in arrays.items())


def _identity(source: Source, options: Mapping[str, int]) -> dict[str, Any]:
    """Say what is decoded and how, whatever state the files are in."""
    files = [str(file.absolute()) for file in source.files]
    return {"files": files, "options": dict(sorted(options.items()))}


def _opened(folder: Path) -> Arrays | None:
    """Map the arrays of a folder; None where it is absent or damaged."""
    # Whatever is wrong with it, it is made anew.
    with suppress(Exception):
        return _mapped(folder)
    return None


def _mapped(folder: Path) -> Arrays:
    facts = _manifest(folder)["arrays"]
    return {name: _one(folder / f"{name}.npy", fact) for name, fact in facts.items()}


def _manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return content


def _one(path: Path, facts: dict[str, Any]) -> Array:
    array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if [array.dtype.str, list(array.shape)] != [facts["dtype"], facts["shape"]]:
        raise OSError(f"{path} holds another array")
    if not whole(path, facts):
        raise OSError(f"{path} is not whole")
    return array


def _joined(chunks: Chunks) -> Arrays:
    pieces: dict[str, list[Array]] = {}
    for name, chunk in chunks:
        pieces.setdefault(name, []).append(chunk)
    return {name: np.concatenate(pieces.pop(name)) for name in list(pieces)}


def _store(folder: Path, source: Source, options: Mapping[str, int]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    identity = _identity(source, options)
    try:
        _write(made, source.decode(**options), identity)
        _settle(made, folder)
        _prune(folder, identity)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _write(folder: Path, chunks: Chunks, identity: Mapping[str, Any]) -> None:
    """Write pieces of arrays as they come, so that none has to be in memory whole."""
    files: dict[str, ArrayFile] = {}
    with ExitStack() as stack:
        for name, chunk in chunks:
            if name not in files:
                files[name] = stack.enter_context(ArrayFile(folder / f"{name}.npy", chunk))
            files[name].append(chunk)
    facts = {name: file.facts for name, file in files.items()}
    write_atomically(folder / MANIFEST, json.dumps({**identity, "arrays": facts}).encode())


def _settle(made: Path, folder: Path) -> None:
    """Give a complete folder its name, unless another process was quicker."""
    for _ in range(TRIES):
        try:
            made.rename(folder)
            return
        except OSError:
            if _opened(folder) is not None:
                return
            # A damaged one stands in the way. It goes aside in one step, for others may look.
            _put_aside(folder)
    made.rename(folder)


def _put_aside(folder: Path) -> None:
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    with suppress(FileNotFoundError):  # somebody else was quicker
        folder.rename(aside / "damaged")
    shutil.rmtree(aside, ignore_errors=True)


def _prune(folder: Path, identity: Mapping[str, Any]) -> None:
    """Remove what was decoded from an earlier state of the same files, and what a kill left."""
    name = folder.name.rpartition("-")[0]
    for other in folder.parent.glob(f"{name}-*"):
        if other != folder and _made_from(other) == identity:
            shutil.rmtree(other, ignore_errors=True)
    for left in folder.parent.glob(".*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left, ignore_errors=True)


def _made_from(folder: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        manifest = _manifest(folder)
        return {"files": manifest["files"], "options": manifest["options"]}
    return None
