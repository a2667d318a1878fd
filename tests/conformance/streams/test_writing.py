"""Writing: how a stream begins and goes, offsets, backlogs, conditions, producers (1–6, 32)."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import CommandError
from tests.conformance.refusals import NOT_INTEGER, SYNTAX, WRONGTYPE
from tests.conformance.streams.stores import DEADLINE_S, INVALID, Store, running


async def test_01_created_by_first_write(db: Store) -> None:
    assert await db.do("TREAD", 1, 10) == []
    assert await db.do("TREAD", 0, 10, "WITHINFO") == [[1, 0]]
    assert await db.do("TEVICT", 5) == 0
    assert await db.do("TACK", "g", 1) == 0
    assert await db.do("TCOMPACT") == 0
    assert await db.client.execute("EXISTS", db.key) == 0
    assert await db.do("TWRITE", "tag", "entry") == 1
    assert await db.client.execute("EXISTS", db.key) == 1


async def test_01_another_type_is_refused_and_untouched(db: Store) -> None:
    await db.client.execute("SET", db.key, "text")
    for words in (
        ("TWRITE", "t", "e"), ("TREAD", 1, 1), ("TREAD", 1, 1, "GROUP", "g"), ("TACK", "g", 1), ("TEVICT", 1),
        ("TNACK", "g", 0, 1), ("TRENEW", "g", 1, 1), ("TDEAD", "g", "why", 1), ("TGROUP CREATE", "g", 0),
        ("TGROUP LIST",), ("TPENDING", "g"), ("TINFO STREAM",), ("TPOLICY", "COMPACT", "yes"), ("TCOMPACT",),
    ):  # fmt: skip
        assert await db.error(*words) == WRONGTYPE, words
    assert await db.client.execute("GET", db.key) == b"text"


@pytest.mark.parametrize(("becomes", "options"), [("deleted", ()), ("retyped", ("GROUP", "g"))])
async def test_01_gone_while_somebody_blocks(db: Store, becomes: str, options: tuple[str, ...]) -> None:
    await db.fill(1)
    async with running(db.do("TREAD", 2, 1, "BLOCK", 0, *options)) as reader:
        await db.until_blocked()
        await db.client.execute("DEL", db.key)
        if becomes == "retyped":
            await db.client.execute("SET", db.key, "text")
        with pytest.raises(CommandError) as refused:
            await asyncio.wait_for(reader, DEADLINE_S)
    assert str(refused.value) == f"UNBLOCKED the stream {db.key} is gone"


async def test_02_message_is_tag_and_entry(db: Store) -> None:
    binary = bytes(range(256))
    await db.do("TWRITE", b"", b"")
    await db.do("TWRITE", binary, binary)
    await db.do("TWRITE", "TOMBSTONES", "gone", "too")
    assert await db.do("TREAD", 1, 10) == [
        [1, b"", b""], [2, binary, binary], [3, b"gone", None], [4, b"too", None],
    ]  # fmt: skip


async def test_03_offsets_are_dense_and_permanent(db: Store) -> None:
    assert [await db.do("TWRITE", "t", "e") for _ in range(5)] == [1, 2, 3, 4, 5]
    await db.do("TEVICT", 5)
    assert await db.range() == (6, 5)
    assert await db.do("TWRITE", "t", "e") == 6
    await db.client.execute("DEL", db.key)
    assert await db.range() == (1, 0)
    assert await db.do("TWRITE", "t", "e") == 1
    assert await db.do("TREAD", 0, 10) == [[1, b"t", b"e"]]


async def test_03_deleting_deletes_groups_policy_and_producers(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0)
    await db.do("TPOLICY", "RETAIN-COUNT", 1)
    await db.do("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e")
    await db.client.execute("DEL", db.key)
    assert await db.do("TGROUP LIST") == []
    assert await db.do("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e", "t", "e") == 2
    assert await db.do("TGROUP LIST") == []
    assert (await db.do("TPOLICY"))["retain-count"] == 0


async def test_04_simple_form_is_told_by_its_arity(db: Store) -> None:
    assert await db.do("TWRITE", "BACKLOG", "5") == 1
    assert await db.do("TWRITE", "ENTRIES", "x") == 2
    assert await db.do("TREAD", 1, 2) == [[1, b"BACKLOG", b"5"], [2, b"ENTRIES", b"x"]]


async def test_05_entries_are_contiguous_and_atomic(db: Store) -> None:
    assert await db.write("a", "b", "c") == 3
    assert await db.do("TREAD", 1, 9) == [[1, b"a", b"a0"], [2, b"b", b"b1"], [3, b"c", b"c2"]]
    wrong = "ERR wrong number of arguments for 'twrite' command"
    assert await db.error("TWRITE", "ENTRIES", "a", "1", "b") == wrong
    assert await db.error("TWRITE", "BACKLOG", 5, "ENTRIES") == wrong
    assert await db.error("TWRITE", "BACKLOG", 5, "TOMBSTONES") == wrong
    assert await db.error("TWRITE", "a") == wrong
    assert await db.error("TWRITE", "a", "b", "c") == SYNTAX
    assert await db.error("TWRITE", "BACKLOG", 5, "IF") == SYNTAX
    assert await db.range() == (1, 3)


async def test_06_backlog_keeps_at_least_so_many(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 10)
    await db.fill(35)
    await db.do("TWRITE", "BACKLOG", 12, "ENTRIES", "t", "36")
    assert await db.range() == (21, 36)
    await db.do("TWRITE", "BACKLOG", 0, "ENTRIES", "t", "37")
    assert await db.range() == (31, 37)  # never the node that is being written
    await db.do("TWRITE", "BACKLOG", 100, "ENTRIES", "t", "38")
    assert await db.range() == (31, 38)


async def test_06_backlog_exactly_and_without_asking_groups(db: Store) -> None:
    await db.fill(9)
    await db.do("TGROUP CREATE", "g", 0)
    assert await db.do("TWRITE", "BACKLOG", "=", 4, "ENTRIES", "t", "10") == 10
    assert await db.range() == (7, 10)
    assert await db.do("TWRITE", "BACKLOG", "=", 0, "ENTRIES", "t", "11") == 11
    assert await db.range() == (12, 11)
    assert await db.error("TWRITE", "BACKLOG", -1, "ENTRIES", "t", "e") == NOT_INTEGER
    assert await db.error("TWRITE", "BACKLOG", "=", "x", "ENTRIES", "t", "e") == NOT_INTEGER
    assert await db.range() == (12, 11)


@pytest.mark.parametrize("offset", ["x", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", str(2**64), "9" * 30])
async def test_32_bad_offsets(db: Store, offset: str) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0)
    for words in (
        ("TREAD", offset, 1), ("TREAD", offset, 1, "GROUP", "new"), ("TGROUP CREATE", "new", offset),
        ("TWRITE", "IF", offset, "ENTRIES", "t", "e"), ("TGROUP SET", "g", "OFFSET", offset),
        ("TPENDING", "g", offset, 9, 9), ("TPENDING", "g", 0, offset, 9),
    ):  # fmt: skip
        assert await db.error(*words) == INVALID, words
    if offset != "-1":  # which keeps the newest
        assert await db.error("TEVICT", offset) == INVALID
    assert await db.range() == (1, 2)
    assert await db.do("TGROUP LIST") == [b"g"]


async def test_32_only_groups_and_backward_readers_know_the_end(db: Store) -> None:
    assert await db.error("TREAD", "$", 1) == INVALID
    assert await db.error("TREAD", "", 1) == INVALID
    assert await db.error("TREAD", "", 1, "REV") == INVALID


# ------------------------------------------------------------------------- beyond the specification


async def test_write_only_if_the_last_offset_is_this_one(db: Store) -> None:
    assert await db.do("TWRITE", "IF", 0, "ENTRIES", "t", "1") == 1
    assert await db.error("TWRITE", "IF", 0, "ENTRIES", "t", "2") == "MISMATCH the last offset is 1"
    assert await db.error("TWRITE", "IF", 2**64 - 1, "ENTRIES", "t", "2") == "MISMATCH the last offset is 1"
    assert await db.do("TWRITE", "IF", 1, "ENTRIES", "t", "2", "t", "3") == 3
    assert await db.range() == (1, 3)


async def test_a_repeated_write_is_written_once(db: Store) -> None:
    write = ("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "1", "t", "2")
    assert await db.do(*write) == 2
    assert await db.do(*write) == 2
    assert await db.do("TWRITE", "PRODUCER", "p", 10, "ENTRIES", "t", "3") == 3, "gaps are allowed"
    assert await db.do(*write) == 2
    at_ten = "SEQUENCE producer p is at 10"
    assert await db.error("TWRITE", "PRODUCER", "p", 10, "ENTRIES", "t", "3", "t", "4") == at_ten
    assert await db.error("TWRITE", "PRODUCER", "p", 5, "ENTRIES", "t", "x") == at_ten
    assert await db.do("TWRITE", "PRODUCER", "q", 1, "ENTRIES", "t", "4") == 4
    assert await db.range() == (1, 4)
    assert (await db.do("TINFO STREAM"))["producers"] == 2


async def test_a_hundred_calls_of_a_producer_are_remembered(db: Store) -> None:
    for number in range(1, 102):
        await db.do("TWRITE", "PRODUCER", "p", number, "ENTRIES", "t", "e")
    assert await db.do("TWRITE", "PRODUCER", "p", 2, "ENTRIES", "t", "e") == 2
    assert (
        await db.error("TWRITE", "PRODUCER", "p", 1, "ENTRIES", "t", "e") == "SEQUENCE producer p is at 101"
    )


async def test_a_repeated_write_is_known_before_its_condition_is_asked(db: Store) -> None:
    write = ("TWRITE", "IF", 0, "PRODUCER", "p", 1, "ENTRIES", "t", "1")
    assert await db.do(*write) == 1
    assert await db.do(*write) == 1
