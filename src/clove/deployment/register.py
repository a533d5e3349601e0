"""Registers the keys of many nodes from one process: `flwr supernode register` for each.

    python -m clove.deployment.register CONNECTION KEY...

The command by itself takes one key, and a start of Python. A node is named after the file of its
key: a node with a registered name is its client, and no other key can be (see `Roster`).
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(connection: str, *keys: str) -> None:
    """Do as `flwr` does for each key."""
    from flwr.cli.app import app

    for key in keys:
        named = ["--name", Path(key).stem]
        app(["supernode", "register", key, connection, *named], standalone_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
