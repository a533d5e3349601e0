"""What stands above every question: whose run it is, and where in it we are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import get_type_hints

from flwr.app import ConfigRecord, RecordDict

from clove.federation.flower.codec import Misread
from clove.federation.flower.words import plain

HEADER, REFUSAL, FORGOTTEN = "header", "refusal", "forgotten"
MOST_ASKED = 10_000  # questions in a round


@dataclass(frozen=True)
class Header:
    """A question's place in a run.

    `run` names the run through all restarts, `session` one life of its server; `client` is the
    number of the client in the federation, on which its chance depends. `heard` is the moment at
    which the server last heard that the client keeps something (0: never), so that a client that
    has lost it notices. `folder` is where clients of a simulation remember; empty on a network.
    """

    run: str
    session: str
    round: int
    asked: int  # how many questions there were in this round, this one included
    client: int
    seed: int
    precision: str
    outputs: int
    rounds: int  # of the whole run
    heard: int
    folder: str

    @property
    def moment(self) -> int:
        """When in the run this is asked: later questions have larger numbers."""
        return self.round * MOST_ASKED + self.asked

    @property
    def last(self) -> bool:
        """Whether the run is over after this round."""
        return self.round >= self.rounds

    def write(self, content: RecordDict) -> None:
        """Put the header above a question."""
        content[HEADER] = ConfigRecord(asdict(self))


def read_header(content: RecordDict) -> Header:
    """Return the header of a message, checked."""
    record = content.config_records.get(HEADER)
    names = {part.name for part in fields(Header)}
    if record is None or set(record) != names:
        raise Misread("the message has no header of this version of clove")
    for name, kind in get_type_hints(Header).items():
        if type(record[name]) is not kind:
            raise Misread(f"{name} in the message's header is {record[name]!r}")
    header = Header(**dict(record))
    if any(isinstance(value, int) and value < 0 for value in record.values()):
        raise Misread("the message's header has numbers below nought")
    if not header.run.isalnum():  # files are named by it
        raise Misread(f"the run's name in the message's header is {header.run!r}")
    return header


def refusal(reason: str) -> RecordDict:
    """Return the reply of a client that cannot answer, with the reason."""
    return RecordDict({REFUSAL: ConfigRecord({"reason": reason})})


def say_forgotten(content: RecordDict) -> None:
    """Add to an answer that the client has lost what it kept of the run."""
    content[FORGOTTEN] = ConfigRecord({})


def says_forgotten(content: RecordDict) -> bool:
    """Tell whether a client says that it has lost what it kept of the run."""
    return FORGOTTEN in content.config_records


def reason_of(content: RecordDict) -> str | None:
    """Return why a client did not answer, where it says so."""
    record = content.config_records.get(REFUSAL)
    return None if record is None else plain(str(record.get("reason", "it gives no reason")))
