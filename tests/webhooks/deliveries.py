"""What tests of the queue share: outcomes, short ways to put and claim, and a check of all that is kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.webhooks import (
    Delivery,
    Endpoint,
    Health,
    Outcome,
    OutcomeKind,
    Status,
    WebhookQueue,
)
from penstock.webhooks.keys import SCRIPT_KEYS
from tests.places import until

LEASE_MS = 60_000
SHORT_MS = 30

DONE = Outcome(kind=OutcomeKind.DONE, health=Health.UP)
DEAD = Outcome(kind=OutcomeKind.DEAD, health=Health.DOWN, reason="enough")


def retry(delay_ms: int = 0, **facts: Any) -> Outcome:
    return Outcome(kind=OutcomeKind.RETRY, delay_ms=delay_ms, health=Health.DOWN, **facts)


def endpoint(name: str = "shop", **settings: Any) -> Endpoint:
    return Endpoint(id=name, url="https://example.com/hook", **settings)


async def put(queue: WebhookQueue, event: str, where: Endpoint | None = None, **options: Any) -> Delivery:
    return (await queue.put(where or endpoint(), event, b'{"event":1}', **options)).delivery


async def claim(queue: WebhookQueue, limit: int = 100, lease_ms: int = LEASE_MS) -> list[Delivery]:
    return [claimed.delivery for claimed in (await queue.claim(limit, lease_ms)).deliveries]


async def claim_one(queue: WebhookQueue, lease_ms: int = LEASE_MS) -> Delivery:
    """One that is due, or is about to be."""
    found: list[Delivery] = []

    async def is_there() -> bool:
        found.extend(await claim(queue, 1, lease_ms))
        return bool(found)

    await until(is_there)
    return found[0]


async def assert_sound(queue: WebhookQueue) -> None:
    """Every delivery is in exactly one place, and every count is that of what is there."""
    client, keys = queue._client, dict(zip(SCRIPT_KEYS, queue.keys.all, strict=True))
    deliveries = {
        name.decode(): await queue.get(name.decode()) for name in await client.hkeys(keys["deliveries"])
    }
    assert {name.decode() for name in await client.hkeys(keys["payloads"])} == set(deliveries)
    by_status = Counter(delivery.status for delivery in deliveries.values() if delivery)
    waiting = {row.rpartition(b" ")[2].decode() for row in await client.zrange(keys["waiting"], 0, -1)}
    leased = {name.decode() for name in await client.zrange(keys["leases"], 0, -1)}
    finished = {name.decode() for name in await client.zrange(keys["finished"], 0, -1)}
    dead = {row.rpartition(b" ")[2].decode() for row in await client.zrange(keys["dead"], 0, -1)}
    assert len(waiting) + len(leased) + len(finished) == len(deliveries)
    assert waiting | leased | finished == set(deliveries)
    assert (len(waiting), len(leased), len(dead)) == (
        by_status[Status.WAITING], by_status[Status.LEASED], by_status[Status.DEAD],
    )  # fmt: skip
    for name in {delivery.endpoint for delivery in deliveries.values() if delivery}:
        mine = Counter(d.status for d in deliveries.values() if d and d.endpoint == name)
        state = await queue.state(name)
        assert (state.waiting, state.in_flight) == (mine[Status.WAITING], mine[Status.LEASED])


async def is_later(queue: WebhookQueue, since_ms: int) -> bool:
    return (await queue.statistics()).now_ms > since_ms
