"""What surrounds every page: navigation, keys, themes, signing in and out."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.console import ADMIN_SECRET, VIEWER_SECRET, Console
from tests.browser.steps import fits

PLACES = (
    "Overview",
    "Transactions",
    "Pipelines",
    "Node groups",
    "Streams",
    "Channels",
    "Webhooks",
    "Data pipeline",
    "Server",
)


def heading(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1, name=name, exact=True)).to_be_visible()


def test_every_page_of_the_navigation_opens(page: Page) -> None:
    for name in PLACES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        heading(page, name)


def test_keys_lead_to_pages(page: Page) -> None:
    heading(page, "Overview")
    page.keyboard.press("g")
    page.keyboard.press("s")
    heading(page, "Streams")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_signing_in_and_out(open_page: OpenPage) -> None:
    page = open_page(secret=None)
    page.get_by_label("Token").fill("not-a-token-of-anybody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(VIEWER_SECRET)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("read-only")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_link_with_a_token_signs_in_and_forgets_it(open_page: OpenPage, console: Console) -> None:
    page = open_page(f"token={ADMIN_SECRET}", secret=None)
    expect(page.get_by_text("operator", exact=True)).to_be_visible()
    assert page.url == console.address("/")


def test_themes_follow_each_other_and_stay(page: Page) -> None:
    heading(page, "Overview")
    seen = []
    for _ in range(3):
        page.get_by_role("button", name=re.compile("Theme")).click()
        seen.append(page.evaluate("document.documentElement.dataset.theme"))
    assert seen == ["light", "dark", "auto"]


def test_a_phone_is_wide_enough(open_page: OpenPage) -> None:
    """Nothing sticks out to the right, and the menu leads everywhere."""
    page = open_page(width=375, height=800, theme="dark")
    for name in PLACES:
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        heading(page, name)
        assert fits(page), name


def test_an_unknown_page_says_so(open_page: OpenPage) -> None:
    page = open_page("/nowhere")
    expect(page.get_by_text("There is no such page")).to_be_visible()
