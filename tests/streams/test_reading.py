"""Reading: pages, ranges, the newest, and following what is written."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

import penstock
from penstock.errors import CommandError
from penstock.streams import Message, Stream
from tests import places
from tests.places import until
from tests.streams.conftest import EVERY_PROTOCOL, Wire


@pytest.fixture(params=EVERY_PROTOCOL)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


async def offsets(messages: Any) -> list[int]:
    return [message.offset async for message in messages]


async def test_history_in_pages(wired: Stream, wire: Wire) -> None:
    await wired.write_many([("", str(number)) for number in range(25)])
    assert await offsets(wired.read(page=10)) == list(range(1, 26))
    assert wire.names().count("TREAD") == 3
    assert await offsets(wired.read(7, 9)) == [7, 8, 9]
    assert await offsets(wired.read(from_offset=24, to=99)) == [24, 25]
    assert await offsets(wired.read(from_offset=9, to=8)) == []
    assert await offsets(wired.read(from_offset=26)) == []
    assert await offsets(wired.read(from_offset=0, page=1)) == list(range(1, 26))


async def test_a_stream_that_is_not_there(ps: penstock.Penstock) -> None:
    missing = ps.stream("missing")
    assert await offsets(missing.read()) == []
    assert await missing.tail() == []
    assert await missing.get(1) is None
    assert await missing.groups() == []
    assert await missing.evict(keep=1) == 0
    assert await missing.delete() is False
    with pytest.raises(CommandError, match="ERR no such key"):
        await missing.info()


async def test_reading_ends_where_the_end_was(orders: Stream) -> None:
    await orders.write_many([("", "x")] * 4)
    seen = []
    async for message in orders.read(page=2):
        seen.append(message.offset)
        await orders.write("", "more")
    assert seen == [1, 2, 3, 4]


async def test_messages_are_values(orders: Stream) -> None:
    await orders.write("eu", "x")
    (message,) = await orders.tail(1)
    assert (message.stream, message.offset, message.tag, message.entry) == ("orders", 1, b"eu", b"x")
    assert message.time_ms > 1_600_000_000_000
    assert (message.deliveries, message.is_tombstone) == (0, False)
    assert message == await orders.get(1)
    assert message != Message("orders", 2, b"eu", b"x", message.time_ms)
    assert len({message, await orders.get(1)}) == 1
    assert repr(message) == "<Message orders 1 tag=b'eu' b'x'>"


async def test_what_is_gone_is_left_out(orders: Stream) -> None:
    await orders.write_many([("", str(number)) for number in range(10)])
    assert await orders.evict(upto=4) == 4
    assert await offsets(orders.read()) == [5, 6, 7, 8, 9, 10]
    assert await orders.get(4) is None
    assert [message.offset for message in await orders.tail(100)] == [5, 6, 7, 8, 9, 10]
    assert await orders.evict(keep=2) == 4
    assert await orders.evict(older_than_ms=0) in (0, 2)
    info = await orders.info()
    assert info.last == 10


async def test_the_newest(orders: Stream) -> None:
    await orders.write_many([("", str(number)) for number in range(20)])
    assert [message.offset for message in await orders.tail(3)] == [18, 19, 20]
    assert len(await orders.tail()) == 10
    assert len(await orders.tail(99)) == 20
    assert await orders.tail(0) == []


async def test_following_history_and_then_what_comes(orders: Stream) -> None:
    await orders.write_many([("", "1"), ("", "2")])
    seen: list[int] = []

    async def follow() -> None:
        async with aclosing(orders.follow(from_offset=1)) as messages:
            async for message in messages:
                seen.append(message.offset)
                if message.offset == 4:
                    return

    task = asyncio.create_task(follow())
    await until(lambda: seen == [1, 2])
    await orders.write("", "3")
    await until(lambda: seen == [1, 2, 3])
    await orders.write("", "4")
    await asyncio.wait_for(task, 10)
    assert seen == [1, 2, 3, 4]


async def test_following_only_what_is_new(wired: Stream, wire: Wire) -> None:
    await wired.write("", "old")
    messages = wired.follow()
    task = asyncio.create_task(anext(messages))
    await until(lambda: wire.names().count("TREAD") >= 2)
    await wired.write("", "new")
    assert (await asyncio.wait_for(task, 10)).entry == b"new"
    await messages.aclose()


async def test_following_survives_lost_connections(wired: Stream, wire: Wire) -> None:
    await wired.write_many([("", str(number)) for number in range(9)])
    faults = iter(["after", "", "before"])
    wire.fault = lambda _: next(faults, "")
    seen = []
    async with aclosing(wired.follow(1, page=3)) as messages:
        async for message in messages:
            seen.append(message.offset)
            if message.offset == 9:
                break
    assert seen == list(range(1, 10))
    assert next(faults, None) is None, "nothing was lost on the way"


async def test_a_read_whose_reply_is_lost_is_sent_again(wired: Stream, wire: Wire) -> None:
    await wired.write_many([("", "x")] * 3)
    faults = iter(["after"])
    wire.fault = lambda _: next(faults, "")
    assert await offsets(wired.read()) == [1, 2, 3]


async def test_following_a_stream_that_is_deleted(wired: Stream, wire: Wire) -> None:
    await wired.write("", "x")
    messages = wired.follow(1)
    assert (await anext(messages)).offset == 1
    task = asyncio.create_task(anext(messages))
    n_before = len(wire.sent)
    await until(lambda: len(wire.sent) > n_before)
    await wired.delete()
    with pytest.raises(CommandError, match="UNBLOCKED the stream orders is gone"):
        await asyncio.wait_for(task, 15)


async def test_looking_after(orders: Stream) -> None:
    await orders.write_many([("a", "1"), ("b", "2"), ("a", "3")])
    info = await orders.info()
    assert (info.first, info.last, info.length, info.groups) == (1, 3, 3, 0)
    assert info.raw_bytes > 0
    assert info.first_ms <= info.last_ms
    policy = await orders.policy(retain_ms=60_000, compact=True, node_messages=2)
    assert (policy.retain_ms, policy.compact, policy.node_messages) == (60_000, True, 2)
    assert await orders.policy() == policy
    assert (policy.retain_acked, policy.tombstone_ms) == (False, 86_400_000)
    assert await orders.delete() is True
    assert await orders.write("", "again") == 1
    assert repr(orders) == "<Stream orders>"


async def test_compaction(orders: Stream) -> None:
    await orders.policy(node_messages=2)
    await orders.write_many([("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"), ("c", "5")])
    removed = await orders.compact()
    left = await offsets(orders.read())
    assert removed == 5 - len(left)
    assert 1 not in left
    assert [message.offset for message in await orders.tail(99)] == left


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.read(-1), "from_offset must be at least 0"),
        (lambda s: s.read(1.5), "from_offset must be a whole number"),
        (lambda s: s.read(1, to="9"), "to must be a whole number"),
        (lambda s: s.read(page=0), "page must be at least 1"),
        (lambda s: s.follow("$"), "from_offset must be a whole number"),
    ],
)
def test_what_is_refused_at_once(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(penstock.open("./nowhere.pen").stream("orders"))


async def test_messages_are_bytes_also_where_replies_are_text(url: str) -> None:
    async with penstock.open(url, decode_responses=True) as client:
        stream = client.stream("orders")
        await stream.write("eu", b"\xff\x00")
        assert [(m.tag, m.entry) async for m in stream.read()] == [(b"eu", b"\xff\x00")]
        assert (await stream.info()).last == 1
        group = stream.group("g")
        async with group.consume() as messages:
            async for message in messages:
                assert message.entry == b"\xff\x00"
                await message.ack()
                break
        assert (await group.info()).pending == 0
