"""The service as a command: a real process on a real port."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

import clove
from clove.errors import CloveError
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
        here = f"http://127.0.0.1:{urlsplit(url).port}"
        token = said.split("Bearer ")[1].strip()
        assert len(token) >= 32
        with pytest.raises(CloveError, match="send the token"):
            clove.newcomer(here, *digits_of((2, 3)))
        assert clove.newcomer(here, *digits_of((2, 3)), token=token).model == 1
