"""Writing: forms, batches, conditions, producers; what is refused before anything is sent."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import penstock
from penstock.errors import CommandError, OutcomeUnknownError
from penstock.streams import Stream
from tests.streams.conftest import Wire


async def contents(stream: Stream) -> list[tuple[int, bytes, bytes | None]]:
    return [(message.offset, message.tag, message.entry) async for message in stream.read()]


async def test_one_message(orders: Stream) -> None:
    assert await orders.write("eu", b"\x00\xff") == 1
    assert await orders.write(entry="größe") == 2
    assert await orders.write("eu", None) == 3
    assert await orders.write(bytearray(b"t"), memoryview(b"e")) == 4
    assert await orders.write("TOMBSTONES", "eu") == 5
    assert await contents(orders) == [
        (1, b"eu", b"\x00\xff"),
        (2, b"", "größe".encode()),
        (3, b"eu", None),
        (4, b"t", b"e"),
        (5, b"TOMBSTONES", b"eu"),
    ]


async def test_many_messages_are_one_command(wired: Stream, wire: Wire) -> None:
    assert await wired.write_many([("a", "1"), ("b", "2")]) == 2
    assert await wired.write_many([("a", None), ("b", None)]) == 4
    assert wire.names() == ["TWRITE", "TWRITE"]
    assert [entry for _, _, entry in await contents(wired)] == [b"1", b"2", None, None]


async def test_more_messages_than_one_command_takes(wired: Stream, wire: Wire) -> None:
    assert await wired.write_many((b"", b"%d" % number) for number in range(25_000)) == 25_000
    assert wire.names() == ["TWRITE"] * 3
    assert [entry async for entry in _entries(wired)] == [b"%d" % number for number in range(25_000)]


async def _entries(stream: Stream) -> Any:
    async for message in stream.read():
        yield message.entry


async def test_conditional_writes(orders: Stream) -> None:
    assert await orders.write("a", "1", expected_last=0) == 1
    with pytest.raises(CommandError, match="MISMATCH the last offset is 1") as refusal:
        await orders.write_many([("a", "2")], expected_last=0)
    assert refusal.value.code == "MISMATCH"
    assert await orders.write_many([("a", "2"), ("a", "3")], expected_last=1) == 3


async def test_a_backlog(orders: Stream) -> None:
    await orders.write_many([("", str(number)) for number in range(50)])
    await orders.write("", "x", backlog=5, exact_backlog=True)
    assert [offset for offset, _, _ in await contents(orders)] == [47, 48, 49, 50, 51]


async def test_a_repeated_sequence_is_written_once(orders: Stream) -> None:
    first = await orders.write_many([("", "a"), ("", "b")], producer=("p", 10))
    assert await orders.write_many([("", "a"), ("", "b")], producer=("p", 10)) == first
    assert await orders.write("", "c", producer=("p", 12)) == first + 1
    with pytest.raises(CommandError, match="SEQUENCE producer p is at 12"):
        await orders.write("", "d", producer=("p", 9))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.write("eu"), "entry is missing"),
        (lambda s: s.write("eu", 5), "entry must be bytes or str, not int"),
        (lambda s: s.write(None, "x"), "tag must be bytes or str, not NoneType"),
        (lambda s: s.write(entry=None), "tag must not be empty where entry is None"),
        (lambda s: s.write("a", "b", backlog=-1), "backlog must be at least 0, not -1"),
        (lambda s: s.write("a", "b", backlog=True), "backlog must be a whole number, not True"),
        (lambda s: s.write("a", "b", exact_backlog=True), "exact_backlog means nothing without backlog"),
        (lambda s: s.write("a", "b", expected_last=1 << 64), "expected_last must be at most"),
        (lambda s: s.write("a", "b", producer="p"), "producer must be a pair of id and sequence"),
        (lambda s: s.write("a", "b", producer=("", 1)), "producer must not be empty"),
        (lambda s: s.write_many([]), "messages must not be empty"),
        (lambda s: s.write_many(["ab"]), r"messages\[0\] must be a pair of tag and entry, not 'ab'"),
        (lambda s: s.write_many([("a", "b"), ("a", None)]), r"messages\[1\]: entries and tombstones"),
        (lambda s: s.write_many([("a", "b"), ("a", 1)]), "entry must be bytes or str, not int"),
        (lambda s: s.write_many([("", "")] * 10_001, expected_last=0), "expected_last is for one command"),
        (lambda s: s.producer("").write("a", "b"), "id must not be empty"),
        (lambda s: s.producer("p").write("a"), "entry is missing"),
        (lambda s: s.evict(), "give exactly one of upto, keep, older_than_ms, not none"),
        (lambda s: s.evict(upto=1, keep=2), "not upto and keep"),
        (lambda s: s.evict(keep=-1), "keep must be at least 0"),
        (lambda s: s.policy(dirty_ratio=101), "dirty_ratio must be at most 100"),
        (lambda s: s.policy(node_messages=0), "node_messages must be at least 1"),
        (lambda s: s.policy(compact="yes"), "compact must be True or False, not 'yes'"),
    ],
)
async def test_what_is_refused_is_not_sent(call: Any, message: str) -> None:
    class Nobody:
        async def execute(self, *arguments: Any) -> Any:
            raise AssertionError(f"{arguments} was sent")

    stream = Stream(Nobody(), Nobody(), "orders")
    with pytest.raises((TypeError, ValueError), match=message):
        await call(stream)


def test_a_stream_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name must not be empty"):
        penstock.open("./nowhere.pen").stream("")
    with pytest.raises(TypeError, match="name must be a str or bytes, not int"):
        penstock.open("./nowhere.pen").stream(7)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------- producers


async def test_a_producer_writes_once_whatever_is_lost(wired: Stream, wire: Wire) -> None:
    chance = random.Random(7)
    wire.fault = lambda _: chance.choice(["", "before", "after"])
    producer = wired.producer("host-1")
    offsets = await asyncio.gather(*(producer.write("t", str(number)) for number in range(40)))
    last = await producer.write_many([("t", "40"), ("t", "41")])
    wire.fault = lambda _: ""
    assert offsets == list(range(1, 41))
    assert last == 42
    assert [entry async for entry in _entries(wired)] == [str(number).encode() for number in range(42)]
    assert len(wire.names()) > wire.names().count("TREAD") + 2, "nothing was lost on the way"


async def test_what_is_written_meanwhile_leaves_together(wired: Stream, wire: Wire) -> None:
    producer = wired.producer("host-1")
    await asyncio.gather(*(producer.write("t", str(number)) for number in range(100)))
    await asyncio.gather(producer.write("t", "a"), producer.write("t", None), producer.write("t", "b"))
    assert len(wire.sent) <= 2 + 3
    assert (await wired.tail(2))[0].is_tombstone


async def test_a_producer_that_starts_again(orders: Stream) -> None:
    assert await orders.producer("host-1").write("t", "a") == 1
    # Somebody's clock was far ahead: the refusal tells where to go on.
    await orders.write("t", "b", producer=("host-1", 1 << 52))
    younger = orders.producer("host-1")
    assert await younger.write("t", "c") == 3
    assert await younger.write("t", "d") == 4


async def test_of_two_producers_with_one_id_the_older_is_refused(orders: Stream) -> None:
    older, younger = orders.producer("host-1"), orders.producer("host-1")
    await older.write("t", "a")
    await younger.write_many([("t", "b")] * 1_000)
    with pytest.raises(CommandError, match="SEQUENCE producer host-1 is at"):
        await older.write("t", "c")
    assert await younger.write("t", "d") == 1_002


async def test_a_producer_gives_up_and_goes_on(wired: Stream, wire: Wire) -> None:
    producer = wired.producer("host-1", patience_ms=0)
    wire.fault = lambda _: "after"
    with pytest.raises(OutcomeUnknownError):
        await producer.write("t", "a")
    wire.fault = lambda _: ""
    assert await producer.write("t", "b") == 2
    assert "1 waiting" not in repr(producer)


async def test_a_writer_that_is_cancelled_takes_nobody_along(wired: Stream, wire: Wire) -> None:
    producer = wired.producer("host-1")
    tasks = [asyncio.create_task(producer.write("t", text)) for text in "abc"]
    await asyncio.sleep(0)  # all are queued, nothing is sent
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (results[0], results[2]) == (1, 2)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [entry async for entry in _entries(wired)] == [b"a", b"c"]
