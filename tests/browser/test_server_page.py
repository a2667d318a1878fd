"""The server: memory, disk, durability; clients, the slow log, and what INFO says."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import Console


def test_the_gateway_and_its_store_are_told(open_page: OpenPage, console: Console) -> None:
    page = open_page("/server")
    store = console.get("/v1/server")["store"]
    for name in ("memory of the gateway", "size on disk", "free on its disk", "commands a second", "clients"):
        expect(page.get_by_text(name, exact=True)).to_be_visible()
    durability = page.get_by_role("region", name="Durability")
    expect(durability).to_contain_text("relaxed")
    expect(durability).to_contain_text("survives a killed process")
    expect(page.get_by_role("region", name="Store", exact=True)).to_contain_text(store["path"])
    gateway = page.get_by_role("region", name="Gateway", exact=True)
    expect(gateway).to_contain_text("1 of 1")
    expect(gateway).to_contain_text(console.get("/v1/server")["python"])
    screenshots(page, "server-1280")


def test_clients_are_listed_and_found(open_page: OpenPage, console: Console) -> None:
    page = open_page("/server")
    clients = page.get_by_role("table", name="Clients")
    asking = clients.get_by_role("row", name=re.compile("in this process.*client|list"))
    expect(asking.first).to_be_visible()
    search = page.get_by_role("searchbox", name="Find clients")
    search.fill("nobody-is-called-so")
    search.press("Enter")
    expect(page.get_by_text("There is no such client.")).to_be_visible()
    page.reload()
    expect(page.get_by_text("There is no such client.")).to_be_visible()
    search.fill("Client|List")
    search.press("Enter")
    expect(clients.get_by_role("row")).to_have_count(2)  # with the names of the columns
    assert page.url == console.address("/server?client=Client%7CList")
    search.fill("")
    expect(asking.first).to_be_visible()
    assert page.url == console.address("/server")


def test_slow_commands_are_listed(open_page: OpenPage, console: Console) -> None:
    console.ps.execute("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    console.ps.execute("SLOWLOG", "RESET")
    page = open_page("/server")
    expect(page.get_by_text("No command was slow")).to_be_visible()
    console.ps.execute("CONFIG", "SET", "slowlog-log-slower-than", "0")
    for number in range(9):
        console.ps.execute("SET", f"slow-{number}", "1")
    console.ps.execute("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    page.reload()
    log = page.get_by_role("table", name="Slow log")
    expect(log.get_by_text("SET slow-8 1")).to_be_visible()
    expect(log.get_by_text("SET slow-0 1")).to_have_count(0)
    page.get_by_role("button", name=re.compile("Show all")).click()
    expect(log.get_by_text("SET slow-0 1")).to_be_visible()
    assert page.url == console.address("/server?slow=all")


def test_info_unfolds_and_what_was_seen_stays_while_the_gateway_is_away(open_page: OpenPage) -> None:
    page = open_page("/server", width=375, theme="dark")
    page.get_by_role("group").filter(has_text=re.compile("^Server")).locator("summary").click()
    version = page.get_by_role("table", name="INFO Server").get_by_role(
        "row", name=re.compile("redis_version")
    )
    expect(version).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(page, "server-375-dark")
    page.route("**/v1/server", lambda route: route.abort())
    expect(page.get_by_role("alert").first).to_contain_text("the gateway does not answer")
    expect(page.get_by_role("region", name="Durability")).to_be_visible()
    expect(version).to_be_visible()
