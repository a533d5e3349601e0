"""What the two small servers share, the live page's and the one for newcomers.

Where they listen, whom they answer, and how they end. On this machine alone they need no token, but
answer only to this machine's names, so that no other web page can ask them. Anywhere else they ask
for a token.
"""

from __future__ import annotations

import errno
import logging
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clove.errors import CloveError

GRACE = 2  # seconds that connections have to close in


@dataclass(frozen=True)
class Door:
    """A socket that listens, where others find it, and the token they must bring, if any."""

    ear: socket.socket
    address: str
    token: str | None


def door(host: str, port: int, token: str | None = None, or_any: bool = False) -> Door:
    """Listen at an address; with a token, if one is given or others can come.

    `or_any` takes any free port where that one is taken.
    """
    ear = listening(host, port, or_any)
    needed = token or (None if is_here(host) else secrets.token_urlsafe(24))
    return Door(ear, address(ear, host), needed)


def is_here(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def listening(host: str, port: int, or_any: bool = False) -> socket.socket:
    """Return a socket that listens, or say why there cannot be one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and is_everywhere(host) and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except (OSError, OverflowError, ValueError) as error:
        if or_any and getattr(error, "errno", None) == errno.EADDRINUSE:
            return listening(host, 0)
        reason = getattr(error, "strerror", None) or error
        raise CloveError(
            f"cannot listen at {host}, port {port}: {reason}. Choose another --port (0: any that "
            "is free) or --host"
        ) from error


def address(ear: socket.socket, host: str) -> str:
    """Return where a socket is found: by the machine's name where it listens everywhere."""
    name = socket.gethostname() if is_everywhere(host) else host
    return f"http://{f'[{name}]' if ':' in name else name}:{ear.getsockname()[1]}"


def is_everywhere(host: str) -> bool:
    """Say whether an address stands for all of this machine's."""
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return host == ""


class OnlyHere:
    """Refuses requests under any name but this machine's own.

    A page elsewhere cannot pass for this machine by a name of its own that points here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "http" and not _names_this_machine(Headers(scope=scope)):
            words = "This server answers to this machine's names only, such as localhost.\n"
            await PlainTextResponse(words, status_code=400)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _names_this_machine(headers: Headers) -> bool:
    with suppress(ValueError):
        return is_here(urlsplit(f"//{headers.get('host', '')}").hostname or "")
    return False


class Server(uvicorn.Server):
    """Serves an application at a door until Ctrl-C, and then ends without a word."""

    def __init__(self, app: ASGIApp, at: Door) -> None:
        self._ears = [at.ear]
        super().__init__(
            uvicorn.Config(
                app,
                log_level="error",
                ws="none",
                access_log=False,
                timeout_graceful_shutdown=GRACE,
            )
        )

    def serve_here(self) -> None:
        """Serve until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self.run(sockets=self._ears)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End on a signal."""
        self.hush()
        super().handle_exit(sig, frame)

    def hush(self) -> None:
        """Say nothing from here on: whom the end cuts off is not worth a line."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
