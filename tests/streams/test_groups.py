"""Groups: made, changed, asked, and settled by offset."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CommandError
from penstock.streams import GroupInfo, PendingSummary, Stream
from tests import places
from tests.streams.conftest import EVERY_PROTOCOL


@pytest.fixture(params=EVERY_PROTOCOL)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


async def take(
    stream: Stream, group: str, count: int, consumer: str = "w", retry_ms: int = 60_000, expire_ms: int = 0
) -> list[int]:
    """Read so many messages for a group, no more, and leave them pending."""
    words = (
        "TREAD",
        stream.name,
        0,
        count,
        "GROUP",
        group,
        "CONSUMER",
        consumer,
        "RETRY",
        retry_ms,
        expire_ms,
    )
    return [row[0] for row in await stream._commands.execute(*words)]


async def test_making_and_changing(orders: Stream) -> None:
    billing = orders.group("billing")
    assert await billing.info() is None
    assert await billing.configure(max_pending=3) is False
    options: dict[str, Any] = {
        "max_pending": 7,
        "ttl_ms": 60_000,
        "ordered": True,
        "max_deliveries": 5,
        "backoff_ms": [10, 20],
        "dead_letter": "{orders}dead",
    }
    assert await billing.create(at=3, **options) is True
    assert await billing.create(at=9) is False
    info = await billing.info()
    assert info is not None
    assert {name: getattr(info, name) for name in options} == {**options, "backoff_ms": (10, 20)}
    assert (info.name, info.cursor, info.pending) == ("billing", 3, 0)
    assert await billing.configure(at=5, ordered=False, backoff_ms=(), dead_letter="") is True
    info = await billing.info()
    assert info is not None
    assert (info.cursor, info.ordered, info.backoff_ms, info.dead_letter) == (5, False, (), "")
    assert info.max_pending == 7
    assert [group.name for group in await orders.groups()] == ["billing"]
    assert isinstance((await orders.groups())[0], GroupInfo)
    assert await billing.destroy() is True
    assert await billing.destroy() is False
    assert repr(billing) == "<Group billing of orders>"


async def test_a_group_that_begins_at_the_end(orders: Stream) -> None:
    await orders.write("", "old")
    await orders.group("late").create(at="$")
    await orders.write("", "new")
    assert await take(orders, "late", 1) == [2]


async def test_what_is_pending(orders: Stream) -> None:
    await orders.write_many([("", str(number)) for number in range(6)])
    billing = orders.group("billing")
    assert (await billing.pending_summary()) == PendingSummary(0, 0, 0, None)
    assert await take(orders, "billing", 4, consumer="w1", retry_ms=60_000) == [1, 2, 3, 4]
    assert await take(orders, "billing", 2, consumer="w2", retry_ms=60_000, expire_ms=90_000) == [5, 6]
    summary = await billing.pending_summary()
    assert (summary.count, summary.first, summary.last) == (6, 1, 6)
    assert summary.next_ms is not None
    assert 0 < summary.next_ms <= 60_000
    pending = await billing.pending()
    assert [(row.offset, row.consumer, row.deliveries) for row in pending] == [
        (1, "w1", 1), (2, "w1", 1), (3, "w1", 1), (4, "w1", 1), (5, "w2", 1), (6, "w2", 1),
    ]  # fmt: skip
    assert pending[0].expires_in_ms is None
    assert 0 < (pending[5].expires_in_ms or 0) <= 90_000
    assert 0 < pending[0].due_in_ms <= 60_000
    assert [row.offset for row in await billing.pending(2, 3)] == [2, 3]
    assert [row.offset for row in await billing.pending(count=1, consumer="w2")] == [5]
    consumers = {consumer.name: consumer.pending for consumer in await billing.consumers()}
    assert consumers == {"w1": 4, "w2": 2}


async def test_settling_by_offset(orders: Stream) -> None:
    await orders.write_many([("t", str(number)) for number in range(9)])
    billing = orders.group("billing")
    await billing.create(dead_letter="{orders}dead")
    assert await take(orders, "billing", 9, retry_ms=60_000) == list(range(1, 10))
    assert await billing.ack(1, (3, 5), 99) == 4
    assert await billing.ack(1) == 0
    assert await billing.nack(2, delay_ms=40_000) == 1
    assert await billing.renew(6, retry_ms=90_000) == 1
    assert await billing.reject(7, reason="no such customer") == 1
    due = {row.offset: row.due_in_ms for row in await billing.pending()}
    assert due.keys() == {2, 6, 8, 9}
    assert due[2] <= 40_000 < due[8] <= 60_000 < due[6] <= 90_000
    assert await billing.nack(8, 9) == 2
    assert await take(orders, "billing", 2) == [8, 9]


async def test_dead_letters(ps: Any) -> None:
    orders, dead = ps.stream("{shop}orders"), ps.stream("{shop}dead")
    await orders.write("eu", "payload")
    billing = orders.group("billing")
    await billing.create(dead_letter="{shop}dead")
    async with billing.consume() as messages:
        message = await anext(messages)
        await message.reject("no such customer")
    (letter,) = await dead.tail(2)
    head, _, body = letter.entry.partition(b"\n\n")
    assert (letter.tag, body) == (b"eu", b"payload")
    assert b"reason: no such customer" in head.splitlines()
    info = await billing.info()
    assert info is not None
    assert (info.dead, info.pending) == (1, 0)


async def test_a_backoff_of_the_group(orders: Stream) -> None:
    billing = orders.group("billing")
    await billing.create(backoff_ms=[50_000])
    await orders.write("", "x")
    async with billing.consume(retry_ms=60_000) as messages:
        await (await anext(messages)).nack(delay_ms=None)
    (row,) = await billing.pending()
    assert 40_000 < row.due_in_ms <= 50_000


async def test_another_type(ps: Any) -> None:
    await ps.set("k", "v")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        await ps.stream("k").group("g").create()
    with pytest.raises(CommandError, match="WRONGTYPE"):
        async for _ in ps.stream("k").group("g").consume():
            pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.create(at=-1), "at must be at least 0"),
        (lambda g: g.create(at="end"), "at must be an offset or \"\\$\", not 'end'"),
        (lambda g: g.create(max_pending=0), "max_pending must be at least 1"),
        (lambda g: g.create(backoff_ms=5), "backoff_ms must be a sequence of milliseconds, not int"),
        (lambda g: g.create(backoff_ms=[1, -1]), r"backoff_ms\[1\] must be at least 0"),
        (lambda g: g.create(ordered=1), "ordered must be True or False, not 1"),
        (lambda g: g.configure(dead_letter=5), "dead_letter must be bytes or str"),
        (lambda g: g.ack(), "offsets must not be empty"),
        (lambda g: g.ack((5, 3)), "offsets must not run backwards, as from 5 to 3"),
        (lambda g: g.ack("5"), "offsets must be a whole number, not '5'"),
        (lambda g: g.nack(1, delay_ms=-1), "delay_ms must be at least 0"),
        (lambda g: g.renew(1, retry_ms=0), "retry_ms must be at least 1"),
        (lambda g: g.reject(1, reason="a\nb"), "reason must be one line of text"),
        (lambda g: g.pending(count=0), "count must be at least 1"),
        (lambda g: g.run(None), "handler must be an async function, not NoneType"),
        (lambda g: g.run(print, concurrency=0), "concurrency must be at least 1"),
        (lambda g: g.run(print, retry_ms=None), "retry_ms must be a whole number, not None"),
    ],
)
async def test_what_is_refused_is_not_sent(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        await call(_unsent().group("g"))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"retry_ms": 0}, "retry_ms must be at least 1"),
        ({"expire_ms": -1}, "expire_ms must be at least 0"),
        ({"consumer": ""}, "consumer must not be empty"),
        ({"prefetch": 0}, "prefetch must be at least 1"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"at": "first"}, "at must be an offset"),
    ],
)
def test_terms_are_judged_at_once(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _unsent().group("g").consume(**terms)


def _unsent() -> Stream:
    class Nobody:
        async def execute(self, *arguments: Any) -> Any:
            raise AssertionError(f"{arguments} was sent")

    return Stream(Nobody(), Nobody(), "orders")
