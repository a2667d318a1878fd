"""The data pipeline: jobs as their runners publish them, tables of the lake, some of their rows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from penstock.lake import Lake
from penstock.spark.jobs.job import JobReport
from penstock.spark.noticeboard import JobStatus, Noticeboard
from tests.browser.conftest import OpenPage, screenshots
from tests.browser.console import Console, open_console
from tests.lake import rows

NO_ROOM = "table transactions: no room on the disk"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Two runners have published jobs, one of them is gone; the lake has 30 messages."""
    folder = tmp_path_factory.mktemp("data")
    lake = Lake.open(folder / "lake")
    table = lake.table("messages")
    table.commit(rows.put(table, rows.messages(table, 0, 30)), progress={"export": 30})
    lake.table("stream_stats_5s")
    with open_console(folder, lake=str(folder / "lake")) as console:
        publish(console)
        yield console


def publish(console: Console, **export: Any) -> None:
    now_ms = int(time.time() * 1_000)

    def job(name: str, node: str = "etl-1", **more: Any) -> JobStatus:
        report = JobReport(
            job=name, started_ms=now_ms - 3_000, ended_ms=now_ms - 1_000, batches=2, rows=1_234, lag=7
        )
        told = {"kind": name, "state": "waiting", "at_ms": now_ms, "passes": 12, "report": report, **more}
        return JobStatus(job=name, node=node, **told)

    living, gone = (Noticeboard(console.ps, node, began_ms=now_ms) for node in ("etl-1", "etl-0"))
    living.beat()
    living.publish(
        [
            job("export", **{"next_ms": now_ms + 600_000, **export}),
            job("archive", state="running", progress={"batches": 3, "rows": 40_211}),
            job(
                "rollup", state="failed", failures=2, failed_passes=5, error=NO_ROOM, error_ms=now_ms - 4_000
            ),
        ]
    )
    gone.publish([job("maintain", node="etl-0", error="killed", error_ms=now_ms - 9_000, failed_passes=1)])


def row(page: Page, table: str, name: str) -> Any:
    return page.get_by_role("table", name=table, exact=True).get_by_role("row", name=re.compile(f"^{name}"))


def test_jobs_tell_what_they_do(open_page: OpenPage, console: Console) -> None:
    page = open_page("/data")
    export = row(page, "Jobs", "export")
    for text in ("waiting", "took 2 s", "1,234", "2 batches", "7", "next pass in"):
        expect(export).to_contain_text(text)
    expect(row(page, "Jobs", "archive")).to_contain_text("batches 3, rows 40,211")
    for text in ("failed", "5 failures", NO_ROOM, "2 times in a row"):
        expect(row(page, "Jobs", "rollup")).to_contain_text(text)
    for text in ("runner gone", "killed", "worked since"):
        expect(row(page, "Jobs", "maintain")).to_contain_text(text)
    publish(console, state="running", progress={"rows": 99})
    expect(export).to_contain_text("rows 99")
    screenshots(page, "data-1280")


def test_tables_of_the_lake_and_their_rows(open_page: OpenPage, console: Console) -> None:
    page = open_page("/data")
    expect(row(page, "Tables of the lake", "messages")).to_contain_text("30")
    expect(row(page, "Tables of the lake", "stream_stats_5s")).to_be_visible()
    page.get_by_role("link", name="messages").click()
    expect(page.get_by_role("heading", level=1, name="messages")).to_be_visible()
    expect(row(page, "Columns", "offset")).to_contain_text("int64")
    sample = page.get_by_role("table", name="A sample of rows")
    expect(sample.get_by_role("row")).to_have_count(21)
    expect(sample.get_by_role("cell", name="message 29", exact=True)).to_be_visible()
    page.get_by_role("radio", name="100 rows").click()
    expect(sample.get_by_role("row")).to_have_count(31)
    assert page.url == console.address("/data/messages?limit=100")
    with page.expect_response("**/v1/lake/messages/rows*"):
        page.get_by_role("button", name="Read again").click()
    page.get_by_text("6 columns").click()
    expect(page.get_by_role("table", name="Columns")).to_be_hidden()
    page.get_by_role("main").get_by_role("link", name="Data pipeline").click()
    expect(page.get_by_role("heading", level=1, name="Data pipeline")).to_be_visible()


def test_values_keep_their_words_together_where_columns_are_many(open_page: OpenPage) -> None:
    page = open_page("/data/messages", width=780)
    expect(page.get_by_role("cell", name="message 29", exact=True)).to_be_visible()
    heights = page.eval_on_selector_all("td.cell > *", "all => all.map(each => each.offsetHeight)")
    assert len(set(heights)) == 1, heights
    assert page.evaluate("document.documentElement.scrollWidth") <= 780  # the table scrolls, not the page


def test_a_table_that_is_empty_or_unknown_says_so(open_page: OpenPage) -> None:
    page = open_page("/data/stream_stats_5s")
    expect(page.get_by_text("The table has no rows yet")).to_be_visible()
    page = open_page("/data/nothing")
    expect(page.get_by_role("alert").first).to_contain_text("the lake has no table")


def test_without_jobs_and_lake_it_says_how_to_begin(open_page: OpenPage, new_console: Any) -> None:
    empty = new_console()
    page = open_page("/data", console=empty, width=375, theme="dark")
    expect(page.get_by_text("No job has run on this store")).to_be_visible()
    path = empty.get("/v1/server")["store"]["path"]
    page.get_by_role("button", name=f"Copy penstock spark run --store {path}").click()
    assert "--lake ./lake --streams orders" in page.evaluate("navigator.clipboard.readText()")
    expect(page.get_by_text("There is no lake to show")).to_be_visible()
    expect(page.get_by_role("button", name=f"Copy penstock gateway --store {path}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page("/data", width=375)
    expect(page.get_by_role("row", name=re.compile("rollup"))).to_contain_text("failed")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_role("link", name="messages").click()
    expect(page.get_by_role("cell", name="message 29")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    screenshots(page, "lake-table-375")
