"""A page that follows a run: what it is told, whom it answers, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("plotly", reason="no plotly here: pip install 'clove-fl[dev]'")
pytest.importorskip("sse_starlette", reason="no sse_starlette here: pip install 'clove-fl[dev]'")
pytest.importorskip("watchfiles", reason="no watchfiles here: pip install 'clove-fl[dev]'")
pytest.importorskip("httpx", reason="no httpx here: pip install 'clove-fl[dev]'")

import httpx
from starlette.testclient import TestClient

import clove
from clove import page_cli
from clove.cli import app
from clove.errors import CloveError
from clove.report.page.live import LivePage, nearest
from clove.report.page.render import page_data
from clove.report.page.server import COOKIE, Server, application
from tests.report.page.browser import chromium, opened
from tests.report.page.conftest import SMALL
from tests.test_web import needs_ipv6

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 60.0  # seconds, on the slowest machine


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """A run of one's own to change."""
    return Path(shutil.copytree(runs / "clove", tmp_path / "run"))


def client(folder: Path, token: str | None = None) -> TestClient:
    return TestClient(application(LivePage(folder), token), base_url="http://127.0.0.1")


def shortened(folder: Path, rounds: int) -> None:
    """Take a run back to so many rounds, as if it were going on."""
    (folder / "summary.json").unlink(missing_ok=True)
    for name in ("metrics.jsonl", "timings.jsonl"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:rounds]))


# ------------------------------------------------------------------------------------------- news


def test_the_mark_changes_with_what_there_is_to_see_and_only_then(copied: Path) -> None:
    live = LivePage(copied)
    before = live.version()
    assert live.version() == before
    (copied / "notes.txt").write_text("nobody's business")
    assert live.version() == before
    shortened(copied, 2)
    assert live.version() != before


def test_what_is_shown_is_the_page_with_its_mark(copied: Path) -> None:
    live = LivePage(copied)
    assert live.data() == {**page_data([copied]), "version": live.version()}
    shortened(copied, 2)
    assert live.data()["status"]["words"] == "round 2 of 4"


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path, copied: Path) -> None:
    live = LivePage(tmp_path / "later" / "run")
    assert live.data()["kind"] == "waiting"
    assert nearest(live.folder) == tmp_path
    shutil.copytree(copied, live.folder)
    assert live.data()["kind"] == "run"


def test_a_comparison_without_runs_is_waited_for_too(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(json.dumps({"algorithms": ["clove"], "seeds": 1}))
    assert LivePage(tmp_path).data()["kind"] == "waiting"


def test_a_comparison_is_finished_when_its_table_is_there(comparison: Path, tmp_path: Path) -> None:
    going = Path(shutil.copytree(comparison, tmp_path / "going"))
    assert LivePage(going).data()["status"]["finished"]
    (going / "table.csv").unlink()
    assert not LivePage(going).data()["status"]["finished"]


async def told(live: LivePage, change: Any, times: int) -> list[str]:
    """Return the first marks that are told, while something is changed."""
    marks: list[str] = []
    async for mark in live.changes():
        if not marks or mark != marks[-1]:
            marks.append(mark)
            change(len(marks))
        if len(marks) == times:
            break
    return marks


def test_changes_are_told_as_they_happen(copied: Path) -> None:
    live = LivePage(copied)
    telling = told(live, lambda number: shortened(copied, 4 - number), 3)
    marks = asyncio.run(asyncio.wait_for(telling, PATIENCE))
    assert len(set(marks)) == 3
    assert marks[-1] == live.version() or len(set(marks)) == 3


def test_a_folder_that_comes_later_is_told(tmp_path: Path, copied: Path) -> None:
    live = LivePage(tmp_path / "a" / "b")

    def change(number: int) -> None:
        if number == 1:
            shutil.copytree(copied, live.folder)

    marks = asyncio.run(asyncio.wait_for(told(live, change, 2), PATIENCE))
    assert marks[-1] == live.version()
    assert live.data()["kind"] == "run"


def test_news_end_when_the_page_ends(copied: Path) -> None:
    live = LivePage(copied)

    async def follow() -> list[str]:
        return [mark async for mark in live.changes()]

    threading.Timer(0.3, live.end).start()
    marks = asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    assert set(marks) == {live.version()}
    assert live.readers == 0


# ---------------------------------------------------------------------------------------- answers


def test_the_page_its_data_and_its_script_are_served(copied: Path) -> None:
    with client(copied) as browser:
        page = browser.get("/")
        assert "<title>clove on digits, label-skew-1</title>" in page.text
        assert "data-live" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert browser.get("/data.json").json() == LivePage(copied).data()
        assert len(browser.get("/plotly.js").content) > 1_000_000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/data.json", "/events", "/plotly.js"])
def test_nothing_can_be_written(copied: Path, method: str, path: str) -> None:
    with client(copied) as browser:
        assert browser.request(method, path).status_code == 405


@pytest.mark.parametrize("path", ["/settings.toml", "/../settings.toml", "/models/model-0"])
def test_no_files_are_served(copied: Path, path: str) -> None:
    with client(copied) as browser:
        assert browser.get(path).status_code == 404


def test_other_names_of_this_machine_are_refused(copied: Path) -> None:
    with client(copied) as browser:
        assert browser.get("/", headers={"host": "evil.example"}).status_code == 400


def test_without_the_token_nothing_is_told(copied: Path) -> None:
    with client(copied, token="sesame") as browser:
        for path in ("/", "/data.json", "/events", "/plotly.js"):
            assert browser.get(path).status_code == 401
            assert browser.get(f"{path}?token=other").status_code == 401
            wrong = {"Authorization": "Bearer other"}
            assert browser.get(path, headers=wrong).status_code == 401
        assert "sesame" not in browser.get("/").text


def test_the_token_is_brought_once_and_leaves_the_address(copied: Path) -> None:
    with client(copied, token="sesame") as browser:
        answer = browser.get("/?token=sesame", follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=sesame")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert browser.get("/data.json").status_code == 200


def test_programs_bring_the_token_in_a_header(copied: Path) -> None:
    with client(copied, token="sesame") as browser:
        found = browser.get("/data.json", headers={"Authorization": "Bearer sesame"})
        assert found.json()["kind"] == "run"


def test_what_cannot_be_read_now_is_said_plainly(copied: Path) -> None:
    (copied / "data.json").write_text("{")
    with client(copied) as browser:
        answer = browser.get("/data.json")
    assert answer.status_code == 503
    assert "data.json is damaged" in answer.text


# ---------------------------------------------------------------------------------------- serving


def test_on_this_machine_there_is_no_token_elsewhere_always(copied: Path) -> None:
    here, everywhere = Server(copied, "127.0.0.1", 0, None), Server(copied, "0.0.0.0", 0, None)
    assert here.token is None
    assert here.address.startswith("http://127.0.0.1:")
    assert everywhere.token is not None
    assert everywhere.address.endswith(f"/?token={everywhere.token}")
    assert Server(copied, "127.0.0.1", 0, "mine").address.endswith("?token=mine")


def test_the_address_of_another_protocol_is_served_by_the_same_rule(copied: Path) -> None:
    needs_ipv6()
    here, everywhere = Server(copied, "::1", 0, None), Server(copied, "::", 0, None)
    assert here.token is None
    assert here.address.startswith("http://[::1]:")
    assert everywhere.token is not None
    with here.in_background():
        assert httpx.get(f"{here.address}data.json").json()["kind"] == "run"
    with everywhere.in_background():
        port = everywhere.address.rpartition(":")[2].partition("/")[0]
        for name in ("127.0.0.1", "[::1]"):
            url = f"http://{name}:{port}/data.json"
            assert httpx.get(url).status_code == 401
            allowed = {"Authorization": f"Bearer {everywhere.token}"}
            assert httpx.get(url, headers=allowed).status_code == 200


def test_a_token_of_any_letters_stands_in_the_address(copied: Path) -> None:
    server = Server(copied, "127.0.0.1", 0, "a b&c")
    assert server.address.endswith("?token=a%20b%26c")
    with server.in_background(), httpx.Client() as browser:
        assert browser.get(server.address, follow_redirects=True).status_code == 200


def test_a_port_that_is_taken_is_an_error_only_if_it_was_asked_for(copied: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CloveError, match=f"cannot listen at 127.0.0.1, port {port}"):
            Server(copied, "127.0.0.1", port, None)


def test_a_page_in_the_background_comes_and_goes(copied: Path) -> None:
    server = Server(copied, "127.0.0.1", 0, None)
    with server.in_background():
        assert httpx.get(f"{server.address}data.json").json()["kind"] == "run"
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{server.address}data.json")


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clove.extras.find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["watch", str(tmp_path)])
    assert done.exit_code == 1
    assert "pip install 'clove-fl[page]'" in done.output


@pytest.mark.slow
def test_ctrl_c_ends_the_command_cleanly_while_somebody_looks(copied: Path) -> None:
    command = [sys.executable, "-m", "clove.cli", "watch", str(copied), "--no-open", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[1]
        with httpx.stream("GET", f"{address}events", timeout=PATIENCE) as events:
            assert next(events.iter_lines()).startswith("event: change")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        assert process.stderr.read().splitlines() == ["Ctrl-C ends the page, not the run."]


def test_ctrl_c_says_nothing_while_a_browser_looks(browser: Browser, copied: Path) -> None:
    command = [sys.executable, "-m", "clove.cli", "watch", str(copied), "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[1]
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(300)  # until it listens for news
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read().splitlines() == ["Ctrl-C ends the page, not the run."]
        page.close()


# ---------------------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_page_gains_rounds_while_a_real_run_goes_on(browser: Browser, tmp_path: Path) -> None:
    home, next_round = tmp_path / "run", threading.Semaphore(0)

    def after_a_round(progress: Any) -> None:
        if progress.round < 4:
            assert next_round.acquire(timeout=PATIENCE)

    def run() -> None:
        clove.run(**SMALL, algorithm="clove", out=home, watch=after_a_round)

    server, running = Server(home, "127.0.0.1", 0, None), threading.Thread(target=run, daemon=True)
    with server.in_background(), opened(browser, server.address) as page:
        status = page.locator("#status")
        assert status.inner_text() == "waiting"
        running.start()
        for number in (1, 2, 3):
            page.get_by_text(f"round {number} of 4", exact=True).wait_for(timeout=1000 * PATIENCE)
            points = "document.querySelector('#curves .chart').data[0].x.length"
            assert page.evaluate(points) == number
            assert page.locator("#vectors output").inner_text() == f"round {number}"
            next_round.release()
        page.get_by_text("finished", exact=True).wait_for(timeout=1000 * PATIENCE)
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1
        running.join(PATIENCE)


def test_what_a_reader_has_set_is_kept_when_the_page_changes(
    browser: Browser, copied: Path
) -> None:
    shortened(copied, 2)
    whole = json.loads((copied / "metrics.jsonl").read_text().splitlines()[-1])
    server = Server(copied, "127.0.0.1", 0, None)
    with server.in_background(), opened(browser, server.address) as page:
        slider = page.get_by_role("slider", name="Round")
        slider.focus()
        page.keyboard.press("Home")
        page.get_by_label("Find").fill("4")
        with (copied / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**whole, "round": 3}) + "\n")
        page.get_by_text("round 3 of 4", exact=True).wait_for(timeout=1000 * PATIENCE)
        assert page.locator("#vectors output").inner_text() == "round 1"
        assert page.get_by_label("Find").input_value() == "4"
        assert page.locator("#clients tbody tr").count() == 1


def test_a_page_that_lost_its_server_finds_it_again(browser: Browser, copied: Path) -> None:
    shortened(copied, 2)
    first = Server(copied, "127.0.0.1", 0, None)
    port = int(first.address.rstrip("/").rsplit(":", 1)[1])
    page = browser.new_page()
    with first.in_background():
        page.goto(first.address)
        page.wait_for_selector("html[data-ready]")
        page.get_by_text("round 2 of 4", exact=True).wait_for()
    page.get_by_text("connection lost").wait_for(timeout=1000 * PATIENCE)
    shortened(copied, 1)
    with Server(copied, "127.0.0.1", port, None).in_background():
        page.get_by_text("round 1 of 4", exact=True).wait_for(timeout=1000 * PATIENCE)
    page.close()


def test_a_run_opens_its_page_which_has_all_of_it_when_it_ends(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = browser.new_page()

    def open_(address: str) -> bool:
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return True

    monkeypatch.setattr(page_cli.webbrowser, "open", open_)
    small = [f"--set={name}={value}" for name, value in SMALL.items() if name != "rounds"]
    words = ["run", "--watch", "--rounds", "2", "--out", "here", *small, "--json", "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["rounds"] == 2
    page.get_by_text("finished", exact=True).wait_for(timeout=1000 * PATIENCE)
    assert page.locator("#curves details tbody tr").count() == 2
    with pytest.raises(httpx.HTTPError):
        httpx.get(page.url)
    page.close()
