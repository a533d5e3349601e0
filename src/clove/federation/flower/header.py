"""What stands above every question: whose run it is, and where in it we are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import get_type_hints

from flwr.app import ConfigRecord, RecordDict

from clove.federation.flower.codec import Misread

HEADER, REFUSAL = "header", "refusal"


@dataclass(frozen=True)
class Header:
    """A question's place in a run.

    `run` names the run through all restarts, `session` one life of its server; `client` is the
    number of the client in the federation, on which its chance depends.
    """

    run: str
    session: str
    round: int
    asked: int  # how many questions there were in this round, this one included
    client: int
    seed: int
    precision: str
    outputs: int

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
    if min(header.round, header.asked, header.client, header.seed, header.outputs) < 0:
        raise Misread("the message's header has numbers below nought")
    if not header.run.isalnum():  # files are named by it
        raise Misread(f"the run's name in the message's header is {header.run!r}")
    return header


def refusal(reason: str) -> RecordDict:
    """Return the reply of a client that cannot answer, with the reason."""
    return RecordDict({REFUSAL: ConfigRecord({"reason": reason})})


def reason_of(content: RecordDict) -> str | None:
    """Return why a client did not answer, where it says so."""
    record = content.config_records.get(REFUSAL)
    return None if record is None else str(record.get("reason", "it gives no reason"))[:500]
