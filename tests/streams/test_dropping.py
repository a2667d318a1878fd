"""Dropping messages by offset, producers that are kept, and where one is; what is refused unsent."""

from __future__ import annotations

from typing import Any

import pytest

import penstock.blocking
from penstock.errors import CommandError
from penstock.streams import ProducerInfo, Stream
from penstock.streams.stream import MAX_ITEMS
from tests.streams.conftest import Wire


async def present(stream: Stream) -> list[int]:
    return [message.offset async for message in stream.read()]


async def test_offsets_and_pairs(orders: Stream) -> None:
    await orders.write_many([("", str(number)) for number in range(30)])
    assert await orders.drop(1, 5, (10, 20), 5, 1_000) == 13
    assert await present(orders) == [2, 3, 4, 6, 7, 8, 9, *range(21, 31)]
    assert await orders.drop(30) == 1
    assert await orders.drop(30) == 0
    info = await orders.info()
    assert (info.first, info.last, info.length) == (1, 30, 16)
    assert await orders.get(30) is None
    assert [message.offset for message in await orders.tail(2)] == [28, 29]
    group = orders.group("billing")
    async with group.consume(prefetch=1) as messages:
        message = await anext(messages)
        assert message.offset == 2
        await orders.drop((1, 30))  # what was read ahead stays, too
        assert message.offset in await present(orders)
        await message.ack()
    assert await orders.drop(2) == 1


async def test_much_is_several_commands(wired: Stream, wire: Wire) -> None:
    await wired.write("t", "e")
    wire.sent.clear()
    assert await wired.drop(*range(1, 2 * MAX_ITEMS, 2), (2 * MAX_ITEMS + 1, 2 * MAX_ITEMS + 5)) == 1
    assert [len(words) - 2 for words in wire.sent] == [MAX_ITEMS, 1]
    wire.sent.clear()
    assert await wired.drop(*range(50_000), (7, 60_000)) == 0
    assert wire.sent == [("TDROP", "orders", "0-60000")], "neighbours are one range"
    await wired.delete()
    wire.sent.clear()
    messages = [("", "e")] * 10_001
    assert await wired.write_many(messages, producer=("p", 1), keep_producer=True) == 10_001
    assert [words[2:6] for words in wire.sent] == [
        ("PRODUCER", "p", 1, "KEEP"),
        ("PRODUCER", "p", 10_001, "KEEP"),
    ]
    assert await wired.write_many(messages, producer=("p", 1), keep_producer=True) == 10_001


async def test_where_a_producer_is(ps: penstock.Penstock, orders: Stream) -> None:
    assert await orders.producer_info("p") is None
    assert await orders.write_many([("", "a"), ("", "b")], producer=("p", 10)) == 2
    info = await orders.producer_info("p")
    assert info == ProducerInfo(sequence=11, last=2, kept=False, idle_ms=info.idle_ms if info else 0)
    assert await orders.write("", "c", producer=("p", 12), keep_producer=True) == 3
    info = await orders.producer_info(b"p")
    assert info is not None
    assert (info.sequence, info.last, info.kept) == (12, 3, True)
    assert await orders.write("", "d", producer=("p", 13)) == 4
    info = await orders.producer_info("p")
    assert info is not None
    assert not info.kept
    assert await orders.producer_info("q") is None
    await ps.execute("SET", "orders", "text")
    for call in (orders.drop(1), orders.producer_info("p")):
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await call


def test_blocking(url: str) -> None:
    with penstock.blocking.open(url) as ps:
        orders = ps.stream("orders")
        orders.write("t", "a", producer=("p", 1), keep_producer=True)
        orders.write("t", "b")
        assert orders.drop(2) == 1
        info = orders.producer_info("p")
        assert info is not None
        assert info.kept


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.drop(), "items must not be empty"),
        (lambda s: s.drop(-1), "items must be at least 0, not -1"),
        (lambda s: s.drop("5"), "items must be a whole number, not '5'"),
        (lambda s: s.drop(1, (5, 3)), "items must not run backwards, as from 5 to 3"),
        (lambda s: s.drop((1, 2, 3)), "items must be offsets, or pairs of a first and a last one"),
        (lambda s: s.drop((1, 1 << 64)), "items must be at most"),
        (lambda s: s.write("a", "b", keep_producer=True), "keep_producer means nothing without producer"),
        (lambda s: s.write("a", "b", producer=("p", 1), keep_producer=1), "keep_producer must be True or"),
        (lambda s: s.write_many([("a", "b")], keep_producer=True), "keep_producer means nothing without"),
        (lambda s: s.producer_info(""), "id must not be empty"),
    ],
)
async def test_what_is_refused_is_not_sent(call: Any, message: str) -> None:
    class Nobody:
        async def execute(self, *arguments: Any) -> Any:
            raise AssertionError(f"{arguments} was sent")

    with pytest.raises((TypeError, ValueError), match=message):
        await call(Stream(Nobody(), Nobody(), "orders"))
