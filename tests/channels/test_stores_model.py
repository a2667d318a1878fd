"""Random outages of random stores, compared with what a subscriber must see.

The model knows which messages must reach the subscriber (confirmed, and written to a store that has the
subscriber) and which it has acknowledged. Whatever is given is checked at once, the rest at the end:

1. Nothing that must come is missing.
2. Nothing comes again that was acknowledged, if a store that answered had recorded it.
3. In the end every store has caught up.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from penstock.channels.fetching import acknowledged
from penstock.channels.model import Batch
from penstock.channels.stores import ChannelStores
from penstock.clock import ManualClock
from penstock.errors import SubscriptionNotFoundError, UnavailableError
from tests.channels.stores.support import ALICE, CHANNEL, Room, child, ids, opened
from tests.effort import scaled

STEPS = 150
SEEDS = range(int(os.environ.get("PENSTOCK_STORES_SEEDS", scaled(8))))


class Walk:
    """A random walk over some stores, and what it must lead to."""

    def __init__(self, stores: ChannelStores, quorum: int, clock: ManualClock, seed: int) -> None:
        self.stores = stores
        self.quorum = quorum
        self.has_majority = quorum > len(stores.members) / 2
        self.clock = clock
        self.chance = random.Random(seed)
        self.room = Room(stores)
        self.children = [child(stores, name) for name in stores.members.names]
        self.published: list[str] = []
        self.due: set[str] = set()
        self.given: set[str] = set()
        self.done: set[str] = set()
        #: whose acknowledgement may have been recorded, confirmed or not
        self.tried: set[str] = set()
        self.repeated = 0
        self.batch = Batch()

    async def step(self) -> None:
        actions = [
            self.publish,
            self.publish,
            self.publish_again,
            self.fetch,
            self.ack,
            self.outage,
            self.create,
        ]
        weights = [6, 3, 2, 6, 5, 3, 1]
        try:
            await self.chance.choices(actions, weights)[0]()
        except UnavailableError:
            pass  # nothing was promised
        except SubscriptionNotFoundError:
            assert not self.has_majority  # all who know the subscriber may be out at once
        self.clock.advance_ms(self.chance.choice([0, 0, 100, 2_000, 40_000, 40_000]))

    async def create(self) -> None:
        await self.room.create()

    async def publish(self) -> None:
        new = [f"m{len(self.published) + at}" for at in range(self.chance.randint(1, 4))]
        self.published += new
        await self.room.say(*new)
        await self.owe(new)

    async def publish_again(self) -> None:
        if self.published:
            again = self.chance.sample(self.published, min(len(self.published), 3))
            await self.room.say(*again)
            await self.owe(again)

    async def owe(self, message_ids: list[str]) -> None:
        """These were confirmed. Each that is unread in some store must come."""
        holders = 0
        for each in self.children:
            try:
                old = await each.store.are_old(CHANNEL, ALICE, message_ids)
            except SubscriptionNotFoundError:
                continue
            holders += 1
            for message_id, is_old in zip(message_ids, old, strict=True):
                if not is_old and await each.store.find(CHANNEL, message_id) and message_id not in self.done:
                    self.due.add(message_id)
        if self.has_majority:
            assert holders >= self.quorum
            assert set(message_ids) <= self.due | self.tried

    async def fetch(self) -> None:
        for each in self.children:
            each.answered.clear()
        limit = self.chance.choice([1, 2, 5, 64])
        self.batch = await self.room.fetch(limit=limit)
        assert len(self.batch.messages) <= limit
        assert len(set(ids(self.batch))) == len(self.batch.messages)
        answering = [each for each in self.children if "fetch" in each.answered]
        assert len(answering) >= 1
        again = [each for each in ids(self.batch) if each in self.done]
        self.repeated += len(again)
        for each in answering:
            if again and each.fault == "":
                assert not await acknowledged(each.store, CHANNEL, ALICE, again)
        self.given.update(ids(self.batch))

    async def ack(self) -> None:
        if self.batch.receipt is not None:
            self.tried.update(ids(self.batch))
            await self.room.ack(self.batch.receipt)
            self.done.update(ids(self.batch))

    async def outage(self) -> None:
        for each in self.children:
            each.fault = self.chance.choice(["", "", "", "", "lost", "mute"])

    async def finish(self) -> None:
        """Everybody is back: what is owed must come now."""
        for each in self.children:
            each.fault = ""
        self.given.clear()
        while True:
            self.clock.advance_ms(60_000)
            await self.fetch()
            if not self.batch.messages:
                break
            assert await self.room.ack(self.batch)
            self.done.update(ids(self.batch))
        # Whoever got a message and did not acknowledge it gets it again.
        assert self.due - self.tried <= self.given
        assert [await Room(each.store).unread() for each in self.children] == [0] * len(self.children)


@pytest.mark.parametrize(("names", "quorum"), [("ab", 1), ("ab", 2), ("abc", 1), ("abc", 2)])
@pytest.mark.parametrize("seed", SEEDS)
async def test_random_outages(tmp_path: Path, names: str, quorum: int, seed: int):
    urls = {name: f"embedded:{tmp_path / name}.pen?durability=relaxed" for name in names}
    clock = ManualClock()
    async with opened(urls, quorum, clock=clock) as stores:
        walk = Walk(stores, quorum, clock, seed)
        if seed % 2:
            await walk.outage()
        for _ in range(20):
            try:
                await walk.create()
                break
            except UnavailableError:
                await walk.outage()
                clock.advance_ms(60_000)
        for _ in range(STEPS):
            await walk.step()
        await walk.finish()
        assert len(walk.done) > 5
