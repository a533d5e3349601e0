"""A web server that serves files well or badly, as a test asks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request, answered in the way its path asks for."""

    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def do_GET(self) -> None:
        self.close_connection = True
        self.mirror.requests.append((self.path, self.headers.get("Range")))
        self.mirror.behaviours.get(self.path, status(404))(self)

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def head(self, code: int, **headers: object) -> None:
        self.send_response(code)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


@dataclass
class Mirror:
    """The server as a test sees it: what it does at each path, and what it was asked."""

    url: str
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def mirror() -> Iterator[Mirror]:
    """Run a server on a free port of this machine."""
    handler = type("Bound", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    made = Mirror(f"http://127.0.0.1:{server.server_address[1]}")
    handler.mirror = made
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("no_proxy", "127.0.0.1")
            yield made
    finally:
        made.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _start(handler: Handler, content: bytes) -> int | None:
    """Return where an answer begins: where asked for, None if that is beyond the end."""
    asked = handler.headers.get("Range")
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    return start if start < len(content) or not asked else None


def serve(content: bytes, most: int | None = None) -> Behaviour:
    """Serve a file, ranges of it too; at most so many bytes of what was announced."""

    def behave(handler: Handler) -> None:
        start = _start(handler, content)
        if start is None:
            handler.head(416, Content_Range=f"bytes */{len(content)}", Content_Length=0)
            return
        rest = content[start:]
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            handler.head(206, Content_Length=len(rest), Content_Range=span)
        else:
            handler.head(200, Content_Length=len(rest))
        handler.wfile.write(rest[:most])

    return behave


def without_ranges(content: bytes) -> Behaviour:
    """Serve the whole file, whatever was asked for."""

    def behave(handler: Handler) -> None:
        handler.head(200, Content_Length=len(content))
        handler.wfile.write(content)

    return behave


def without_length(content: bytes) -> Behaviour:
    """Serve a file without saying how long it is."""

    def behave(handler: Handler) -> None:
        handler.head(200)
        handler.wfile.write(content)

    return behave


def stall(content: bytes, after: int) -> Behaviour:
    """Serve some bytes, and then nothing more for as long as the test lasts."""

    def behave(handler: Handler) -> None:
        start = _start(handler, content) or 0
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        code = 206 if start else 200
        handler.head(code, Content_Length=len(content) - start, Content_Range=span)
        handler.wfile.write(content[start : start + after])
        handler.wfile.flush()
        handler.mirror.over.wait()

    return behave


def redirect(path: str) -> Behaviour:
    """Send whoever asks elsewhere."""
    return lambda handler: handler.head(302, Location=path, Content_Length=0)


def status(code: int) -> Behaviour:
    """Answer with an error."""
    return lambda handler: handler.head(code, Content_Length=0)


def wrong_range(content: bytes) -> Behaviour:
    """Answer with another part than was asked for."""
    return lambda handler: handler.head(
        206, Content_Length=0, Content_Range=f"bytes 0-0/{len(content)}"
    )


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Behave in one way after the other, and in the last for good."""
    left = list(behaviours)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)
