"""Flower's server and nodes as real processes on this machine, over TLS, every node known by key.

The same commands run a federation on several machines; here they share one, over loopback. It is
how to try a deployment, and how tests do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from clove.deployment.certificates import Certificates
from clove.deployment.commands import QUICK, flower_command, flower_environment
from clove.deployment.flwr import CONNECTION, called, home_in, write_connection
from clove.deployment.processes import LOOPBACK, Processes, answers, free_port

SERVER = "superlink"
ASKING = "nodes-online"
DATABASE = "trial.db"


class Network:
    """One server and its nodes. Used as a context, it takes every process down at its end."""

    def __init__(
        self,
        folder: str | Path,
        certificates: Certificates,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.certificates = Certificates(certificates.folder.absolute())
        self.port = free_port()
        self.processes = Processes(self.folder / "logs")
        self._extra = dict(environment or {})

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.processes.stop()

    @property
    def home(self) -> Path:
        """Where `flwr` finds how to reach the server: for its environment's FLWR_HOME."""
        return home_in(self.folder)

    def start(self, nodes: int) -> None:
        """Start a server that knows nobody yet, register the keys of nodes, and start these."""
        for old in self.folder.glob(f"{DATABASE}*"):
            old.unlink()
        self.start_server()
        self.register(range(nodes))
        for number in range(nodes):
            self.start_node(number, {"partition-id": number, "num-partitions": nodes})
        self.wait_for(nodes)

    def start_server(self) -> None:
        """Start Flower's SuperLink, which knows who was registered before, and wait for it."""
        keys = self.certificates
        write_connection(self.home, f"{LOOPBACK}:{self.port}", keys.authority)
        self._start(
            SERVER,
            "flower-superlink",
            *("--ssl-ca-certfile", str(keys.authority)),
            *("--ssl-certfile", str(keys.server), "--ssl-keyfile", str(keys.server_key)),
            "--enable-supernode-auth",
            *("--host", LOOPBACK, "--port", str(self.port)),
            *("--database", str(self.folder / DATABASE)),
        )
        health = f"https://{LOOPBACK}:{self.port}/health"
        self.processes.wait(lambda: answers(health, keys.authority), "the server was up")

    def register(self, numbers: Iterable[int]) -> None:
        """Make the keys of nodes known to the server."""
        keys = [str(self.certificates.node_public(number)) for number in numbers]
        called(sys.executable, "-m", "clove.deployment.register", CONNECTION, *keys, home=self.home)

    def start_node(self, number: int, config: Mapping[str, int | str]) -> None:
        """Start Flower's SuperNode for one client, which remembers in a folder of its own."""
        name = node_name(number)
        known = {"state-dir": str(self.folder / name / "memory"), **config}
        self._start(
            name,
            "flower-supernode",
            *("--root-certificates", str(self.certificates.authority)),
            *("--superlink", f"{LOOPBACK}:{self.port}", "--port", str(free_port())),
            *("--auth-supernode-private-key", str(self.certificates.node_key(number))),
            *("--node-config", " ".join(f"{key}={_toml(v)}" for key, v in known.items())),
        )

    def wait_for(self, nodes: int) -> None:
        """Wait until this many nodes are there."""
        up = f"{nodes} nodes were up"
        asking = [sys.executable, "-m", "clove.deployment.online", CONNECTION, str(nodes)]
        self.processes.start(ASKING, asking, flower_environment(self.home))
        process = self.processes[ASKING]
        # They share this machine, and each is two starts of Python.
        self.processes.wait(lambda: process.poll() == 0, up, more=5.0 * nodes)

    def _start(self, name: str, command: str, *options: str) -> None:
        environment = {**QUICK, **flower_environment(self.folder / name), **self._extra}
        if name == SERVER:  # it is given work once a run
            environment = flower_environment(self.folder / name)
        self.processes.start(name, [flower_command(command), *options], environment)


def node_name(number: int) -> str:
    """Return the name of a node's process."""
    return f"node-{number}"


def _toml(value: int | str) -> str:
    return str(value) if isinstance(value, int) else f'"{value}"'
