"""What the tests of several stores share: places, and stores that fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.channels import Batch, ChannelStore
from penstock.channels.receipts import unwrap
from penstock.channels.stores import STORE_BREAKER, ChannelStores
from penstock.clock import ManualClock
from penstock.errors import OutcomeUnknownError
from penstock.testing.servers import RealServer

EXPIRE_MS = 30 * 60 * 1_000
CHANNEL, ALICE = "room", "alice"


class Faulty:
    """A store that can be cut off.

    ``lost``: no call reaches it. ``mute``: calls do, their answers do not. ``silent``: it never answers.
    ``slow``: it begins when ``go`` is set. ``hook``: ``hook`` runs when it has answered, once.
    """

    def __init__(self, store: ChannelStore) -> None:
        self.name = store.name
        self.store = store
        self.fault = ""
        self.go = asyncio.Event()
        self.hook: Callable[[], Awaitable[Any]] = asyncio.Event().wait
        #: names of methods whose answers arrived, or were begun
        self.answered: list[str] = []
        self.begun: list[str] = []

    def release(self) -> None:
        self.store.release()

    async def close(self) -> None:
        await self.store.close()

    @property
    def waiting(self) -> int:
        return self.store.waiting

    def __getattr__(self, method: str) -> Any:
        target = getattr(self.store, method)

        async def call(*arguments: Any, **named: Any) -> Any:
            self.begun.append(method)
            if self.fault == "lost":
                raise OutcomeUnknownError("the connection was cut")
            if self.fault == "silent":
                await asyncio.Event().wait()
            if self.fault == "slow":
                await self.go.wait()
            reply = await target(*arguments, **named)
            if self.fault in ("lost", "mute"):
                raise OutcomeUnknownError("the connection was cut")
            self.answered.append(method)
            if self.fault == "hook":
                self.fault = ""
                await self.hook()
            return reply

        return call


def embedded_urls(tmp_path: Path, names: str) -> dict[str, str]:
    return {name: f"embedded:{tmp_path / name}.pen?durability=relaxed" for name in names}


@asynccontextmanager
async def opened(urls: dict[str, str], quorum: int, **settings: Any) -> AsyncIterator[ChannelStores]:
    """Stores by name at these places. What is slow on a busy machine is not taken for dead."""
    async with AsyncExitStack() as stack:
        children = {}
        for name, url in urls.items():
            client = await stack.enter_async_context(penstock.open(url))
            children[name] = Faulty(ChannelStore(client, name))
        stores = ChannelStores(children, quorum, **{"timeout_ms": 10_000, "grace_ms": 5_000, **settings})
        stack.push_async_callback(stores.close)
        yield stores


def child(stores: ChannelStores, name: str) -> Faulty:
    found = stores.members[name].store
    assert isinstance(found, Faulty)
    return found


def cut(stores: ChannelStores, *names: str, fault: str = "lost") -> None:
    for name in names:
        child(stores, name).fault = fault


def heal(stores: ChannelStores, clock: ManualClock) -> None:
    """Everybody answers again, and breakers may find out."""
    for name in stores.members.names:
        child(stores, name).fault = ""
    clock.advance_ms(STORE_BREAKER.max_open_ms)


def parts(receipt: str | None) -> list[str]:
    assert receipt is not None
    return sorted(unwrap(receipt))


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages]


def numbered(first: int, last: int) -> list[tuple[str, bytes]]:
    return [(f"m{number}", b"%d" % number) for number in range(first, last + 1)]


class Room:
    """One channel of some stores, and one subscriber, with the arguments that never change left out."""

    def __init__(self, stores: Any) -> None:
        self.stores = stores

    async def create(self, subscriber: str = ALICE) -> bool:
        return await self.stores.create(CHANNEL, subscriber, expire_ms=EXPIRE_MS)

    async def remove(self, subscriber: str = ALICE) -> bool:
        return await self.stores.remove(CHANNEL, subscriber)

    async def publish(self, *messages: tuple[str, bytes], outbox: bool = False) -> list[bool]:
        return await self.stores.publish(CHANNEL, messages, expire_ms=EXPIRE_MS, outbox=outbox)

    async def say(self, *message_ids: str) -> list[bool]:
        return await self.publish(*((each, b'"%s"' % each.encode()) for each in message_ids))

    async def fetch(
        self, limit: int = 64, timeout_ms: int = 0, subscriber: str = ALICE, after: str | None = None
    ) -> Batch:
        return await self.stores.fetch(
            CHANNEL, subscriber, limit=limit, timeout_ms=timeout_ms, expire_ms=EXPIRE_MS, after=after
        )

    async def ack(self, batch: Batch | str, subscriber: str = ALICE) -> bool:
        receipt = batch if isinstance(batch, str) else batch.receipt
        return await self.stores.ack(CHANNEL, subscriber, receipt, expire_ms=EXPIRE_MS)

    async def nack(self, batch: Batch, delay_ms: int = 0) -> bool:
        return await self.stores.nack(CHANNEL, ALICE, batch.receipt, delay_ms=delay_ms)

    async def are_old(self, *message_ids: str) -> list[bool]:
        return await self.stores.are_old(CHANNEL, ALICE, message_ids)

    async def unread(self) -> int:
        return (await self.stores.backlog(CHANNEL, ALICE, limit=1)).unread


def three_servers() -> Iterator[list[RealServer]]:
    """Servers that keep what they confirmed when they are killed."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    servers = [RealServer(options=options).start() for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()
