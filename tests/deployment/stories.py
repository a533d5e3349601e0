"""What the stories about real processes share: a project, commands, and who is still alive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from clove.deployment.certificates import make_certificates
from clove.deployment.network import Network
from clove.deployment.project import new_project

CLOVE = [sys.executable, "-m", "clove.cli"]
PATIENCE = 300.0
LISTENS = "0A"  # a state of the kernel's


def project(folder: Path, faulty: bool = False) -> Path:
    """Write a project; `faulty` lets its nodes misbehave, and has any number of clients.

    These are of two groups, 0 and 1 of one, 2 and 3 of the other, and so on again.
    """
    new_project(folder)
    if faulty:
        (folder / "faulty.py").write_text((Path(__file__).parent / "faulty.py").read_text())
        replace(folder / "pyproject.toml", "client:app", "faulty:app")
        replace(folder / "settings.toml", "max_models = 4", "models = 2")
        replace(folder / "client.py", '"partition-id"])', '"partition-id"]) % 4')
    return folder


def replace(file: Path, old: str, new: str) -> None:
    """Change a text that stands in a file."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@contextmanager
def command(*words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `clove` as a user does; it is ended if the story ends first."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*CLOVE, *words],
            env={**os.environ, "CLOVE_STORY": str(log.parent)},
            stdout=file,
            stderr=subprocess.STDOUT,
            # Whoever starts the tests in the background may have told them to ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE)


def network(folder: Path, keys: int) -> Network:
    """Return a network with keys for so many nodes; nothing runs yet."""
    return Network(folder, make_certificates(folder / "certificates", [], keys))


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for something to happen."""
    end = monotonic() + PATIENCE
    while not happened():
        assert monotonic() < end, f"waited in vain for {what}"
        sleep(0.1)


def listening(processes: set[int]) -> set[str]:
    """Return the addresses of this machine at which processes wait for others to connect."""
    own = set[str]()
    for process in processes:
        with suppress(OSError):  # it has just ended
            own |= {str(file.readlink()) for file in Path(f"/proc/{process}/fd").iterdir()}
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and f"socket:[{inode}]" in own:
                found.add(_address(local.partition(":")[0]))
    return found


def _address(hexadecimal: str) -> str:
    """Return an address that the kernel tells as words of 32 bits."""
    words = [bytes.fromhex(hexadecimal[at : at + 8])[::-1] for at in range(0, len(hexadecimal), 8)]
    address = ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics that a run has written so far."""
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def alive(folder: Path) -> list[str]:
    """Return the commands of living processes that belong to the story in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            known = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if str(folder).encode() in known and int(entry.name) != os.getpid():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def names(processes: Iterable[int]) -> list[str]:
    """Return what these processes are called, as far as they are there."""
    found = []
    for number in processes:
        with suppress(OSError):
            found.append(Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def living(processes: Iterable[int]) -> list[int]:
    """Return which of these processes have not ended."""
    found = []
    for number in processes:
        with suppress(OSError):
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
            found += [] if state == "Z" else [number]
    return found
