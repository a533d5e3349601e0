"""Registers the keys of many nodes from one process: `flwr supernode register` for each.

    python -m clove.deployment.register CONNECTION KEY...

The command by itself takes one key, and a start of Python.
"""

from __future__ import annotations

import sys


def main(connection: str, *keys: str) -> None:
    """Do as `flwr` does for each key."""
    from flwr.cli.app import app

    for key in keys:
        app(["supernode", "register", key, connection], standalone_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
