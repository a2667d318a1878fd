"""Streams for code without ``await``: the same names, iterated with ``for``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import penstock.blocking
from penstock.blocking import Consumer, Group, GroupMessage, Producer, Stream
from penstock.errors import CommandError, UsageError


@pytest.fixture
def ps(url: str) -> Iterator[penstock.blocking.Client]:
    with penstock.blocking.open(url) as client:
        yield client


@pytest.fixture
def orders(ps: penstock.blocking.Client) -> Stream:
    return ps.stream("orders")


def test_writing_and_reading(orders: Stream) -> None:
    assert orders.write("eu", b"x") == 1
    assert orders.write_many([("eu", "y"), ("us", "z")]) == 3
    assert orders.producer("host-1").write("eu", None) == 4
    assert [message.offset for message in orders.read(2)] == [2, 3, 4]
    assert [message.entry for message in orders.tail(2)] == [b"z", None]
    assert orders.info().last == 4
    assert orders.evict(upto=1) == 1
    with pytest.raises(CommandError, match="MISMATCH"):
        orders.write("eu", "x", expected_last=99)
    with pytest.raises(ValueError, match="page must be at least 1"):
        orders.read(page=0)


def test_everything_answered_has_its_class(orders: Stream) -> None:
    assert type(orders) is Stream
    assert type(orders.producer("p")) is Producer
    assert type(orders.group("g")) is Group
    assert type(orders.group("g").consume()) is Consumer
    assert repr(orders.group("g")) == "<blocking <Group g of orders>>"
    assert (orders.name, orders.group("g").name, orders.group("g").stream) == ("orders", "g", "orders")


def test_following(orders: Stream) -> None:
    orders.write("", "1")
    messages = orders.follow(1)
    assert next(messages).entry == b"1"
    writer = threading.Timer(0.01, orders.write, ("", "2"))
    writer.start()
    assert next(messages).entry == b"2"
    writer.join()
    messages.close()


def test_consuming(orders: Stream) -> None:
    orders.write_many([("t", str(number)) for number in range(5)])
    billing = orders.group("billing")
    billing.create()
    seen = []
    with billing.consume() as messages:
        for message in messages:
            assert type(message) is GroupMessage
            assert (message.tag, message.is_tombstone, message.deliveries) == (b"t", False, 1)
            seen.append(message.offset)
            message.ack()
            if message.offset == 3:
                with pytest.raises(UsageError, match="was acknowledged already"):
                    message.nack()
                break
    assert seen == [1, 2, 3]
    assert [row.offset for row in billing.pending() if row.due_in_ms > 0] == []
    for message in billing.consume():
        assert message.deliveries == 2, "what was read ahead was given back"
        message.ack()
        if message.offset == 5:
            break
    assert billing.pending_summary().count == 0


def test_threads_share_a_group(orders: Stream) -> None:
    orders.write_many([("", str(number)) for number in range(40)])
    billing = orders.group("billing")
    seen: Counter[int] = Counter()

    def work() -> None:
        for message in billing.consume(prefetch=4):
            seen[message.offset] += 1
            message.ack()
            if len(seen) == 40:
                billing.stop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == Counter(range(1, 41))
