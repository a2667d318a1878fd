"""A real Chromium in front of a real gateway.

    def test_something(page, console): ...               # signed in as an administrator, 1,280 points wide
    def test_narrow(open_page): page = open_page("/streams", width=375, theme="dark", secret=VIEWER_SECRET)

Chromium is taken from PATH, or from ``PENSTOCK_CHROMIUM``; without one these tests are skipped, and fail
where
``PENSTOCK_NEEDS_CHROMIUM`` is set (``make test-browser`` installs one and sets it). A page that logs an
error, or loads anything from elsewhere, fails its test.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.console import ADMIN_SECRET, Console, open_console

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
#: Waiting for what a page must show; the machine may be busy.
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One for each file: while Playwright is there, its loop runs in this thread, and no other one can."""
    program = os.environ.get("PENSTOCK_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        missing = f"none of {', '.join(_NAMES)} is in PATH; `make test-browser` installs one"
        pytest.fail(missing) if os.environ.get("PENSTOCK_NEEDS_CHROMIUM") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One gateway and store for the tests of a file."""
    with open_console(tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture
def new_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Console]]:
    """Further ones, for tests that need an empty store or another configuration."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            open_console(tmp_path_factory.mktemp("console"), **settings)
        )


@pytest.fixture
def open_page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Pages of this test; each has a browser's memory of its own."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_page(
        place: str = "/",
        *,
        console: Console | None = None,
        secret: str | None = ADMIN_SECRET,
        width: int = 1280,
        height: int = 900,
        theme: str = "light",
    ) -> Page:
        home: Console = console or request.getfixturevalue("console")
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,  # type: ignore[arg-type]
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        if secret is not None:
            context.add_init_script(f"sessionStorage.setItem('penstock-token', {secret!r})")
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        _watch(page, home.root, faults)
        page.goto(home.address(place))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()


def _watch(page: Page, root: str, faults: list[str]) -> None:
    """What no page may do. Requests that a test lets fail are told by the page, not by its log."""

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            faults.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: request.url.startswith((root, "data:", "blob:")) or faults.append(request.url),
    )


def screenshots(page: Page, name: str) -> None:
    """For people, where ``PENSTOCK_SCREENSHOTS`` names a folder: the whole page as it is."""
    folder = os.environ.get("PENSTOCK_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
