"""Pages of webhooks and deliveries, with a real receiver; every button, and what it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console, open_console
from tests.browser.steps import confirm, fits, press, rows

#: A public address that is never called: no message is published to these channels.
ELSEWHERE = "https://hooks.example.com/in"


class Receiver(ThreadingHTTPServer):
    """Answers with ``status``; webhooks of the configuration may call it, those of users may not."""

    daemon_threads = True
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Receiver)
        body = b'{"seen": true}'
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Console]:
    """With a webhook of its configuration that is tried once, and one that waits an hour to try again."""
    url = f"http://127.0.0.1:{receiver.server_port}"
    hooks = [
        {"name": "audit", "regex": "room-.+", "url": url + "/audit", "retry": {"count": 0}},
        {
            "name": "slow",
            "regex": "hall",
            "url": url + "/slow",
            "retry": {"count": 1, "interval": "1h", "intervalJitter": "0s"},
        },
    ]
    with open_console(tmp_path_factory.mktemp("console"), webhooks=hooks) as console:
        yield console


def attempts(console: Console, webhook: str) -> list[Any]:
    answer = console.http.get(f"/v1/webhooks/{webhook}/deliveries")
    return list(answer.json()["attempts"]) if answer.status_code == 200 else []


def read_secret(page: Page) -> str:
    dialog = page.get_by_role("dialog", name="The secret of this webhook")
    secret = dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Copy").click()
    page.wait_for_function(
        "secret => navigator.clipboard.readText().then(text => text === secret)", arg=secret
    )
    dialog.get_by_role("button", name="I have it").click()
    return secret


def test_a_webhook_is_made_changed_disabled_and_deleted(open_page: OpenPage, console: Console) -> None:
    page = open_page("/webhooks")
    press(page, "New webhook")
    dialog = page.get_by_role("dialog", name="New webhook")
    dialog.get_by_label("Address").fill("http://10.0.0.1/in")
    dialog.get_by_label("Channels").fill("garden, shed-*")
    dialog.get_by_label("Headers").fill("X-Shop: 7")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("10.0.0.1 is 10.0.0.1, a private address")
    dialog.get_by_label("Address").fill(ELSEWHERE)
    dialog.get_by_role("button", name="Make it").click()
    first = read_secret(page)
    expect(page.get_by_role("heading", level=1, name=ELSEWHERE)).to_be_visible()
    name = page.url.rpartition("/")[2]
    path = f"/v1/webhooks/{name}"
    made = console.get(path)
    assert (made["channels"], made["headers"]) == (["garden", "shed-*"], {"x-shop": "********"})

    press(page, "Change")
    page.get_by_role("dialog").get_by_label("Channels").fill("garden")
    page.get_by_role("dialog").get_by_label("Pauses before the attempts").fill("0, 5s, 1h")
    confirm(page, "Change it")
    changed = console.until(lambda: (now := console.get(path))["channels"] == ["garden"] and now)
    assert changed["schedule"]["delays_ms"] == [0, 5_000, 3_600_000]
    assert changed["headers"] == {"x-shop": "********"}
    page.get_by_role("link", name="Definition").click()
    expect(page.get_by_text("0, 5s, 1h", exact=True)).to_be_visible()

    press(page, "Rotate secret")
    expect(page.get_by_role("dialog")).to_contain_text("goes on signing beside it")
    press(page, "Make a new one")  # the next question is the secret
    assert read_secret(page) != first
    assert console.get(path)["secrets"] == 2
    press(page, "Disable")
    page.get_by_role("dialog").get_by_label("Reason").fill("it is moved")
    confirm(page, "Disable", "What waits is kept")
    expect(page.get_by_text("it is moved. What waits is kept.")).to_be_visible()
    assert console.get(path)["state"]["disabled"] == "it is moved"
    press(page, "Enable")
    expect(page.get_by_role("button", name="Disable")).to_be_visible()
    assert console.get(path)["state"]["disabled"] is None

    page.get_by_role("link", name="Webhooks").last.click()
    mine = rows(page, "Webhooks").filter(has_text=name)
    expect(mine.locator("td")).to_contain_text([ELSEWHERE, "garden", "enabled", "none yet", "0", "0", "0"])
    mine.get_by_role("link").click()
    press(page, "Delete")
    confirm(page, "Delete it", "gets nothing any more")
    expect(page.get_by_role("heading", level=1, name="Webhooks")).to_be_visible()
    assert console.http.get(path).status_code == 404
    page.goto(console.address(f"/webhooks/{name}"))
    expect(page.get_by_text(f"There is no webhook {name}")).to_be_visible()


def test_deliveries_are_looked_at_filtered_and_sent_again(
    open_page: OpenPage, console: Console, receiver: Receiver
) -> None:
    receiver.status = 500
    for at in range(2):
        console.post(f"/v1/channels/room-1/messages?id=m-{at}", {"n": at})
    console.until(lambda: len(attempts(console, "audit")) == 2)
    page = open_page("/webhooks")
    page.get_by_role("link", name="/audit").click()
    log = rows(page, "Attempts")
    expect(log).to_have_count(2)
    expect(log.first).to_contain_text("given up")
    expect(log.first).to_contain_text("HTTP 500")
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    screenshots(page, "webhook")

    receiver.status = 200
    press(page, "Send test event")
    expect(page.get_by_role("heading", level=1, name="test/")).to_be_visible()
    expect(page.get_by_text("delivered", exact=True).first).to_be_visible()
    expect(rows(page, "Attempts")).to_contain_text(['"seen": true'])
    expect(page.get_by_label("Body of the call")).to_contain_text('"type": "webhook.test"')
    page.get_by_role("link", name="audit").click()
    expect(log).to_have_count(3)

    page.get_by_role("radio", name="Given up").click()
    expect(log).to_have_count(2)
    page.get_by_role("radio", name="Delivered").click()
    expect(log).to_have_count(1)
    page.get_by_role("radio", name="Failed").click()
    page.get_by_role("searchbox", name="Search attempts").fill("/m-1/")
    page.keyboard.press("Enter")
    expect(log).to_have_count(1)
    log.get_by_role("link").click()
    expect(page.get_by_text("all 1 attempts have failed")).to_be_visible()
    press(page, "Send again")
    confirm(page, "Send again", "tried anew")
    expect(rows(page, "Attempts")).to_have_count(2)
    screenshots(page, "delivery")
    assert attempts(console, "audit")[0]["outcome"] == "done"
    page.go_back()
    press(page, "Replay failed")
    confirm(page, "Send again")
    console.until(lambda: console.get("/v1/webhooks/audit")["state"]["delivered"] == 3)
    expect(page.get_by_text("On their way again: 1 delivery.")).to_be_visible()


def test_what_waits_tells_when_it_is_tried_again_also_to_a_viewer_with_a_phone(
    open_page: OpenPage, console: Console, receiver: Receiver
) -> None:
    receiver.status = 503
    console.post("/v1/channels/hall/messages?id=late", {"n": 1})
    console.until(lambda: attempts(console, "slow"))
    page = open_page("/webhooks/slow?tab=waiting", width=375, theme="dark", secret=VIEWER_SECRET)
    waiting = rows(page, "Waiting deliveries")
    expect(waiting).to_have_count(1)
    expect(waiting).to_contain_text("HTTP 503")
    assert fits(page)
    waiting.get_by_role("link").click()
    expect(page.get_by_text("Next attempt")).to_be_visible()
    expect(rows(page, "Attempts")).to_have_count(1)
    expect(page.get_by_role("button", name="Send again")).to_have_count(0)
    assert fits(page)
