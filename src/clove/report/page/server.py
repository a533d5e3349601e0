"""A small server for the live page: it only ever answers what there is to read.

Where others can come, the token is given once with the address, and then kept in a cookie.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clove import web
from clove.errors import CloveError
from clove.report.page.live import LivePage
from clove.report.page.render import html, plotly_script

PORT = 8321
COOKIE = "clove-page"
A_WEEK = 7 * 24 * 3600
# What the page may do in a browser: run its own scripts, and ask its own server.
POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; "
    "script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def application(live: LivePage, token: str | None = None) -> Starlette:
    """Return the page's server: with a token where it can be reached from elsewhere."""

    async def page(request: Request) -> Response:
        data = await run_in_threadpool(live.data)
        return HTMLResponse(await run_in_threadpool(html, data, live=True), headers=HEADERS)

    async def data(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(live.data), headers=HEADERS)

    async def events(request: Request) -> Response:
        return EventSourceResponse(_events(live), headers=HEADERS, ping=15)

    async def plotly(request: Request) -> Response:
        kept = {**HEADERS, "Cache-Control": f"private, max-age={A_WEEK}"}
        return Response(plotly_script(), media_type="text/javascript", headers=kept)

    guard = Middleware(Token, token=token) if token else Middleware(web.OnlyHere)
    pages = {"/": page, "/data.json": data, "/events": events, "/plotly.js": plotly}
    return Starlette(
        routes=[Route(path, answer, methods=["GET"]) for path, answer in pages.items()],
        middleware=[guard],
        exception_handlers={CloveError: _plainly},
    )


async def _events(live: LivePage) -> AsyncIterator[dict[str, str]]:
    async for version in live.changes():
        yield {"event": "change", "data": version}


async def _plainly(request: Request, error: Exception) -> Response:
    """Say what cannot be read now: it may be in the middle of being written."""
    return PlainTextResponse(str(error), status_code=503, headers=HEADERS)


class Token:
    """Lets in who brings the token: in the address once, then in a cookie, or in a header."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if self._fits(request.query_params.get("token", "")):
            answer = Response(status_code=303, headers={**HEADERS, "Location": request.url.path})
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
            await answer(scope, receive, send)
        elif self._fits(request.cookies.get(COOKIE, "")) or self._fits(_bearer(request)):
            await self._app(scope, receive, send)
        else:
            words = "This page needs the token that `clove watch` printed with its address.\n"
            await PlainTextResponse(words, status_code=401, headers=HEADERS)(scope, receive, send)

    def _fits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _bearer(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


# ---------------------------------------------------------------------------------------- serving


class Server(web.Server):
    """The server with its address; its end is that of the page's news too."""

    def __init__(self, folder: Path, host: str, port: int | None, token: str | None) -> None:
        self.live = LivePage(folder)
        door = web.door(host, PORT if port is None else port, token, or_any=port is None)
        super().__init__(application(self.live, door.token), door)
        self.token = door.token
        self.address = f"{door.address}/{f'?token={quote(self.token)}' if self.token else ''}"

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End on a signal."""
        self.live.end()
        super().handle_exit(sig, frame)

    @contextmanager
    def in_background(self, patience: float = 5.0) -> Iterator[None]:
        """Serve for a while; at its end browsers are shown the last there is."""
        thread = threading.Thread(target=self.serve_here, daemon=True)
        thread.start()
        try:
            yield
            self.live.end(patience)
        finally:
            self.live.end()
            self.hush()
            self.should_exit = True
            thread.join(web.GRACE + 1)
