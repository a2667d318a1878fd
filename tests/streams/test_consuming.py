"""Consuming: what is handed out, kept, given back; handlers; every way to end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from typing import Any

import pytest

import penstock
from penstock.errors import OutcomeUnknownError, UsageError
from penstock.streams import GroupMessage, Stream
from tests.places import until
from tests.streams.conftest import Wire

#: Longer than a busy machine stands still: until then a message must have been renewed.
KEPT_MS = 1_000
#: For tests that take as long as that, several times.
A_FEW = pytest.mark.parametrize("url", ["embedded-3", "server-2"], indirect=True)


async def fill(stream: Stream, count: int) -> None:
    await stream.write_many([(f"t{number % 3}", str(number)) for number in range(1, count + 1)])


async def locked(stream: Stream) -> list[int]:
    """Offsets that nobody else gets for now."""
    return [row.offset for row in await stream.group("billing").pending() if row.due_in_ms > 0]


# ----------------------------------------------------------------------------- one by one


async def test_every_message_comes_once(orders: Stream) -> None:
    await fill(orders, 250)
    seen = []
    async with orders.group("billing").consume(prefetch=40) as messages:
        async for message in messages:
            assert (message.deliveries, message.is_settled) == (1, False)
            seen.append(message.offset)
            await message.ack()
            assert message.is_settled
            if message.offset == 250:
                break
    assert seen == list(range(1, 251))
    info = await orders.group("billing").info()
    assert info is not None
    assert (info.pending, info.acked, info.ack_offset) == (0, 250, 251)


async def test_consumers_share_a_group(orders: Stream) -> None:
    await fill(orders, 60)
    seen: Counter[int] = Counter()
    billing = orders.group("billing")

    async def work() -> None:
        async for message in billing.consume(prefetch=4):
            seen[message.offset] += 1
            await message.ack()
            if len(seen) == 60:
                billing.stop()

    await asyncio.wait_for(asyncio.gather(*(work() for _ in range(3))), 20)
    assert seen == Counter(range(1, 61))


async def test_waiting_for_what_is_not_written_yet(orders: Stream, ps: penstock.Penstock) -> None:
    async with orders.group("billing").consume() as messages:
        task = asyncio.create_task(anext(messages))
        await asyncio.sleep(0)
        await orders.write("", "x")
        message = await asyncio.wait_for(task, 10)
        assert message.entry == b"x"
        await message.ack()


async def test_a_message_that_is_not_settled_comes_again(orders: Stream) -> None:
    await fill(orders, 1)
    async with orders.group("billing").consume(retry_ms=20) as messages:
        assert (await anext(messages)).deliveries == 1
        again = await asyncio.wait_for(anext(messages), 10)
        assert (again.offset, again.deliveries) == (1, 2)
        await again.ack()
    assert await orders.group("billing").pending() == []


async def test_acknowledgements_of_one_tick_are_one_command(wired: Stream, wire: Wire) -> None:
    await fill(wired, 10)
    async with wired.group("billing").consume() as messages:
        batch = [await anext(messages) for _ in range(10)]
        await asyncio.gather(*(message.ack() for message in batch))
        assert [words for words in wire.sent if words[0] == "TACK"] == [("TACK", "orders", "billing", "1-10")]
        assert await wired.group("billing").pending() == []


async def test_an_acknowledgement_whose_reply_is_lost(wired: Stream, wire: Wire) -> None:
    await fill(wired, 1)
    async with wired.group("billing").consume() as messages:
        message = await anext(messages)
        faults = iter(["before", "after"])
        wire.fault = lambda words: next(faults, "") if words[0] == "TACK" else ""
        await message.ack()
    assert wire.names().count("TACK") == 3
    assert await wired.group("billing").pending() == []


async def test_settling_twice(orders: Stream) -> None:
    await fill(orders, 2)
    async with orders.group("billing").consume() as messages:
        message = await anext(messages)
        await message.ack()
        await message.ack()
        with pytest.raises(UsageError, match="message 1 was acknowledged already; it cannot be given back"):
            await message.nack()
        with pytest.raises(UsageError, match="it cannot be renewed"):
            await message.renew()
        other = await anext(messages)
        await other.nack(delay_ms=60_000)
        with pytest.raises(UsageError, match="was given back already; it cannot be acknowledged"):
            await other.ack()


async def test_a_failed_settlement_can_be_repeated(wired: Stream, wire: Wire) -> None:
    await fill(wired, 1)
    async with wired.group("billing").consume() as messages:
        message = await anext(messages)
        wire.fault = lambda words: "before" if words[0] == "TNACK" else ""
        with pytest.raises(OutcomeUnknownError):
            await message.nack()
        wire.fault = lambda _: ""
        assert not message.is_settled
        await message.ack()


async def test_at_most_once(orders: Stream) -> None:
    await fill(orders, 3)
    billing = orders.group("billing")
    async with billing.consume(retry_ms=None) as messages:
        message = await anext(messages)
        await message.ack()
        second = await anext(messages)
        with pytest.raises(UsageError, match="read without retry_ms"):
            await second.nack()
        with pytest.raises(UsageError, match="read without retry_ms"):
            await second.renew()
    assert await billing.pending() == []


async def test_only_so_many_are_out_at_a_time(orders: Stream) -> None:
    await fill(orders, 5)
    async with orders.group("billing").consume(concurrency=2) as messages:
        first, _second = await anext(messages), await anext(messages)
        third = asyncio.create_task(anext(messages))
        await orders.info()  # a round trip, in which the third could have come
        assert not third.done()
        await first.ack()
        assert (await asyncio.wait_for(third, 10)).offset == 3


async def test_what_is_out_for_too_long_makes_room(orders: Stream) -> None:
    await fill(orders, 3)
    async with orders.group("billing").consume(retry_ms=50, concurrency=1) as messages:
        await anext(messages)
        assert (await asyncio.wait_for(anext(messages), 10)).offset in (1, 2)


async def test_messages_in_order_of_their_tags(orders: Stream) -> None:
    await orders.write_many([("a", "1"), ("a", "2"), ("b", "3")])
    billing = orders.group("billing")
    await billing.create(ordered=True)
    async with billing.consume() as messages:
        first, other = await anext(messages), await anext(messages)
        assert (first.offset, other.offset) == (1, 3)
        await first.ack()
        assert (await asyncio.wait_for(anext(messages), 10)).offset == 2


# ---------------------------------------------------------------------------- every end


async def test_break_gives_back_what_was_read_ahead(orders: Stream) -> None:
    await fill(orders, 20)
    async for message in orders.group("billing").consume():
        await message.ack()
        if message.offset == 3:
            break
    gc.collect()  # CPython needs none of that
    await until(lambda: _nothing_is_locked(orders))
    assert [row.offset for row in await orders.group("billing").pending()] == list(range(4, 21))


async def _nothing_is_locked(stream: Stream) -> bool:
    return await locked(stream) == []


async def test_closing_waits_until_everything_is_given_back(orders: Stream) -> None:
    await fill(orders, 20)
    messages = orders.group("billing").consume()
    held = await anext(messages)
    await messages.aclose()
    await messages.aclose()
    assert await locked(orders) == [1], "what was handed out is still its reader's"
    await held.ack()
    with pytest.raises(StopAsyncIteration):
        await anext(messages)
    async with orders.group("billing").consume() as others:
        again = await asyncio.wait_for(anext(others), 10)
    assert (again.offset, again.deliveries) == (2, 2)


async def test_an_error_in_the_loop_gives_back(orders: Stream) -> None:
    await fill(orders, 5)
    with pytest.raises(ZeroDivisionError):
        async for message in orders.group("billing").consume():
            await message.ack()
            raise ZeroDivisionError
    await until(lambda: _nothing_is_locked(orders))


async def test_a_cancelled_reader_leaves_nothing_locked(orders: Stream) -> None:
    async def work() -> None:
        async with orders.group("billing").consume(retry_ms=600_000) as messages:
            async for _ in messages:
                raise AssertionError("nothing is written yet")

    task = asyncio.create_task(work())
    await until(orders.group("billing").info)
    # It is cancelled at the very moment in which it may be served.
    writing = asyncio.create_task(fill(orders, 5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task, writing])
    assert await locked(orders) == []


async def test_a_cancelled_wait_takes_nothing(orders: Stream) -> None:
    async with orders.group("billing").consume() as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(messages)
        await orders.write("", "x")
        assert (await asyncio.wait_for(anext(messages), 10)).entry == b"x"


@pytest.mark.parametrize("consumer", [None, "w1"])
async def test_a_read_whose_reply_was_lost(wired: Stream, wire: Wire, consumer: str | None) -> None:
    """Nobody saw what it delivered; it comes again at once, not after an hour."""
    await fill(wired, 3)
    faults = iter(["after"])
    wire.fault = lambda words: next(faults, "") if words[0] == "TREAD" else ""
    async with wired.group("billing").consume(retry_ms=3_600_000, consumer=consumer) as messages:
        message = await asyncio.wait_for(anext(messages), 10)
        assert (message.offset, message.deliveries) == (1, 2)


async def test_what_was_given_back_with_a_delay_is_no_stray(wired: Stream, wire: Wire) -> None:
    await fill(wired, 2)
    billing = wired.group("billing")
    async with billing.consume(retry_ms=60_000) as messages:
        await (await anext(messages)).nack(delay_ms=3_600_000)
        held = await anext(messages)
    due = {row.offset: row.due_in_ms for row in await billing.pending()}
    assert due[1] > 60_000
    assert due[2] > 0
    await held.ack()


async def test_stop_ends_the_iteration(orders: Stream) -> None:
    await fill(orders, 10)
    billing = orders.group("billing")
    seen = []
    async for message in billing.consume():
        seen.append(message.offset)
        await message.ack()
        if len(seen) == 2:
            billing.stop()
    assert seen == [1, 2]
    assert await locked(orders) == []
    async for message in billing.consume():  # a new one is not stopped
        await message.ack()
        break


async def test_a_consumer_that_never_began(orders: Stream) -> None:
    messages = orders.group("billing").consume()
    messages.stop()
    assert [message async for message in messages] == []
    async with orders.group("billing").consume() as others:
        assert repr(others) == "<Consumer new>"


async def test_a_client_that_is_closed(ps: penstock.Penstock, url: str) -> None:
    async with penstock.open(url) as own:
        stream = own.stream("orders")
        await fill(stream, 3)
        messages = stream.group("billing").consume(prefetch=1)
        await anext(messages)
    with pytest.raises(penstock.errors.ClosedError):
        while True:
            await anext(messages)


# ----------------------------------------------------------------------------- renewing


@A_FEW
async def test_what_was_read_ahead_is_kept(wired: Stream, wire: Wire) -> None:
    await fill(wired, 3)
    async with wired.group("billing").consume(retry_ms=KEPT_MS) as messages:
        await (await anext(messages)).ack()
        await until(lambda: wire.names().count("TRENEW") >= 3)  # longer than retry_ms
        later = await anext(messages)
        assert (later.offset, later.deliveries) == (2, 1)
        await later.ack()


async def test_a_message_says_that_it_is_worked_on(orders: Stream) -> None:
    await fill(orders, 1)
    async with orders.group("billing").consume(retry_ms=1_000) as messages:
        message = await anext(messages)
        await message.renew(50_000)
        (row,) = await orders.group("billing").pending()
        assert row.due_in_ms > 40_000
        await message.renew()
        (row,) = await orders.group("billing").pending()
        assert row.due_in_ms <= 1_000


async def test_messages_of_a_short_backoff_are_kept_as_well(orders: Stream) -> None:
    await fill(orders, 2)
    billing = orders.group("billing")
    await billing.create(backoff_ms=[100])
    async with billing.consume(retry_ms=60_000) as messages:
        await anext(messages)
        await until(lambda: _due_later(orders))
        assert all(row.due_in_ms > 1_000 for row in await billing.pending())


async def _due_later(stream: Stream) -> bool:
    return all(row.due_in_ms > 1_000 for row in await stream.group("billing").pending())


# ----------------------------------------------------------------------------- handlers


async def test_handlers_run_side_by_side(orders: Stream) -> None:
    await fill(orders, 30)
    billing = orders.group("billing")
    running, most, seen = 0, 0, []

    async def handle(message: GroupMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        seen.append(message.offset)
        if len(seen) == 30:
            billing.stop()

    await asyncio.wait_for(billing.run(handle, concurrency=4), 20)
    assert sorted(seen) == list(range(1, 31))
    assert 1 < most <= 4
    assert await billing.pending() == []


async def test_a_handler_that_fails(orders: Stream, caplog: pytest.LogCaptureFixture) -> None:
    await fill(orders, 3)
    billing = orders.group("billing")
    seen: list[tuple[int, int]] = []

    async def handle(message: GroupMessage) -> None:
        seen.append((message.offset, message.deliveries))
        if message.offset == 2 and message.deliveries < 3:
            raise RuntimeError("not yet")
        if len(seen) == 5:
            billing.stop()

    with caplog.at_level(logging.ERROR, "penstock.streams"):
        await asyncio.wait_for(billing.run(handle, backoff_ms=[1, 2]), 20)
    assert sorted(seen) == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]
    assert caplog.text.count("RuntimeError: not yet") == 2
    assert await billing.pending() == []


async def test_the_group_s_own_backoff_comes_first(orders: Stream) -> None:
    await fill(orders, 1)
    billing = orders.group("billing")
    await billing.create(backoff_ms=[60_000])

    async def handle(message: GroupMessage) -> None:
        billing.stop()
        raise RuntimeError

    await asyncio.wait_for(billing.run(handle, backoff_ms=[1]), 20)
    (row,) = await billing.pending()
    assert row.due_in_ms > 50_000


async def test_a_handler_that_settles_by_itself(wired: Stream, wire: Wire) -> None:
    await fill(wired, 1)
    billing = wired.group("billing")

    async def handle(message: GroupMessage) -> None:
        billing.stop()
        await message.nack(delay_ms=60_000)

    await asyncio.wait_for(billing.run(handle), 20)
    assert "TACK" not in wire.names()
    assert len(await billing.pending()) == 1


@A_FEW
async def test_a_handler_that_runs_for_long(wired: Stream, wire: Wire) -> None:
    await fill(wired, 1)
    billing = wired.group("billing")
    may_end = asyncio.Event()
    seen = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.deliveries)
        await may_end.wait()
        billing.stop()

    task = asyncio.create_task(billing.run(handle, retry_ms=KEPT_MS))
    await until(lambda: wire.names().count("TRENEW") >= 3)
    may_end.set()
    await asyncio.wait_for(task, 20)
    assert seen == [1]
    assert await billing.pending() == []


async def test_stop_lets_handlers_finish(wired: Stream, wire: Wire) -> None:
    await fill(wired, 20)
    billing = wired.group("billing")
    may_end = asyncio.Event()
    began = []

    async def handle(message: GroupMessage) -> None:
        began.append(message.offset)
        await may_end.wait()

    task = asyncio.create_task(billing.run(handle, concurrency=3))
    await until(lambda: len(began) == 3)
    billing.stop()
    await until(lambda: "TNACK" in wire.names())  # before anybody has finished
    await until(lambda: _is_locked(wired, [1, 2, 3]))
    assert not task.done()
    may_end.set()
    await asyncio.wait_for(task, 20)
    assert began == [1, 2, 3]
    info = await billing.info()
    assert info is not None
    assert (info.acked, info.pending) == (3, 17)
    assert await locked(wired) == []


async def _is_locked(stream: Stream, offsets: list[int]) -> bool:
    return await locked(stream) == offsets


async def test_cancelling_gives_everything_back(orders: Stream) -> None:
    await fill(orders, 20)
    billing = orders.group("billing")
    began = []

    async def handle(message: GroupMessage) -> None:
        began.append(message.offset)
        await asyncio.Event().wait()

    task = asyncio.create_task(billing.run(handle, concurrency=3, retry_ms=600_000))
    await until(lambda: len(began) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await locked(orders) == []
    assert len(await billing.pending()) == 20


async def test_an_error_of_reading_ends_the_run(ps: penstock.Penstock) -> None:
    await ps.set("k", "v")

    async def handle(_: Any) -> None: ...

    with pytest.raises(penstock.errors.CommandError, match="WRONGTYPE"):
        await asyncio.wait_for(ps.stream("k").group("g").run(handle), 10)
