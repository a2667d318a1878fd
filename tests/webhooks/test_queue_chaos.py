"""The queue under calls in any order, on every store: every delivery stays in exactly one place."""

from __future__ import annotations

import random

import pytest

from penstock.client.client import Client
from penstock.errors import BackpressureError, UsageError
from penstock.webhooks import (
    BreakerPolicy,
    Delivery,
    Endpoint,
    Health,
    Outcome,
    OutcomeKind,
    QueueSettings,
    WebhookQueue,
)
from tests.places import until
from tests.webhooks.deliveries import (
    DONE,
    assert_sound,
    claim,
    endpoint,
    put,
)

#: What is held by nobody any more comes back within the time of a test.
CHAOS_LEASE_MS = 300


class Chaos:
    """Calls in random order by workers that forget, come late, and repeat themselves."""

    def __init__(self, queue: WebhookQueue, chance: random.Random) -> None:
        self.queue = queue
        self.chance = chance
        self.known: list[str] = []
        #: all that was ever claimed; most of it is out of date
        self.held: list[Delivery] = []

    def endpoint(self) -> Endpoint:
        return endpoint(self.chance.choice("abc"), max_in_flight=self.chance.randint(1, 4), max_pending=12)

    async def step(self) -> None:
        acts = [self.put] * 4 + [self.claim] * 3 + [self.settle] * 5
        acts += [self.renew, self.replay, self.replay_failed, self.switch, self.purge]
        await self.chance.choice(acts)()

    async def put(self) -> None:
        try:
            delivery = await put(self.queue, f"e{self.chance.randrange(40)}", self.endpoint())
        except BackpressureError:
            return
        self.known.append(delivery.id)

    async def claim(self) -> None:
        lease_ms = self.chance.choice((1, CHAOS_LEASE_MS))
        self.held += await claim(self.queue, self.chance.randint(1, 6), lease_ms)

    async def settle(self) -> None:
        if self.held:
            kind = self.chance.choice(list(OutcomeKind))
            health = self.chance.choice(list(Health))
            outcome = Outcome(kind=kind, health=health, delay_ms=self.chance.choice((0, 0, 50_000)))
            await self.queue.settle(self.chance.choice(self.held[-8:]), outcome)

    async def renew(self) -> None:
        await self.queue.renew(self.held[-3:], CHAOS_LEASE_MS)

    async def replay(self) -> None:
        if self.known:
            try:
                await self.queue.replay(self.chance.choice(self.known))
            except UsageError:
                pass

    async def replay_failed(self) -> None:
        await self.queue.replay_failed(self.endpoint())

    async def switch(self) -> None:
        name = self.chance.choice("abc")
        await (self.queue.enable(name) if self.chance.random() < 0.7 else self.queue.disable(name, "chance"))

    async def purge(self) -> None:
        if self.chance.random() < 0.2:
            await self.queue.purge(self.chance.choice("abc"))


@pytest.mark.parametrize("seed", range(3))
async def test_any_order_of_calls_leaves_it_sound(client: Client, seed: int) -> None:
    settings = QueueSettings(
        retention_ms=200, max_log=5, breaker=BreakerPolicy(failures=3, open_ms=5, max_open_ms=20)
    )
    chaos = Chaos(WebhookQueue(client, settings=settings), random.Random(seed))
    for number in range(150):
        await chaos.step()
        if number % 15 == 14:
            await assert_sound(chaos.queue)
    await _drain(chaos.queue)


async def _drain(queue: WebhookQueue) -> None:
    """Whatever happened, everything that waits can be brought to its end."""

    async def is_empty() -> bool:
        for name in "abc":
            await queue.enable(name)
            page = await queue.pending(name)
            for delivery in page.deliveries:
                await queue.replay(delivery.id)
        for delivery in await claim(queue, 100, 1000):
            await queue.settle(delivery, DONE)
        found = await queue.statistics()
        return found.waiting + found.leased == 0

    await until(is_empty)
    await assert_sound(queue)
