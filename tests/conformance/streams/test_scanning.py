"""TSCAN: the same messages as TREAD, as columns.

Where blocks and pages end is the backend's business; what is in them, and where to go on, is not.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.columns import rows_of, size_of
from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE
from tests.conformance.streams.stores import INVALID, Store

NATIVE = ("embedded", "server")


async def scan(store: Store, first: int, last: int, *options: Any) -> list[list[Any]]:
    """The messages of a range, page by page."""
    found: list[list[Any]] = []
    start = first
    while True:
        (lowest, highest), following, *blocks = await store.do("TSCAN", start, last, *options)
        page = [row for block in blocks for row in rows_of(block)]
        assert all(max(start, lowest) <= row[0] < following for row in page)
        assert following <= min(last, highest) + 1
        found += page
        if following == min(last, highest) + 1:
            return found
        assert page
        start = following


async def read(store: Store) -> list[list[Any]]:
    return await store.do("TREAD", 0, 100_000, "SKIPNULL", "WITHTIME")


async def test_a_stream_that_is_not_there(db: Store) -> None:
    assert await db.do("TSCAN", 0, 100) == await db.do("TSCAN", 7, 5, "BYTES", 1) == [[1, 0], 1]
    assert await db.client.execute("EXISTS", db.key) == 0


async def test_the_layout_of_a_block(db: Store) -> None:
    binary = bytes(range(256))
    await db.do("TWRITE", "ENTRIES", "a", "12", b"", binary)
    await db.do("TWRITE", "BACKLOG", 100, "TOMBSTONES", "a", "bc")
    await db.do("TWRITE", "x", "")
    rows = await read(db)
    bounds, following, block = await db.do("TSCAN", 0, 2**64 - 1)
    assert (bounds, following) == ([1, 5], 6)
    base, count, first_ms, offset_steps, time_steps, width, tag_lengths, entry_lengths, *rest = block
    assert (base, count, first_ms, offset_steps) == (1, 5, rows[0][3], None)
    assert (len(time_steps), width, time_steps[:4]) == (20, 4, bytes(4))
    assert list(tag_lengths[::4]) == [1, 0, 1, 2, 1]
    assert entry_lengths == bytes([2, 0, 0, 0, 0, 1, *bytes(14)])
    assert rest == [bytes([0b10011]), b"aabcx", b"12" + binary]
    assert rows_of(block) == rows


@pytest.mark.parametrize("writes", [[1] * 30, [30], [7, 1, 1, 12, 9]], ids=["single", "at once", "mixed"])
async def test_ranges(db: Store, writes: list[int]) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 8)
    for count in writes:
        await db.write(*["t"] * count)
    rows = await read(db)
    for first, last, start, stop in (
        (0, 0, 0, 0), (0, 30, 0, 30), (1, 30, 0, 30), (2, 29, 1, 29),
        (8, 8, 7, 8), (9, 16, 8, 16), (30, 99, 29, 30),
    ):  # fmt: skip
        assert await scan(db, first, last) == await scan(db, first, last, "BYTES", 1) == rows[start:stop]
    assert await db.do("TSCAN", 5, 4) == [[1, 30], 5]
    assert await db.do("TSCAN", 31, 40) == [[1, 30], 31]
    assert await db.do("TSCAN", 2**64 - 1, 2**64 - 1) == [[1, 30], 31]


async def test_what_is_gone_is_left_out(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 5)
    await db.write(*"aabaacadbaaaaaaeeeff")
    await db.do("TEVICT", 2)
    await db.do("TCOMPACT")
    rows = await read(db)
    assert 3 <= len(rows) < 18
    assert await scan(db, 0, 100) == await scan(db, 0, 100, "BYTES", 1) == rows
    assert (await db.do("TSCAN", 1, 1)) == [[3, 20], 2]
    assert await scan(db, 1, 19) == [row for row in rows if row[0] <= 19]
    await db.do("TEVICT", 20)
    assert await db.do("TSCAN", 0, 100) == [[21, 20], 21]


async def test_one_message_at_least_however_large(db: Store) -> None:
    for place in range(4):
        await db.do("TWRITE", f"t{place}", bytes([place]) * 100_000)
    rows = await read(db)
    _, following, block = await db.do("TSCAN", 2, 4, "BYTES", 0)
    assert (following, rows_of(block)) == (3, rows[1:2])
    assert await scan(db, 1, 4, "BYTES", 150_000) == rows


async def test_a_page_has_about_as_many_bytes_as_was_asked_for(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 10)
    await db.do("TWRITE", "ENTRIES", *["tag", "e" * 88] * 100)
    await db.do("TPOLICY", "NODE-MESSAGES", 1000)
    await db.do("TWRITE", "ENTRIES", *["tag", "e" * 88] * 500)
    following, pages = 1, []
    while following <= 600:
        _, following, *blocks = await db.do("TSCAN", following, 600, "BYTES", 10_300)
        pages.append(sum(map(size_of, blocks)))
    if db.backend in NATIVE:
        # 103 bytes a message: ten nodes fit; the large one is cut where the limit is
        assert pages == [10_300] * 6
    else:
        assert max(pages) <= 2 * 10_300
    large = [rows_of(block) for block in (await db.do("TSCAN", 1, 600))[2:]]
    assert [row[0] for rows in large for row in rows] == list(range(1, 601))


async def test_what_is_malformed_is_refused(db: Store) -> None:
    for offset in ("-1", "+1", "1 ", "x", "", "$", "18446744073709551616", "1-2", "1.0"):
        assert await db.error("TSCAN", offset, 1) == await db.error("TSCAN", 1, offset) == INVALID
    for count in ("-1", "x", "", "1.5", " 1", "01", "9223372036854775808"):
        assert await db.error("TSCAN", 1, 1, "BYTES", count) == NOT_INTEGER
    for words in (("BYTES",), ("COUNT", 1), ("BYTES", 1, "BYTES"), ("1",)):
        assert await db.error("TSCAN", 1, 1, *words) == SYNTAX
    assert await db.error("TSCAN", 1) == "ERR wrong number of arguments for 'tscan' command"
    assert await db.do("TSCAN", 1, 1, "bytes", 9223372036854775807) == [[1, 0], 1]
    await db.client.execute("SET", db.key, "text")
    assert await db.error("TSCAN", 1, 1) == WRONGTYPE
    assert await db.error("TSCAN", "x", 1) == INVALID


@pytest.mark.parametrize("seed", range(3))
async def test_by_chance_the_same_as_reading(db: Store, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(8):
        await change(db, chance)
        rows = await read(db)
        last = rows[-1][0] if rows else 0
        for _ in range(3):
            first, end = sorted((chance.randint(0, last + 2), chance.randint(0, last + 2)))
            options = chance.choice([(), ("BYTES", chance.choice([1, 300, 3_000, 30_000]))])
            expected = [row for row in rows if first <= row[0] <= end]
            assert await scan(db, first, end, *options) == expected, (first, end, options)


async def change(db: Store, chance: random.Random) -> None:
    what = chance.choice(("one", "one", "many", "many", "tombstones", "compact", "evict", "nodes"))
    tags = [chance.choice(["", "a", "b", "cc", "ddd"]) for _ in range(chance.choice([2, 9, 70, 600]))]
    if what == "one":
        for tag in tags[:12]:
            await db.do("TWRITE", tag, chance.randbytes(chance.randrange(40)))
    elif what == "many":
        pairs = [word for tag in tags for word in (tag, chance.randbytes(chance.randrange(40)))]
        await db.do("TWRITE", "ENTRIES", *pairs)
    elif what == "tombstones":
        await db.do("TWRITE", "BACKLOG", 1_000_000, "TOMBSTONES", *tags[:20])
    elif what == "compact":
        await db.do("TPOLICY", "TOMBSTONE-MS", chance.choice([0, 86_400_000]))
        await db.do("TCOMPACT")
    elif what == "evict":
        first, last = await db.range()
        await db.do("TEVICT", chance.randint(first, max(first, (first + last) // 2)))
    else:
        await db.do("TPOLICY", "NODE-MESSAGES", chance.choice([1, 2, 10, 300, 1000]))
