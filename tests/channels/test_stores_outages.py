"""Several stores of which real processes are killed, stopped and started again.

Nothing is asserted about how long things take: what a dead store costs is told by its breaker and by how
often it was called.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.channels import Batch
from penstock.channels.receipts import unwrap
from penstock.channels.stores import ChannelStores
from penstock.errors import UnavailableError
from penstock.testing.servers import RealServer
from penstock.webhooks.breaker import BreakerPolicy, BreakerState
from tests.channels.stores.support import CHANNEL, Room, ids, numbered, opened, three_servers
from tests.places import until

#: Left alone for so long that a test is over before: nobody comes back by himself.
FOR_LONG = BreakerPolicy(failures=1, open_ms=600_000, max_open_ms=600_000)
#: … and so short that the next call may find out.
FOR_SHORT = BreakerPolicy(failures=1, open_ms=20, max_open_ms=20)
TIMEOUT_MS = 1_000


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    yield from three_servers()


@pytest.fixture
def fresh(servers: list[RealServer]) -> list[RealServer]:
    for server in servers:
        server.restart().reset()
    return servers


def urls(servers: list[RealServer]) -> dict[str, str]:
    """Clients that try to connect again soon, so that a test need not wait for it."""
    return {
        name: f"{each.url}?reconnect=constant:base_ms=20" for name, each in zip("abc", servers, strict=False)
    }


@pytest.fixture
async def mixed(fresh: list[RealServer], tmp_path: Path) -> AsyncIterator[ChannelStores]:
    """A directory and a server, of which one is enough."""
    places = {"a": f"embedded:{tmp_path / 'a.pen'}?durability=relaxed", "b": urls(fresh)["a"]}
    async with opened(places, 1, breaker=FOR_LONG, timeout_ms=TIMEOUT_MS, grace_ms=20) as stores:
        yield stores


@contextmanager
def stopped(server: RealServer) -> Iterator[None]:
    """The process neither runs nor ends: connections stay open, and nobody answers."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_a_killed_server_is_called_once(mixed: ChannelStores, fresh: list[RealServer]):
    room, dead = Room(mixed), mixed.members["b"]
    await room.create()
    await room.say("m0")
    attempts = dead.attempts
    fresh[0].kill()
    await room.say("m1")
    await until(lambda: dead.breaker.state is BreakerState.OPEN)
    for number in range(2, 100):
        await room.say(f"m{number}")
    batch = await room.fetch(limit=200)
    assert ids(batch) == [f"m{number}" for number in range(100)]
    assert await room.ack(batch)
    assert dead.attempts == attempts + 1
    assert (await mixed.probe())["a"] == "ok"


async def test_a_stopped_server_is_called_once(mixed: ChannelStores, fresh: list[RealServer]):
    room, dead = Room(mixed), mixed.members["b"]
    await room.create()
    attempts = dead.attempts
    with stopped(fresh[0]):
        await room.say("m0")
        await until(lambda: dead.breaker.state is BreakerState.OPEN)
        for number in range(1, 100):
            await room.say(f"m{number}")
        assert await room.ack(await room.fetch(limit=200))
    assert dead.attempts == attempts + 1


async def test_a_fetch_finds_a_stopped_server_out(mixed: ChannelStores, fresh: list[RealServer]):
    room, dead = Room(mixed), mixed.members["b"]
    await room.create()
    poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
    await until(lambda: all(member.store.waiting for member in mixed.members))
    with stopped(fresh[0]):
        await Room(mixed.members["a"].store).say("m")
        assert ids(await asyncio.wait_for(poll, 30)) == ["m"]
        assert dead.breaker.state is BreakerState.OPEN


async def test_all_dead_then_back(fresh: list[RealServer]):
    async with opened(urls(fresh), 2, breaker=FOR_SHORT, timeout_ms=TIMEOUT_MS) as stores:
        room = Room(stores)
        await room.create()
        await room.say("m1")
        batch = await room.fetch()
        for server in fresh:
            server.kill()
        for attempt in (room.say("m2"), room.ack(batch), room.fetch(timeout_ms=100), stores.probe()):
            with pytest.raises(UnavailableError, match="of 3 stores confirmed and 2 must"):
                await attempt
        fresh[0].restart()
        with pytest.raises(UnavailableError):
            await room.say("m2")
        fresh[1].restart()
        await until(lambda: _works(room, "m3"), 30)
        await until(lambda: _shows(room, {"m1", "m3"}), 30)
        assert await room.ack(await room.fetch())
        fresh[2].restart()
        await until(lambda: _is_whole(stores), 30)
        # It has m1 unread, which was acknowledged without it.
        assert ids(await room.fetch()) == []
        assert await Room(stores.members["c"].store).unread() == 0


async def _works(room: Room, message_id: str) -> bool:
    try:
        await room.say(message_id)
    except UnavailableError:
        return False
    return True


async def _shows(room: Room, message_ids: set[str]) -> bool:
    """An attempt that failed may have left another message."""
    try:
        return message_ids <= set(ids(await room.fetch()))
    except UnavailableError:
        return False


async def _is_whole(stores: ChannelStores) -> bool:
    try:
        return set((await stores.probe()).values()) == {"ok"}
    except UnavailableError:
        return False


async def test_a_waiting_fetch_hears_of_a_store_that_came_back(fresh: list[RealServer]):
    """What is published to the two that were dead when it began to wait."""
    async with opened(urls(fresh), 1, breaker=FOR_SHORT, timeout_ms=TIMEOUT_MS, grace_ms=20) as stores:
        room = Room(stores)
        await room.create()
        fresh[0].kill()
        poll = asyncio.create_task(room.fetch(timeout_ms=60_000))
        await until(lambda: stores.members["b"].store.waiting and stores.members["c"].store.waiting)
        fresh[0].restart()
        await until(lambda: _is_whole(stores), 30)
        await Room(stores.members["a"].store).say("m")
        assert ids(await asyncio.wait_for(poll, 40)) == ["m"]


@pytest.mark.slow
async def test_servers_die_in_turn_while_messages_flow(fresh: list[RealServer]):
    """Publisher and subscriber go on; nothing is lost, and nothing comes again after its acknowledgement."""
    async with opened(urls(fresh), 2, breaker=FOR_SHORT, timeout_ms=TIMEOUT_MS, grace_ms=50) as stores:
        room = Room(stores)
        await room.create()
        confirmed: list[str] = []
        given: list[str] = []
        acked: set[str] = set()
        #: what at least two stores have recorded as acknowledged
        firm: set[str] = set()
        is_over = asyncio.Event()

        async def publish() -> None:
            number = 0
            while not is_over.is_set():
                try:
                    await room.say(f"m{number}")
                except UnavailableError:
                    continue  # the same again
                confirmed.append(f"m{number}")
                number += 1
                await asyncio.sleep(0.002)

        async def consume() -> None:
            while not (is_over.is_set() and acked.issuperset(confirmed)):
                try:
                    batch = await room.fetch(limit=10, timeout_ms=200)
                    assert not firm.intersection(ids(batch))
                    given.extend(ids(batch))
                    if batch.receipt is not None:
                        await room.ack(batch)
                        acked.update(ids(batch))
                        firm.update(_covered_by_all(batch))
                except UnavailableError:
                    continue

        tasks = [asyncio.create_task(publish()), asyncio.create_task(consume())]
        for server in fresh:
            many = len(confirmed) + 50
            await until(lambda many=many: len(confirmed) >= many or any(task.done() for task in tasks), 30)
            server.kill()
            many = len(confirmed) + 50
            await until(lambda many=many: len(confirmed) >= many or any(task.done() for task in tasks), 30)
            server.restart()
            await until(lambda: _is_whole(stores), 30)
        is_over.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert set(given) >= set(confirmed)
        assert ids(await room.fetch()) == []
        assert len(firm) > len(acked) / 2


def _covered_by_all(batch: Batch) -> list[str]:
    """What each of two or more parts of a receipt covers. (One publisher: all orders are the same.)"""
    assert batch.receipt is not None
    message_ids = ids(batch)
    marks = [json.loads(part)["mid"] for part in unwrap(batch.receipt).values()]
    if len(marks) < 2 or not set(marks) <= set(message_ids):
        return []
    return message_ids[: min(message_ids.index(mark) for mark in marks) + 1]


async def test_a_server_that_lost_everything(fresh: list[RealServer]):
    async with opened(urls(fresh), 2, breaker=FOR_SHORT, timeout_ms=TIMEOUT_MS) as stores:
        room = Room(stores)
        await room.create()
        await room.publish(*numbered(1, 10))
        batch = await room.fetch(limit=5)
        await room.ack(batch)
        fresh[1].reset()
        rest = await room.fetch()
        assert ids(rest) == [f"m{number}" for number in range(6, 11)]
        assert await room.publish(*numbered(1, 12)) == [False] * 10 + [True] * 2
        last = await room.fetch()
        assert ids(last) == [f"m{number}" for number in range(6, 13)]
        assert await room.ack(last)
        assert ids(await room.fetch()) == []
        assert await stores.members["b"].store.find(CHANNEL, "m1") is not None
        assert await Room(stores.members["b"].store).unread() == 0
