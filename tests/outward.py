"""Which other machines the processes of a story ask for, by address or by name."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from pathlib import Path

NOTES = "connections"
WATCH = """
import json, os, sys

def note(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # else it is a file's
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if isinstance(host, (str, bytes)) and host:
        who = " ".join(getattr(sys, "orig_argv", [])[:4])
        host = host if isinstance(host, str) else host.decode()
        with open(os.environ["CLOVE_CONNECTIONS"], "a") as file:
            file.write(json.dumps([event, host, who]) + "\\n")

sys.addaudithook(note)
"""


def watched(folder: Path) -> dict[str, str]:
    """Return what makes every Python that has it in its environment note whom it asks for.

    Only the hooks of the interpreter see what is over in no time, as where nobody answers.
    """
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(WATCH)
    (folder / NOTES).touch()
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "CLOVE_CONNECTIONS": str(folder / NOTES)}


def asked_for(folder: Path) -> list[tuple[str, str, str]]:
    """Return what was done with other machines: how, with which, and by whom."""
    lines = (folder / NOTES).read_text().splitlines()
    noted = [tuple(json.loads(line)) for line in lines]
    return [(event, host, who) for event, host, who in noted if not is_here(host)]


def is_here(host: str) -> bool:
    """Tell whether an address, or a name, is that of this machine for itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
