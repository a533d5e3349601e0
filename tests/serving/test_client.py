"""A newcomer's side: it is placed as with `result.assign`, and shows nothing but its losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from starlette.responses import PlainTextResponse, RedirectResponse

import clove
from clove.errors import CloveError
from clove.serving.reception import Reception
from clove.serving.service import service
from tests.runs.small import TINY, MyNet, digits_of, own_clients

At = Callable[[Any], AbstractContextManager[str]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "fp64"},
        {"probes": "random", "probe_models": 4},
        {"task": "reconstruction", "transform": "row"},
        {"algorithm": "ifca", "batch_norm": "batch"},
        {"max_models": 4, "clustering": "agglomerative"},
    ],
    ids=str,
)
def test_a_newcomer_is_placed_as_if_its_data_had_been_shown(
    options: dict[str, Any], at: At
) -> None:
    result = clove.run(**TINY, **options)
    x, y = digits_of((2, 3))
    expected = result.assign(x, y)
    with at(service(Reception(result))) as url:
        found = clove.newcomer(url + "/", x, y)
    assert (found.model, found.sure) == (expected.model, expected.sure)
    assert found.distances.tolist() == expected.distances.tolist()
    state, own = found.network.state_dict(), result.model(expected.model).state_dict()
    assert all(state[name].equal(own[name]) for name in own)
    assert not found.network.training


def test_only_losses_leave_the_newcomer(finished: clove.Result, at: At) -> None:
    app, sent = service(Reception(finished)), []

    async def overheard(scope: Any, receive: Any, send: Any) -> None:
        async def hear() -> Any:
            message = await receive()
            sent.append(message.get("body", b""))
            return message

        await app(scope, hear, send)

    x, y = digits_of((2, 3))
    with at(overheard) as url:
        found = clove.newcomer(url, x, y)
    assert [json.loads(body) for body in sent if body] == [{"losses": found.losses.tolist()}]
    assert len(found.losses) == 5


def test_a_network_of_its_own_is_handed_over(at: At) -> None:
    clients, task = own_clients(), clove.classification(MyNet)
    result = clove.run(clients=clients, task=task, models=2, rounds=2, learning_rate=0.01)
    x, y = clients[0].train
    with at(service(Reception(result))) as url:
        with pytest.raises(CloveError, match=r"network, a loss or a task of its own .own-network"):
            clove.newcomer(url, x, y)
        other = clove.classification(lambda: torch.nn.Linear(4, 2))
        with pytest.raises(CloveError, match="models are of another network than the task's"):
            clove.newcomer(url, x, y, task=other)
        found = clove.newcomer(url, x, y, task=task)
    assert found.model == result.assign(x, y).model
    assert isinstance(found.network, MyNet)


def test_the_token_is_sent_where_there_is_one(finished: clove.Result, at: At) -> None:
    x, y = digits_of((2, 3))
    with at(service(Reception(finished), token="sesame")) as url:
        assert clove.newcomer(url, x, y, token="sesame").model == finished.assign(x, y).model
        with pytest.raises(CloveError, match="refuses: send the token"):
            clove.newcomer(url, x, y)


def test_data_that_do_not_fit_are_refused_here(finished: clove.Result, at: At) -> None:
    x, y = digits_of((2, 3))
    with at(service(Reception(finished))) as url:
        with pytest.raises(CloveError, match=r"samples have shape \(64,\), the run's \(1, 8, 8\)"):
            clove.newcomer(url, x.reshape(len(x), -1), y)
        with pytest.raises(CloveError, match="NaN or infinite"):
            clove.newcomer(url, np.where(x > 0.9, np.nan, x), y)
        with pytest.raises(CloveError, match="needs labels"):
            clove.newcomer(url, x)


def test_services_that_are_not_there_or_no_services_are_said_so() -> None:
    x, y = digits_of((2, 3))
    for url in ("file:///etc/hosts", "localhost:8000"):
        with pytest.raises(CloveError, match="begins with http"):
            clove.newcomer(url, x, y)
    with pytest.raises(CloveError, match=r"http://127.0.0.1:9 cannot be reached"):
        clove.newcomer("http://127.0.0.1:9", x, y)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("asked", ["GET /", "POST /newcomers"])
def test_nobody_is_sent_losses_or_the_token_but_whom_the_user_named(
    finished: clove.Result, at: At, status: int, asked: str
) -> None:
    other: list[Any] = []

    async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            other.append((scope["headers"], await receive()))
        await PlainTextResponse("{}")(scope, receive, send)

    with at(elsewhere) as there:
        app = service(Reception(finished), token="sesame")

        async def sends_on(scope: Any, receive: Any, send: Any) -> None:
            which = f"{scope.get('method')} {scope.get('path')}"
            answer = RedirectResponse(f"{there}/trap", status) if which == asked else app
            await answer(scope, receive, send)

        with at(sends_on) as url, pytest.raises(CloveError) as said:
            clove.newcomer(url, *digits_of((2, 3)), token="sesame")
    assert str(said.value).startswith(f"{url} sends on to '{there}/trap', and nothing was sent")
    assert other == []


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"[]",
        b"{}",
        b"null",
        json.dumps(
            {
                **{"task": "classification", "network": "os:system", "loss": "auto"},
                **{"inputs": [1, 8, 8], "outputs": 10, "precision": "fp32", "probes": 2},
            }
        ).encode(),
        json.dumps(
            {
                **{"task": "classification", "network": "mlp", "loss": "auto", "seed": None},
                **{"inputs": [1, 8, 8], "outputs": 10, "precision": "fp32", "probes": 2},
                "batch_statistics": 0,
            }
        ).encode(),
    ],
)
def test_whatever_another_server_says_is_an_error_in_words(content: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(CloveError, match=r"does not answer as|of its own .os:system"):
            clove.newcomer(f"http://127.0.0.1:{server.server_port}", *digits_of((2, 3)))
        server.shutdown()
