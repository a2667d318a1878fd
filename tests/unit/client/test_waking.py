"""Who waits is woken by what they wait for, by whatever may have been missed, and by the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.channels.keys import channel_of_topic
from penstock.client.pubsub import Dropped, Gap, Message
from penstock.client.waking import Ticket, Wakeups
from penstock.errors import ClosedError, ConnectionLostError

#: Longer than a test takes: who returns was woken.
LONG_S = 60.0


class FakeSubscriber:
    """A subscription whose items are put by the test; an exception is raised to its reader."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.is_closed = False

    async def psubscribe(self, pattern: str) -> None:
        assert pattern == "dsps.c.*"
        await asyncio.sleep(0)
        if self._client.refusal is not None:
            raise self._client.refusal

    def __aiter__(self) -> FakeSubscriber:
        return self

    async def __anext__(self) -> Any:
        item = await self.items.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def close(self) -> None:
        self.is_closed = True
        self.items.put_nowait(ClosedError("closed"))


class FakeClient:
    def __init__(self) -> None:
        self.subscribers: list[FakeSubscriber] = []
        self.refusal: Exception | None = None

    def pubsub(self) -> FakeSubscriber:
        self.subscribers.append(FakeSubscriber(self))
        return self.subscribers[-1]

    def say(self, item: Any) -> None:
        self.subscribers[-1].items.put_nowait(item)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
async def wakeups(client: FakeClient) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(client, "dsps.c.*", channel_of_topic)  # type: ignore[arg-type]
    yield wakeups
    await wakeups.close()


def message(channel: str) -> Message:
    return Message(f"dsps.c.{{{channel}}}".encode(), b"new message", b"dsps.c.*", "pmessage")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def begin(ticket: Ticket) -> asyncio.Task[bool]:
    task = asyncio.create_task(ticket.wait(LONG_S))
    await settle()
    return task


async def test_a_message_wakes_the_waiters_of_its_channel(client: FakeClient, wakeups: Wakeups) -> None:
    with (
        await wakeups.ticket("one") as one,
        await wakeups.ticket("one") as same,
        await wakeups.ticket("two") as two,
    ):
        assert wakeups.waiting == 3
        waits = [await begin(ticket) for ticket in (one, same, two)]
        client.say(message("one"))
        assert await waits[0]
        assert await waits[1]
        assert not waits[2].done()
        client.say(message("two"))
        assert await waits[2]
    assert wakeups.waiting == 0
    assert len(client.subscribers) == 1


async def test_what_came_before_the_wait_counts(client: FakeClient, wakeups: Wakeups) -> None:
    with await wakeups.ticket("one") as ticket:
        client.say(message("one"))
        await settle()
        assert await asyncio.wait_for(ticket.wait(LONG_S), 10)
        again = await begin(ticket)  # it was used up
        assert not again.done()
        client.say(message("one"))
        assert await again


async def test_the_time_is_over(wakeups: Wakeups) -> None:
    with await wakeups.ticket("one") as ticket:
        assert await ticket.wait(0.01)
        assert await ticket.wait(0)


@pytest.mark.parametrize("item", [Gap("server", (), 0.1), Dropped(3)])
async def test_whatever_may_be_missing_wakes_everybody(
    client: FakeClient, wakeups: Wakeups, item: Any
) -> None:
    with await wakeups.ticket("one") as one, await wakeups.ticket("two") as two:
        waits = [await begin(ticket) for ticket in (one, two)]
        client.say(item)
        assert [await wait for wait in waits] == [True, True]


async def test_a_reader_that_fails_is_started_again(
    client: FakeClient, wakeups: Wakeups, caplog: pytest.LogCaptureFixture
) -> None:
    with await wakeups.ticket("one") as ticket:
        wait = await begin(ticket)
        client.say(ConnectionLostError("gone"))
        assert await wait
        assert "wake-ups ended" in caplog.text
        assert await asyncio.wait_for(ticket.wait(LONG_S), 10)  # something may have been missed: look
        assert len(client.subscribers) == 2
        wait = await begin(ticket)
        client.say(message("one"))
        assert await wait


async def test_a_subscription_that_is_refused(client: FakeClient, wakeups: Wakeups) -> None:
    client.refusal = ConnectionLostError("no")
    with pytest.raises(ConnectionLostError):
        await wakeups.ticket("one")
    assert client.subscribers[0].is_closed
    assert wakeups.waiting == 0
    client.refusal = None
    with await wakeups.ticket("one") as ticket:
        wait = await begin(ticket)
        client.say(message("one"))
        assert await wait


async def test_many_who_begin_at_once_share_one_subscription(client: FakeClient, wakeups: Wakeups) -> None:
    await asyncio.gather(*(wakeups.ticket(f"c{number}") for number in range(50)))
    assert len(client.subscribers) == 1


async def test_a_waiter_that_is_cancelled_leaves_nothing(client: FakeClient, wakeups: Wakeups) -> None:
    async def wait() -> None:
        with await wakeups.ticket("one") as ticket:
            await ticket.wait(LONG_S)

    task = asyncio.create_task(wait())
    await settle()
    assert wakeups.waiting == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wakeups.waiting == 0
    client.say(message("one"))
    await settle()


async def test_release_ends_waits_for_good(wakeups: Wakeups) -> None:
    with await wakeups.ticket("one") as ticket:
        wait = await begin(ticket)
        wakeups.release()
        assert not await wait
        assert not await ticket.wait(LONG_S)
    with await wakeups.ticket("one") as ticket:
        assert not await ticket.wait(LONG_S)


async def test_closing_closes_the_subscription(client: FakeClient, wakeups: Wakeups) -> None:
    with await wakeups.ticket("one") as ticket:
        wait = await begin(ticket)
        await wakeups.close()
        assert not await wait
    assert client.subscribers[0].is_closed
    await wakeups.close()
