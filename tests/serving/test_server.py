"""The service as a command: a real process on a real port."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import clove
from clove.errors import CloveError
from clove.serving import server
from tests.runs.small import TINY, digits_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "run"
    clove.run(**TINY, out=path)
    return path


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Serve a run for a while; give the address, all that is said, and the process."""
    command = [sys.executable, "-m", "clove.cli", "serve", str(folder), "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    if "--host" in words or "--token" in words:
        said += process.stdout.readline()
    try:
        yield said.split("placed at ")[1].split(",")[0], said, process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_run_is_served_here_until_it_is_stopped(folder: Path) -> None:
    with serving(folder) as (url, said, process):
        assert url.startswith("http://127.0.0.1:")
        assert f"{url}/openapi.json" in said
        found = clove.newcomer(url, *digits_of((2, 3)))
        assert found.model == clove.load(folder).assign(*digits_of((2, 3))).model
        with pytest.raises(HTTPError, match="400"):  # a name that is made to point here
            urlopen(Request(url, headers={"Host": "elsewhere.example"}))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


@pytest.mark.slow
def test_where_others_can_come_a_token_is_made(folder: Path) -> None:
    with serving(folder, "--host", "0.0.0.0") as (url, said, _):
        here = url.replace("0.0.0.0", "127.0.0.1")
        token = said.split("Bearer ")[1].strip()
        assert len(token) >= 32
        with pytest.raises(CloveError, match="send the token"):
            clove.newcomer(here, *digits_of((2, 3)))
        assert clove.newcomer(here, *digits_of((2, 3)), token=token).model == 1


def test_here_is_told_from_elsewhere() -> None:
    assert all(map(server.is_here, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(server.is_here, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


def test_a_port_that_is_taken_or_none_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CloveError, match=f"cannot listen at 127.0.0.1, port {port}: Address"):
            server.listening("127.0.0.1", port)
    with pytest.raises(CloveError, match=r"cannot listen at 127\.0\.0\.1, port 70000"):
        server.listening("127.0.0.1", 70000)
    with pytest.raises(CloveError, match=r"cannot listen at 192\.0\.2\.1"):
        server.listening("192.0.2.1", 0)


def test_addresses_are_written_as_others_need_them() -> None:
    with server.listening("127.0.0.1", 0) as ear:
        assert server.address(ear) == f"http://127.0.0.1:{ear.getsockname()[1]}"
    if socket.has_ipv6:
        try:
            ear = server.listening("::1", 0)
        except CloveError:
            return  # no such address here
        with ear:
            assert server.address(ear) == f"http://[::1]:{ear.getsockname()[1]}"
