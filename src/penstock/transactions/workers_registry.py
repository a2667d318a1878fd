"""Who works: workers say so again and again, and whoever falls silent is dropped.

    registry = WorkerRegistry(client)
    await registry.announce(WorkerInfo(id="worker-1", node_groups=["shop"], concurrency=64))
    await registry.set_concurrency("shop", 16)        # a wish, told to workers on ``tx.wishes``

Rules: this is what people look at. Nothing depends on it: leases decide who has a transaction. A wish is for
each worker of a group; workers that hear of it (or start) follow it. ``lua/workers.lua`` decides everything.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from penstock.client.client import Client
from penstock.errors import BackpressureError, UsageError
from penstock.transactions import keys

#: How long a worker counts as alive after it has said so.
TTL_MS: Final = 30_000
MAX_WORKERS: Final = 10_000
MAX_CONCURRENCY: Final = 10_000
_WORKERS: Final = ("{tx}.workersH", "{tx}.workersZ", "{tx}.wishesH")


class WorkerInfo(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a worker says about itself."""

    id: str
    node_groups: list[str] = []
    #: transactions at a time
    concurrency: int = 0
    #: transactions that it has now
    running: int = 0
    #: … and has ended since it started
    ended: int = 0
    host: str = ""
    pid: int = 0
    version: str = ""
    started_ms: int = 0
    #: when it said all this, by its own clock
    heard_ms: int = 0
    #: names of the step functions it has
    steps: list[str] = []
    #: working, stopping, …
    state: str = ""
    #: what else there is to know: its ``kind``, if it is no ordinary one, and whatever that kind tells
    labels: dict[str, str] = {}


# The method ``list`` hides the type of that name from the annotations of its class.
Workers: TypeAlias = list[WorkerInfo]

_decode: Final = msgspec.json.Decoder(WorkerInfo).decode


class WorkerRegistry:
    """The workers of one store."""

    def __init__(self, client: Client, *, ttl_ms: int = TTL_MS) -> None:
        self._client = client
        self._ttl_ms = ttl_ms
        self._script = client.scripts("penstock.transactions").workers

    async def announce(self, worker: WorkerInfo) -> None:
        """It is alive, and so it is with it. To be repeated well within the ttl."""
        keys.check_name("id", worker.id)
        text = msgspec.json.encode(worker)
        if not await self._run("announce", worker.id, text, self._ttl_ms, MAX_WORKERS):
            raise BackpressureError(f"{MAX_WORKERS} workers are registered already: stop some of them")

    async def forget(self, worker: str) -> bool:
        """It has stopped. False: nobody knew of it."""
        return bool(await self._run("forget", worker))

    async def list(self) -> Workers:
        """All that are alive, by id."""
        found: list[WorkerInfo] = []
        for text in await self._run("list"):
            try:
                found.append(_decode(text))
            except msgspec.MsgspecError:
                continue  # of another version: it must not hide the others
        return sorted(found, key=lambda worker: worker.id)

    # ------------------------------------------------------------------------------------------ wishes

    async def set_concurrency(self, group: str, concurrency: int | None) -> bool:
        """How many transactions each worker of a group should have at a time; None leaves it to them."""
        keys.check_name("group", group)
        if concurrency is not None and not 1 <= concurrency <= MAX_CONCURRENCY:
            raise UsageError(
                f"concurrency must be 1 to {MAX_CONCURRENCY}, not {concurrency}: to stop a group, pause it"
            )
        return bool(await self._run("wish", group, "" if concurrency is None else concurrency))

    async def wishes(self) -> dict[str, int]:
        """By group."""
        reply = await self._client.hgetall(_WORKERS[2])
        return {group.decode(): int(number) for group, number in sorted(reply.items())}

    async def _run(self, *words: Any) -> Any:
        return await self._script(_WORKERS, words)

    def __repr__(self) -> str:
        return f"<WorkerRegistry on {self._client!r}>"
