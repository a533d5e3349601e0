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
from clove.federation.flower.exchange import Reply, received, send
from clove.federation.flower.header import reason_of
from clove.federation.flower.hello import LONGEST_NAME, Hello, Terms, in_plain_words, unfit
from clove.federation.flower.words import plain
from clove.federation.parameters import Indices

PAUSE = 0.5
AGAIN, SELDOM = 30.0, 600.0  # seconds until a node that was refused or silent is greeted again
MOMENT = 10.0  # seconds that are waited for a node that has just been greeted, once enough are in
DAY = 86_400.0
LONGEST_GREETING = 100_000  # bytes
MOST_NAMED = 10  # nodes in a line


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
    _greeted: dict[int, float] = field(default_factory=dict)  # they may yet answer: since when
    _outside: dict[int, Outside] = field(default_factory=dict)  # nodes that are no clients
    _sent: dict[str, int] = field(default_factory=dict)  # greetings without an answer: to whom

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
        """Wait until so many clients are there, then a moment for others who have just come.

        One node that hangs holds up nobody: meanwhile others are greeted, and let in.
        """
        end, moment = time.monotonic() + patience, None
        came: dict[int, Hello] = {}
        told = set[str]()
        while True:
            now = time.monotonic()  # before the look: the last one sees all who came in time
            self._look(came)
            enough = len(self.members) >= least
            moment = (moment or min(end, now + self._moment)) if enough else None
            if moment is not None and (now >= moment or not self._someone_new(now)):
                break
            if not enough and now >= end:
                raise CloveError(self._too_few(least, patience))
            waited = "a moment for others" if enough else f"up to {patience:g} s"
            if waited not in told:
                told.add(waited)
                self._tell(least, waited)
            time.sleep(PAUSE)
        self._remember_all()

    def _tell(self, least: int, waited: str) -> None:
        number = len(self.members)
        there = f"{number} of {least} nodes" if number < least else f"{number} nodes"
        more = f", {len(self._greeted)} more are being greeted" if self._greeted else ""
        logging.getLogger("flwr").info("%s are here%s, waiting %s", there, more, waited)

    @property
    def _moment(self) -> float:
        return min(self.timeout, MOMENT)

    def _someone_new(self, now: float) -> bool:
        """Tell whether a node was greeted so lately that its answer may be on its way."""
        return any(now - since < self._moment for since in self._greeted.values())

    def _too_few(self, least: int, patience: float) -> str:
        there = f"{len(self.members)} of {least} nodes"
        silent = {node for node, one in self._outside.items() if one.problem is None}
        silent |= self._greeted.keys()
        names = ", ".join(f"node {node}" for node in sorted(silent)[:MOST_NAMED])
        hang = f" (no answer to a greeting from {len(silent)} more: {names})" if silent else ""
        if self.terms is None:
            refused = any(one.problem is not None for one in self._outside.values())
            mend = "mend those that are named above, by what is said of them, " if refused else ""
            advice = f"start the others, {mend}or set min-nodes"
            return f"only {there} were there after {patience:g} s{hang}: {advice}"
        return (
            f"only {there} fit this run after {patience:g} s{hang}: start others, mend those that "
            "are named above, by what is said of them, or set the run's task and outputs, or "
            "min-nodes"
        )

    def refresh(self) -> None:
        """Look once who is there: forget nodes that left, greet those that came, wait for none."""
        self._look({})
        self._remember_all()

    def _look(self, came: dict[int, Hello]) -> None:
        """Forget nodes that left, greet those that came, and let in who has answered.

        Who was let in since a wait began, in `came`, is so anew with each answer: no time decides
        who gets which number.
        """
        online = self._online()
        self._forget_all_but(online)
        for node in came.keys() - online:
            del came[node]
        now, inside = time.monotonic(), {one.node for one in self.members.values()}
        self._greet_again(node for node, one in self._outside.items() if one.due <= now)
        lost = self._greet(online - inside - self._outside.keys() - self._greeted.keys())
        replies = [*lost, *received(self.grid, self._sent)]
        heard = [self._heard(one) for one in _one_each(replies) if one.node not in inside]
        self._name_silent()
        new = dict(one for one in heard if one is not None)
        if new:
            came |= new
            self.members = {n: one for n, one in self.members.items() if one.node not in came}
            self._admit_all(came.items())

    def _online(self) -> set[int]:
        nodes = list(self.grid.get_nodes())
        self._keys = {int(one.node_id): _digest(one.public_key) for one in nodes if one.name}
        self._nodes = len(nodes)
        return {int(node.node_id) for node in nodes}

    def _greet(self, nodes: set[int]) -> list[Reply]:
        """Greet nodes that have just come; say which cannot be reached."""
        sent = send(self.grid, message_type(HELLO), _greeting(nodes), DAY)
        self._sent |= sent
        self._greeted |= dict.fromkeys(sent.values(), time.monotonic())
        lost = nodes - set(sent.values())
        return [Reply(node, None, "the message could not be sent") for node in lost]

    def _name_silent(self) -> None:
        """Name nodes that have not answered for long: from now on they are greeted ever less."""
        # Before the run they may take their time, which costs nobody any: they have data to load.
        patience = self.timeout if self.terms is None else self._moment
        now = time.monotonic()
        for node in [node for node, since in self._greeted.items() if now - since >= patience]:
            del self._greeted[node]
            self._outside[node] = Outside(None, now + AGAIN, AGAIN)
            _warn(node, "", f"no answer in {patience:g} s; it is greeted again")

    def _forget_all_but(self, online: set[int]) -> None:
        members = {n: one for n, one in self.members.items() if one.node in online}
        left = len(members) < len(self.members)
        self.members = members
        self._outside = {node: one for node, one in self._outside.items() if node in online}
        self._greeted = {node: one for node, one in self._greeted.items() if node in online}
        self._sent = {name: node for name, node in self._sent.items() if node in online}
        if left:  # whoever was refused for a number's sake may have it now
            for one in self._outside.values():
                one.due = 0.0 if one.problem is not None else one.due

    def miss(self, number: int) -> None:
        """Ask a client that fell silent nothing more, until it answers a greeting.

        That is sent and not waited for: whoever hangs costs its timeout once, not every time. So
        is a client greeted that contradicts what it said of itself: its data may have grown.
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
        waited_for = self._greeted.pop(reply.node, None) is not None
        if reply.silent and not waited_for:
            return None
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

    def _remember_all(self) -> None:
        if self.terms is not None:  # else some may yet turn out not to fit, and are no clients then
            for member in self.members.values():
                self._remember(member)

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
        self._remember_all()
        return self.terms


def _called(hello: Hello) -> str:
    """Return what a node calls itself."""
    number = None if hello.number is None else f"client {hello.number}"
    name = None if hello.name is None else hello.name[:LONGEST_NAME]
    return ", ".join(one for one in (number, name) if one is not None)


def _warn(node: int, called: str, problem: str) -> None:
    who = f"node {node} ({called})" if called else f"node {node}"
    warnings.warn(f"{who} is left out: {problem}", CloveWarning, stacklevel=2)


def _one_each(replies: Iterable[Reply]) -> Iterable[Reply]:
    """Return one reply of each node: whoever was busy answers all greetings that waited for it."""
    return {one.node: one for one in sorted(replies, key=lambda one: not one.silent)}.values()


def _greeting(nodes: Iterable[int]) -> dict[int, RecordDict]:
    return {node: RecordDict() for node in nodes}


def _digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:32]


def _key(node: int, hello: Hello) -> str:
    """Return what a client is known by from one start of the server to the next."""
    if hello.name is not None:
        return f"name {hello.name}"
    return f"node {node}" if hello.number is None else f"number {hello.number}"
