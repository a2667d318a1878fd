"""Scanning: pages of columns, the same messages as reading answers one by one."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
import penstock.blocking
from penstock.client.transports.base import Argument
from penstock.streams import Columns, Message, Page, Stream
from penstock.streams.scanning import scan_by_reading, to_columns
from tests.columns import rows_of
from tests.streams.conftest import Wire

LARGE = 2**32


async def pages_of(scan: Any) -> list[Page]:
    return [page async for page in scan]


def messages(pages: list[Page]) -> list[Message]:
    return [Message("orders", *row) for page in pages for block in page.blocks for row in rows_of(block)]


async def test_the_same_messages_as_reading(orders: Stream) -> None:
    await orders.policy(node_messages=100)
    await orders.write_many([(f"t{number % 7}", str(number)) for number in range(1_234)])
    await orders.write("gone", None)
    assert await orders.compact() > 0
    await orders.write("eu", b"\xff\0")
    read = [message async for message in orders.read()]
    assert messages(await pages_of(orders.scan())) == read
    assert messages(await pages_of(orders.scan(page_bytes=500))) == read
    assert messages(await pages_of(orders.scan(0, 1_235))) == read[:-1]
    assert messages(await pages_of(orders.scan(1_236, 9_999))) == read[-1:]


async def test_pages_tell_where_they_end(wired: Stream, wire: Wire) -> None:
    await wired.write_many([("eu", "x" * 1_000)] * 25)
    await wired.evict(upto=3)
    pages = await pages_of(wired.scan(page_bytes=5_000))
    assert len(pages) == wire.names().count("TSCAN") > 1
    assert {(page.first, page.last) for page in pages} == {(4, 25)}
    starts = [4, *(page.next for page in pages)]
    assert starts[-1] == 26
    for page, start, end in zip(pages, starts, starts[1:], strict=False):
        assert [message.offset for message in messages([page])] == list(range(start, end))
        assert all(type(block) is Columns for block in page.blocks)


async def test_a_stream_without_messages_is_one_page(orders: Stream) -> None:
    assert await pages_of(orders.scan()) == [Page(1, 0, 1, [])]
    await orders.write_many([("", "x")] * 5)
    assert await pages_of(orders.scan(6)) == await pages_of(orders.scan(6, 99)) == [Page(1, 5, 6, [])]
    assert await pages_of(orders.scan(3, 2)) == [Page(1, 5, 3, [])]
    await orders.evict(upto=5)
    assert await pages_of(orders.scan()) == [Page(6, 5, 6, [])]


async def test_scanning_ends_where_the_end_was(orders: Stream) -> None:
    await orders.write_many([("", "x")] * 4)
    pages = []
    async for page in orders.scan(page_bytes=1):
        pages.append(page)
        await orders.write("", "more")
    assert [message.offset for message in messages(pages)] == [1, 2, 3, 4]
    pages.clear()
    async for page in orders.scan(page_bytes=1):  # or before, if the stream begins anew
        pages.append(page)
        await orders.delete()
    assert [(page.last, len(page.blocks)) for page in pages] == [(8, 1), (0, 0)]


async def test_a_lost_answer_is_asked_for_again(wired: Stream, wire: Wire) -> None:
    await wired.write_many([("eu", str(number)) for number in range(9)])
    faults = iter(["after", "before"])
    wire.fault = lambda words: next(faults, "") if words[0] == "TSCAN" else ""
    assert [message.offset for message in messages(await pages_of(wired.scan()))] == list(range(1, 10))
    assert wire.names().count("TSCAN") == 3


async def test_columns_are_bytes_whatever_replies_are(url: str) -> None:
    async with penstock.open(f"{url}&decode_responses=yes") as ps:
        orders = ps.stream("orders")
        await orders.write_many([(b"\xff", bytes(range(256))), ("é", b"")])
        ((block,),) = [page.blocks for page in await pages_of(orders.scan())]
        assert (block.tags, block.entries) == (b"\xff\xc3\xa9", bytes(range(256)))


def test_without_await(url: str) -> None:
    with penstock.blocking.open(url) as ps:
        orders = ps.stream("orders")
        orders.write_many([("eu", "x" * 100), ("us", "y")])
        pages = list(orders.scan(page_bytes=1))
        assert messages(pages) == list(orders.read())
        assert [page.next for page in pages][-1] == 3
        with pytest.raises(ValueError, match="page_bytes"):
            orders.scan(page_bytes=0)


class Nowhere:
    """Nothing may be sent."""

    async def execute(self, name: Argument, /, *arguments: Argument) -> Any:
        raise AssertionError(name)


def test_bad_arguments_are_named() -> None:
    orders = Stream(Nowhere(), Nowhere(), "orders")
    with pytest.raises(ValueError, match="first must be at least 0, not -1"):
        orders.scan(-1)
    with pytest.raises(TypeError, match="last must be a whole number, not '9'"):
        orders.scan(1, "9")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="page_bytes must be at least 1, not 0"):
        orders.scan(page_bytes=0)
    with pytest.raises(ValueError, match="page_bytes must be at most 67108864, not 67108865"):
        orders.scan(page_bytes=(64 << 20) + 1)


# ------------------------------------------------------------------ where scripts stand in


def test_columns_of_messages_that_are_far_apart_in_time() -> None:
    rows = [[1, b"a", b"x", 7], [2, b"", None, 7], [5, b"b", b"", 7 + LARGE], [6, b"a", b"", 8 + LARGE]]
    columns = to_columns(rows)
    assert (columns.time_width, columns.valid) == (8, b"\x0d")
    assert rows_of(columns) == rows
    assert rows_of(to_columns(rows[:3])) == rows[:3]
    assert to_columns(rows[2:]).time_width == 4


async def test_messages_that_are_far_apart_in_offset_are_in_several_blocks() -> None:
    rows = [[offset, b"t", b"e", 1] for offset in (1, 2, LARGE + 1, 2 * LARGE + 1, 2 * LARGE + 2)]

    async def read(key: bytes, words: list[bytes]) -> list[Any]:
        assert (key, words[2:]) == (b"k", [b"SKIPNULL", b"WITHTIME", b"WITHINFO"])
        found = [row for row in rows if row[0] >= int(words[0])]
        return [[1, 2 * LARGE + 9], *found[: int(words[1])]]

    replies = []
    following = 1
    while following <= 2 * LARGE + 1:
        reply = await scan_by_reading(read, b"k", [b"%d" % following, b"%d" % (2 * LARGE + 1)])
        replies.append(reply)
        following = reply[1]
    assert [[row[0] for row in rows_of(block)] for _, _, block in replies] == [
        [1, 2, LARGE + 1],
        [2 * LARGE + 1],
    ]
    assert [reply[1] for reply in replies] == [LARGE + 2, 2 * LARGE + 2]
