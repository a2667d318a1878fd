"""What a group has delivered: retries, expiry, acknowledgements, limits, dead letters (16–23)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.conformance.refusals import NOT_INTEGER, SYNTAX
from tests.conformance.streams.stores import DEADLINE_S, INVALID, Store, offsets, running


async def test_16_retry_belongs_to_groups(db: Store) -> None:
    needs = "ERR RETRY, CONSUMER and WITHCOUNT need GROUP"
    assert await db.error("TREAD", 1, 1, "RETRY", 1, 1) == needs
    assert await db.error("TREAD", 1, 1, "CONSUMER", "me") == needs
    assert await db.error("TREAD", 1, 1, "WITHCOUNT") == needs
    not_with = "ERR REV and SKIPNULL do not go with GROUP"
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "REV") == not_with
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "SKIPNULL") == not_with
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", 0, 1) == "ERR retry-ms must be at least 1"
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", -1, 1) == NOT_INTEGER
    assert await db.error("TREAD", 1, 1, "GROUP", "g", "RETRY", 1) == SYNTAX
    assert await db.error("TREAD", 1, 1, "GROUP", "") == "ERR the name of a group cannot be empty"
    assert await db.error("TREAD", 1, 1, "NONSENSE") == SYNTAX
    assert await db.client.execute("EXISTS", db.key) == 0


async def test_16_readers_without_retry_get_new_messages_only(db: Store) -> None:
    await db.fill(2)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 0)
    await asyncio.sleep(0.01)
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g")) == [2]
    assert offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 1, 0)) == [1]


async def test_16_expiry_before_retry_is_a_single_try(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 10)
    await asyncio.sleep(0.03)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 10) == []
    assert (await db.group())["expired"] == 1


async def test_17_a_long_retry_time_delays_nobody_else(db: Store) -> None:
    await db.fill(3)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 200, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 0)
    await asyncio.sleep(0.21)
    # In the order in which they were due, which a busy machine may turn around.
    assert sorted(offsets(await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0))) == [2, 3]


async def test_18_redelivery_counts_and_arms_anew(db: Store) -> None:
    await db.fill(2)
    read = ("TREAD", 0, 1, "GROUP", "g")
    assert await db.do(*read, "RETRY", 5, 0, "WITHCOUNT") == [[1, b"t", b"1", 1]]
    await asyncio.sleep(0.01)
    assert await db.do(*read, "RETRY", 60_000, 0, "WITHCOUNT") == [[1, b"t", b"1", 2]], "before new ones"
    assert await db.do(*read, "RETRY", 60_000, 0, "WITHCOUNT") == [[2, b"t", b"2", 1]]
    assert await db.do(*read, "RETRY", 60_000, 0) == []
    rows = await db.do("TPENDING", "g", 0, 9, 9)
    assert [row[2] for row in rows] == [2, 1]
    assert 30_000 < rows[0][4] <= 60_000


async def test_18_expiry_is_fixed_at_the_first_delivery(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 60_000)
    await asyncio.sleep(0.01)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 600_000)
    [[_, _, deliveries, since_ms, _, expires_ms]] = await db.do("TPENDING", "g", 1, 1, 1)
    assert deliveries == 2
    assert since_ms >= 5
    assert 30_000 < expires_ms < 60_000


async def test_19_what_expires_leaves_the_group_and_not_the_log(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5)
    await asyncio.sleep(0.02)
    assert await db.do("TPENDING", "g") == [0, 0, 0, -1]
    assert await db.do("TACK", "g", 1) == 0
    group = await db.group()
    assert (group["pending"], group["expired"], group["ack-offset"]) == (0, 1, 2)
    assert offsets(await db.do("TREAD", 1, 1)) == [1]
    assert offsets(await db.do("TREAD", 0, 1, "GROUP", "other")) == [1]


async def test_19_what_expires_becomes_a_dead_letter(db: Store) -> None:
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TWRITE", "tag", "line one\nline two")
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5)
    await asyncio.sleep(0.02)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 1, 5) == []
    [[_, tag, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert tag == b"tag"
    head, _, entry = letter.partition(b"\n\n")
    assert entry == b"line one\nline two"
    lines = dict(line.split(b": ", 1) for line in head.split(b"\n"))
    assert abs(int(lines.pop(b"time_ms")) - time.time() * 1000) < 60_000
    assert lines == {
        b"stream": db.key.encode(),
        b"offset": b"1",
        b"group": b"g",
        b"deliveries": b"1",
        b"reason": b"expired",
    }


async def test_20_acknowledging_offsets_and_ranges(db: Store) -> None:
    await db.fill(9)
    await db.do("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TACK", "g", 2) == 1
    assert await db.do("TACK", "g", 2, 99) == 0
    assert await db.do("TACK", "g", "3-5", "4", 9, "9-9") == 4
    assert [row[0] for row in await db.do("TPENDING", "g", 0, 99, 99)] == [1, 6, 7, 8]
    assert await db.do("TACK", "g", f"0-{2**64 - 1}") == 4
    assert await db.do("TACK", "nobody", 1) == 0


@pytest.mark.parametrize("item", ["x", "", "-1", "1-", "-", "5-4", "1-2-3", " 1", "+1", "1.0", str(2**64)])
async def test_20_one_bad_item_and_nothing_happens(db: Store, item: str) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.error("TACK", "g", 1, item) == INVALID
    assert await db.error("TNACK", "g", 0, 1, item) == INVALID
    assert await db.error("TRENEW", "g", 1, 1, item) == INVALID
    assert await db.error("TDEAD", "g", "why", 1, item) == INVALID
    assert (await db.do("TPENDING", "g"))[0] == 1


async def test_21_everything_below_the_ack_offset_is_acknowledged(db: Store) -> None:
    await db.fill(5)
    await db.do("TREAD", 0, 4, "GROUP", "g", "RETRY", 60_000, 0)
    assert (await db.group())["ack-offset"] == 1
    await db.do("TACK", "g", "1-2", 4)
    group = await db.group()
    assert (group["ack-offset"], group["cursor"], group["acked"], group["lag"]) == (3, 5, 3, 1)
    await db.do("TACK", "g", 3)
    assert (await db.group())["ack-offset"] == 5


async def test_22_new_messages_are_held_back_at_the_limit(db: Store) -> None:
    await db.fill(9)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 3)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1, 2, 3]
    assert await db.do(*read) == []
    assert await db.do("TREAD", 0, 9, "GROUP", "g") == []
    await db.do("TACK", "g", 2)
    assert offsets(await db.do(*read)) == [4], "as many as there is room for"
    await db.do("TNACK", "g", 0, 1, 3)
    assert offsets(await db.do(*read)) == [1, 3], "retries are always allowed"


async def test_23_acknowledging_wakes_who_waits_for_room(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    assert offsets(await db.do(*read)) == [1]
    async with running(db.do(*read, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TACK", "g", 1)
        assert offsets(await asyncio.wait_for(reader, DEADLINE_S)) == [2]


async def test_23_a_retry_wakes_who_waits(db: Store) -> None:
    await db.fill(1)
    read = ("TREAD", 0, 9, "GROUP", "g", "WITHCOUNT", "RETRY", 30, 0)
    await db.do(*read)
    assert await db.do(*read, "BLOCK", 5_000) == [[1, b"t", b"1", 2]]


async def test_23_an_expiry_makes_room(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "MAXPENDING", 1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 30)
    assert offsets(await db.do(*read)) == [1]
    assert offsets(await db.do(*read, "BLOCK", 5_000)) == [2]


# ------------------------------------------------------------------------- beyond the specification


async def test_nack_delivers_again_when_told(db: Store) -> None:
    await db.fill(2)
    read = ("TREAD", 0, 9, "GROUP", "g", "WITHCOUNT", "RETRY", 60_000, 0)
    await db.do(*read)
    assert await db.do("TNACK", "g", 0, 1, 99) == 1
    assert await db.do(*read) == [[1, b"t", b"1", 2]]
    assert await db.do("TNACK", "g", 30_000, "1-2") == 2
    assert await db.do(*read) == []
    assert 0 < (await db.do("TPENDING", "g"))[3] <= 30_000
    assert await db.error("TNACK", "g", "x", 1) == NOT_INTEGER
    assert await db.error("TNACK", "g", "*", 1) == NOT_INTEGER, "there is no backoff list"


async def test_nack_wakes_who_waits(db: Store) -> None:
    await db.fill(1)
    read = ("TREAD", 0, 9, "GROUP", "g", "RETRY", 60_000, 0)
    await db.do(*read)
    async with running(db.do(*read, "BLOCK", 0)) as reader:
        await db.until_blocked()
        await db.do("TNACK", "g", 0, 1)
        assert offsets(await asyncio.wait_for(reader, DEADLINE_S)) == [1]


async def test_renew_counts_from_now(db: Store) -> None:
    await db.fill(1)
    await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 0)
    assert await db.do("TRENEW", "g", 60_000, 1) == 1
    await asyncio.sleep(0.03)
    assert await db.do("TREAD", 0, 1, "GROUP", "g", "RETRY", 20, 0) == []
    assert await db.error("TRENEW", "g", 0, 1) == "ERR retry-ms must be at least 1"


async def test_dead_gives_up(db: Store) -> None:
    await db.fill(2)
    await db.do("TGROUP CREATE", "g", 0, "DEADLETTER", db.dead)
    await db.do("TREAD", 0, 2, "GROUP", "g", "RETRY", 60_000, 0)
    assert await db.do("TDEAD", "g", "too\nugly", "1-9") == 2
    letters = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert [b"\nreason: too ugly\n" in row[2] for row in letters] == [True, True]
    assert [row[2].partition(b"\n\n")[2] for row in letters] == [b"1", b"2"]
    group = await db.group()
    assert (group["pending"], group["dead"], group["expired"]) == (0, 2, 0)


async def test_backoff_and_a_limit_of_deliveries(db: Store) -> None:
    await db.fill(1)
    await db.do("TGROUP CREATE", "g", 0, "BACKOFF", "1,40000", "MAXDELIVERIES", 2, "DEADLETTER", db.dead)
    read = ("TREAD", 0, 1, "GROUP", "g", "WITHCOUNT", "RETRY", 60_000, 0)
    assert await db.do(*read) == [[1, b"t", b"1", 1]]
    await asyncio.sleep(0.01)
    assert await db.do(*read) == [[1, b"t", b"1", 2]]
    assert 20_000 < (await db.do("TPENDING", "g"))[3] <= 40_000
    assert await db.do("TNACK", "g", "*", 1) == 1
    assert 20_000 < (await db.do("TPENDING", "g"))[3] <= 40_000
    await db.do("TNACK", "g", 0, 1)
    assert await db.do(*read) == []
    [[_, _, letter]] = await db.commands.execute("TREAD", db.dead, 1, 9)
    assert b"\ndeliveries: 2\nreason: deliveries\n" in letter


async def test_pending_messages_are_listed(db: Store) -> None:
    await db.fill(5)
    await db.do("TREAD", 0, 2, "GROUP", "g", "CONSUMER", "a", "RETRY", 60_000, 0)
    await db.do("TREAD", 0, 1, "GROUP", "g", "CONSUMER", "b", "RETRY", 60_000, 90_000)
    assert (await db.do("TPENDING", "g"))[:3] == [3, 1, 3]
    rows = await db.do("TPENDING", "g", 2, 9, 9)
    assert [row[:3] for row in rows] == [[2, b"a", 1], [3, b"b", 1]]
    assert rows[0][5] == -1
    assert 80_000 < rows[1][5] <= 90_000
    assert len(await db.do("TPENDING", "g", 0, 9, 2)) == 2
    assert [row[0] for row in await db.do("TPENDING", "g", 0, 9, 9, "CONSUMER", "b")] == [3]
    assert await db.error("TPENDING", "g", 1) == SYNTAX
    assert await db.error("TPENDING", "g", 0, 9, "x") == NOT_INTEGER
