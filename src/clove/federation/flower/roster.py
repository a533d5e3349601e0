"""Which node is which client."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid

from clove import __version__
from clove.errors import CloveError, CloveWarning
from clove.federation.flower.checks import check_size
from clove.federation.flower.client import HELLO, message_type
from clove.federation.flower.codec import Reader
from clove.federation.flower.exchange import Reply, exchange, received, send
from clove.federation.flower.header import reason_of
from clove.federation.flower.hello import LONGEST_NAME, Hello, Terms, in_plain_words, unfit
from clove.federation.flower.words import plain
from clove.federation.parameters import Indices

PAUSE = 0.5
AGAIN, SELDOM = 30.0, 600.0  # seconds until a node that was refused or silent is greeted again
MOMENT = 10.0  # seconds that a round waits for the greeting of a node that has just come
DAY = 86_400.0
LONGEST_GREETING = 100_000  # bytes


@dataclass(frozen=True)
class Member:
    """A client of the federation and the node it is on."""

    number: int
    node: int
    hello: Hello

    @property
    def who(self) -> str:
        """What to call the client in messages."""
        name = "" if self.hello.name is None else f" ({self.hello.name})"
        return f"client {self.number}{name}"


@dataclass
class Outside:
    """A node that was greeted and is no client, and when it is greeted again: ever more seldom."""

    problem: str | None  # why it was refused; None: it has not answered
    due: float
    pause: float

    def put_off(self) -> None:
        """Let it be greeted again after a pause twice as long."""
        self.due = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, SELDOM)


@dataclass
class Roster:
    """The clients, by number; nodes that do not fit are named and left out.

    A node that was told its number (`partition-id`) has that one; others get the next that is free,
    and the same again when they come back under their name, or as the same node of Flower's.

    A node whose key was registered under a name (`flwr supernode register --name`) is the only one
    that can be its client, for as long as the run goes on. Of others Flower cannot tell whether a
    new key is a stranger's or a restarted node's: another may be their client once they are gone.
    """

    grid: Grid
    timeout: float
    terms: Terms | None = None
    members: dict[int, Member] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)  # of all that were ever here, by name
    bound: dict[str, int] = field(default_factory=dict)  # of nodes that were registered, by key
    _groups: dict[int, int | None] = field(default_factory=dict)
    _keys: dict[int, str] = field(default_factory=dict)  # of nodes that were registered
    _nodes: int = 0  # how many are online
    _outside: dict[int, Outside] = field(default_factory=dict)  # nodes that are no clients
    _sent: dict[str, int] = field(default_factory=dict)  # greetings not waited for: to whom

    @property
    def size(self) -> int:
        """How many clients there are, counting those that are away."""
        return max([*self.members, *self.numbers.values(), -1]) + 1

    def groups(self) -> Indices | None:
        """Return the clients' true groups, where all that were ever here said theirs."""
        found = [self._groups.get(number) for number in range(self.size)]
        return None if None in found or not found else np.array(found)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back who was who before the server was started again."""
        self.numbers.update(saved.get("numbers", {}))
        self.bound.update(saved.get("bound", {}))

    def wait(self, least: int, patience: float) -> None:
        """Wait until so many clients are there."""
        end, said = time.monotonic() + patience, False
        while True:
            self.refresh()
            if len(self.members) >= least:
                return
            if not said:
                said, there = True, f"{len(self.members)} of {least} nodes are here"
                logging.getLogger("flwr").info("%s, waiting up to %g s", there, patience)
            if time.monotonic() > end:
                raise CloveError(self._too_few(least, patience))
            time.sleep(PAUSE)

    def _too_few(self, least: int, patience: float) -> str:
        there = f"{len(self.members)} of {least} nodes"
        if self.terms is None:
            refused = any(one.problem is not None for one in self._outside.values())
            mend = "mend those that are named above, by what is said of them, " if refused else ""
            advice = f"start the others, {mend}or set min-nodes"
            return f"only {there} were there after {patience:g} s: {advice}"
        return (
            f"only {there} fit this run after {patience:g} s: start others, mend those that are "
            "named above, by what is said of them, or set the run's task and outputs, or min-nodes"
        )

    def refresh(self) -> None:
        """Forget nodes that left, and greet those that came.

        Before the run their answers are waited for: by those it is decided what fits. Later a
        round waits a moment for them, and no longer for who may be silent.
        """
        nodes = list(self.grid.get_nodes())
        online = {int(node.node_id) for node in nodes}
        self._keys = {int(one.node_id): _digest(one.public_key) for one in nodes if one.name}
        self._nodes = len(online)
        self._forget_all_but(online)
        inside = {one.node for one in self.members.values()}
        now = time.monotonic()
        self._greet_again(node for node, one in self._outside.items() if one.due <= now)
        new = online - inside - self._outside.keys()
        patience = self.timeout if self.terms is None else min(self.timeout, MOMENT)
        replies = [one for one in received(self.grid, self._sent) if not one.silent]
        replies += exchange(self.grid, message_type(HELLO), _greeting(new), patience)
        # Whoever was busy answers all greetings that waited for it: one of them is enough.
        one_each = {one.node: one for one in replies if one.node not in inside}
        heard = (self._heard(one) for one in one_each.values())
        self._admit_all(one for one in heard if one is not None)

    def _forget_all_but(self, online: set[int]) -> None:
        members = {n: one for n, one in self.members.items() if one.node in online}
        left = len(members) < len(self.members)
        self.members = members
        self._outside = {node: one for node, one in self._outside.items() if node in online}
        self._sent = {name: node for name, node in self._sent.items() if node in online}
        if left:  # whoever was refused for a number's sake may have it now
            for one in self._outside.values():
                one.due = 0.0 if one.problem is not None else one.due

    def miss(self, number: int) -> None:
        """Ask a client that fell silent nothing more, until it answers a greeting.

        That is sent and not waited for: whoever hangs costs its timeout once, not every time.
        """
        self._set_outside(self.members.pop(number).node)

    def _set_outside(self, node: int) -> None:
        self._outside[node] = Outside(None, 0.0, AGAIN)
        self._greet_again([node])

    def _greet_again(self, nodes: Iterable[int]) -> None:
        """Greet nodes that may be late, mended or started again, and wait for none."""
        again = set(nodes)
        self._sent |= send(self.grid, message_type(HELLO), _greeting(again), DAY)
        for node in again:
            self._outside[node].put_off()

    def _heard(self, reply: Reply) -> tuple[int, Hello] | None:
        """Return what a node said of itself, or leave it out for now."""
        if reply.silent:
            self._set_outside(reply.node)
            _warn(reply.node, "", f"{reply.problem}; it is greeted again")
            return None
        try:
            if reply.content is None:
                raise CloveError(str(reply.problem))
            reason = reason_of(reply.content)
            if reason is not None:
                raise CloveError(reason)
            check_size(reply.content, LONGEST_GREETING)
            return reply.node, in_plain_words(Reader().value(reply.content, Hello))
        except CloveError as error:
            self._refuse(reply.node, "", str(error))
            return None

    def _admit_all(self, found: Iterable[tuple[int, Hello]]) -> None:
        """Let in who fits; who has no number gets one last, in an order that no time decides."""
        for node, hello in sorted(
            found, key=lambda one: (one[1].number is None, _key(*one), one[0])
        ):
            self._admit(node, hello)

    def _admit(self, node: int, hello: Hello) -> None:
        problem = unfit(hello, self._nodes) or (self.terms.misfit(hello) if self.terms else None)
        number = self._number(node, hello)
        problem = problem or self._foreign(node, number)
        if problem is None and number in self.members:
            problem = f"node {self.members[number].node} is client {number} already"
        if problem is not None:
            self._refuse(node, _called(hello), problem)
            return
        self._outside.pop(node, None)
        self.members[number] = Member(number, node, hello)
        if self.terms is not None:  # else it may yet turn out not to fit, and is no client then
            self._remember(self.members[number])

    def _remember(self, member: Member) -> None:
        """Keep for the rest of the run who this client is."""
        if member.number not in self._groups and member.hello.version != __version__:
            message = f"{member.who} has clove {member.hello.version}, the server {__version__}"
            warnings.warn(f"{message}: its answers may differ", CloveWarning, stacklevel=2)
        self._groups[member.number] = member.hello.group
        self.numbers[_key(member.node, member.hello)] = member.number
        if member.node in self._keys:
            self.bound[self._keys[member.node]] = member.number

    def _foreign(self, node: int, number: int) -> str | None:
        """Say why a node may not be this client: it is another, or another is."""
        key = self._keys.get(node, "")
        if self.bound.get(key, number) != number:
            return f"it is client {self.bound[key]} of this run, and now says it is client {number}"
        if key not in self.bound and number in self.bound.values():
            return (
                f"client {number} of this run is a node with another key: give this one a number "
                "of its own, or begin another run"
            )
        return None

    def _number(self, node: int, hello: Hello) -> int:
        if hello.number is not None:
            return hello.number
        taken = {*self.members, *self.numbers.values()}
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        return self.numbers.get(_key(node, hello), free)

    def _refuse(self, node: int, called: str, problem: str) -> None:
        """Leave a node out, and say why, once; it is greeted again later."""
        problem, before = plain(problem), self._outside.get(node)
        if before is None or before.problem != problem:
            self._outside[node] = Outside(problem, time.monotonic() + AGAIN, AGAIN)
            _warn(node, called, problem)

    def settle(self, terms: Callable[[Sequence[Hello]], Terms]) -> Terms:
        """Decide by the clients that are there what is expected of all, and leave out misfits.

        Numbers are given out anew, so that nobody's depends on who was left out.
        """
        came = [self.members[number] for number in sorted(self.members)]
        self.terms = terms([one.hello for one in came])
        self.members = {}
        self._admit_all((one.node, one.hello) for one in came)
        return self.terms


def _called(hello: Hello) -> str:
    """Return what a node calls itself."""
    number = None if hello.number is None else f"client {hello.number}"
    name = None if hello.name is None else hello.name[:LONGEST_NAME]
    return ", ".join(one for one in (number, name) if one is not None)


def _warn(node: int, called: str, problem: str) -> None:
    who = f"node {node} ({called})" if called else f"node {node}"
    warnings.warn(f"{who} is left out: {problem}", CloveWarning, stacklevel=2)


def _greeting(nodes: Iterable[int]) -> dict[int, RecordDict]:
    return {node: RecordDict() for node in nodes}


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:32]


def _key(node: int, hello: Hello) -> str:
    """Return what a client is known by from one start of the server to the next."""
    if hello.name is not None:
        return f"name {hello.name}"
    return f"node {node}" if hello.number is None else f"number {hello.number}"
