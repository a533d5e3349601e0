"""Making the runs of one stack: seeds together, nothing done twice, a failure told in a line.

Every run has a folder like any other, so that one that was stopped goes on where it was; what is
kept of a finished run is its lines in the tables of results.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clove.errors import CloveError
from clove.federation.budget import (
    is_machine_error,
    is_out_of_memory,
    release_memory,
    share_memory,
)
from clove.federation.engines import find_device
from clove.folders import CHECKPOINT, RECENT, plain_errors, write_atomically
from clove.paper.choice import Stack
from clove.paper.heat_maps import heat_map
from clove.paper.results import Recorded, record
from clove.runs.api import go_on, run_settings_together
from clove.runs.build import gather_clients
from clove.runs.folder import RunFolder

ERRORS = "error.txt"

Tell = Callable[[int], None]
"""Called with how many rounds are done, whenever some are."""


@dataclass(frozen=True)
class Made:
    """What came of a stack: what is kept of its runs, or why it failed; else its time was up."""

    kept: list[Recorded] | None = None
    error: str | None = None
    seconds: float = 0.0
    starved: bool = False  # it failed for want of memory
    broken: bool = False  # the device failed, and with it whatever else this process would do


class _TimeIsUp(Exception):
    """Ends a stack between two rounds."""


def make(
    stack: Stack, tell: Tell, keep_models: bool, until: float | None = None, among: int = 1
) -> Made:
    """Make the runs of a stack here, or as much of them as can be done until a time.

    A failure is told, and does not end the others. With `among`, this is one of so many processes
    that share the machine's memory.
    """

    def told(rounds: int) -> None:
        tell(rounds)
        if until is not None and time.time() > until:
            raise _TimeIsUp

    start = time.perf_counter()
    try:
        device = find_device(str(stack.cell.settings.get("device", "auto")))
        release_memory(device)  # of the stack before
        if among > 1:
            share_memory(among, device)
        _make(stack, told)
        found = keep(stack, keep_models)
        (stack.folder / stack.cell.key / ERRORS).unlink(missing_ok=True)  # of an earlier try
    except _TimeIsUp:
        return Made()
    except Exception as error:  # a run can fail in any way; the others are to go on
        starved = is_out_of_memory(error)
        broken = is_machine_error(error) and not starved
        return Made(error=in_a_line(stack, error), starved=starved, broken=broken)
    return Made(found, seconds=time.perf_counter() - start)


def _make(stack: Stack, tell: Tell) -> None:
    """Go on with the runs that were begun, and make the new ones as one stack."""
    new: list[Any] = []
    for seed in stack.seeds:
        folder, settings = RunFolder(stack.home(seed)), stack.settings(seed)
        if folder.finished:
            tell(settings.rounds)
            continue
        clients = gather_clients(settings)
        if folder.is_run():
            saved = folder.checkpoint()
            tell(0 if saved is None else saved["round"])
            go_on(folder, clients, lambda _: tell(1))
        else:
            new.append((settings, clients, folder.path, lambda _: tell(1)))
    if new:
        run_settings_together(new)


def keep(stack: Stack, keep_models: bool = False) -> list[Recorded]:
    """Return what is kept of a stack's runs, and make room: models take gigabytes."""
    found = []
    for seed in stack.seeds:
        folder = RunFolder(stack.home(seed))
        one = record(stack.cell, stack.reading, seed, folder)
        if stack.cell.heat_map:
            one.heat_map.extend(heat_map(stack.cell, seed, folder, stack.settings(seed)))
        found.append(one)
        if not keep_models:
            _make_room(folder)
    return found


def _make_room(folder: RunFolder) -> None:
    with plain_errors(folder.path):
        for name in (CHECKPOINT, RECENT):
            (folder.path / name).unlink(missing_ok=True)
        for name in ("models", "loss_vectors"):
            shutil.rmtree(folder.path / name, ignore_errors=True)


def told_since(stack: Stack, moment: float) -> str:
    """Return how a stack failed in a process that is gone, if it came to writing that down."""
    path = stack.folder / stack.cell.key / ERRORS
    try:
        if path.stat().st_mtime < moment:
            return ""
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1]} (see {path})" if lines else ""


def in_a_line(stack: Stack, error: BaseException) -> str:
    """Write how a stack failed beside its runs, and say it in a line."""
    path = stack.folder / stack.cell.key / ERRORS
    with plain_errors(path.parent):
        write_atomically(path, "".join(traceback.format_exception(error)).encode())
    if isinstance(error, CloveError):
        return str(error)
    line = (str(error).strip() or "no more is known").splitlines()[0]
    return f"{type(error).__name__}: {line} (see {path})"
