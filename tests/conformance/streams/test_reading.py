"""Reading: ranges, what is gone, options, and readers that wait (7–11)."""

from __future__ import annotations

import asyncio
import contextlib
import time

from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.streams.stores import Store, offsets, running


async def test_07_reads_from_an_offset_on(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", 2, 3)) == [2, 3, 4]
    assert offsets(await db.do("TREAD", 4, 100)) == [4, 5]
    assert await db.do("TREAD", 6, 1) == []
    assert await db.do("TREAD", 2**64 - 1, 1) == []
    assert await db.do("TREAD", 1, 0) == []
    assert offsets(await db.do("TREAD", 0, 2)) == [1, 2]
    for count in ("-1", "x", "", "1.5", 2**63):
        assert await db.error("TREAD", 1, count) == NOT_INTEGER


async def test_07_reads_downwards(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", "$", 2, "REV")) == [5, 4]
    assert offsets(await db.do("TREAD", 3, 9, "REV")) == [3, 2, 1]
    assert offsets(await db.do("TREAD", 99, 1, "REV")) == [5]
    await db.do("TEVICT", 3)
    assert offsets(await db.do("TREAD", 5, 4, "REV")) == [5, 4, None, None]
    assert offsets(await db.do("TREAD", 5, 4, "REV", "SKIPNULL")) == [5, 4]


async def test_08_messages_that_are_gone_are_null_in_their_place(db: Store) -> None:
    await db.fill(6)
    await db.do("TEVICT", 3)
    assert offsets(await db.do("TREAD", 1, 5)) == [None, None, None, 4, 5]
    assert await db.do("TREAD", 1, 2) == [None, None]
    assert offsets(await db.do("TREAD", 0, 2)) == [4, 5]
    assert offsets(await db.do("TREAD", 1, 2, "SKIPNULL")) == [4, 5]


async def test_08_holes_are_null_too(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 5)
    await db.write("a", "b", "a", "c", "b")
    assert await db.do("TCOMPACT") == 2
    assert offsets(await db.do("TREAD", 1, 5)) == [None, None, 3, 4, 5]
    assert offsets(await db.do("TREAD", 1, 2, "SKIPNULL")) == [3, 4]
    assert offsets(await db.do("TREAD", 5, 5, "REV")) == [5, 4, 3, None, None]
    assert await db.range() == (1, 5)


async def test_08_groups_skip_new_messages_that_are_gone(db: Store) -> None:
    await db.fill(6)
    await db.do("TGROUP CREATE", "g", 0)
    await db.do("TEVICT", 4)
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "g")) == [5]
    assert (await db.group())["lost"] == 4


async def test_08_pending_and_gone_is_told_once(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 1, 0)
    await db.do("TEVICT", 1)
    await asyncio.sleep(0.01)
    reply = await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert reply == [[1, None, None], [2, b"t", b"2"]]
    assert (await db.do("TPENDING", "g"))[:3] == [1, 2, 2]
    [[_, tag, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert tag == b""
    assert b"\nreason: evicted\n" in letter
    assert letter.endswith(b"\n\n")


async def test_09_info_comes_first(db: Store) -> None:
    assert await db.do("TREAD", 1, 0, "WITHINFO") == [[1, 0]]
    await db.fill(3)
    assert await db.do("TREAD", 2, 1, "WITHINFO") == [[1, 3], [2, b"t", b"2"]]
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "WITHINFO") == [[1, 3], [1, b"t", b"1"]]
    await db.do("TEVICT", 9)
    assert await db.do("TREAD", 2, 0, "WITHINFO", "BLOCK", 0) == [[4, 3]]


async def test_09_time_is_added(db: Store) -> None:
    before_ms = int(time.time() * 1000)
    await db.fill(1)
    [[offset, tag, entry, ms]] = await db.do("TREAD", 1, 1, "WITHTIME")
    assert (offset, tag, entry) == (1, b"t", b"1")
    assert before_ms - 1000 <= ms <= time.time() * 1000 + 1000
    [[_, _, _, again_ms, count]] = await db.do("TREAD", 0, 1, "GROUP", "g", "WITHTIME", "WITHCOUNT")
    assert (again_ms, count) == (ms, 1)


async def test_10_block_waits_and_gives_up(db: Store) -> None:
    assert await db.do("TREAD", 1, 1, "BLOCK", 20) is None
    assert await db.do("TREAD", 0, 1, "BLOCK", 20, "GROUP", "g", "WITHINFO") is None
    assert await db.do("TREAD", 1, 0, "BLOCK", 0) == []
    assert await db.error("TREAD", 1, 1, "BLOCK", -1) == NOT_INTEGER
    assert await db.error("TREAD", 1, 1, "BLOCK") == SYNTAX
    await db.fill(1)
    assert await db.do("TREAD", 1, 1, "BLOCK", 0) == [[1, b"t", b"1"]]


async def test_10_block_waits_for_a_stream_that_is_not_there(db: Store) -> None:
    async with running(db.do("TREAD", 1, 5, "BLOCK", 0, "WITHINFO")) as reader:
        await db.until_blocked()
        await db.write("a", "b")
        assert await reader == [[1, 2], [1, b"a", b"a0"], [2, b"b", b"b1"]]


async def test_10_a_cancelled_reader_takes_nothing(db: Store) -> None:
    async with running(db.do("TREAD", 0, 5, "BLOCK", 0, "GROUP", "g")):
        await db.until_blocked()
    await db.until_blocked(0)
    await db.fill(1)
    assert offsets(await db.do("TREAD", 0, 5, "BLOCK", 5_000, "GROUP", "g")) == [1]


async def test_11_block_for_an_offset_beyond_the_end(db: Store) -> None:
    await db.fill(1)
    async with running(db.do("TREAD", 4, 10, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.fill(2)  # smaller ones do not wake
        await db.until_blocked()
        assert not reader.done()
        await db.write("x", "y")
        assert await reader == [[4, b"x", b"x0"], [5, b"y", b"y1"]]


async def test_11_every_plain_reader_is_served(db: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(running(db.do("TREAD", 1, 1, "BLOCK", 0))) for _ in range(3)
        ]
        await db.until_blocked(3)
        await db.fill(1)
        assert await asyncio.gather(*readers) == [[[1, b"t", b"1"]]] * 3


async def test_11_gone_messages_do_not_end_the_wait(db: Store) -> None:
    await db.fill(3)
    await db.do("TEVICT", 3)
    async with running(db.do("TREAD", 2, 3, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TWRITE", "t", "4")
        assert await reader == [None, None, [4, b"t", b"4"]]
