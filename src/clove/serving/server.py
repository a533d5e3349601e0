"""The service on a port: here alone unless told otherwise, and then with a token."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware

from clove.errors import CloveError
from clove.runs import Result
from clove.serving.reception import Reception
from clove.serving.service import service

HERE = ("localhost", "127.0.0.1")


def serve(
    result: Result,
    host: str = HERE[1],
    port: int = 8000,
    token: str | None = None,
    tell: Callable[[str, str | None], None] = lambda url, token: None,
) -> None:
    """Serve until stopped. `tell` is told where, and the token that is needed there.

    Where others can reach it, a token is made unless one is given.
    """
    reception = Reception(result)
    if token is None and not is_here(host):
        token = secrets.token_urlsafe(24)
    app = service(reception, token)
    if host in HERE:  # a page elsewhere must not pass for this machine by a name of its own
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HERE))
    with listening(host, port) as ear:
        tell(address(ear), token)
        config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
        with suppress(KeyboardInterrupt):  # which is how it ends
            uvicorn.Server(config).run(sockets=[ear])


def is_here(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say why there cannot be one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CloveError(
            f"cannot listen at {host}, port {port}: {reason}. Choose another --port (0: any that "
            "is free) or --host"
        ) from error


def address(ear: socket.socket) -> str:
    """Return where a socket listens, as an address for others."""
    host, port = ear.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
