"""What the small servers share: where they listen, whom they answer, how they end."""

from __future__ import annotations

import logging
import signal
import socket
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="no uvicorn here: pip install 'clove-fl[serve]'")
pytest.importorskip("httpx", reason="no httpx here: pip install 'clove-fl[dev]'")

from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from clove import web
from clove.errors import CloveError

HERE = ("127.0.0.1", "127.8.8.8", "::1", "localhost")
ELSEWHERE = ("0.0.0.0", "::", "192.168.0.1", "fe80::1", "::ffff:192.168.0.1", "example.org", "")


def needs_ipv6() -> None:
    """Skip a test where this machine has no such address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")


def test_here_is_told_from_elsewhere() -> None:
    assert all(map(web.is_here, HERE))
    assert not any(map(web.is_here, ELSEWHERE))


def test_a_token_is_made_just_where_others_can_come() -> None:
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        opened = web.door(host, 0)
        with opened.ear:
            assert (opened.token is None) == web.is_here(host)
            assert opened.token is None or len(opened.token) >= 32
    mine = web.door("127.0.0.1", 0, "mine")
    with mine.ear:
        assert mine.token == "mine"


def test_the_rule_of_tokens_is_the_same_for_the_newer_addresses() -> None:
    needs_ipv6()
    for host in ("::1", "::"):
        opened = web.door(host, 0)
        with opened.ear:
            assert (opened.token is None) == (host == "::1")


def test_a_port_that_is_taken_or_none_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CloveError, match=f"cannot listen at 127.0.0.1, port {port}: Address"):
            web.listening("127.0.0.1", port)
        with web.listening("127.0.0.1", port, or_any=True) as ear:
            assert ear.getsockname()[1] not in (0, port)
    with pytest.raises(CloveError, match=r"cannot listen at 127\.0\.0\.1, port 70000"):
        web.listening("127.0.0.1", 70000)
    for nowhere in ("192.0.2.1", "2001:db8::1", "a" * 70):
        with pytest.raises(CloveError, match=f"cannot listen at {nowhere}"):
            web.listening(nowhere, 0, or_any=True)


def test_addresses_are_written_as_others_need_them() -> None:
    with web.listening("127.0.0.1", 0) as ear:
        port = ear.getsockname()[1]
        assert web.address(ear, "127.0.0.1") == f"http://127.0.0.1:{port}"
        assert web.address(ear, "localhost") == f"http://localhost:{port}"
        assert urlsplit(web.address(ear, "::1")).hostname == "::1"
        assert web.address(ear, "::1") == f"http://[::1]:{port}"
        for everywhere in ("0.0.0.0", "::", ""):
            assert web.address(ear, everywhere) == f"http://{socket.gethostname()}:{port}"


def test_everywhere_is_everywhere_whatever_it_is_called() -> None:
    needs_ipv6()
    with web.listening("::", 0) as ear:
        port = ear.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=10).close()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        *((f"{one}:8321", 200) for one in ("127.0.0.1", "LOCALHOST", "[::1]")),
        *((one, 200) for one in ("127.0.0.1", "localhost", "[::1]")),
        *((one, 400) for one in ("evil.example", "127.0.0.1.evil.example:80", "[::2]", "[::1", "")),
    ],
)
def test_only_this_machines_names_are_answered(name: str, status: int) -> None:
    app = web.OnlyHere(PlainTextResponse("hello"))
    answer = TestClient(app).get("/", headers={"host": name})
    assert answer.status_code == status
    assert ("hello" in answer.text) == (status == 200)


def test_a_server_that_is_told_to_end_says_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    opened = web.door("127.0.0.1", 0)
    with opened.ear:
        server, words = (
            web.Server(PlainTextResponse("hello"), opened),
            logging.getLogger("uvicorn.error"),
        )
        assert words.isEnabledFor(logging.ERROR), "until then faults are told"
        server.handle_exit(signal.SIGINT, None)
        assert server.should_exit
        assert not words.isEnabledFor(logging.ERROR)
