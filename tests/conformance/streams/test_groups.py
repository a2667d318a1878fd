"""Groups: how they share, begin, take turns and end; order by tag; what is known of them (12–15)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from penstock.errors import CommandError
from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.streams.stores import DEADLINE_S, Store, offsets, running
from tests.places import until


async def test_12_a_group_shares_its_messages(db: Store) -> None:
    await db.fill(5)
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [1, 2]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [3, 4]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "other")) == [1, 2]
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g")) == [5]
    assert await db.do("TREAD", 0, 2, "GROUP", "g") == []
    assert await db.do("TGROUP LIST") == [b"g", b"other"]


async def test_13_where_a_group_begins(db: Store) -> None:
    await db.fill(5)
    await db.do("TEVICT", 1)
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "first")) == [2]
    assert offsets(await db.do("TREAD", 4, 9, "GROUP", "at")) == [4, 5]
    assert await db.do("TREAD", "$", 1, "GROUP", "last") == []
    assert await db.do("TREAD", "", 1, "GROUP", "empty") == []
    await db.do("TWRITE", "t", "6")
    for name in ("last", "empty", "at"):
        assert offsets(await db.do("TREAD", 1, 9, "GROUP", name)) == [6], "the offset counts once"


async def test_13_a_group_begins_on_a_stream_that_is_not_there(db: Store) -> None:
    assert await db.do("TREAD", "$", 1, "GROUP", "g") == []
    await db.fill(1)
    assert offsets(await db.do("TREAD", "$", 1, "GROUP", "g")) == [1]


async def test_13_a_group_that_nobody_uses_goes(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0, "TTL", 20)
    await db.do("TGROUP CREATE", "stays", 0)

    async def is_gone() -> bool:
        return await db.do("TGROUP LIST") == [b"stays"]

    await until(is_gone)
    assert await db.do("TGROUP SET", "g", "TTL", 0) == 0


async def test_14_without_retry_nothing_is_pending(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 3, "GROUP", "g")
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TACK", "g", "1-3") == 0


async def test_15_who_was_served_goes_to_the_end_of_the_line(db: Store) -> None:
    served: list[str] = []

    async def read(name: str) -> None:
        while True:
            messages = await db.do("TREAD", 0, 10, "BLOCK", 0, "GROUP", "g")
            served.extend(f"{name}{offset}" for offset in offsets(messages))

    async with contextlib.AsyncExitStack() as stack:
        for place, name in enumerate("abc"):
            await stack.enter_async_context(running(read(name)))
            await db.until_blocked(place + 1)
        for offset in range(1, 10):
            await db.until_blocked(3)
            await db.do("TWRITE", "t", "e")

            async def is_served(count: int = offset) -> bool:
                return len(served) == count

            await until(is_served)
    assert served == ["a1", "b2", "c3", "a4", "b5", "c6", "a7", "b8", "c9"]


async def test_15_nobody_gets_more_than_his_share(db: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(running(db.do("TREAD", 0, 100, "BLOCK", 0, "GROUP", "g")))
            for _ in range(3)
        ]
        await db.until_blocked(3)
        await db.write(*"abcdefg")
        replies = await asyncio.gather(*readers)
    assert sorted(map(len, replies)) == [2, 2, 3]
    assert sorted(offset for reply in replies for offset in offsets(reply)) == [1, 2, 3, 4, 5, 6, 7]


# ------------------------------------------------------------------------- beyond the specification


async def test_an_ordered_group_holds_tags(db: Store) -> None:
    await db.write("a", "a", "b", "", "", "a", "c")
    await db.do("TGROUP CREATE", "g", 0, "ORDERED", "yes")
    read = ("TREAD", 0, 99, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1, 3, 4, 5, 7]
    assert await db.do(*read) == []
    assert (await db.group())["lag"] == 2
    await db.do("TACK", "g", "3-7")
    assert (await db.group())["ack-offset"] == 1
    assert await db.do("TEVICT", "-1", "ACKED") == 0
    await db.do("TACK", "g", 1)
    assert (await db.group())["ack-offset"] == 2
    await db.write("a")
    assert offsets(await db.do(*read)) == [2]
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [6]
    await db.do("TACK", "g", 6)
    assert offsets(await db.do(*read)) == [8]


async def test_an_ordered_group_releases_without_retry(db: Store) -> None:
    await db.write("a", "a", "a")
    await db.do("TGROUP CREATE", "g", 0, "ORDERED", "yes")
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)) == [1]
    assert await db.do("TREAD", 0, 9, "GROUP", "g") == []
    await db.do("TACK", "g", 1)
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g")) == [2, 3]


async def test_order_can_begin_and_end(db: Store) -> None:
    await db.write("a", "a", "a", "a")
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TGROUP SET", "g", "ORDERED", "yes")
    assert await db.do(*read) == []
    await db.do("TACK", "g", 1)
    assert await db.do(*read) == []
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [3]
    await db.do("TGROUP SET", "g", "ORDERED", "no")
    assert offsets(await db.do(*read)) == [4]


async def test_groups_are_made_changed_and_removed(db: Store) -> None:
    assert await db.do("TGROUP CREATE", "g", 3, "MAXPENDING", 7, "TTL", 60_000) == 1
    assert await db.do("TGROUP CREATE", "g", 1, "MAXPENDING", 9) == 0
    group = await db.group()
    assert (group["cursor"], group["maxpending"], group["ttl"]) == (3, 7, 60_000)
    assert (group["ordered"], group["backoff"], group["deadletter"]) == (b"no", b"", b"")
    await db.fill(5)
    assert offsets(await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)) == [3, 4]
    assert await db.do("TGROUP SET", "g", "OFFSET", 2, "BACKOFF", "5,10") == 1
    assert (await db.group())["backoff"] == b"5,10"
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)) == [2, 5], "pending stays"
    assert await db.do("TGROUP SET", "nobody", "TTL", 1) == 0
    assert await db.do("TGROUP DESTROY", "g") == 1
    assert await db.do("TGROUP DESTROY", "g") == 0
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TGROUP CREATE", "g", 0) == 1
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1], "nothing of its predecessor is left"


async def test_bad_options_of_groups(db: Store) -> None:
    assert await db.error("TGROUP CREATE", "", 0) == "ERR the name of a group cannot be empty"
    for option, value, text in (
        ("MAXPENDING", "-1", NOT_INTEGER), ("TTL", "x", NOT_INTEGER), ("BACKOFF", "1,,2", NOT_INTEGER),
        ("BACKOFF", "x", NOT_INTEGER), ("ORDERED", "perhaps", SYNTAX), ("NONSENSE", "1", SYNTAX),
    ):  # fmt: skip
        assert await db.error("TGROUP CREATE", "g", 0, option, value) == text
        assert await db.error("TGROUP SET", "g", option, value) == text
    assert await db.error("TGROUP CREATE", "g", 0, "TTL") == SYNTAX
    assert await db.error("TGROUP NONSENSE") == "ERR unknown subcommand 'NONSENSE'. Try TGROUP HELP."
    assert await db.client.execute("EXISTS", db.key) == 0


async def test_a_group_that_is_destroyed_lets_its_readers_go(db: Store) -> None:
    async with running(db.do("TREAD", 0, 1, "GROUP", "g", "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TGROUP DESTROY", "g")
        with pytest.raises(CommandError, match="UNBLOCKED the group g is gone"):
            await asyncio.wait_for(reader, DEADLINE_S)


async def test_consumers_are_known(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 2, "GROUP", "g", "CONSUMER", "a", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "CONSUMER", "b")
    one, other = await db.do("TINFO CONSUMERS", "g")
    assert (one["name"], one["pending"], one["delivered"]) == (b"a", 2, 2)
    assert (other["name"], other["pending"], other["delivered"]) == (b"b", 0, 1)
    assert await db.do("TINFO CONSUMERS", "nobody") == []
