"""What leaves a stream: eviction, compaction, retention by policy (24–28)."""

from __future__ import annotations

import asyncio
import random

from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.streams.stores import Store, offsets
from tests.places import until


async def test_24_evicts_up_to_an_offset(db: Store) -> None:
    await db.fill(9)
    assert await db.do("TEVICT", 0) == 0
    assert await db.do("TEVICT", 3) == 3
    assert await db.do("TEVICT", 3) == 0
    assert await db.do("TEVICT", 2) == 0
    assert await db.range() == (4, 9)
    assert await db.do("TEVICT", 2**64 - 1) == 6
    assert await db.range() == (10, 9)
    assert await db.client.execute("EXISTS", db.key) == 1


async def test_25_evicts_all_but_the_newest(db: Store) -> None:
    await db.fill(9)
    assert await db.do("TEVICT", "-0") == 0
    assert await db.do("TEVICT", "-20") == 0
    assert await db.do("TEVICT", "-4") == 5
    assert await db.range() == (6, 9)


async def test_26_eviction_moves_cursors_and_spares_on_demand(db: Store) -> None:
    await db.fill(9)
    await db.do("TREAD", 0, 5, "GROUP", "reads", "RETRY", 60_000, 0)
    await db.do("TACK", "reads", 1, 2, 4)
    assert await db.do("TEVICT", 9, "ACKED") == 2, "3 is pending"
    await db.do("TACK", "reads", "1-9")
    assert await db.do("TEVICT", "-0", "ACKED") == 0
    assert await db.do("TEVICT", "-1", "ACKED") == 3, "6 was not read"
    await db.do("TGROUP CREATE", "late", 8)
    assert await db.do("TEVICT", 9) == 4, "nobody was asked"
    await db.do("TWRITE", "t", "10")
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "late")) == [10]
    assert (await db.group("late"))["lost"] == 2


async def test_27_evicts_by_age(db: Store) -> None:
    await db.fill(3)
    assert await db.do("TEVICT", "AGE", 60_000) == 0
    await asyncio.sleep(1.01)
    await db.do("TWRITE", "t", "4")
    assert await db.do("TEVICT", "AGE", 1_000) == 3
    assert await db.range() == (4, 4)
    assert await db.error("TEVICT", "AGE") == SYNTAX
    assert await db.error("TEVICT", "AGE", "x") == NOT_INTEGER
    assert await db.error("TEVICT", "AGE", 1, "NONSENSE") == SYNTAX


async def test_28_compaction_keeps_the_newest_of_each_tag(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 4)
    await db.write("a", "", "a", "b", "", "a", "b", "c", "a", "a")
    assert await db.do("TCOMPACT") == 3, "a1 a3 b4 went; the node of 9 and 10 is being written"
    assert offsets(await db.do("TREAD", 1, 99, "SKIPNULL")) == [2, 5, 6, 7, 8, 9, 10]
    assert await db.do("TCOMPACT") == 0
    info = await db.do("TINFO STREAM")
    assert (info["first"], info["last"], info["length"], info["compacted-to"]) == (1, 10, 7, 8)
    assert await db.do("TWRITE", "d", "e") == 11


async def test_28_compaction_spares_what_is_pending(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3)
    await db.write("a", "a", "a")
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TCOMPACT") == 1
    assert offsets(await db.do("TREAD", 1, 9)) == [1, None, 3]


async def test_28_tombstones_stay_for_a_while(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3)
    await db.write("a", "b")
    await db.do("TWRITE", "IF", 2, "TOMBSTONES", "a")
    assert await db.do("TCOMPACT") == 1
    assert await db.do("TREAD", 1, 9) == [None, [2, b"b", b"b1"], [3, b"a", None]]


async def test_28_tombstones_go_in_the_end(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3, "TOMBSTONE-MS", 0)
    await db.write("a", "b")
    await db.do("TWRITE", "IF", 2, "TOMBSTONES", "a")
    await asyncio.sleep(0.005)
    assert await db.do("TCOMPACT") == 2
    assert offsets(await db.do("TREAD", 1, 9)) == [None, 2, None]
    assert await db.do("TWRITE", "c", "e") == 4


async def test_28_young_messages_are_left_alone(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 3, "MIN-LAG-MS", 60_000)
    await db.write("a", "a", "a")
    assert await db.do("TCOMPACT") == 0


async def test_28_a_policy_compacts_by_itself(db: Store) -> None:
    await db.do("TPOLICY", "NODE-MESSAGES", 10, "COMPACT", "yes", "DIRTY-RATIO", 10)
    await db.fill(30)

    async def is_compacted() -> bool:
        await db.do("TWRITE", "other", "e")
        return offsets(await db.do("TREAD", 1, 9)) == [None] * 9

    await until(is_compacted)


async def test_28_retention_by_count_bytes_and_age(db: Store) -> None:
    async def first_is(offset: int) -> bool:
        return (await db.range())[0] >= offset

    await db.do("TPOLICY", "NODE-MESSAGES", 2, "RETAIN-COUNT", 4)
    await db.fill(10)
    await until(lambda: first_is(6))
    assert (await db.range())[0] <= 7
    await db.do("TPOLICY", "RETAIN-COUNT", 0, "RETAIN-MS", 1)
    await asyncio.sleep(0.005)
    await db.do("TWRITE", "t", "11")
    await until(lambda: first_is(10))
    await db.do("TPOLICY", "RETAIN-MS", 0, "RETAIN-BYTES", 1_000)
    for _ in range(12):
        await db.do("TWRITE", "t", random.randbytes(500))  # nothing that compression could shorten
    await until(lambda: first_is(18))
    assert (await db.range())[1] == 23


async def test_28_retention_can_spare_what_groups_need(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 3)
    await db.do("TPOLICY", "NODE-MESSAGES", 1, "RETAIN-COUNT", 1, "RETAIN-ACKED", "yes")
    await db.fill(6)

    async def is_applied() -> bool:
        return (await db.range())[0] == 3

    await until(is_applied)


# ------------------------------------------------------------------------- beyond the specification


async def test_policies(db: Store) -> None:
    policy = await db.do("TPOLICY", "retain-ms", 5_000, "COMPACT", "yes")
    assert policy == {
        "retain-ms": 5_000, "retain-count": 0, "retain-bytes": 0, "retain-acked": b"no", "compact": b"yes",
        "dirty-ratio": 50, "min-lag-ms": 0, "max-lag-ms": 0, "tombstone-ms": 86_400_000,
        "node-messages": 1_000, "node-bytes": 1_048_576,
    }  # fmt: skip
    assert await db.do("TPOLICY") == policy
    assert await db.error("TPOLICY", "RETAIN-MS", "x") == NOT_INTEGER
    assert await db.error("TPOLICY", "RETAIN-MS") == SYNTAX
    assert (await db.error("TPOLICY", "COMPACT", "perhaps")).startswith("ERR ")
    assert (await db.error("TPOLICY", "NONSENSE", 1)).startswith("ERR ")
    assert await db.do("TPOLICY") == policy
