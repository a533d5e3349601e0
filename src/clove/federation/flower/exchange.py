"""Sends messages to nodes and hands out the replies as they come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from clove.federation.flower.words import plain

UNANSWERED = {
    ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "its answer is lost",
    ErrorCode.NODE_UNAVAILABLE: "the node is gone",
}
"""What Flower says for a node that has not."""
FIRST_PAUSE, LONGEST_PAUSE, SLOWER = 0.02, 1.0, 1.5


@dataclass(frozen=True)
class Reply:
    """What came back from a node: records, or why there are none."""

    node: int
    content: RecordDict | None
    problem: str | None = None
    silent: bool = False  # nothing came in time, though it may still be at work


def exchange(
    grid: Grid, kind: str, contents: Mapping[int, RecordDict], timeout: float
) -> Iterator[Reply]:
    """Send each node its message and yield replies as they come; last, the nodes that are silent.

    Flower's own `send_and_receive` looks for replies every three seconds. We look often at first,
    and more and more seldom.
    """
    waiting = send(grid, kind, contents, timeout)
    lost = contents.keys() - waiting.values()
    yield from (Reply(node, None, "the message could not be sent") for node in lost)
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while waiting and time.monotonic() < end:
        came = received(grid, waiting)
        yield from came
        if waiting:
            time.sleep(pause)
            pause = FIRST_PAUSE if came else min(pause * SLOWER, LONGEST_PAUSE)
    said = f"no answer in {timeout:g} s"
    yield from (Reply(node, None, said, silent=True) for node in waiting.values())


def send(
    grid: Grid, kind: str, contents: Mapping[int, RecordDict], lifetime: float
) -> dict[str, int]:
    """Send each node its message; return the nodes by the messages that could be sent."""
    messages = [Message(one, node, kind, ttl=lifetime) for node, one in contents.items()]
    sent = set(grid.push_messages(messages)) if messages else set()
    named = {m.metadata.message_id: int(m.metadata.dst_node_id) for m in messages}
    return {name: node for name, node in named.items() if name in sent}


def received(grid: Grid, waiting: dict[str, int]) -> list[Reply]:
    """Return the replies that are there, and wait for these no longer."""
    if not waiting:
        return []
    came = [
        (waiting.pop(message.metadata.reply_to_message_id, None), message)
        for message in grid.pull_messages(list(waiting))
    ]
    return [_reply(node, message) for node, message in came if node is not None]


def _reply(node: int, message: Message) -> Reply:
    if message.has_content():
        return Reply(node, message.content)
    code = message.error.code
    if code in UNANSWERED:
        return Reply(node, None, f"{UNANSWERED[code]} (Flower's code {code})", silent=True)
    return Reply(node, None, f"Flower says: {plain(str(message.error.reason))} (code {code})")
