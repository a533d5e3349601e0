"""What a client keeps between messages: its memory, and the models of the round under way.

Flower may start a new process for every message. The memory goes into the state that Flower keeps
for the client during a run and, where there is a folder for it, on the disk, so that it outlives
Flower's own processes. It is kept twice: as it is now, and as it was when the round began. A server
that was killed begins its round again, and so does the client then.

A memory can be lost: a disk that was wiped, another machine, a folder nobody named. The server says
when it last heard that the client keeps something; who remembers less begins anew, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict

from clove.errors import CloveError
from clove.federation.flower.codec import Reader, Writer
from clove.federation.flower.header import Header
from clove.federation.parameters import Parameters
from clove.trees import read_tree, write_tree

PREFIX = "clove-"
GOING, OVER = ".safetensors", ".over.safetensors"
RUNS_OVER = 10  # of how many runs that are over a folder holds the memories
Tree = dict[str, Any]


@dataclass(frozen=True)
class Remembered:
    """A client's memory at one point of a run."""

    run: str
    session: str
    round: int
    begun: int  # the moment of the first question that it knows of
    latest: int  # and of the last
    before: Tree | None  # as the round began; None: there was nothing yet
    now: Tree | None
    models: Mapping[str, Parameters]  # what the client received in this round

    def at(self, header: Header) -> Remembered:
        """Return the memory that belongs to a question: of its round, and of no other try of it."""
        if header.run != self.run or self.latest < header.heard:
            return _begun(header, None)
        if header.round < self.round:
            raise CloveError(
                f"this client has been in round {self.round} of the run, and is asked for round "
                f"{header.round}: the server's run folder is older than the client's memory"
            )
        if header.round > self.round:
            return _begun(header, self.now, self.begun)
        if header.session != self.session:
            return _begun(header, self.before, self.begun)
        return replace(self, latest=header.moment)

    def lacks(self, header: Header) -> bool:
        """Tell whether the client kept something, by what the server heard, that is not here."""
        return 0 < header.heard < self.begun


def _begun(header: Header, memory: Tree | None, begun: int | None = None) -> Remembered:
    """Return the memory of a round that begins, with a copy to come back to."""
    now = header.moment
    return Remembered(
        run=header.run,
        session=header.session,
        round=header.round,
        begun=now if memory is None or begun is None else begun,
        latest=now,
        before=memory,
        now=deepcopy(memory),
        models={},
    )


NOTHING = Remembered("", "", 0, 0, 0, None, None, {})


def moved(tree: Any, device: torch.device) -> Any:
    """Return a tree with its tensors on a device."""
    if isinstance(tree, dict):
        return {name: moved(one, device) for name, one in tree.items()}
    return tree.to(device) if isinstance(tree, torch.Tensor) else tree


class Keeper:
    """Finds a client's memory and puts it back."""

    def __init__(self, state: RecordDict, folder: Path | None, device: torch.device) -> None:
        self.state, self.folder, self.device = state, folder, device
        self._found: str | None = None  # the session of the memory that was loaded

    def load(self, header: Header) -> Remembered:
        """Return the memory a question is to be answered with."""
        tree = self._from_state()
        if tree.get("run") != header.run:
            tree = moved(self._from_disk(header), self.device) or tree
        remembered = Remembered(**tree) if tree else NOTHING
        self._found = remembered.session
        return remembered.at(header)

    def store(self, remembered: Remembered, header: Header) -> None:
        """Keep the memory, on the disk before anything of the question leaves the client.

        What a later question has left meanwhile stays: a process that a server's earlier life
        started may come to its end late.
        """
        self._refuse_if_late(header)
        tree = {name: getattr(remembered, name) for name in Remembered.__dataclass_fields__}
        path = self._path(header, OVER if header.last else GOING)
        if path is not None:
            write_tree(path, {**tree, "models": {}}, mode=0o600)  # made of private data
            if header.last:
                self._clear_up(header)
        for name, record in Writer().records(tree).items():
            self.state[PREFIX + name] = record

    def _from_state(self) -> Tree:
        own = {n.removeprefix(PREFIX): r for n, r in self.state.items() if n.startswith(PREFIX)}
        return dict(Reader(self.device).value(RecordDict(own), dict[str, Any])) if own else {}

    def _from_disk(self, header: Header) -> Tree:
        # One that is over is looked for first: it is the newer where a kill left both.
        files = [self._path(header, end) for end in (OVER, GOING)]
        found = [file for file in files if file is not None and file.exists()]
        return {**read_tree(found[0]), "models": {}} if found else {}

    def _refuse_if_late(self, header: Header) -> None:
        """Refuse to store where a later question of this server, or another server, has stored.

        Sessions have no order; one that was not there when this question began is the later.
        """
        there = self._from_disk(header)
        if not there:
            return
        session, own = there["session"], header.session
        late = session == own and there["latest"] > header.moment
        if late or (self._found is not None and session not in (own, self._found)):
            raise CloveError(
                f"this answer of round {header.round} comes too late: the client has been asked "
                "again meanwhile, and remembers that"
            )

    def _path(self, header: Header, end: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{header.run}-client-{header.client}{end}"

    def _clear_up(self, header: Header) -> None:
        """Forget what was kept of this run while it went on, and runs that have long been over."""
        going = self._path(header, GOING)
        assert going is not None
        going.unlink(missing_ok=True)
        ages: dict[str, float] = {}
        for file in going.parent.glob(f"*{OVER}"):
            with suppress(FileNotFoundError):  # another client here clears up too
                run = file.name.partition("-")[0]
                ages[run] = max(ages.get(run, 0.0), file.stat().st_mtime)
        for run in sorted(ages, key=ages.__getitem__)[:-RUNS_OVER]:
            for file in going.parent.glob(f"{run}-*{OVER}"):
                file.unlink(missing_ok=True)
