"""What a consumption keeps, renews and drops, as time goes by; over a group that a test makes up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import CommandError, NotSentError
from penstock.streams.consuming import Consumption, Terms
from penstock.streams.settling import MAX_BATCH, Settling


class Server:
    """Delivers the rows it is given, then blocks; remembers what else was sent."""

    def __init__(self) -> None:
        self.pages: list[list[Any]] = []
        self.sent: list[tuple[Any, ...]] = []
        self.strays: list[Any] = []
        self.error: Exception | None = None

    async def execute(self, name: Any, /, *arguments: Any) -> Any:
        if name != "TREAD":
            self.sent.append((name, *arguments))
            await asyncio.sleep(0)
            if self.error is not None:
                raise self.error
            return self.strays if name == "TPENDING" else len(arguments)
        if self.pages:
            return self.pages.pop(0)
        if "BLOCK" in arguments:
            await asyncio.Event().wait()
        return []


def row(offset: int, deliveries: int = 1) -> list[Any]:
    return [offset, b"t", b"e", 1_000, deliveries]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def make(server: Server, clock: ManualClock) -> AsyncIterator[Any]:
    made: list[Consumption] = []

    async def describe() -> None:
        return None

    def make_one(**terms: Any) -> Consumption:
        wished = Terms(60_000, 0, "w", 10, None, False, 0)
        wished = Terms(**{**{name: getattr(wished, name) for name in Terms.__slots__}, **terms})
        settling = Settling(server, "s", "g")
        made.append(Consumption(server, "s", "g", settling, describe, wished, clock))
        return made[-1]

    yield make_one
    for consumption in made:
        await consumption.close()


async def test_what_waited_for_too_long_is_not_handed_out(
    server: Server, clock: ManualClock, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.pages = [[row(1), row(2)]]
    consumption = make()
    assert (await consumption.next()).offset == 1
    clock.advance_ms(60_000)  # nobody had the chance to renew
    waiting = asyncio.create_task(consumption.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert "message 2" in caplog.text
    waiting.cancel()
    await consumption.close()
    assert ("TNACK", "s", "g", 0, "2") not in server.sent, "it is not ours to give back"


async def test_only_what_is_half_over_is_renewed(server: Server, clock: ManualClock, make: Any) -> None:
    server.pages = [[row(1), row(2), row(3)]]
    consumption = make()
    await consumption.next()
    clock.advance_ms(29_999)
    await consumption.renew_due()
    assert server.sent == []
    clock.advance_ms(1)
    await consumption.renew_due()
    assert server.sent == [("TRENEW", "s", "g", 60_000, "2-3")], "1 is its reader's own"
    clock.advance_ms(29_999)
    await consumption.renew_due()
    assert len(server.sent) == 1
    assert (await consumption.next()).offset == 2


async def test_handed_out_messages_are_renewed_if_wished(
    server: Server, clock: ManualClock, make: Any
) -> None:
    server.pages = [[row(1), row(2)]]
    consumption = make(renews=True)
    message = await consumption.next()
    await consumption.next()
    await message.ack()
    clock.advance_ms(30_000)
    await consumption.renew_due()
    assert server.sent[-1] == ("TRENEW", "s", "g", 60_000, "2")


async def test_strays_are_told_from_what_is_known(server: Server, make: Any) -> None:
    server.pages = [[row(1), row(2), row(3), row(4, deliveries=2)]]
    consumption = make()
    out, nacked = await consumption.next(), await consumption.next()
    await nacked.nack(delay_ms=5_000)
    await (await consumption.next()).ack()
    pending = [(1, 1), (2, 1), (4, 2), (7, 1), (8, 3)]
    server.strays = [[offset, b"w", deliveries, 0, 0, -1] for offset, deliveries in pending]
    await consumption.close()
    given_back = [words for words in server.sent if words[:4] == ("TNACK", "s", "g", 0)]
    assert given_back == [("TNACK", "s", "g", 0, "4"), ("TNACK", "s", "g", 0, "7-8")]
    assert not out.is_settled


async def test_a_message_that_comes_again_replaces_itself(server: Server, make: Any) -> None:
    server.pages = [[row(1), row(2)], [row(2, deliveries=2)]]
    consumption = make()
    await consumption.next()
    await asyncio.sleep(0)
    second = await consumption.next()
    assert (second.offset, second.deliveries) == (2, 2)


async def test_what_is_gone_is_left_out(server: Server, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    server.pages = [[[1, None, None, 0, 1], row(2)]]
    assert (await make().next()).offset == 2
    assert "message 1" in caplog.text
    assert "evicted before it was acknowledged" in caplog.text


async def test_an_end_without_a_server(server: Server, make: Any) -> None:
    server.pages = [[row(1), row(2)]]
    consumption = make()
    await consumption.next()
    server.error = NotSentError("gone")
    await consumption.close()  # what was read ahead comes again in time
    assert await consumption.next() is None
    assert "stopping" in repr(consumption)


# ------------------------------------------------------------------------------ settling


async def test_settlements_of_a_tick_go_by_what_is_done(server: Server) -> None:
    settling = Settling(server, "s", "g")
    await asyncio.gather(
        *(settling.settle(offset, "TACK") for offset in (3, 1, 2)),
        settling.settle(9, "TNACK", 0),
        settling.settle(8, "TNACK", 500),
    )
    assert sorted(server.sent) == [
        ("TACK", "s", "g", "1-3"),
        ("TNACK", "s", "g", 0, "9"),
        ("TNACK", "s", "g", 500, "8"),
    ]


async def test_an_error_reaches_everybody(server: Server) -> None:
    settling = Settling(server, "s", "g")
    server.error = CommandError("WRONGTYPE no")
    results = await asyncio.gather(
        settling.settle(1, "TACK"), settling.settle(2, "TACK"), return_exceptions=True
    )
    assert [str(result) for result in results] == ["WRONGTYPE no"] * 2


async def test_one_that_is_cancelled_leaves_the_others(server: Server) -> None:
    settling = Settling(server, "s", "g")
    first, second = (asyncio.create_task(settling.settle(offset, "TACK")) for offset in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert server.sent == [("TACK", "s", "g", "1-2")]


async def test_many_are_several_commands(server: Server) -> None:
    settling = Settling(server, "s", "g")
    await settling.settle_now(list(range(0, 2 * MAX_BATCH + 2, 1)), "TACK")
    assert len(server.sent) == 3
