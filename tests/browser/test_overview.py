"""The overview: tiles, live charts, who is busiest, what is wrong with node groups, and where to begin."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from penstock.errors import StepFailedError
from penstock.transactions import App, Delay, Pipeline, Wait
from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import Console

#: Tiles and where they lead.
TILES = {
    "queued": "#/transactions?state=queued&children=true",
    "running": "#/transactions?state=running&children=true",
    "sleeping": "#/transactions?tab=sleeping&children=true",
    "waiting for a switch": "#/transactions?tab=waiting&children=true",
    "failed": "#/transactions?tab=ended&status=failed&children=true",
    "dead letter": "#/transactions?tab=dead&children=true",
    "to archive": "#/transactions?tab=ended&children=true",
    "webhooks waiting": "#/webhooks",
}
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def console(console: Console) -> Console:
    """A shop where each state has somebody; ``gpu`` has no worker, ``billing`` is paused."""
    app = App()

    @app.step("charge")
    async def charge(tx: Any) -> None:
        if tx.input == "no money":
            raise StepFailedError("no money")

    console.deploy(
        Pipeline("checkout", ["charge"], node_group="shop"),
        Pipeline("nap", [Delay(DAY_MS)], node_group="shop"),
        Pipeline("approval", [Wait("approved")], node_group="shop"),
        Pipeline("render", ["charge"], node_group="gpu"),
        Pipeline("invoice", ["charge"], node_group="billing"),
    )
    transactions = console.ps.transactions
    transactions.pause(node_group="billing")
    for pipeline in ("nap", "approval", "render", "invoice", "checkout"):
        transactions.start(pipeline, owner="acme")
    transactions.start("checkout", "no money", owner="acme")
    console.work(app, node_group="shop")
    console.until(lambda: console.get("/v1/transaction-overview")["to_archive"] == 2)
    return console


def live(page: Page) -> None:
    expect(page.get_by_role("status", name="Live line")).to_have_text("live")


def tile(page: Page, name: str) -> Any:
    return page.get_by_role("link", name=re.compile(rf"^\d+ ?{name}"))


def test_tiles_count_and_lead_to_the_lists(page: Page, console: Console) -> None:
    live(page)
    for name, place in TILES.items():
        expect(tile(page, name)).to_have_attribute("href", place)
    for name, count in (("sleeping", "1"), ("waiting", "1"), ("failed", "1"), ("queued", "2")):
        expect(tile(page, name)).to_contain_text(count)
    for name, pipeline in (("queued", "render"), ("sleeping", "nap"), ("failed", "checkout")):
        tile(page, name).click()
        expect(page.get_by_role("heading", level=1, name="Transactions")).to_be_visible()
        listed = page.get_by_role("table", name="Transactions", exact=True)
        expect(listed.get_by_role("row", name=re.compile(pipeline))).to_have_count(1)
        page.go_back()


def test_what_happens_is_seen_without_a_reload(page: Page, console: Console) -> None:
    live(page)
    console.ps.transactions.start("nap", owner="acme")
    console.ps.transactions.start("render", owner="acme")
    expect(tile(page, "sleeping")).to_contain_text("2")
    expect(page.get_by_role("img", name=re.compile("Waiting for workers.*gpu 2"))).to_be_visible()
    for name in (
        "Transactions a second: queued",
        "From the queue to a worker: p50",
        "From start to end: p50",
    ):
        expect(page.get_by_role("img", name=re.compile(name))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"Commands a second: commands [\d,.]+"))).to_be_visible()


def test_groups_that_do_not_work_are_pointed_out(page: Page) -> None:
    groups = page.get_by_role("table", name="Node groups")
    expect(groups.get_by_role("row", name=re.compile("gpu"))).to_contain_text("no workers")
    expect(groups.get_by_role("row", name=re.compile("billing"))).to_contain_text("paused")
    expect(groups.get_by_role("row", name=re.compile("shop"))).to_contain_text("works")


def test_choices_stay_in_the_address(page: Page, console: Console) -> None:
    live(page)
    busiest = page.get_by_role("table", name="Busiest")
    expect(busiest.get_by_role("link", name="checkout")).to_have_attribute("href", "#/pipelines/checkout")
    page.get_by_role("radio", name="Owners").click()
    expect(busiest.get_by_role("link", name="acme")).to_have_attribute(
        "href", "#/transactions?tab=all&owner=acme&children=true"
    )
    page.get_by_role("radio", name="Node groups").click()
    expect(busiest.get_by_role("link", name="shop")).to_be_visible()
    for name, level in (("1 day", "600s"), ("2 hours", "60s")):
        page.get_by_role("radio", name=name).click()
        expect(tile(page, "failed")).to_contain_text(f"in {name}")
        assert page.url == console.address(f"/?by=node_group&level={level}")
    page.reload()
    expect(page.get_by_role("radio", name="2 hours")).to_be_checked()
    expect(page.get_by_role("radio", name="Node groups")).to_be_checked()
    live(page)


def test_a_lost_line_is_told_and_comes_back(open_page: OpenPage) -> None:
    page = open_page("/server")
    is_away = True

    def answer(route: Route) -> None:
        route.abort() if is_away else route.continue_()

    page.route("**/v1/overview/events*", answer)
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("status", name="Live line")).to_have_text("waiting for the gateway")
    is_away = False
    live(page)


def test_an_empty_store_says_where_to_begin(open_page: OpenPage, new_console: Any) -> None:
    empty = new_console()
    page = open_page(console=empty, width=375, theme="dark")
    expect(page.get_by_text("Nothing has happened in this store yet")).to_be_visible()
    page.get_by_role("button", name="Copy penstock demo").click()
    assert page.evaluate("navigator.clipboard.readText()") == "penstock demo"
    path = empty.get("/v1/server")["store"]["path"]
    expect(page.get_by_role("button", name=f"Copy penstock worker shop --store {path}")).to_be_visible()
    expect(page.get_by_role("button", name="Copy penstock tx start checkout")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page(width=375, theme="dark")
    live(page)
    expect(page.get_by_role("img", name=re.compile("Transactions a second"))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(page, "overview-375-dark")
