"""Pages of streams and their groups: every button, and what it does to the store."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console
from tests.browser.steps import confirm, fits, press, rows


def fill(console: Console, stream: str, count: int, tags: tuple[str, ...] = ("eu", "us")) -> None:
    messages = [{"tag": tags[at % len(tags)], "data": f'{{"n": {at}}}'} for at in range(1, count + 1)]
    console.post(f"/v1/streams/{stream}", messages)


def info(console: Console, stream: str) -> Any:
    return console.get(f"/v1/streams/{stream}/info")["info"]


# ------------------------------------------------------------------------------ the list


def test_streams_are_listed_searched_and_made(
    new_console: Callable[..., Console], open_page: OpenPage
) -> None:
    console = new_console()
    page = open_page("/streams", console=console)
    expect(page.get_by_text("There are no streams yet")).to_be_visible()
    press(page, "New stream")
    dialog = page.get_by_role("dialog", name="New stream")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_label("Keep at most so many messages").fill("1,000")
    dialog.get_by_label("Keep for").fill("a week")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("write a time such as 7d")
    dialog.get_by_label("Keep for").fill("7d")
    dialog.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", level=1, name="orders")).to_be_visible()
    policy = console.get("/v1/streams/orders/info")["policy"]
    assert (policy["retain_count"], policy["retain_ms"]) == (1_000, 7 * 86_400_000)

    fill(console, "orders", 12)
    fill(console, "payments", 3)
    page.goto(console.address("/streams"))
    orders = rows(page, "Streams").filter(has_text="orders")
    expect(orders.locator("td")).to_contain_text(["orders", "12", "B", "", "1", "12", "0", "ago"])
    press(page, "New stream")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("There is a stream orders already")
    dialog.get_by_role("button", name="Not now").click()
    page.get_by_role("searchbox", name="Search streams").fill("pay")
    page.keyboard.press("Enter")
    expect(rows(page, "Streams")).to_have_count(1)
    assert page.url.endswith("/streams?q=pay")
    page.get_by_role("link", name="payments").click()
    expect(page.get_by_role("heading", level=1, name="payments")).to_be_visible()


# ------------------------------------------------------------------------------ messages


def test_messages_are_browsed_by_offset_time_and_tag(open_page: OpenPage, console: Console) -> None:
    fill(console, "browsed", 60)
    page = open_page("/streams/browsed")
    messages = rows(page, "Messages")

    def shown(first: int, last: int) -> None:
        expect(messages.first.locator("td").first).to_have_text(str(first))
        expect(messages.last.locator("td").first).to_have_text(str(last))

    shown(36, 60)
    expect(page.get_by_role("button", name="Newer →")).to_be_disabled()
    press(page, "← Older")
    shown(11, 35)
    press(page, "Newer →")
    shown(36, 60)
    press(page, "⇤ First")
    shown(1, 25)
    press(page, "Last ⇥")
    shown(36, 60)
    page.get_by_label("Offset").fill("20")
    press(page, "Go to offset")
    shown(20, 44)
    page.get_by_role("searchbox", name="Tag").fill("us")
    page.keyboard.press("Enter")
    shown(21, 59)
    press(page, "← Older")
    shown(1, 49)
    expect(messages.last.locator("td").nth(2)).to_have_text("us")
    page.get_by_role("searchbox", name="Tag").fill("")
    page.get_by_label("Time").fill("2020-01-31T08:00:00")
    press(page, "Go to time")
    shown(1, 25)
    page.get_by_label("Time").fill("2090-01-31T08:00:00")
    press(page, "Go to time")
    expect(page.get_by_role("status").filter(has_text="Nothing was written then")).to_be_visible()
    shown(36, 60)
    messages.last.get_by_label("Message 60").click()
    expect(messages.last.get_by_label("all of it")).to_have_text('{\n  "n": 60\n}')
    page.get_by_role("radio", name="Text").click()
    expect(messages.last.get_by_label("all of it")).to_have_text('{"n": 60}')
    page.get_by_role("radio", name="Hex").click()
    expect(messages.last.get_by_label("all of it")).to_contain_text("000000  7b 22 6e 22 3a 20 36 30 7d")
    fill(console, "browsed", 2)
    press(page, "Show 2 newer messages")
    shown(38, 62)


def test_test_messages_are_written(open_page: OpenPage, console: Console) -> None:
    fill(console, "written", 1)
    page = open_page("/streams/written")
    page.get_by_text("Write a test message").click()
    page.get_by_label("Data").fill("no JSON")
    press(page, "Write")
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    page.get_by_role("radio", name="Text").last.click()
    page.get_by_label("Tag").last.fill("k")
    press(page, "Write")
    expect(rows(page, "Messages")).to_have_count(2)
    page.get_by_role("radio", name="Tombstone").click()
    press(page, "Write")
    expect(rows(page, "Messages").last).to_contain_text("tombstone")
    found = console.get("/v1/streams/written")["messages"]
    assert [(each.get("tag"), each["data"]) for each in found[1:]] == [("k", "no JSON"), ("k", None)]


def test_a_stream_is_followed_paused_and_cleared(open_page: OpenPage, console: Console) -> None:
    fill(console, "live", 3)
    page = open_page("/streams/live?tab=live")
    live = rows(page, "Live messages")
    console.until(lambda: fill(console, "live", 1) or live.count())
    press(page, "Pause")
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    before = int(live.first.locator("td").first.inner_text())
    last = info(console, "live")["last"]
    fill(console, "live", 2)
    press(page, "Go on")
    expect(live.first.locator("td").first).to_have_text(str(last + 2))
    offsets = [int(each) for each in live.locator("td:first-child").all_inner_texts()]
    assert offsets == list(range(last + 2, offsets[-1] - 1, -1))
    assert before in offsets
    press(page, "Clear")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    page.get_by_role("searchbox", name="Tag").fill("rare")
    page.keyboard.press("Enter")
    console.until(lambda: fill(console, "live", 2, ("rare", "common")) or live.count())
    expect(live.first.locator("td").nth(2)).to_have_text("rare")
    screenshots(page, "stream-live")


# ------------------------------------------------------------------------------ policy and upkeep


def test_the_policy_is_changed(open_page: OpenPage, console: Console) -> None:
    fill(console, "kept", 1)
    page = open_page("/streams/kept?tab=policy")
    press(page, "Change policy")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Keep for").fill("1h30m")
    dialog.get_by_label("Keep at most so many bytes").fill("2 MB")
    dialog.get_by_label("Keep only the newest of each tag").select_option("yes")
    confirm(page, "Change it", "nothing brings them back")
    expect(page.get_by_text("1h30m")).to_be_visible()
    policy = console.get("/v1/streams/kept/info")["policy"]
    assert (policy["retain_ms"], policy["retain_bytes"], policy["compact"]) == (5_400_000, 2_000_000, True)
    assert policy["tombstone_ms"] == 86_400_000


def test_messages_are_evicted_and_compacted_and_streams_deleted(
    open_page: OpenPage, console: Console
) -> None:
    fill(console, "upkept", 40)
    console.http.put("/v1/streams/upkept", json={"node_messages": 5})
    fill(console, "upkept", 40)
    group = "/v1/streams/upkept/groups/billing"
    console.post(group + "/read", {"consumer": "one", "limit": 20})
    console.post(group + "/ack", {"offsets": [[1, 15]]})
    page = open_page("/streams/upkept?tab=upkeep")
    page.get_by_label("First offset that stays").fill("6")
    press(page, "Evict before it")
    confirm(page, "Evict", "Offsets 1 to 5 go: at most 5 messages of 80")
    console.until(lambda: info(console, "upkept")["first"] == 6)
    expect(page.get_by_text("Evicted: 5 messages.")).to_be_visible()
    press(page, "Evict acknowledged")
    confirm(page, "Evict", "1 group, the slowest is billing. Offsets 6 to 15 go")
    console.until(lambda: info(console, "upkept")["first"] == 16)
    console.http.delete(group)
    page.get_by_label("Age", exact=True).fill("1d")
    press(page, "Evict older")
    confirm(page, "Keep it as it is", "Nothing is that old: no message goes.")
    page.get_by_label("Age", exact=True).fill("1ms")
    press(page, "Compact now")
    confirm(page, "Compact", "only the newest message stays")
    console.until(lambda: info(console, "upkept")["length"] < 65)
    press(page, "Evict older")
    confirm(page, "Evict", "Offsets 16 to 80 go")
    console.until(lambda: info(console, "upkept")["length"] == 0)
    press(page, "Delete stream")
    confirm(page, "Delete it", "begins at offset 1")
    expect(page.get_by_role("heading", level=1, name="Streams")).to_be_visible()
    assert console.http.get("/v1/streams/upkept/info").status_code == 404
    page.goto(console.address("/streams/upkept"))
    expect(page.get_by_text("There is no stream upkept")).to_be_visible()


# ------------------------------------------------------------------------------ groups


def test_a_group_is_made_looked_after_and_removed(open_page: OpenPage, console: Console) -> None:
    fill(console, "shared", 30)
    page = open_page("/streams/shared?tab=groups")
    expect(page.get_by_text("No groups read this stream")).to_be_visible()
    press(page, "New group")
    page.get_by_role("dialog").get_by_label("Name").fill("billing")
    page.get_by_role("dialog").get_by_label("Begins at").fill("11")
    confirm(page, "Make it")
    expect(rows(page, "Groups").locator("td")).to_contain_text(["billing", "20", "0", "11", "11", "0", ""])
    page.get_by_role("link", name="billing").click()
    press(page, "Change options")
    page.get_by_role("dialog").get_by_label("Stream for dead letters").fill("shared-dead")
    page.get_by_role("dialog").get_by_label("Pauses between deliveries").fill("1h, 2h")
    confirm(page, "Change them")
    expect(page.get_by_role("link", name="shared-dead")).to_be_visible()
    path = "/v1/streams/shared/groups/billing"
    assert console.get(path)["group"]["backoff_ms"] == [3_600_000, 7_200_000]

    console.post(path + "/read", {"consumer": "ann", "limit": 4})
    console.post(path + "/read", {"consumer": "bob", "limit": 1})
    page.reload()
    pending = rows(page, "Pending messages")
    expect(pending).to_have_count(5)
    screenshots(page, "stream-group")
    page.get_by_role("combobox", name="Reader").select_option("ann")
    expect(pending).to_have_count(4)

    def settle(offset: int, word: str, action: str | None = None) -> None:
        buttons = page.get_by_role("group", name=f"Message {offset}")
        buttons.get_by_role("button", name=word).click()
        confirm(page, action or word)

    settle(11, "Acknowledge")
    expect(pending).to_have_count(3)
    settle(12, "Reject")
    expect(pending).to_have_count(2)
    settle(13, "Return")
    expect(pending.filter(has_text="when somebody reads")).to_have_count(1)
    state = console.get(path)["group"]
    assert (state["acked"], state["dead"], state["pending"]) == (1, 1, 3)
    (letter,) = console.get("/v1/streams/shared-dead")["messages"]
    assert "reason: an operator gave it up" in letter["data"]
    press(page, "Remove group")
    confirm(page, "Remove it", "3 pending messages are forgotten")
    expect(page.get_by_text("No groups read this stream")).to_be_visible()
    assert console.http.get(path).status_code == 404


# ------------------------------------------------------------------------------ who looks, and with what


def test_a_viewer_sees_everything_and_changes_nothing(open_page: OpenPage, console: Console) -> None:
    fill(console, "watched", 3)
    console.post("/v1/streams/watched/groups/g/read", {"consumer": "ann", "limit": 1})
    page = open_page("/streams", secret=VIEWER_SECRET)
    page.get_by_role("link", name="watched").click()
    expect(rows(page, "Messages")).to_have_count(3)
    expect(page.get_by_text("Write a test message")).to_have_count(0)
    expect(page.get_by_role("link", name="Upkeep")).to_have_count(0)
    page.get_by_role("link", name="Groups", exact=True).click()
    page.get_by_role("link", name="g", exact=True).click()
    expect(rows(page, "Pending messages")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("Acknowledge|Remove|Change"))).to_have_count(0)


def test_a_phone_is_wide_enough_for_a_stream(open_page: OpenPage, console: Console) -> None:
    console.post("/v1/streams/narrow", [{"tag": "t" * 80, "data": '{"long": "' + "x" * 400 + '"}'}])
    console.post("/v1/streams/narrow/groups/readers/read", {"consumer": "c" * 60, "limit": 1})
    page = open_page("/streams/narrow", width=375, theme="dark")
    parts = page.get_by_role("navigation", name="Parts of the stream")
    for tab in ("Messages", "Live", "Policy", "Upkeep", "Groups"):
        parts.get_by_role("link", name=tab).click()
        expect(parts.locator("[aria-current]")).to_have_text(tab)
        assert fits(page)
    page.get_by_role("link", name="readers").click()
    expect(rows(page, "Pending messages")).to_have_count(1)
    assert fits(page)
