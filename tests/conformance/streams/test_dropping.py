"""TDROP, kept producers and TINFO PRODUCER."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE
from tests.conformance.streams.stores import DEADLINE_S, INVALID, Store, offsets, running
from tests.effort import seed_of

SEED = seed_of("PENSTOCK_STREAM_SEED")
LATER = ("RETRY", 600_000, 0)


async def present(db: Store) -> list[int | None]:
    return offsets(await db.do("TREAD", 1, 100_000, "SKIPNULL"))


# --------------------------------------------------------------------------------------------- TDROP


async def test_offsets_and_ranges_become_holes(db: Store) -> None:
    await db.fill(10)
    assert await db.do("TDROP", 2, "7-8", 5, "5-5", 100, 0) == 4
    assert offsets(await db.do("TREAD", 1, 20)) == [1, None, 3, 4, None, 6, None, None, 9, 10]
    assert offsets(await db.do("TREAD", 8, 20, "REV")) == [None, None, 6, None, 4, 3, None, 1]
    assert await db.do("TDROP", 2, "7-8", 5) == 0, "they are gone already"
    assert (await db.do("TINFO STREAM"))["length"] == 6


async def test_first_and_last_stay(db: Store) -> None:
    await db.fill(5)
    assert await db.do("TDROP", 1, 5) == 2
    assert await db.range() == (1, 5)
    assert offsets(await db.do("TREAD", 0, 9)) == [None, 2, 3, 4, None]
    assert await db.do("TWRITE", "t", "e") == 6
    assert await db.do("TDROP", "0-18446744073709551615") == 4
    assert await db.range() == (1, 6)
    assert (await db.do("TINFO STREAM"))["length"] == 0
    assert await db.client.execute("EXISTS", db.key) == 1
    assert await db.do("TREAD", 0, 9, "SKIPNULL") == []
    assert await db.do("TWRITE", "t", "e") == 7
    assert await db.do("TEVICT", 3) == 0
    assert await db.range() == (4, 7)
    assert await db.do("TDROP", "1-7") == 1


async def test_what_is_pending_stays(db: Store) -> None:
    await db.fill(6)
    await db.do("TREAD", 0, 3, "GROUP", "g", *LATER)
    await db.do("TREAD", 0, 1, "GROUP", "done")
    await db.do("TACK", "g", 2)
    assert await db.do("TDROP", "1-6") == 4
    assert await present(db) == [1, 3]
    assert await db.do("TNACK", "g", 0, "1-3") == 2
    assert await db.do("TREAD", 0, 9, "GROUP", "g", *LATER) == [[1, b"t", b"1"], [3, b"t", b"3"]]
    await db.do("TACK", "g", "1-3")
    assert await db.do("TDROP", "1-6") == 2
    assert await db.do("TREAD", 0, 9, "GROUP", "g", *LATER) == []
    assert (await db.group("g"))["lost"] == 3, "4, 5 and 6"
    assert (await db.group("done"))["lag"] == 5, "holes count until they are met"


@pytest.mark.parametrize("item", ["x", "", "-1", "1-", "3-2", "1-2-3", " 1", "18446744073709551616"])
async def test_one_bad_item_and_nothing_goes(db: Store, item: str) -> None:
    await db.fill(3)
    assert await db.error("TDROP", 1, item) == INVALID
    assert await present(db) == [1, 2, 3]


async def test_refusals(db: Store) -> None:
    assert await db.do("TDROP", 1) == 0
    assert await db.client.execute("EXISTS", db.key) == 0, "it makes no stream"
    assert await db.error("TDROP") == "ERR wrong number of arguments for 'tdrop' command"
    await db.client.execute("SET", db.key, "text")
    assert await db.error("TDROP", 1) == WRONGTYPE


async def test_closed_nodes_and_the_open_one(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 4)
    await db.fill(10)
    assert await db.do("TDROP", 2, 10) == 2
    await db.do("TWRITE", "t", "11")
    assert await db.do("TDROP", "3-9") == 7, "over nodes that have holes already"
    assert await db.do("TREAD", 1, 100, "SKIPNULL") == [[1, b"t", b"1"], [11, b"t", b"11"]]
    await db.write(*"abcdefgh")
    assert await present(db) == [1, *range(11, 20)]
    assert await db.do("TDROP", 19) == 1
    assert await db.do("TREAD", 19, 1, "REV", "SKIPNULL") == [[18, b"g", b"g6"]]


async def test_many_items_at_once(db: Store) -> None:
    await db.do("TWRITE", "ENTRIES", *(word for number in range(3_000) for word in ("t", str(number))))
    assert await db.do("TDROP", *range(2, 3_001, 2), "1-5") == 1_503
    assert await present(db) == list(range(7, 3_000, 2))


async def test_compaction_finds_who_is_newest_now(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 1)
    await db.write("a", "a", "b", "a")
    assert await db.do("TDROP", 4) == 1
    assert await db.do("TCOMPACT") == 1
    assert await present(db) == [2, 3]


async def test_who_waits_is_not_disturbed(db: Store) -> None:
    await db.fill(3)
    await db.do("TGROUP CREATE", "g", "$")
    async with running(db.do("TREAD", 0, 9, "GROUP", "g", "BLOCK", 0)) as of_group:
        await db.until_blocked()
        assert await db.do("TDROP", "1-3") == 3
        async with running(db.do("TREAD", 1, 9, "SKIPNULL", "BLOCK", 0)) as plain:  # among holes
            await db.until_blocked(2)
            await db.do("TWRITE", "t", "4")
            assert offsets(await asyncio.wait_for(plain, DEADLINE_S)) == [4]
        assert offsets(await asyncio.wait_for(of_group, DEADLINE_S)) == [4]


async def test_an_ordered_group_passes_over_what_was_dropped(db: Store) -> None:
    await db.write("a", "a", "a", "b")
    await db.do("TGROUP CREATE", "g", 0, "ORDERED", "yes")
    read = ("TREAD", 0, 9, "GROUP", "g", *LATER)
    assert offsets(await db.do(*read)) == [1, 4]
    assert await db.do("TDROP", "1-4") == 2, "those that wait for their tag are not pending"
    await db.do("TACK", "g", 1)
    assert await db.do(*read) == []
    await db.write("a")
    assert offsets(await db.do(*read)) == [5]
    assert (await db.group())["lost"] == 2


async def test_a_repeated_write_whose_message_was_dropped(db: Store) -> None:
    write = ("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "1")
    assert await db.do(*write) == 1
    assert await db.do("TDROP", 1) == 1
    assert await db.do(*write) == 1
    assert await present(db) == []


class Naive:
    """A stream as a dictionary, and groups that remember what they have pending."""

    def __init__(self) -> None:
        self.first, self.last = 1, 0
        self.tags: dict[int, str] = {}
        self.cursors = {"g": 1, "h": 1}
        self.pending: dict[str, set[int]] = {"g": set(), "h": set()}

    def write(self, tags: list[str]) -> int:
        for tag in tags:
            self.last += 1
            self.tags[self.last] = tag
        return self.last

    def drop(self, ranges: list[tuple[int, int]]) -> int:
        pending = set().union(*self.pending.values())
        meant = {offset for low, high in ranges for offset in range(low, high + 1)}
        return self.remove((meant & self.tags.keys()) - pending)

    def evict(self, upto: int) -> int:
        self.first = max(self.first, min(upto, self.last) + 1)
        return self.remove({offset for offset in self.tags if offset <= upto})

    def remove(self, gone: set[int]) -> int:
        for offset in gone:
            del self.tags[offset]
        return len(gone)

    def deliver(self, name: str, count: int) -> list[int]:
        found = [offset for offset in sorted(self.tags) if offset >= self.cursors[name]][:count]
        self.cursors[name] = found[-1] + 1 if found else self.last + 1
        self.pending[name] |= {*found}
        return found

    def ack(self, name: str, low: int, high: int) -> int:
        hits = {offset for offset in self.pending[name] if low <= offset <= high}
        self.pending[name] -= hits
        return len(hits)


async def test_random_calls_as_a_naive_stream_would(db: Store) -> None:
    print(f"PENSTOCK_STREAM_SEED={SEED}")  # noqa: T201  (shown when it fails)
    chance, naive = random.Random(SEED), Naive()
    await db.do("TPOLICY", "NODE-MESSAGES", 5)
    for name in naive.cursors:
        await db.do("TGROUP CREATE", name, 1)
    for step in range(150):
        await random_call(db, naive, chance)
        if step % 15 == 14:
            await compare(db, naive)


async def random_call(db: Store, naive: Naive, chance: random.Random) -> None:
    def any_range() -> tuple[int, int]:
        start = chance.randint(max(naive.first - 2, 0), naive.last + 2)
        return start, start + chance.choice([0, 0, 1, 8])

    name = chance.choice("gh")
    match chance.choice("wwwwddddrraec"):
        case "w":
            tags = chance.choices(["", "a", "b", "c"], k=chance.choice([1, 2, 7]))
            assert await db.write(*tags) == naive.write(tags)
        case "d":
            ranges = [any_range() for _ in range(chance.choice([1, 2, 5]))]
            items = [f"{low}-{high}" if high > low else str(low) for low, high in ranges]
            assert await db.do("TDROP", *items) == naive.drop(ranges), items
        case "r":
            count = chance.choice([1, 3])
            rows = await db.do("TREAD", 0, count, "GROUP", name, *LATER)
            assert offsets(rows) == naive.deliver(name, count)
        case "a":
            low, high = any_range()
            assert await db.do("TACK", name, f"{low}-{high}") == naive.ack(name, low, high)
        case "e":
            upto = naive.first + chance.choice([-1, 0, 3])
            assert await db.do("TEVICT", upto) == naive.evict(upto)
        case "c":
            removed = await db.do("TCOMPACT")
            there = set(await present(db))
            gone = naive.tags.keys() - there
            assert removed == len(gone)
            newest = {naive.tags[offset]: offset for offset in sorted(naive.tags)}
            assert all(naive.tags[offset] and newest[naive.tags[offset]] > offset for offset in gone)
            assert not gone & set().union(*naive.pending.values())
            naive.remove(gone)


async def compare(db: Store, naive: Naive) -> None:
    assert await present(db) == sorted(naive.tags)
    places = [offset if offset in naive.tags else None for offset in range(1, naive.last + 1)]
    assert offsets(await db.do("TREAD", 1, 100_000)) == places
    assert await db.range() == (naive.first, naive.last)
    assert (await db.do("TINFO STREAM"))["length"] == len(naive.tags)
    for name, pending in naive.pending.items():
        rows: list[Any] = await db.do("TPENDING", name, 0, 10**9, 10**6)
        assert [row[0] for row in rows] == sorted(pending)


# ------------------------------------------------------------------------------------- kept producers


async def test_what_is_known_of_a_producer(db: Store) -> None:
    assert await db.do("TINFO PRODUCER", "p") is None, "no stream"
    await db.do("TWRITE", "t", "e")
    assert await db.do("TINFO PRODUCER", "p") is None, "no such producer"
    await db.do("TWRITE", "PRODUCER", "p", 7, "ENTRIES", "t", "1", "t", "2")
    info = await db.do("TINFO PRODUCER", "p")
    assert 0 <= info.pop("idle-ms") < 60_000
    assert info == {"sequence": 8, "last": 3, "kept": b"no"}
    await db.do("TWRITE", "PRODUCER", "p", 20, "KEEP", "TOMBSTONES", "t")
    info = await db.do("TINFO PRODUCER", "p")
    assert (info["sequence"], info["last"], info["kept"]) == (20, 4, b"yes")
    assert (await db.do("TINFO STREAM"))["producers"] == 1
    assert await db.error("TINFO PRODUCER") == "ERR wrong number of arguments for 'tinfo|producer' command"
    await db.client.execute("DEL", db.key)
    assert await db.do("TINFO PRODUCER", "p") is None
    await db.client.execute("SET", db.key, "text")
    assert await db.error("TINFO PRODUCER", "p") == WRONGTYPE


async def test_the_newest_call_says_whether_a_producer_is_kept(db: Store) -> None:
    async def is_kept() -> bytes:
        return (await db.do("TINFO PRODUCER", "p"))["kept"]

    write = ("TWRITE", "PRODUCER", "p", 1)
    assert await db.do(*write, "keep", "ENTRIES", "t", "1") == 1
    assert await is_kept() == b"yes"
    assert await db.do("TWRITE", "PRODUCER", "p", 2, "ENTRIES", "t", "2") == 2
    assert await is_kept() == b"no"
    assert await db.do(*write, "KEEP", "ENTRIES", "t", "1") == 1, "a repetition is a call, too"
    assert await is_kept() == b"yes"
    assert "is at 2" in await db.error(*write, "ENTRIES", "t", "1", "t", "2", "t", "3")
    assert await is_kept() == b"yes", "what is refused changes nothing"
    assert await db.do(*write, "ENTRIES", "t", "1") == 1
    assert await is_kept() == b"no"
    assert await db.range() == (1, 2)


async def test_keep_stands_behind_the_sequence(db: Store) -> None:
    assert await db.error("TWRITE", "KEEP", "ENTRIES", "t", "e") == SYNTAX
    assert await db.error("TWRITE", "PRODUCER", "p", 1, "IF", 0, "KEEP", "ENTRIES", "t", "e") == SYNTAX
    assert await db.error("TWRITE", "PRODUCER", "p", 1, "KEEP", "KEEP", "ENTRIES", "t", "e") == SYNTAX
    assert await db.error("TWRITE", "PRODUCER", "p", 1, "KEEP") == SYNTAX
    assert await db.error("TWRITE", "PRODUCER", "p", "KEEP", "ENTRIES", "t", "e") == NOT_INTEGER
    assert await db.do("TWRITE", "PRODUCER", "KEEP", 1, "KEEP", "IF", 0, "ENTRIES", "KEEP", "KEEP") == 1
    assert await db.do("TREAD", 1, 9) == [[1, b"KEEP", b"KEEP"]]
    assert (await db.do("TINFO PRODUCER", "KEEP"))["kept"] == b"yes"
