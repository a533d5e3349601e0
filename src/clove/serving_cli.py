"""`clove assign`, `export` and `serve`: what a run's models are for once it is finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clove.errors import CloveError
from clove.extras import require
from clove.terminal import out, plain_words

if TYPE_CHECKING:
    from clove.runs import Newcomer, Result

Run = Annotated[Path, typer.Argument(help="The folder of a run.")]
Network = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME", help="The run's network, where it is your own: package.module:name."
    ),
]


# ----------------------------------------------------------------------------------------- assign


def assign(
    run: Run,
    data: Annotated[
        Path, typer.Option(help="The newcomer's samples: .npz with x and y, .csv or .parquet.")
    ],
    network: Network = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say which model a newcomer should use, how sure that is, and how well all models do."""
    with plain_words():
        from clove.data import client_from_file
        from clove.report.newcomers import newcomer_table

        result = loaded(run, network)
        columns = {n: v for n, v in result.settings.data.items() if n.endswith("_column")}
        newcomer = client_from_file(data, **columns)
        found = result.assign(*newcomer.train, test=newcomer.test)
    if as_json:
        print(json.dumps(_as_json(found, result) | {"samples": newcomer.size}))
        return
    title = f"{data.name}: {newcomer.size} samples"
    out.print(newcomer_table(found, result.users(), title))
    out.print(
        f"model {found.model}, sure {found.sure:.2f} "
        "(1: no other group comes near, 0: two fit equally well)",
        highlight=False,
        soft_wrap=True,
    )


def loaded(run: Path, network: str | None) -> Result:
    """Read a run from its folder; where that holds a comparison, say which runs it has."""
    from clove.runs.api import load
    from clove.runs.compare import is_comparison

    if is_comparison(run):
        known = sorted(str(path.parent) for path in run.glob("*/seed-*/settings.toml"))
        raise CloveError(f"{run} holds a comparison: name one of its runs, {', '.join(known)}")
    return load(run, network=network)


def _as_json(found: Newcomer, result: Result) -> dict[str, object]:
    from clove.runs.loop import plain

    content = {
        "algorithm": result.settings.algorithm,
        "model": found.model,
        "sure": found.sure,
        "distances": found.distances,
        "loss": found.loss,
        "accuracy": found.accuracy,
    }
    return {name: plain(value) for name, value in content.items()}


# ----------------------------------------------------------------------------------------- export


def export(
    run: Run,
    cluster: Annotated[int | None, typer.Option(help="Which cluster's model.")] = None,
    client: Annotated[int | None, typer.Option(help="Or: the model this client uses.")] = None,
    format: Annotated[str, typer.Option(help="safetensors, torchscript or onnx.")] = "safetensors",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; else named by its model.")
    ] = None,
    network: Network = None,
) -> None:
    """Write a model as a file that other programs read."""
    with plain_words():
        if (cluster is None) == (client is None):
            raise CloveError("give either --cluster or --client: whose model to export")
        found = loaded(run, network).export(output, cluster=cluster, client=client, format=format)
    out.print(str(found), soft_wrap=True, markup=False, highlight=False)


# ------------------------------------------------------------------------------------------ serve


def serve(
    run: Run,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any that is free.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What callers must send; made where others can reach the service."),
    ] = None,
    network: Network = None,
) -> None:
    """Place newcomers over HTTP: probe models out, losses in, a model back. Stop with Ctrl-C."""
    with plain_words():
        require("clove serve", "serve", "fastapi", "uvicorn")
        from clove.serving.server import serve as serve_run

        serve_run(loaded(run, network), host, port, token, _tell)


def _tell(url: str, token: str | None) -> None:
    words = [f"newcomers are placed at {url}, described by {url}/openapi.json"]
    if token is not None:
        words.append(f"they send the header Authorization: Bearer {token}")
    for line in words:
        out.print(line, soft_wrap=True, markup=False, highlight=False)
