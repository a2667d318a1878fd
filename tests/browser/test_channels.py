"""Pages of channels: every button, and what it does to the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console
from tests.browser.steps import fits, press, rows


def subscribe(console: Console, channel: str, *subscribers: str) -> None:
    for name in subscribers:
        assert console.http.put(f"/v1/channels/{channel}/subscriptions/{name}").status_code < 300


def publish(console: Console, channel: str, count: int) -> None:
    messages = [{"id": f"m-{at}", "content": {"n": at}} for at in range(1, count + 1)]
    console.post(f"/v1/channels/{channel}/batch", {"messages": messages})


def unread(console: Console, channel: str, subscriber: str) -> Any:
    return console.get(f"/v1/channels/{channel}/subscriptions/{subscriber}")["unread"]


def test_channels_are_listed_searched_and_opened(
    new_console: Callable[..., Console], open_page: OpenPage
) -> None:
    console = new_console()
    page = open_page("/channels", console=console)
    expect(page.get_by_text("Nobody uses a channel now")).to_be_visible()
    subscribe(console, "room-1", "ann", "bob")
    subscribe(console, "lobby", "ann")
    publish(console, "room-1", 3)
    page.reload()
    room = rows(page, "Channels").filter(has_text="room-1")
    expect(room.locator("td")).to_contain_text(["room-1", "3", "2", "3", "min"])
    page.get_by_role("searchbox", name="Search channels").fill("lob*")
    page.keyboard.press("Enter")
    expect(rows(page, "Channels")).to_have_count(1)
    page.get_by_role("link", name="lobby").click()
    expect(page.get_by_role("heading", level=1, name="lobby")).to_be_visible()
    page.goto(console.address("/channels"))
    press(page, "Open a channel")
    dialog = page.get_by_role("dialog", name="Open a channel")
    dialog.get_by_label("Name").fill("No Channel")
    dialog.get_by_role("button", name="Open", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 to 63 of")
    dialog.get_by_label("Name").fill("attic")
    dialog.get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_text("Nobody uses this channel now")).to_be_visible()


def test_messages_are_published_and_looked_at_without_consuming_them(
    open_page: OpenPage, console: Console
) -> None:
    page = open_page("/channels/kitchen")
    press(page, "Subscribe")
    page.get_by_role("dialog").get_by_label("Subscriber").fill("ann")
    page.get_by_role("dialog").get_by_role("button", name="Subscribe").click()
    expect(rows(page, "Subscribers")).to_have_count(1)
    page.get_by_text("Publish a test message").click()
    page.get_by_label("Content").fill("soup")
    press(page, "Publish")
    expect(page.get_by_role("alert")).to_contain_text("The content is not JSON")
    page.get_by_label("Content").fill('{"dish": "soup"}')
    page.get_by_label("Id", exact=False).first.fill("order-1")
    press(page, "Publish")
    expect(page.get_by_text("Message order-1 is published.")).to_be_visible()
    press(page, "Publish")
    expect(page.get_by_text("Message order-1 was published before")).to_be_visible()
    page.get_by_label("Id", exact=False).first.fill("")
    page.get_by_label("Content").fill('"pie"')
    press(page, "Publish")
    console.until(lambda: unread(console, "kitchen", "ann") == 2)

    page.get_by_role("link", name="Look at unread").click()
    messages = rows(page, "Unread messages")
    expect(messages).to_have_count(2)
    expect(messages.first).to_contain_text("order-1")
    messages.first.get_by_label("Message order-1").click()
    expect(messages.first.get_by_label("all of it")).to_have_text('{\n  "dish": "soup"\n}')
    expect(messages.last).to_contain_text('"pie"')
    screenshots(page, "channel")
    assert unread(console, "kitchen", "ann") == 2
    press(page, "Close")
    expect(messages).to_have_count(0)
    press(page, "Unsubscribe")
    dialog = page.get_by_role("dialog", name="Unsubscribe ann?")
    expect(dialog).to_contain_text("2 unread messages")
    dialog.get_by_role("button", name="Unsubscribe").click()
    expect(page.get_by_text("Nobody subscribes")).to_be_visible()
    assert console.http.get("/v1/channels/kitchen/subscriptions/ann").status_code == 404


def test_unread_messages_come_by_pages_also_on_a_phone_and_for_a_viewer(
    open_page: OpenPage, console: Console
) -> None:
    subscribe(console, "long", "s" * 60)
    publish(console, "long", 25)
    page = open_page(f"/channels/long?subscriber={'s' * 60}", width=375, theme="dark", secret=VIEWER_SECRET)
    messages = rows(page, "Unread messages")
    expect(messages).to_have_count(20)
    press(page, "More →")
    expect(messages).to_have_count(5)
    press(page, "← Back")
    expect(messages).to_have_count(20)
    expect(page.get_by_role("button", name="Unsubscribe")).to_have_count(0)
    expect(page.get_by_text("Publish a test message")).to_have_count(0)
    assert fits(page)
