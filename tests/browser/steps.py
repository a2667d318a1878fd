"""What tests of pages do again and again: rows of a table, a button, the answer to a question."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect


def rows(page: Page, table: str) -> Locator:
    return page.get_by_role("table", name=table).locator("tbody tr")


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def confirm(page: Page, action: str, text: str = "") -> None:
    """Answer the question that is asked, if it says this."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(text)
    dialog.get_by_role("button", name=action, exact=True).click()
    expect(dialog).to_have_count(0)


def fits(page: Page, width: int = 375) -> bool:
    """Whether nothing sticks out to the right."""
    return int(page.evaluate("document.documentElement.scrollWidth")) <= width
