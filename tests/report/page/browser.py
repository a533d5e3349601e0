"""A real browser for the tests of pages: the system's Chromium, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DESKTOP, PHONE = (1200, 900), (390, 844)
READY = "html[data-ready]"
WAIT = 15_000  # milliseconds


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, or skip the test and say why."""
    reason = "no playwright here: pip install 'clove-fl[dev]'"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: install it, and pages are tested in it")
    with playwright.sync_playwright() as control:
        browser = control.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, size: tuple[int, int] = DESKTOP, dark: bool = False
) -> Iterator[Page]:
    """Open a page; whatever the browser complains of fails the test."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    page.set_default_timeout(WAIT)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"not loaded: {request.url}"))
    page.goto(url)
    page.wait_for_selector(READY)
    yield page
    assert complaints == []
    page.close()
