"""Federations on Flower: a client's app and a server's, for `flwr run` or Flower's own simulation.

The client, in a file `client.py`:

    import clove

    def load_data(context):
        return clove.ClientData(train=..., test=...)

    app = clove.flower.client(clove.classification(MyNet), load_data)

and the server, in `server.py`:

    app = clove.flower.server("settings.toml", out="runs/mine", task=clove.classification(MyNet))
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clove.errors import CloveError, CloveWarning
from clove.extras import require_flower

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from clove.data import ClientData
    from clove.runs.loop import Progress
    from clove.runs.settings import Settings
    from clove.tasks import Task

OPTIONS = ("out", "min_nodes", "timeout", "wait", "outputs")


def client(
    task: Task,
    load_data: Callable[[Context], ClientData],
    *,
    state_dir: str | Path | None = None,
    device: str = "auto",
) -> ClientApp:
    """Return the app of a client: it answers the server's questions from its own data.

    Parameters
    ----------
    task : what is learned, the same as on the server: `clove.classification(MyNet)`.
    load_data : is given Flower's context and returns this client's `ClientData`. In a simulation,
        and wherever nodes were started with it, `context.node_config["partition-id"]` is the
        client's number.
    state_dir : a folder for what the client remembers between rounds, so that it outlives Flower's
        processes and a restart of the server. A node may name its own (`state-dir` in its
        `--node-config`). Without one, Flower keeps it for as long as the run and the node live;
        clients of Flower's simulation remember in the run's folder.
    device : where to compute: "auto", "cpu" or "cuda".

    Objectives and other functions of one's own are known to the client when the module of its app
    registers them (`clove.federation.objectives`).
    """
    require_flower()
    from clove.federation.flower.client import Client

    folder = None if state_dir is None else Path(state_dir)
    return Client(task, load_data, folder, device, know_functions).app()


def know_functions() -> None:
    """Register the functions of all methods, which loads what their servers need as well.

    That takes longer than all else at the start of a client's process, and most need it never.
    """
    from clove.algorithms import load_entry_points

    load_entry_points()


def server(
    settings: Settings | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    task: Task | None = None,
    min_nodes: int = 2,
    timeout: float = 600.0,
    wait: float = 300.0,
    outputs: int | None = None,
) -> ServerApp:
    """Return the app of a server: it runs an algorithm on the nodes that are there.

    Parameters
    ----------
    settings : of the run: a settings file, names with values, or `Settings`. Flower's run config
        has the last word (`flwr run . --run-config "rounds=5"`), on the options below as well.
    out : the run's folder. An unfinished run in it is gone on with.
    task : what is learned; needed where the network is one's own.
    min_nodes, wait : so many nodes must be there before the first round; how long to wait for them,
        in seconds, and for any node where all are gone. Nodes that join later take part from the
        next round on.
    timeout : how long a question is open, in seconds; the round then goes on without the silent.
    outputs : of a network of the zoo, for instance the number of classes. None: as many as the
        labels of the clients need that are there at first.
    """
    require_flower()
    from flwr.serverapp import ServerApp

    given: dict[str, Any] = {
        "out": None if out is None else str(out),
        "min_nodes": min_nodes,
        "timeout": timeout,
        "wait": wait,
        "outputs": outputs,
    }

    def main(grid: Grid, context: Context) -> None:
        from clove.runs.network import Options, given_settings, run_on_network

        config = {name.replace("-", "_"): value for name, value in context.run_config.items()}
        options = given | {name: config.pop(name) for name in OPTIONS if name in config}
        with _in_plain_words():
            names = {**given_settings(settings), **config}
            result = run_on_network(grid, names, Options(**options), task, _tell)
        logging.getLogger("flwr").info("%r", result)

    app = ServerApp()
    app.main()(main)
    return app


@contextmanager
def _in_plain_words() -> Iterator[None]:
    """Let errors and warnings of clove be a line each in Flower's log.

    Flower logs an error only once the app has ended: what sees to it stays.
    """
    logging.getLogger("flwr").addFilter(_plain_error)
    usual: Callable[..., str] = warnings.formatwarning

    def plain(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
        if issubclass(category, CloveWarning):
            return f"warning: {message}\n"
        return usual(message, category, *where, **more)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _plain_error(record: logging.LogRecord) -> bool:
    """Log an error that says itself what to do without a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, CloveError):
        record.msg, record.args = "error: %s", (error,)
        record.exc_info = record.exc_text = None
    return True


def _tell(progress: Progress) -> None:
    """Write a line about the round just done into Flower's log."""
    last, rounds = progress.records[-1], progress.prepared.settings.rounds
    figures = [
        f"{name} {last[name]:.4g}"
        for name in ("accuracy", "test_loss", "ari")
        if last[name] is not None
    ]
    text = f"round {last['round']}/{rounds}: {last['participants']} clients"
    logging.getLogger("flwr").info(", ".join([text, *figures]))


__all__ = ["client", "server"]
