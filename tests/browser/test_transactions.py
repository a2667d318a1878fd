"""Transactions in the console: lists, filters, one transaction as it goes on, each button with its effect."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from penstock.errors import StepAbortedError
from penstock.transactions import App, Child, Delay, Function, Parallel, Pipeline, Retry, Wait
from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console

HOUR_MS = 3_600_000
PAGE = 50


def shop_app() -> App:
    app = App()

    @app.step("add")
    async def add(tx: Any) -> Any:
        tx.log(f"adding to {tx.input['n']}")
        return {**tx.input, "n": tx.input["n"] + 1}

    @app.step("flaky")
    async def flaky(tx: Any) -> None:
        if tx.attempt < 2:
            raise ConnectionError("the bank is away")

    @app.step("judge")
    async def judge(tx: Any) -> None:
        if tx.input["n"] > 100:
            raise StepAbortedError("that is too much")

    @app.step("boom")
    async def boom(tx: Any) -> None:
        raise ValueError("nobody expected this")

    return app


@pytest.fixture(scope="module")
def shop(console: Console) -> Console:
    """A gateway with a worker and pipelines whose transactions are everywhere."""
    for name, steps in {
        "leaf": ["add"],
        "approval": ["add", Wait("approved", into="approved")],
        "later": [Delay(HOUR_MS), "add"],
        "broken": ["boom"],
        "order": [
            Function("add", compensate="add"),
            Function("flaky", retry=Retry(limit=3, backoff_ms=1)),
            "judge",
            Child("leaf"),
            Parallel({"left": ["add"], "right": ["add"]}),
        ],
    }.items():
        console.deploy(Pipeline(name, steps, node_group="shop"))
    console.deploy(Pipeline("parked", ["add"], node_group="nobody"))
    console.work(shop_app(), node_group="shop")
    return console


def start(shop: Console, pipeline: str, state: str, n: int = 1, **more: Any) -> str:
    """The id of a new one that has come so far."""
    wish = {"pipeline": pipeline, "input": {"n": n}, "owner": "acme", **more}
    tx: str = shop.post("/v1/transactions", wish)["id"]
    shop.until(lambda: look(shop, tx)["state"] == state)
    return tx


def look(shop: Console, tx: str) -> dict[str, Any]:
    found: dict[str, Any] = shop.get(f"/v1/transactions/{tx}", trail="true")
    return found


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Transactions").locator("tbody tr")


def press(page: Page, button: str, answer: str | None = None, **fields: str) -> None:
    """A button that asks: fill in its fields, and say yes."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        field = dialog.get_by_label(label)
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name=answer or button, exact=True).click()


def notes(shop: Console, tx: str, kind: str) -> list[str]:
    return [entry["note"] for entry in look(shop, tx)["trail"] if entry["kind"] == kind]


def test_each_tab_lists_its_own(shop: Console, open_page: OpenPage) -> None:
    start(shop, "later", "sleeping", external_id="tab-sleeps")
    start(shop, "approval", "waiting", external_id="tab-waits")
    start(shop, "broken", "ended", external_id="tab-dead")
    start(shop, "leaf", "ended", external_id="tab-done")
    page = open_page("/transactions")
    for tab, inside, outside in (
        ("In play", "tab-sleeps", "tab-done"),
        ("Sleeping", "tab-sleeps", "tab-waits"),
        ("Waiting for a switch", "tab-waits", "tab-sleeps"),
        ("Dead letter", "tab-dead", "tab-done"),
        ("Ended", "tab-done", "tab-waits"),
        ("All", "tab-waits", "nobody-has-this"),
    ):
        page.get_by_role("navigation", name="Where they are").get_by_role("link", name=tab).click()
        expect(rows(page).get_by_role("link", name=inside)).to_be_visible()
        expect(rows(page).get_by_role("link", name=outside)).to_have_count(0)
    screenshots(page, "transactions")
    page.get_by_role("navigation", name="Where they are").get_by_role("link", name="Archived").click()
    expect(page.get_by_text("This gateway has no archive")).to_be_visible()


def test_filters_and_search_are_in_the_address(shop: Console, open_page: OpenPage) -> None:
    mine = start(shop, "leaf", "ended", external_id="found-1", owner="umbrella")
    start(shop, "broken", "ended", owner="umbrella")
    page = open_page("/transactions?tab=all&owner=umbrella")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Status").select_option("success")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Pipeline").fill("broken")
    page.get_by_label("Pipeline").press("Enter")
    expect(page.get_by_text("There are no transactions like this")).to_be_visible()
    assert {"owner=umbrella", "status=success", "pipeline=broken"} <= set(re.split("[?&]", page.url))
    page.reload()
    expect(page.get_by_label("Pipeline")).to_have_value("broken")
    page.get_by_label("Since").fill("2001-01-01T00:00")
    page.get_by_label("Until").fill("2001-01-02T00:00")
    page.get_by_label("Until").press("Enter")
    expect(page).to_have_url(re.compile("until=2001-01-0"))
    page.get_by_role("button", name="Clear filters").click()

    search = page.get_by_role("searchbox", name="Id or external id")
    search.fill("found-1")
    search.press("Enter")
    expect(rows(page)).to_have_count(1)
    search.fill(mine)
    search.press("Enter")
    expect(page.get_by_role("heading", level=1, name="found-1")).to_be_visible()


def test_pages_go_on_and_back(shop: Console, open_page: OpenPage) -> None:
    for number in range(PAGE + 1):
        shop.ps.transactions.start("parked", {"n": 1}, owner="many", external_id=f"many-{number}")
    page = open_page("/transactions?owner=many")
    expect(rows(page)).to_have_count(PAGE)
    page.get_by_role("button", name="Older").click()
    expect(rows(page).get_by_role("link", name="many-0")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.reload()
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Newer").click()
    expect(rows(page)).to_have_count(PAGE)


def test_a_step_opens_to_what_it_got_gave_and_logged(shop: Console, open_page: OpenPage) -> None:
    tx = start(shop, "order", "ended", external_id="steps-1")
    page = open_page(f"/transactions/{tx}")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("img", name=re.compile("flaky: .*pause before a retry"))).to_be_visible()
    timeline.get_by_role("button", name="add").click()
    step = page.get_by_role("region", name="Step add")
    expect(step.get_by_label("Input of add")).to_contain_text('"n": 1')
    expect(step.get_by_label("Output of add")).to_contain_text('"n": 2')
    expect(step.get_by_role("list", name="Logs of add")).to_contain_text("adding to 1")
    timeline.get_by_role("button", name="flaky").click()
    attempts = page.get_by_role("table", name="Attempts of flaky")
    expect(attempts.locator("tbody tr")).to_have_count(2)
    expect(attempts).to_contain_text("the bank is away")
    page.get_by_role("radio", name="True to time").click()
    assert {"scale=true", "open=step-1"} <= set(re.split("[?&]", page.url))
    screenshots(page, "transaction")

    parts = page.get_by_role("navigation", name="Parts")
    parts.get_by_role("link", name="Data").click()
    expect(page.get_by_label("Output", exact=True)).to_contain_text('"right"')
    parts.get_by_role("link", name="Trail").click()
    expect(page.get_by_role("table", name="Trail").locator("tbody tr").first).to_contain_text("1 add")
    parts.get_by_role("link", name="Children (3)").click()
    page.get_by_role("table", name="Children").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1, name=f"{tx}.1.0")).to_be_visible()
    page.get_by_role("link", name=tx, exact=True).click()
    expect(page.get_by_role("heading", level=1, name="steps-1")).to_be_visible()


def test_a_switch_lets_it_go_on_while_one_looks(shop: Console, open_page: OpenPage) -> None:
    tx = start(shop, "approval", "waiting")
    page = open_page(f"/transactions/{tx}")
    expect(page.get_by_text("for the switch approved")).to_be_visible()
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    press(page, "Set switch", Switch="other", Value="x")
    expect(page.get_by_role("table", name="Switches")).to_contain_text("other")
    press(page, "Delete")
    expect(page.get_by_role("table", name="Switches")).to_have_count(0)
    assert look(shop, tx)["state"] == "waiting"
    assert "switches" not in look(shop, tx)
    press(page, "Set switch", Value="by alice")
    expect(page.get_by_text("Ended at")).to_be_visible()
    assert look(shop, tx)["output"] == {"n": 2, "approved": "by alice"}


def test_waking_urgency_and_cancelling(shop: Console, open_page: OpenPage) -> None:
    sleeper, doomed = start(shop, "later", "sleeping"), start(shop, "later", "sleeping")
    page = open_page(f"/transactions/{sleeper}")
    press(page, "Change priority", Priority="9")
    shop.until(lambda: look(shop, sleeper).get("priority") == 9)
    press(page, "Wake now", Reason="it is late")
    expect(page.get_by_text("Ended at")).to_be_visible()
    assert notes(shop, sleeper, "wake") == ["admin: it is late"]
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)

    page.goto(shop.address(f"/transactions/{doomed}"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Keep it as it is").click()
    press(page, "Cancel", "Cancel it", Reason="nobody wants it")
    expect(page.get_by_text("Ended at")).to_be_visible()
    assert look(shop, doomed)["status"] == "cancelled"
    assert notes(shop, doomed, "cancel") == ["admin: nobody wants it"]


def test_what_ended_is_retried_and_replayed(shop: Console, open_page: OpenPage) -> None:
    tx = start(shop, "order", "ended", n=200)
    page = open_page(f"/transactions/{tx}")
    expect(page.get_by_text("that is too much").first).to_be_visible()
    expect(page.get_by_role("button", name="↩ add")).to_be_visible()
    press(page, "Retry", Reason="once more")
    shop.until(lambda: look(shop, tx).get("run") == 1 and look(shop, tx)["state"] == "ended")
    expect(page.get_by_text("1 times")).to_be_visible()
    page.get_by_role("button", name="judge").click()
    press(page, "Replay from here", "Replay", Reason="the judge was wrong")
    shop.until(lambda: look(shop, tx).get("run") == 2 and look(shop, tx)["state"] == "ended")
    assert notes(shop, tx, "replay")[-1] == "admin: the judge was wrong: from step 2"


def test_webhook_and_an_unknown_id(shop: Console, open_page: OpenPage) -> None:
    tx = start(shop, "leaf", "ended", webhook="https://example.com/told")
    page = open_page(f"/transactions/{tx}")
    expect(page.get_by_role("heading", name="Webhook")).to_be_visible()
    expect(page.get_by_text("https://example.com/told")).to_be_visible()
    page.goto(shop.address(f"/transactions/{tx[:-4]}ffff"))
    expect(page.get_by_text("There is no such transaction")).to_be_visible()


def test_a_viewer_sees_no_buttons_and_a_phone_everything(shop: Console, open_page: OpenPage) -> None:
    tx = start(shop, "approval", "waiting", external_id="viewed")
    page = open_page(f"/transactions/{tx}?open=step-0", secret=VIEWER_SECRET, width=375, theme="dark")
    expect(page.get_by_label("Input of add")).to_be_visible()
    for button in ("Cancel", "Wake now", "Set switch", "Change priority", "Replay from here"):
        expect(page.get_by_role("button", name=button, exact=True)).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(page, "transaction-phone-dark")
