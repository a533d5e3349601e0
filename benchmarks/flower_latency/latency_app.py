"""Clients that answer an empty query; the server writes down how long each exchange took."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client = ClientApp()
server = ServerApp()


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Answer with nothing, after importing what a real client would."""
    for name in str(context.run_config["imports"]).split():
        importlib.import_module(name)
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Ask all nodes again and again; write the seconds of each exchange to a file."""
    config = context.run_config
    count = int(config["nodes"])
    while len(nodes := list(grid.get_node_ids())) < count:
        time.sleep(0.2)
    seconds = []
    for _ in range(int(config["exchanges"])):
        start = time.perf_counter()
        answered = ask[str(config["server"])](grid, nodes)
        assert answered == count, f"{answered} of {count} answered"
        seconds.append(time.perf_counter() - start)
    Path(str(config["out"])).write_text("\n".join(map(str, seconds)))


def by_flower(grid: Grid, nodes: list[int]) -> int:
    """Ask as Flower's own strategies do; return how many answered."""
    replies = grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes])
    return sum(reply.has_content() for reply in replies)


def by_clove(grid: Grid, nodes: list[int]) -> int:
    """Ask as clove's server does."""
    from clove.federation.flower.exchange import exchange

    replies = exchange(grid, "query", {node: RecordDict() for node in nodes}, timeout=600)
    return sum(reply.content is not None for reply in replies)


ask = {"flower": by_flower, "clove": by_clove}
