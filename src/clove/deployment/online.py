"""Ends when so many nodes are online: asks again and again by `flwr supernode list`.

    python -m clove.deployment.online CONNECTION NODES

The command by itself is a start of Python each time, which takes from nodes that start on the same
machine what they need to be up.
"""

from __future__ import annotations

import io
import sys
import time

from clove.deployment.flwr import read_json

PAUSE = 0.25


def main(connection: str, nodes: str) -> None:
    """Do as `flwr` does until they are there."""
    while online(connection) < int(nodes):
        time.sleep(PAUSE)


def online(connection: str) -> int:
    """Return how many nodes the server sees."""
    from flwr.cli.app import app

    words = ["supernode", "list", connection, "--format", "json"]
    # Where Flower prints its JSON, whatever else is redirected.
    sys.__stdout__ = printed = io.StringIO()  # type: ignore[misc, assignment]
    app(words, standalone_mode=False)
    found = read_json(printed.getvalue(), *words)
    return sum(node["status"] == "online" for node in found["nodes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
