from __future__ import annotations

import builtins
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clove.data.card import RemoteFile
from clove.data.digest import md5_of
from clove.data.download import download
from clove.errors import CloveError

from . import server
from .server import Behaviour, Mirror

CONTENT = os.urandom(300_000)
SPOILT = CONTENT[:1000] + bytes([CONTENT[1000] ^ 1]) + CONTENT[1001:]


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with server.mirror() as running:
        yield running


def remote(mirror: Mirror, *behaviours: Behaviour) -> RemoteFile:
    """Make a file that has one address for each behaviour."""
    paths = [f"/{number}/file.bin" for number in range(len(behaviours))]
    mirror.behaviours.update(zip(paths, behaviours, strict=True))
    md5 = hashlib.md5(CONTENT).hexdigest()
    return RemoteFile("file.bin", md5, tuple(mirror.url + path for path in paths))


def fetched(file: RemoteFile, folder: Path, **options: Any) -> bytes:
    path = download(file, folder, timeout=0.5, pause=0, **options)
    assert path == folder / "file.bin"
    # Nothing is left but the file.
    assert [entry.name for entry in folder.iterdir()] == ["file.bin"]
    return path.read_bytes()


def test_a_file_is_downloaded_into_a_new_folder(mirror: Mirror, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert fetched(remote(mirror, server.serve(CONTENT)), folder) == CONTENT


def test_progress_is_told(mirror: Mirror, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    file = remote(mirror, server.serve(CONTENT))
    fetched(file, tmp_path, progress=lambda *what: told.append(what))
    assert told[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    done = [bytes_there for _, bytes_there, _ in told]
    assert done == sorted(done)
    assert len(done) > 1


def test_a_length_nobody_tells_is_unknown(mirror: Mirror, tmp_path: Path) -> None:
    told: list[int | None] = []
    file = remote(mirror, server.without_length(CONTENT))
    assert fetched(file, tmp_path, progress=lambda *what: told.append(what[2])) == CONTENT
    assert set(told) == {None}


def test_what_is_there_as_published_is_not_asked_for(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(CONTENT)
    assert fetched(remote(mirror, server.status(500)), tmp_path) == CONTENT
    assert mirror.requests == []


def test_a_wrong_file_under_the_name_is_replaced(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(SPOILT)
    assert fetched(remote(mirror, server.serve(CONTENT)), tmp_path) == CONTENT


@pytest.mark.parametrize(
    "bad",
    [
        server.status(404),
        server.status(503),
        server.serve(SPOILT),
        server.serve(b"<html>please log in</html>"),
        server.serve(b""),
        server.redirect("/0/file.bin"),
    ],
)
def test_an_address_that_fails_is_followed_by_the_next(
    mirror: Mirror, tmp_path: Path, bad: Behaviour
) -> None:
    assert fetched(remote(mirror, bad, server.serve(CONTENT)), tmp_path) == CONTENT


def test_an_address_nobody_listens_at_is_followed_by_the_next(
    mirror: Mirror, tmp_path: Path
) -> None:
    good = remote(mirror, server.serve(CONTENT))
    file = RemoteFile(good.name, good.md5, ("http://127.0.0.1:1/file.bin", *good.urls))
    assert fetched(file, tmp_path) == CONTENT


def test_redirects_are_followed(mirror: Mirror, tmp_path: Path) -> None:
    mirror.behaviours["/elsewhere"] = server.serve(CONTENT)
    assert fetched(remote(mirror, server.redirect("/elsewhere")), tmp_path) == CONTENT


def test_a_download_that_stops_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path) -> None:
    file = remote(mirror, server.serve(CONTENT, most=200_000), server.serve(CONTENT))
    assert fetched(file, tmp_path) == CONTENT
    assert mirror.requests == [("/0/file.bin", None), ("/1/file.bin", "bytes=200000-")]


def test_a_redirect_keeps_the_place_to_go_on_from(mirror: Mirror, tmp_path: Path) -> None:
    mirror.behaviours["/elsewhere"] = server.serve(CONTENT)
    file = remote(mirror, server.serve(CONTENT, most=10), server.redirect("/elsewhere"))
    assert fetched(file, tmp_path) == CONTENT
    assert mirror.requests[-1] == ("/elsewhere", "bytes=10-")


def test_an_address_that_stalls_is_given_up(mirror: Mirror, tmp_path: Path) -> None:
    file = remote(mirror, server.stall(CONTENT, after=70_000), server.serve(CONTENT))
    assert fetched(file, tmp_path) == CONTENT
    # What had come was kept.
    assert mirror.requests[-1] == ("/1/file.bin", "bytes=70000-")


def test_an_address_without_ranges_starts_over(mirror: Mirror, tmp_path: Path) -> None:
    file = remote(mirror, server.serve(CONTENT, most=99), server.without_ranges(CONTENT))
    assert fetched(file, tmp_path) == CONTENT


def test_a_part_that_was_not_asked_for_is_not_taken(mirror: Mirror, tmp_path: Path) -> None:
    file = remote(
        mirror,
        server.serve(CONTENT, most=99),
        server.wrong_range(CONTENT),
        server.serve(CONTENT),
    )
    assert fetched(file, tmp_path) == CONTENT


def test_one_address_is_tried_several_times(mirror: Mirror, tmp_path: Path) -> None:
    behaviour = server.in_turn(server.serve(CONTENT, most=7), server.serve(CONTENT))
    assert fetched(remote(mirror, behaviour), tmp_path) == CONTENT
    assert len(mirror.requests) == 2


def test_a_later_call_goes_on(mirror: Mirror, tmp_path: Path) -> None:
    behaviours = [server.serve(CONTENT, most=5)] * 3
    file = remote(mirror, server.in_turn(*behaviours, server.serve(CONTENT)))
    with pytest.raises(CloveError, match="stopped after 15 of 300,000 bytes"):
        fetched(file, tmp_path)
    # Nothing stands under the name itself.
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin.part"]
    assert fetched(file, tmp_path) == CONTENT
    assert mirror.requests[-1] == ("/0/file.bin", "bytes=15-")


@pytest.mark.parametrize("left", [SPOILT[:2000], SPOILT, CONTENT + b"more", CONTENT])
def test_a_spoilt_beginning_is_thrown_away(mirror: Mirror, tmp_path: Path, left: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(left)
    assert fetched(remote(mirror, server.serve(CONTENT)), tmp_path) == CONTENT


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_file_is_whole_or_not_there(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    good = server.serve(CONTENT)
    ways = {
        "cut": server.serve(CONTENT, most=100_000),
        "missing": server.status(404),
        "spoilt": server.serve(SPOILT),
        "cut and spoilt": server.serve(SPOILT, most=50_000),
        "whole only": server.without_ranges(CONTENT),
        "good": good,
    }
    names = data.draw(st.lists(st.sampled_from(sorted(ways)), min_size=1, max_size=4))
    folder = tmp_path_factory.mktemp("fetched")
    file = remote(mirror, *(ways[name] for name in names))
    try:
        assert fetched(file, folder) == CONTENT
    except CloveError:
        assert not (folder / "file.bin").exists()
        assert not {"good", "whole only"} & set(names)


def test_when_no_address_delivers_all_answers_are_told(mirror: Mirror, tmp_path: Path) -> None:
    file = remote(mirror, server.status(404), server.serve(SPOILT), server.stall(CONTENT, 0))
    with pytest.raises(CloveError) as caught:
        fetched(file, tmp_path)
    message = str(caught.value)
    assert "file.bin could not be downloaded" in message
    assert f"put it in {tmp_path}" in message
    assert "/0/file.bin: HTTP status 404" in message
    assert "/1/file.bin: delivered another file than the published one" in message
    assert "/2/file.bin: timed out" in message
    # Not even an empty beginning is left.
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_named_in_the_environment_is_used(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", mirror.url)
    monkeypatch.setenv("no_proxy", "")
    url = "http://data.invalid/file.bin"
    # A proxy is asked for whole addresses, and nobody else could have answered for this one.
    mirror.behaviours[url] = server.serve(CONTENT)
    file = RemoteFile("file.bin", hashlib.md5(CONTENT).hexdigest(), (url,))
    assert fetched(file, tmp_path) == CONTENT
    assert mirror.requests == [(url, None)]


def test_a_folder_that_cannot_be_written_to_is_named(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(CloveError, match=r"a file/x/file\.bin cannot be written"):
        download(remote(mirror, server.serve(CONTENT)), tmp_path / "a file" / "x")


def test_a_full_disk_is_not_the_addresss_fault(mirror: Mirror, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CloveError, match=r"file\.bin cannot be written"):
            download(remote(mirror, server.serve(CONTENT)), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(mirror.requests) == 1


def test_what_had_come_whole_before_a_kill_needs_no_network(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetched(remote(mirror, server.status(500)), tmp_path) == CONTENT
    assert mirror.requests == []


def test_an_error_of_whoever_watches_is_not_the_addresss_fault(
    mirror: Mirror, tmp_path: Path
) -> None:
    def watch(name: str, done: int, total: int | None) -> None:
        raise ValueError("the screen is gone")

    with pytest.raises(ValueError, match="the screen is gone"):
        download(remote(mirror, server.serve(CONTENT)), tmp_path, watch)


def test_two_processes_do_not_download_the_same_file(mirror: Mirror, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    file = remote(mirror, server.stall(CONTENT, after=10))
    thread = threading.Thread(target=lambda: _ignore(file, tmp_path))
    thread.start()
    while not mirror.requests:
        time.sleep(0.01)
    with pytest.raises(CloveError, match=r"file\.bin\.part is being downloaded by another"):
        download(file, tmp_path)
    thread.join()


def _ignore(file: RemoteFile, folder: Path) -> None:
    with pytest.raises(CloveError, match="timed out"):
        download(file, folder, timeout=0.3, pause=0)


def test_where_files_cannot_be_locked_they_are_downloaded_all_the_same(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_locks(name: str, *rest: Any) -> Any:
        if name == "fcntl":
            raise ImportError(name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_locks)
    assert fetched(remote(mirror, server.serve(CONTENT)), tmp_path) == CONTENT


KILLED = """
import sys
from pathlib import Path
from clove.data.card import RemoteFile
from clove.data.download import download
download(RemoteFile("file.bin", sys.argv[1], (sys.argv[2],)), Path(sys.argv[3]))
"""


def test_a_kill_leaves_what_had_come_and_nothing_under_the_name(
    mirror: Mirror, tmp_path: Path
) -> None:
    file = remote(mirror, server.in_turn(server.stall(CONTENT, 250_000), server.serve(CONTENT)))
    arguments = [file.md5, file.urls[0], str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments])
    part = tmp_path / "file.bin.part"
    while not (part.exists() and part.stat().st_size > 100_000):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "file.bin").exists()
    assert fetched(file, tmp_path) == CONTENT
    assert (mirror.requests[-1][1] or "").startswith("bytes=")


def test_a_file_that_is_not_there_has_no_sum(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="nowhere cannot be read"):
        md5_of(tmp_path / "nowhere")
