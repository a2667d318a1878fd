"""Node groups and workers in the console: queues, heartbeats, what runs; pause, limits, wishes."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.sync_api import Locator, Page, expect

from penstock.transactions import App, Pipeline
from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console
from tests.browser.test_transactions import press


def row(page: Page, table: str, name: str) -> Locator:
    return page.get_by_role("table", name=table).get_by_role("row", name=name)


def group_of(console: Console, name: str) -> dict[str, Any]:
    groups = console.get("/v1/node-groups")["node_groups"]
    found: dict[str, Any] = next(each for each in groups if each["name"] == name)
    return found


def test_groups_workers_and_their_buttons(console: Console, open_page: OpenPage) -> None:
    app = App()
    page = open_page("/node-groups")
    expect(page.get_by_text("No worker is alive")).to_be_visible()

    @app.step("forever")
    async def forever(tx: Any) -> None:
        await asyncio.sleep(600)

    console.deploy(Pipeline("long", ["forever"], node_group="depot"))
    console.post("/v1/transactions", {"pipeline": "long", "external_id": "long-1"})
    expect(row(page, "Node groups", "depot").get_by_role("cell").nth(3)).to_have_text("1")
    console.work(app, node_group="depot")
    worker = page.get_by_role("table", name="Workers").locator("tbody tr")
    expect(worker).to_contain_text("working")
    expect(worker).to_contain_text(" ago")
    expect(worker.get_by_role("link", name="long-1")).to_be_visible()
    screenshots(page, "node-groups")

    press(page, "Set workers", **{"Transactions that each worker takes": "3"})
    expect(page.get_by_text("Workers of depot take 3 at a time.")).to_be_visible()
    assert group_of(console, "depot")["concurrency"] == 3
    press(page, "Set workers", **{"Transactions that each worker takes": ""})
    expect(page.get_by_text("take what they were started with")).to_be_visible()
    assert group_of(console, "depot")["concurrency"] is None
    press(page, "Pause")
    expect(row(page, "Node groups", "depot").get_by_text("paused")).to_be_visible()
    assert group_of(console, "depot")["is_paused"]
    press(page, "Set limits", **{"Most that may wait": "7"})
    expect(row(page, "Node groups", "depot")).to_contain_text("7 may wait")
    assert group_of(console, "depot")["is_paused"], "limits leave the pause alone"
    press(page, "Resume")
    expect(row(page, "Node groups", "depot").get_by_text("paused")).to_have_count(0)
    assert not group_of(console, "depot")["is_paused"]

    viewer = open_page("/node-groups", secret=VIEWER_SECRET, width=375, theme="dark")
    expect(viewer.get_by_role("table", name="Workers").get_by_role("link", name="long-1")).to_be_visible()
    expect(viewer.get_by_role("button", name="Set workers")).to_have_count(0)
    assert viewer.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(viewer, "node-groups-phone-dark")
