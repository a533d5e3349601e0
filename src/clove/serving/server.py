"""The service on a port: here alone unless told otherwise, and then with a token."""

from __future__ import annotations

from collections.abc import Callable

from clove import web
from clove.runs import Result
from clove.serving.reception import Reception
from clove.serving.service import service


def serve(
    result: Result,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    tell: Callable[[str, str | None], None] = lambda url, token: None,
) -> None:
    """Serve until stopped. `tell` is told where, and the token that is needed there.

    Where others can reach it, a token is made unless one is given.
    """
    reception = Reception(result)
    door = web.door(host, port, token)
    app = service(reception, door.token)
    if door.token is None:
        app.add_middleware(web.OnlyHere)
    with door.ear:
        tell(door.address, door.token)
        web.Server(app, door).serve_here()
