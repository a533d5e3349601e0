"""Nodes that lie, fall silent, die and come late, and a server that dies: real processes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from clove.deployment.network import SERVER, Network, node_name

from .stories import alive, command, metrics, network, project, replace, until

pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")

FAULTS = {
    "nan": r"sent losses that are not finite",
    "short": r"loss vector has shape \(1, 1\), not \(1, 2\)",
    "misshapen": r"has shape",
    "huge": r"bytes, where [\d,]+ are the most",
    "garbage": r"not those of a message",
}


@pytest.mark.patient
def test_whoever_sends_nonsense_is_named_and_the_others_are_unharmed(tmp_path: Path) -> None:
    fed, out, log = project(tmp_path / "fed", faulty=True), tmp_path / "run", tmp_path / "run.log"
    honest, nodes = 4, 4 + len(FAULTS)
    with network(tmp_path / "net", keys=nodes) as net:
        net.start_server()
        net.register(range(nodes))
        for number in range(honest):
            net.start_node(number, {"partition-id": number})
        for number, fault in enumerate(FAULTS, start=honest):
            net.start_node(number, {"partition-id": number, "name": fault, "fault": fault})
        settings = ("rounds=1", f"min-nodes={nodes}", f"out={out}")
        words = [word for one in settings for word in ("--set", one)]
        with command("flower", "run", str(fed), str(net.folder), *words, log=log) as run:
            assert run.wait() == 0, log.read_text()
    said = log.read_text()
    for number, (fault, why) in enumerate(FAULTS.items(), start=honest):
        assert re.search(rf"client {number}.*{why}", said), fault
    (only,) = metrics(out)
    assert only["assignment"][:honest] in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert alive(tmp_path) == []


def kill(net: Network, name: str) -> None:
    """End a machine, as it were: a process and all it has started, at once."""
    os.killpg(net.processes[name].pid, signal.SIGKILL)
    net.processes[name].wait()


@pytest.mark.patient
def test_a_federation_survives_silence_death_and_newcomers(tmp_path: Path) -> None:
    """Clients 0 and 1 are of one kind, 2 and 3 of the other; 1 comes late, 3 hangs, 2 dies.

    So two are there to be clustered at first, which is fewer than there are models.
    """
    fed, out, log = project(tmp_path / "fed", faulty=True), tmp_path / "run", tmp_path / "run.log"
    replace(fed / "settings.toml", "models = 2", "models = 3\nstable_rounds = 2")
    settings = ("rounds=4", "min-nodes=2", "timeout=40", f"out={out}")
    words = [word for one in settings for word in ("--set", one)]
    with network(tmp_path / "net", keys=4) as net:
        net.start_server()
        net.register(range(4))
        for number in (0, 2):
            net.start_node(number, {"partition-id": number})
        net.start_node(3, {"partition-id": 3, "fault": "silent"})
        net.wait_for(3)

        run = ("flower", "run", str(fed), str(net.folder), *words)
        with command(*run, log=log) as first:
            # Round 1 goes on without the silent one, and round 2 does not wait for it.
            until(lambda: len(metrics(out)) >= 1 or first.poll() is not None, "round 1")
            assert first.poll() is None, log.read_text()
            net.start_node(1, {"partition-id": 1})
            until(lambda: len(metrics(out)) >= 2, "round 2")
            # Node 2 dies in the middle of round 3: it has its message and has not answered.
            asked = net.processes.log(node_name(2)).count("query.train")
            until(lambda: net.processes.log(node_name(2)).count("query.train") > asked, "training")
            kill(net, node_name(2))
            until(lambda: len(metrics(out)) >= 3, "round 3")
            # The server dies, and with it the run.
            kill(net, SERVER)
        net.start_server()
        net.wait_for(2)
        with command(*run, log=tmp_path / "again.log") as again:
            assert again.wait() == 0, (tmp_path / "again.log").read_text()

    records = metrics(out)
    assert [one["round"] for one in records] == [1, 2, 3, 4]
    named = re.findall(r"round (\d): client (\d), node .* no answer", log.read_text())
    assert named == [("1", "3")]
    # Clients 0 and 2; then 0 and the newcomer, without those that hang or died.
    assert [one["participants"] for one in records] == [2, 2, 2, 2]
    assert records[1]["stable"]
    # The newcomer has the model of its kind, the silent one has none.
    first, newcomer, other, silent = records[3]["assignment"]
    assert newcomer == first != other
    assert silent == -1
    assert alive(tmp_path) == []
