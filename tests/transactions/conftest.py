"""One suite for transactions: embedded, served by us, on Valkey, on Redis where there is one, on a cluster.

A test asks for ``store`` (or ``desk``, which works on a single partition) and runs once on each place.
``put_pipeline`` writes what enqueue reads of a pipeline, its heads, without a definition behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import penstock
import penstock.blocking
from penstock.client.pubsub.items import Message
from penstock.transactions import keys
from penstock.transactions.model import Record, Settlement, Taken
from penstock.transactions.store import TransactionStore
from tests import places

PLACES = ("embedded-3", "served-3", "server-3", "redis-3", "cluster-3")
#: Longer than any test: a lease, a lock or a sleep that is not to end by itself.
LONG_MS = 600_000


def only_on(*kinds: str) -> pytest.MarkDecorator:
    return places.only_on(PLACES, *kinds)


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest) -> str:
    return places.url_of(request.param, request)


@pytest.fixture
async def ps(url: str) -> AsyncIterator[penstock.Penstock]:
    async with penstock.open(url) as client:
        yield client


@pytest.fixture
async def store(ps: penstock.Penstock) -> TransactionStore:
    """As users have it: one partition, sixteen on a cluster."""
    store = TransactionStore(ps)
    await store.partitions()
    return store


@pytest.fixture
async def desk(ps: penstock.Penstock) -> Desk:
    """A store of one partition, also on a cluster, with a pipeline ``noop`` of the group ``shop``."""
    store = TransactionStore(ps, partitions=1)
    await put_pipeline(store, "noop")
    return Desk(store)


class Desk:
    """One partition of a store, as a worker of the group ``shop`` sees it, and its keys as they are."""

    def __init__(self, store: TransactionStore, partition: int = 0) -> None:
        self.store = store
        self.client = store.client
        self.partition = partition
        self.prefix = keys.prefix_of(partition)

    # --------------------------------------------------------------------------------- doing

    async def start(
        self, pipeline: str = "noop", data: bytes = b"{}", *, owner: str = "acme", **options: Any
    ) -> str:
        return (await self.store.start(pipeline, data, owner=owner, **options)).id

    async def dequeue(
        self,
        limit: int = 10,
        *,
        worker: str = "w1",
        groups: Sequence[str] = ("shop",),
        lease_ms: int = LONG_MS,
    ) -> Taken:
        return await self.store.dequeue(self.partition, worker, groups, limit=limit, lease_ms=lease_ms)

    async def take(self, limit: int = 10, **options: Any) -> list[Record]:
        return (await self.dequeue(limit, **options)).records

    async def take_one(self, **options: Any) -> Record:
        (record,) = await self.take(1, **options)
        return record

    async def settle(self, record: Record, kind: str, *arguments: Any, seq: int = 1, **parts: Any) -> str:
        settlement = Settlement(kind, record.id, record.token, seq, arguments=arguments, **parts)
        (answer,) = await self.store.settle(self.partition, [settlement])
        return answer

    async def end(self, record: Record, status: str = "success", **options: Any) -> str:
        return await self.settle(record, "end", status, 0, **options)

    async def begun(self, **options: Any) -> Record:
        """A transaction that was started and taken."""
        tx = await self.start(**options)
        record = await self.take_one()
        assert record.id == tx
        return record

    async def ended(self, status: str = "success", **options: Any) -> str:
        """The id of a transaction that has ended."""
        record = await self.begun(**options)
        assert await self.end(record, status) == "ok"
        return record.id

    # ------------------------------------------------------------------------------- looking

    async def execute(self, command: str, key: str, *arguments: Any) -> Any:
        """A command on a key of the partition, which is named without its prefix."""
        return await self.client.execute(command, self.prefix + key, *arguments)

    async def record(self, tx: str) -> dict[str, str]:
        flat = await self.client.execute("EVAL", _FLAT_HASH, 1, f"{self.prefix}stateH:{tx}")
        words = [bytes(word).decode() for word in flat]
        return dict(zip(words[::2], words[1::2], strict=True))

    async def field(self, tx: str, name: str) -> str | None:
        value = await self.execute("HGET", f"stateH:{tx}", name)
        return None if value is None else bytes(value).decode()

    async def trail(self, tx: str) -> list[str]:
        return [bytes(entry).decode() for entry in await self.execute("LRANGE", f"trailL:{tx}", 0, -1)]

    async def members(self, name: str) -> list[str]:
        """Of a sorted set, in order."""
        return [bytes(member).decode() for member in await self.execute("ZRANGE", name, 0, -1)]

    async def score(self, name: str, member: str) -> float | None:
        score = await self.execute("ZSCORE", name, member)
        return None if score is None else float(score)

    async def places(self, tx: str) -> set[str]:
        """Which sorted sets have it, but for those that list all transactions."""
        return {
            name
            for name, value in (await self.everything()).items()
            if name.rpartition(":")[0] not in ("ownerZ",) and name != "indexZ"
            if isinstance(value, dict) and f"z {tx}" in value
        }

    async def everything(self) -> dict[str, Any]:
        """Every key of the partition without its prefix; members of sorted sets are marked by ``z``."""
        found: dict[str, Any] = {}
        async for key in self.client.scan_iter(count=1_000):
            name = bytes(key).decode()
            if name.startswith(self.prefix):
                kind, *flat = await self.client.execute("EVAL", _WHOLE_KEY, 1, name)
                words = [bytes(word).decode() for word in flat]
                if kind in (b"hash", b"zset"):
                    mark = "z " if kind == b"zset" else ""
                    value: Any = {
                        mark + one: other for one, other in zip(words[::2], words[1::2], strict=True)
                    }
                else:
                    value = words
                found[name.removeprefix(self.prefix)] = value
        return found

    # ---------------------------------------------------------------------------------- time

    async def now_ms(self) -> int:
        """By the clock of the store."""
        return int(await self.client.execute("EVAL", _NOW_MS, 1, self.prefix))

    async def pass_ms(self, duration_ms: int) -> None:
        """Until the clock of the store has gone on by so much."""
        await self.reach_ms(await self.now_ms() + duration_ms)

    async def reach_ms(self, moment_ms: float) -> None:
        while (left_ms := moment_ms - await self.now_ms()) > 0:
            await asyncio.sleep(left_ms / 1_000)

    # ------------------------------------------------------------------------------- hearing

    @asynccontextmanager
    async def hearing(self, *topics: str) -> AsyncIterator[Callable[[], Awaitable[list[tuple[str, str]]]]]:
        """Gives a function that answers what was published on these topics since it was last asked."""
        async with self.client.pubsub() as subscriber:
            await subscriber.subscribe(*topics)

            async def heard() -> list[tuple[str, str]]:
                # Marks that go the same way as what scripts publish come after all of that.
                for topic in topics:
                    await self.client.execute("EVAL", _PUBLISH, 1, self.prefix, topic, "mark")
                found: list[tuple[str, str]] = []
                marks = set(topics)
                async with asyncio.timeout(15):
                    while marks:
                        item = await subscriber.get()
                        assert isinstance(item, Message), item
                        topic, text = bytes(item.channel).decode(), bytes(item.data).decode()
                        if text == "mark":
                            marks.remove(topic)
                        else:
                            found.append((topic, text))
                return found

            await heard()  # on a cluster what was published before may come after the confirmation
            yield heard


_FLAT_HASH = "return redis.call('HGETALL', KEYS[1])"
_NOW_MS = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)"
_PUBLISH = "return redis.call('PUBLISH', ARGV[1], ARGV[2])"
_WHOLE_KEY = """
local kind = redis.call('TYPE', KEYS[1]).ok
local reply
if kind == 'hash' then reply = redis.call('HGETALL', KEYS[1])
elseif kind == 'zset' then reply = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
elseif kind == 'list' then reply = redis.call('LRANGE', KEYS[1], 0, -1)
elseif kind == 'string' then reply = {redis.call('GET', KEYS[1])}
else reply = {} end
return {kind, unpack(reply)}
"""


async def put_pipeline(
    store: TransactionStore,
    name: str,
    *,
    group: str = "shop",
    version: str = "v1",
    deadline_ms: int = 0,
    priority: int = 5,
    is_startable: bool = True,
    is_active: bool = True,
) -> None:
    """Write a version of a pipeline into the heads of every partition; usually it is the active one."""
    line = f"{group} {deadline_ms} {priority} {int(is_startable)}"
    words = ["active", f"{version} {line}"] if is_active else []
    for place in range(await store.partitions()):
        head = f"{keys.prefix_of(place)}pipelineH:{name}"
        await store.client.execute("HSET", head, f"v:{version}", line, *words)
