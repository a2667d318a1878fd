"""What a fetch gives: limits, what expired, what nobody can read, duplicates, batches."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import penstock
from penstock.channels import Batch, Channel, ChannelStore
from tests import places
from tests.channels.conftest import EVERY_PROTOCOL, EXPIRE_MS, ids, keys_of, number_at, numbered, set_clocks
from tests.places import until

MIB = 1024 * 1024


@pytest.fixture(params=EVERY_PROTOCOL)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


async def test_the_same_comes_until_it_is_acknowledged(room: Channel) -> None:
    alice, bob = await room.subscribe("alice"), await room.subscribe("bob")
    await room.publish_many(numbered(1, 3))
    first = await alice.fetch()
    assert await alice.fetch() == first == await alice.fetch(timeout_ms=1_000)
    await alice.ack(first)
    assert ids(await bob.fetch()) == ["m1", "m2", "m3"]


async def test_a_subscriber_begins_with_the_next_message(room: Channel) -> None:
    assert await room.publish("m1", 1)  # nobody is there, and that is no error
    alice = await room.subscribe("alice")
    assert await alice.fetch() == ((), False, None)
    await room.publish("m2", 2)
    assert ids(await alice.fetch()) == ["m2"]
    await room.subscribe("alice")  # goes on where it is
    assert ids(await alice.fetch()) == ["m2"]
    await alice.unsubscribe()
    await alice.create()  # begins again
    assert await alice.fetch() == ((), False, None)


async def test_limits(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 1_200))
    assert await alice.fetch(0) == ((), True, None)
    assert await alice.fetch(0, timeout_ms=60_000) == ((), True, None)  # at once
    batch = await alice.fetch()
    assert (len(batch.messages), batch.more) == (64, True)
    for limit in (127, 128, 129, 999, 1_000):
        batch = await alice.fetch(limit)
        assert (ids(batch), batch.more) == ([f"m{number}" for number in range(1, limit + 1)], True)
    for huge in (1_001, 2**31, 2**53, 2**63, 10**30):
        assert await alice.fetch(huge) == batch  # 1,000 is the most
    assert await alice.ack(batch)
    rest = await alice.fetch(huge)
    assert (len(rest.messages), rest.more) == (200, False)
    exact = await alice.fetch(200)
    assert (len(exact.messages), exact.more) == (200, False)
    assert await alice.ack(rest)
    assert await alice.fetch(0) == ((), False, None)


async def test_more_is_about_what_is_there(ps: penstock.Penstock, room: Channel) -> None:
    """Expired messages behind the batch are no reason to come back."""
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 6))
    for clock in (2, 4, 5, 6):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}")
    batch = await alice.fetch(2)
    assert (ids(batch), batch.more) == (["m1", "m3"], False)
    batch = await alice.fetch(1)
    assert (ids(batch), batch.more) == (["m1"], True)


async def test_eight_mebibytes_are_enough_for_one_batch(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many([(f"m{number}", "x" * (3 * MIB - 100)) for number in (1, 2, 3)])
    batch = await alice.fetch()
    assert (ids(batch), batch.more) == (["m1", "m2"], True)
    await alice.ack(batch)
    await room.publish("m4", "y" * (9 * MIB))
    batch = await alice.fetch()
    assert (ids(batch), batch.more) == (["m3"], True)
    await alice.ack(batch)
    batch = await alice.fetch()  # alone it may be larger
    assert (ids(batch), batch.more) == (["m4"], False)
    assert batch.messages[0].content == "y" * (9 * MIB)
    await alice.ack(batch)
    assert await alice.fetch() == ((), False, None)


# ------------------------------------------------------------------------------ what expired


async def test_an_expired_head_hides_nothing(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 20))
    for clock in range(1, 18):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}", f"c.{{room}}.mid.m{clock}")
    for limit in (1, 2, 64):
        batch = await alice.fetch(limit)
        assert ids(batch) == [f"m{number}" for number in range(18, 18 + min(limit, 3))]
    assert await number_at(ps, "c.{room}.r.alice") == 17  # nobody steps over them twice
    assert await alice.ack(batch)


async def test_nothing_but_expired_messages(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 5))
    for clock in range(1, 6):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}")
    assert await alice.fetch(0) == ((), False, None)
    assert await number_at(ps, "c.{room}.r.alice") == 5
    assert await alice.fetch(2) == ((), False, None)


async def test_more_expired_messages_than_one_script_steps_over(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await set_clocks(ps, "room", 12_345)
    await room.publish("m1", 1)
    for limit in (1, 64):
        await ps.execute("SET", "c.{room}.r.alice", 0)
        batch = await alice.fetch(limit)
        assert ([(message.id, message.clock) for message in batch.messages], batch.more) == (
            [("m1", 12_346)],
            False,
        )
    await set_clocks(ps, "room", 22_346, alice=0)
    await ps.execute("DEL", "c.{room}.m.12346")
    assert await alice.fetch() == ((), False, None)
    assert await number_at(ps, "c.{room}.r.alice") == 22_346


async def test_a_channel_that_expired_is_gone(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", 1)
    for key in await keys_of(ps):
        await ps.execute("PEXPIRE", key, 1)

    async def is_empty() -> bool:
        return not await keys_of(ps)

    await until(is_empty)
    assert await room.info() is None
    assert await alice.create()
    assert await room.publish("m1", "again")
    assert [message.content for message in (await alice.fetch()).messages] == ["again"]


# ------------------------------------------------------------------------ what nobody can read

CORRUPT = [
    b"",
    b"x",
    b"{}",
    b"null",
    b'{"id":"m1"}',
    b'{"content":1}',
    b'{"id":5,"content":1}',
    b'{"id":"m1","content":}',
    b'{"id":"m1","content":{"cut":',
    b'{"id":"m1","content":1}}',
    b'{"id":"m1","content":nonsense}',
    b'{"id":"No Id","content":1}',
    b'{"id":"a\\"b","content":1}',
    b'{"id":"\xff","content":1}',
    b"\xff\xfe",
]


async def test_bodies_that_are_none_are_left_out(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    for body in CORRUPT:
        name = f"n{uuid.uuid4()}"
        await room.publish_many([(f"{name}-1", 1), (f"{name}-2", 2), (f"{name}-3", 3)])
        clock = await number_at(ps, f"c.{{room}}.mid.{name}-2")
        await ps.execute("SET", f"c.{{room}}.m.{clock}", body)
        batch = await alice.fetch()
        assert (ids(batch), batch.more) == ([f"{name}-1", f"{name}-3"], False), body
        page = await alice.backlog()
        assert [message.id for message in page.messages] == [f"{name}-1", f"{name}-3"], body
        assert await room.message(f"{name}-2") is None
        assert await alice.ack(batch)


async def test_a_body_of_another_type_is_left_out(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 3))
    await ps.execute("DEL", "c.{room}.m.2")
    await ps.execute("RPUSH", "c.{room}.m.2", "x")
    assert ids(await alice.fetch()) == ["m1", "m3"]
    assert [message.id for message in (await alice.backlog()).messages] == ["m1", "m3"]


async def test_a_batch_of_nothing_but_unreadable_bodies(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 10))
    for clock in range(1, 9):
        await ps.execute("SET", f"c.{{room}}.m.{clock}", CORRUPT[clock])
    batch = await alice.fetch(2)
    assert (ids(batch), batch.more) == (["m9", "m10"], False)
    assert await number_at(ps, "c.{room}.r.alice") == 8
    for clock in (9, 10):
        await ps.execute("SET", f"c.{{room}}.m.{clock}", "x")
    assert await alice.fetch(1) == ((), False, None)
    assert await number_at(ps, "c.{room}.r.alice") == 10
    await room.publish("m11", 11)
    assert ids(await alice.fetch(timeout_ms=1_000)) == ["m11"]


async def test_several_who_step_over_unreadable_bodies_at_once(ps: penstock.Penstock, room: Channel) -> None:
    """All have seen the same ones; who comes second must not take what lies behind for unreadable, too."""
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 6))
    for clock in (1, 2):
        await ps.execute("SET", f"c.{{room}}.m.{clock}", "x")
    batches = await asyncio.gather(*(alice.fetch(2) for _ in range(5)))
    assert [ids(batch) for batch in batches] == [["m3", "m4"]] * 5
    assert ids(await alice.fetch()) == ["m3", "m4", "m5", "m6"]


# ------------------------------------------------------------------------------ publishing


async def test_the_first_content_stays(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    assert await room.publish("m1", "first")
    assert not await room.publish("m1", "second")
    batch = await alice.fetch()
    assert [message.content for message in batch.messages] == ["first"]
    await alice.ack(batch)
    assert not await room.publish("m1", "third")  # acknowledged ones do not come back
    assert await alice.fetch() == ((), False, None)
    assert await number_at(ps, "c.{room}.clock") == 1  # a duplicate leaves no hole


async def test_duplicates_in_one_batch(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    given = [("m1", 1), ("m2", 2), ("m1", 3), ("m3", 4), ("m2", 5)]
    assert await room.publish_many(given) == [True, True, False, True, False]
    assert [message.content for message in (await alice.fetch()).messages] == [1, 2, 4]
    assert await number_at(ps, "c.{room}.clock") == 3


async def test_without_an_id_every_message_is_new(room: Channel) -> None:
    alice = await room.subscribe("alice")
    assert await room.publish_many([(None, 1), (None, 1), ("m1", 1)]) == [True, True, True]
    first, second, third = ids(await alice.fetch())
    assert first != second
    assert str(uuid.UUID(first.removeprefix("msg-"))) == first.removeprefix("msg-")
    assert third == "m1"


async def test_a_batch_is_one_step(room: Channel, other: penstock.Penstock) -> None:
    """Nobody sees half of one, and others' messages do not come in between."""
    alice = await other.channel("room").subscribe("alice")

    async def publish(name: str) -> None:
        for number in range(10):
            await room.publish_many([(f"{name}-{number}-{part}", part) for part in range(7)])

    async def watch() -> None:
        while True:
            assert len((await alice.fetch(1_000)).messages) % 7 == 0

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(publish(f"p{number}") for number in range(3)))
    watching.cancel()
    assert isinstance((await asyncio.gather(watching, return_exceptions=True))[0], asyncio.CancelledError)
    found = ids(await alice.fetch(1_000))
    assert len(found) == 210
    for first in range(0, 210, 7):
        name = found[first].rpartition("-")[0]
        assert found[first : first + 7] == [f"{name}-{part}" for part in range(7)]


async def test_many_messages_in_one_batch(room: Channel) -> None:
    alice = await room.subscribe("alice")
    assert await room.publish_many(numbered(1, 10_000)) == [True] * 10_000
    seen: list[str] = []
    while (batch := await alice.fetch(1_000)).messages:
        seen += ids(batch)
        assert await alice.ack(batch)
    assert seen == [f"m{number}" for number in range(1, 10_001)]


async def test_messages_by_id(room: Channel) -> None:
    await room.publish("m1", {"a": 1})
    found = await room.message("m1")
    assert found is not None
    assert (found.id, found.content, found.clock) == ("m1", {"a": 1}, 1)
    assert await room.message("m2") is None


async def test_reading_ahead(store: ChannelStore, ps: penstock.Penstock, room: Channel) -> None:
    """Behind a receipt that is not acknowledged: the cursor stays."""

    async def fetch(limit: int, after: str | None = None) -> Batch:
        return await store.fetch("room", "alice", limit=limit, timeout_ms=0, expire_ms=EXPIRE_MS, after=after)

    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 9))
    for clock in (3, 4, 7):
        await ps.execute("DEL", f"c.{{room}}.m.{clock}")
    await ps.execute("SET", "c.{room}.m.8", "x")
    first = await fetch(2)
    second = await fetch(2, first.receipt)
    assert (ids(second), second.more) == (["m5", "m6"], True)
    third = await fetch(1, second.receipt)
    assert (ids(third), third.more) == (["m9"], False)
    assert await fetch(1, third.receipt) == ((), False, None)
    assert await number_at(ps, "c.{room}.r.alice") == 0
    assert await alice.ack(second)
    assert ids(await fetch(5, first.receipt)) == ["m9"]  # behind the cursor, whatever the receipt says
