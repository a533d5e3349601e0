"""A grid of Flower in this process: real apps, and messages that cross as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Meddle = Callable[[Message, Message], Message | None]
"""What a bad node makes of a question and its honest reply; None: it is silent."""

FIRST_NODE = 2**63 + 11  # node ids are unsigned: a float could not tell these apart


def as_bytes(message: Message) -> Message:
    """Return a message as it comes out at the other end."""
    proto = ProtoMessage()
    proto.ParseFromString(message_to_proto(message).SerializeToString())
    return message_from_proto(proto)


class Node:
    """A node with its app, started anew for every message, and the state Flower keeps for it."""

    def __init__(self, app: ClientApp, node_id: int, config: dict[str, Any]) -> None:
        self.app, self.id, self.config = app, node_id, config
        self.info = NodeInfo(node_id=node_id)  # what Flower tells a server of it
        self.state = RecordDict()
        self.meddle: Meddle | None = None

    def handle(self, message: Message) -> Message | None:
        context = Context(1, self.id, dict(self.config), self.state, {})
        try:
            reply = self.app(message, context)
        except Exception as error:  # as Flower does
            return Message(
                Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message
            )
        self.state = context.state
        return reply if self.meddle is None else self.meddle(message, reply)


class LocalGrid(Grid):
    """Hands messages to nodes at once, and keeps a log of all that crossed."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.log: list[tuple[Message, Message | None]] = []
        self._replies: dict[str, Message] = {}
        # In whose name messages are written: Flower sets these where it starts a server's process.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1

    @classmethod
    def of(cls, app: ClientApp, clients: int, **config: Any) -> LocalGrid:
        return cls(node(app, number, **config) for number in range(clients))

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def get_nodes(self) -> list[NodeInfo]:
        return [self.nodes[number].info for number in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        name = str(uuid4())
        message.metadata.__dict__["_message_id"] = name
        there = as_bytes(message)
        reply = self.nodes[message.metadata.dst_node_id].handle(there)
        self.log.append((there, reply))
        if reply is not None:
            self._replies[name] = as_bytes(reply)
        return name

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        # The last comes first: replies come in any order.
        names = [name for name in reversed(list(message_ids)) if name in self._replies]
        return [self._replies.pop(name) for name in names]

    def send_and_receive(self, *args: Any, **options: Any) -> list[Message]:
        raise NotImplementedError


def node(app: ClientApp, number: int, **config: Any) -> Node:
    return Node(app, FIRST_NODE + number, {"partition-id": number, **config})
