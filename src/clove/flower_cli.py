"""`clove flower`: the same methods on a network. A project, keys, a trial here, a run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from clove.errors import CloveError
from clove.folders import held
from clove.terminal import err, given_once, out, plain_words

app = typer.Typer(no_args_is_help=True, help="Federations on a network, by Flower.")

Folder = Annotated[Path, typer.Argument(help="Folder to write to.")]


@app.command()
def new(folder: Folder) -> None:
    """Write a small, complete project: client, server, settings, README."""
    with plain_words():
        from clove.deployment.project import new_project

        files = new_project(folder)
    for file in files:
        _say(str(file))
    _say(f"\nTry it, simulated:  clove flower run {folder}")
    _say(f"Then read {folder / 'README.md'}")


@app.command()
def certs(
    folder: Folder,
    hosts: Annotated[
        str,
        typer.Option(
            help="Names or addresses of the server, separated by commas; without any, localhost."
        ),
    ] = "",
    nodes: Annotated[int, typer.Option(help="How many nodes to make keys for.")] = 0,
    days: Annotated[int, typer.Option(help="Days the server's certificate is good for.")] = 365,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="A new certificate for the server, by the authority that is there; nodes keep "
            "their keys, and those that have none get theirs.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace all that is there, keys of nodes included.")
    ] = False,
) -> None:
    """Make an authority, the server's certificate, and a key pair for each node."""
    with plain_words():
        from clove.deployment.certificates import (
            Certificates,
            make_certificates,
            renew_certificates,
        )

        names = [name.strip() for name in hosts.split(",") if name.strip()]
        if renew and force:
            raise CloveError("give --renew, which keeps keys, or --force, which replaces them")
        lost = Certificates(folder).nodes
        if renew:
            made = renew_certificates(folder, names, nodes, days)
        else:
            made = make_certificates(folder, names, nodes, days, force)
            if lost:
                _say(f"Gone: the keys of {lost} nodes. Every machine needs the new ca.crt.")
    _say(f"{made.authority}    to every machine: whom to trust")
    _say(f"{made.server}, {made.server_key.name}    to the server, alone")
    if nodes:
        _say(f"{made.node_key(0)} ...    each to its own node, alone")
        _say(f"{made.node_public(0)} ...    to be registered with the server")
    _say(f"{made.authority_key}    to a safe place: it can vouch for any server")


@app.command()
def up(
    folder: Annotated[Path, typer.Argument(help="Folder for the federation's keys and logs.")],
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 6,
) -> None:
    """Start a server and nodes on this machine, with TLS and keys, until Ctrl-C."""
    with plain_words(), ExitStack() as stack:
        from clove.deployment.certificates import with_keys
        from clove.deployment.network import SERVER, Network
        from clove.deployment.processes import end_on_termination

        if nodes < 1:
            raise CloveError(f"nodes must be 1 or more, not {nodes}")
        if (folder / "pyproject.toml").exists():
            raise CloveError(
                f"{folder} is a project, all of which travels to the nodes: give a folder of the "
                "federation's own, such as `clove flower up network`"
            )
        stack.enter_context(held(folder, "the federation in"))
        keys = with_keys(folder / "certificates", nodes)
        stack.enter_context(_quietly_ended())
        stack.enter_context(end_on_termination())
        network = stack.enter_context(Network(folder, keys))
        network.start(nodes)
        _say(f"A server and {nodes} nodes are up; logs are in {network.processes.logs}.")
        _say(f"Run on them, from another terminal:  clove flower run APP {folder}")
        _say("Ctrl-C takes them down.")
        network.processes.outlast(SERVER, _say)


@app.command()
def run(
    project: Annotated[Path, typer.Argument(help="Folder of the project.")],
    where: Annotated[
        str | None,
        typer.Argument(
            help="A folder of `clove flower up`, or a SuperLink that `flwr` knows by this name; "
            "without it, nodes are simulated."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many nodes to simulate.")] = 6,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run, e.g. rounds=5."),
    ] = None,
) -> None:
    """Run a project to its end, simulated or on a network; fail if it fails."""
    told = "stopped. The same command goes on with the run."
    with plain_words(), _quietly_ended(told), ExitStack() as stack:
        from clove.deployment.launch import find_server, run_app, simulated, simulated_nodes
        from clove.deployment.processes import end_on_termination

        settings = given_once(set_, {})
        stack.enter_context(end_on_termination())
        if where is not None:
            home, connection = find_server(where)
            run_app(project, home, connection, settings)
        else:
            simulation = simulated_nodes(nodes, project, settings)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            home = stack.enter_context(simulated(folder))
            run_app(project, home, None, settings, simulation)


@contextmanager
def _quietly_ended(told: str | None = None) -> Iterator[None]:
    """On Ctrl-C, end as a command that was stopped does, with a line in place of a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        if told is not None:
            err.print(told, soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None


def _say(line: str) -> None:
    out.print(escape(line), soft_wrap=True, highlight=False)
