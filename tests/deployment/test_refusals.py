"""Who is not let in, and what is not called a success: one real server over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from clove.deployment.certificates import make_certificates
from clove.deployment.commands import flower_command, flower_environment
from clove.deployment.flwr import CONNECTION, flwr, flwr_json, write_connection
from clove.deployment.launch import run_app
from clove.deployment.processes import free_port
from clove.errors import CloveError

from .stories import alive, network, project, until

pytest.importorskip("flwr", reason="no Flower here: pip install 'clove-fl[flower]'")


@pytest.mark.slow
def test_strangers_are_refused_and_a_failed_run_is_a_failure(tmp_path: Path) -> None:
    with network(tmp_path / "net", keys=2) as net:
        net.start_server()
        net.register([0])

        # Its key is good, but nobody has registered it.
        net.start_node(1, {})
        # It has a key that is registered, but trusts nobody who vouches for the server.
        command = [
            *(flower_command("flower-supernode"), "--superlink", f"127.0.0.1:{net.port}"),
            *("--port", str(free_port()), "--auth-supernode-private-key"),
            str(net.certificates.node_key(0)),
        ]
        net.processes.start("without-ca", command, flower_environment(tmp_path / "home"))
        for name in ("node-1", "without-ca"):
            until(lambda name=name: net.processes[name].poll() is not None, f"the end of {name}")
            assert net.processes[name].returncode != 0
        assert "Failed to activate SuperNode" in net.processes.log("node-1")
        assert "CERTIFICATE_VERIFY_FAILED" in net.processes.log("without-ca")
        nodes = flwr_json("supernode", "list", CONNECTION, home=net.home)["nodes"]
        assert [node["status"] for node in nodes] == ["registered"]

        # Nor do we trust a server that somebody else vouches for.
        other = make_certificates(tmp_path / "other", [], 0)
        write_connection(tmp_path / "elsewhere", f"127.0.0.1:{net.port}", other.authority)
        with pytest.raises(CloveError, match=r"`flwr supernode list .*failed"):
            flwr("supernode", "list", CONNECTION, home=tmp_path / "elsewhere")

        # A run that cannot be: Flower's own command would say 0.
        settings = {"out": str(tmp_path / "run"), "rounds": 0}
        with pytest.raises(CloveError, match=r"finished, failed.*rounds must be 1 or more"):
            run_app(project(tmp_path / "fed"), net.home, CONNECTION, settings)
    assert alive(tmp_path) == []
