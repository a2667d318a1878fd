"""Pipelines in the console: drawings, drafts with their problems, versions, changes, limits."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from penstock.transactions import Child, Delay, Function, Map, Parallel, Pipeline, Reply, Retry, Router, Wait
from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import VIEWER_SECRET, Console
from tests.browser.test_transactions import press

EVERYTHING = Pipeline(
    "everything",
    [
        Function("reserve", compensate="release", retry=Retry(limit=4)),
        Parallel({"mail": ["print", Delay(500)], "post": [Map("items", steps=["print"])]}),
        Router("country", {"DE": "ship-de"}, default="ship"),
        Wait("approved", timeout_ms=60_000),
        Child("invoice"),
        Reply(status="success"),
    ],
    node_group="shop",
)


@pytest.fixture(scope="module")
def shop(console: Console) -> Console:
    console.deploy(EVERYTHING)
    return console


def state_of(shop: Console, name: str) -> dict[str, Any]:
    found: dict[str, Any] = shop.get(f"/v1/pipelines/{name}")
    return found


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Parts").get_by_role("link", name=name).click()


def write(page: Page, *steps: Any) -> None:
    text = json.dumps({"steps": steps, "node_group": "shop"}, indent=2)
    page.get_by_role("textbox", name="Definition").fill(text)


def test_the_drawing_has_every_step(shop: Console, open_page: OpenPage) -> None:
    page = open_page("/pipelines")
    page.get_by_role("table", name="Pipelines").get_by_role("link", name="everything").click()
    drawing = page.get_by_role("group", name="Steps of everything")
    for text in ("↩ undone by release", "up to 4 attempts", "mail", "500 ms", "for each item", "= DE",
                 "otherwise", "approved, up to 1 min 0 s", "reply and end"):  # fmt: skip
        expect(drawing.get_by_text(text, exact=True)).to_be_visible()
    expect(drawing.get_by_role("link", name="ship-de")).to_have_attribute("href", "#/pipelines/ship-de")
    screenshots(page, "pipeline")
    narrow = open_page("/pipelines/everything", width=375, theme="dark", secret=VIEWER_SECRET)
    expect(narrow.get_by_role("group", name="Steps of everything")).to_be_visible()
    expect(narrow.get_by_role("button", name="Deactivate")).to_have_count(0)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(narrow, "pipeline-phone-dark")


def test_from_a_draft_to_versions_and_back(shop: Console, open_page: OpenPage) -> None:
    page = open_page("/pipelines")
    press(page, "New pipeline", "Write a draft", Name="parcel")
    write(page, "pack", {"type": "delay", "ms": 0})
    page.get_by_role("button", name="Save draft").click()
    problems = page.get_by_role("alert", name="Problems")
    expect(problems).to_contain_text("steps[1].ms must be 1 to")
    problems.get_by_role("button", name="line 6").click()
    chosen = "(area => area.value.slice(area.selectionStart, area.selectionEnd))(document.activeElement)"
    assert page.evaluate(chosen).strip() == '"ms": 0'
    page.get_by_role("textbox", name="Definition").fill('{"steps": [')
    expect(problems).to_contain_text("it ends too early")
    expect(page.get_by_role("button", name="Save draft")).to_be_disabled()

    write(page, "pack", {"type": "delay", "ms": 5})
    page.get_by_role("button", name="Save draft").click()
    expect(page.get_by_text("The draft is saved.")).to_be_visible()
    assert state_of(shop, "parcel")["has_draft"]
    press(page, "Commit", Comment="the first", **{"Start this version": "yes"})
    versions = page.get_by_role("table", name="Versions")
    expect(versions).to_contain_text("the first")
    first = state_of(shop, "parcel")["active"]
    assert first is not None
    assert not state_of(shop, "parcel")["has_draft"]

    press(page, "Clone")
    expect(page.get_by_text(f"The draft is {first[:8]}.")).to_be_visible()
    tab(page, "Draft")
    write(page, "pack", {"type": "delay", "ms": 9})
    press(page, "Commit", Comment="slower")
    expect(versions).to_contain_text("slower")
    assert state_of(shop, "parcel")["active"] == first
    tab(page, "Changes")
    difference = page.get_by_label("Difference")
    expect(difference).to_contain_text('-      "ms": 5,')
    expect(difference).to_contain_text('+      "ms": 9,')

    tab(page, "Versions")
    second = state_of(shop, "parcel")["versions"][-1]["version"]
    press(page, "Activate")
    expect(page.get_by_text(f"{second[:8]} is active.")).to_be_visible()
    assert state_of(shop, "parcel")["active"] == second
    press(page, "Delete")
    expect(versions.locator("tbody tr")).to_have_count(1)
    assert [each["version"] for each in state_of(shop, "parcel")["versions"]] == [second]
    press(page, "Deactivate")
    expect(page.get_by_text("nobody can start it")).to_be_visible()
    assert state_of(shop, "parcel")["active"] is None


def test_a_draft_is_marked_and_discarded(shop: Console, open_page: OpenPage) -> None:
    page = open_page("/pipelines/everything?tab=versions")
    press(page, "Clone")
    tab(page, "Draft")
    expect(page.get_by_role("textbox", name="Definition")).to_have_value(
        re.compile('"compensate": "release"')
    )
    expect(page.get_by_text("not saved")).to_have_count(0)
    page.goto(shop.address("/pipelines"))
    expect(page.get_by_role("row", name="everything").get_by_text("draft")).to_be_visible()
    page.go_back()
    press(page, "Discard")
    shop.until(lambda: not state_of(shop, "everything")["has_draft"])


def test_pause_resume_and_limits(shop: Console, open_page: OpenPage) -> None:
    def limit() -> dict[str, Any]:
        found = [each for each in shop.get("/v1/limits")["limits"] if each["name"] == "everything"]
        return found[0] if found else {}

    page = open_page("/pipelines/everything")
    press(page, "Pause")
    expect(page.get_by_text("nothing more of it begins")).to_be_visible()
    assert limit()["is_paused"]
    press(page, "Set limits", **{"Steps at a time": "3", "Taken up in a second": "2.5"})
    expect(page.get_by_text("3 at a time, 2.5 a second")).to_be_visible()
    assert (limit()["concurrency"], limit()["rate"], limit()["is_paused"]) == (3, 2.5, True)
    page.goto(shop.address("/pipelines"))
    expect(page.get_by_role("row", name="everything").get_by_text("paused")).to_be_visible()
    page.go_back()
    press(page, "Resume")
    expect(page.get_by_text("nothing more of it begins")).to_have_count(0)
    assert not limit()["is_paused"]
