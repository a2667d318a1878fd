"""Random calls on several channels, compared with a naive model: lists of messages, and indices as cursors.

The model never wraps, the store does: in some examples its clocks begin near the edge. What expires, expires
by hand: bodies and ids are deleted, whole channels are. Each example has channels of its own in one store.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import penstock
from penstock.channels import Batch, Channel, ChannelStore
from penstock.channels.clocks import MAX, MIN, following
from penstock.errors import SubscriptionNotFoundError
from tests.channels.conftest import TTL_S
from tests.conftest import RealServers
from tests.effort import IS_CI, scaled

LONG_MS = 3_600_000
_numbers = itertools.count()

CHANNELS = st.sampled_from(["a", "a", "b"])
SUBSCRIBERS = st.sampled_from(["s", "s", "t"])
NAMES = [f"m{number}" for number in range(30)]
IDS = st.sampled_from(NAMES)
LIMITS = st.sampled_from([0, 1, 2, 3, 64, 5_000])


@dataclass
class ModelChannel:
    """Index 1 is the first message of this life of the channel."""

    clocks: list[int]
    #: (id, content) by index; None: expired. Nothing has index 0.
    messages: list[tuple[str, int] | None] = field(default_factory=lambda: [None])
    known: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    #: up to which index a subscriber gave back
    paused: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.messages) - 1

    def publish(self, messages: list[tuple[str, int]]) -> list[bool]:
        replies = []
        for name, content in messages:
            replies.append(name not in self.known)
            if replies[-1]:
                self.messages.append((name, content))
                self.clocks.append(following(self.clocks[-1]))
                self.known[name] = self.last
        return replies

    def living(self, after: int) -> list[int]:
        return [index for index in range(after + 1, self.last + 1) if self.messages[index] is not None]

    def is_paused(self, subscriber: str) -> bool:
        return self.paused.get(subscriber, 0) > self.cursors[subscriber]

    def fetch(self, subscriber: str, limit: int) -> tuple[list[int], bool]:
        if self.is_paused(subscriber):
            return [], False
        living = self.living(self.cursors[subscriber])
        self.cursors[subscriber] = living[0] - 1 if living else self.last
        return living[:limit], len(living) > limit

    def place_of(self, subscriber: str, clock: int, name: str) -> int | None:
        """The index that a receipt means, if it is unread and still the same message."""
        cursor = self.cursors[subscriber]
        for index in range(cursor + 1, self.last + 1):
            if self.clocks[index] == clock:
                is_same = self.known.get(name) == index if name in self.known else not self.messages[index]
                return index if is_same else None
        return None


class Machine(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, ps: penstock.Penstock, store: ChannelStore) -> None:
        super().__init__()
        self.runner, self.ps, self.store = runner, ps, store
        self.prefix = f"x{next(_numbers)}-"
        self.models: dict[str, ModelChannel] = {}
        self.batches: list[tuple[str, str, Batch]] = []

    def run(self, call: Any) -> Any:
        return self.runner.run(call)

    def channel(self, name: str) -> Channel:
        return Channel(self.store, self.prefix + name)

    def key(self, channel: str, rest: str) -> str:
        return f"c.{{{self.prefix}{channel}}}.{rest}"

    def model(self, channel: str) -> ModelChannel:
        return self.models.setdefault(channel, ModelChannel([0]))

    @initialize(starts=st.tuples(*[st.sampled_from([None, -2, MAX - 3, MAX - 1, MAX, MIN, MIN + 1])] * 2))
    def begin(self, starts: tuple[int | None, int | None]) -> None:
        for channel, start in zip("ab", starts, strict=True):
            if start is not None:
                self.models[channel] = ModelChannel([start])
                self.run(self.ps.execute("SET", self.key(channel, "clock"), start, "EX", TTL_S))
            for subscriber in "st":
                self.create(channel, subscriber)

    # -------------------------------------------------------------------------- writing

    @rule(channel=CHANNELS, messages=st.lists(st.tuples(IDS, st.integers(0, 9)), min_size=1, max_size=4))
    def publish(self, channel: str, messages: list[tuple[str, int]]) -> None:
        replies = self.run(self.channel(channel).publish_many(messages))
        assert replies == self.model(channel).publish(messages)

    @rule(
        channel=CHANNELS,
        subscriber=SUBSCRIBERS,
        what=st.sampled_from(["create"] * 3 + ["remove"] + ["expire"] * 6 + ["forget"]),
        chosen=st.integers(0, 100),
    )
    def disturb(self, channel: str, subscriber: str, what: str, chosen: int) -> None:
        match what:
            case "create":
                self.create(channel, subscriber)
            case "remove":
                self.remove(channel, subscriber)
            case "expire":
                self.expire_message(channel, chosen)
            case "forget":
                self.expire_channel(channel)

    def create(self, channel: str, subscriber: str) -> None:
        model = self.model(channel)
        made = self.run(self.channel(channel).subscription(subscriber).create())
        assert made == (subscriber not in model.cursors)
        model.cursors.setdefault(subscriber, model.last)

    def remove(self, channel: str, subscriber: str) -> None:
        model = self.model(channel)
        removed = self.run(self.channel(channel).subscription(subscriber).unsubscribe())
        assert removed == (model.cursors.pop(subscriber, None) is not None)
        model.paused.pop(subscriber, None)

    def expire_message(self, channel: str, chosen: int) -> None:
        model = self.model(channel)
        living = model.living(0)
        if living:
            index = living[min(chosen % 10, len(living) - 1)]  # the oldest more often
            message = model.messages[index]
            assert message is not None
            keys = [self.key(channel, f"m.{model.clocks[index]}"), self.key(channel, f"mid.{message[0]}")]
            assert self.run(self.ps.execute("DEL", *keys)) == 2
            model.messages[index] = None
            del model.known[message[0]]

    def expire_channel(self, channel: str) -> None:
        model = self.models.pop(channel, None)
        if model is not None:
            rests = ["clock", *(f"r.{name}" for name in model.cursors)]
            rests += [f"nack.{name}" for name in model.paused]
            rests += [f"m.{model.clocks[index]}" for index in model.living(0)]
            rests += [f"mid.{name}" for name in model.known]
            self.run(self.ps.execute("DEL", *(self.key(channel, rest) for rest in rests)))

    # -------------------------------------------------------------------------- fetching

    @rule(channel=CHANNELS, subscriber=SUBSCRIBERS, limit=LIMITS, timeout_ms=st.sampled_from([0] * 9 + [1]))
    def fetch(self, channel: str, subscriber: str, limit: int, timeout_ms: int) -> None:
        model, subscription = self.model(channel), self.channel(channel).subscription(subscriber)
        if subscriber not in model.cursors:
            with pytest.raises(SubscriptionNotFoundError):
                self.run(subscription.fetch(limit, timeout_ms=timeout_ms))
            return
        batch = self.run(subscription.fetch(limit, timeout_ms=timeout_ms))
        indices, more = model.fetch(subscriber, limit)
        assert [(m.id, m.content, m.clock) for m in batch.messages] == [
            (*(model.messages[index] or ()), model.clocks[index]) for index in indices
        ]
        assert batch.more == more
        assert (batch.receipt is None) == (not indices)
        if indices:
            self.batches.append((channel, subscriber, batch))

    @precondition(lambda self: self.batches)
    @rule(chosen=st.sampled_from([0, 0, 1, 2, 5]), delay_ms=st.sampled_from([None, None, 0, LONG_MS]))
    def settle(self, chosen: int, delay_ms: int | None) -> None:
        if delay_ms is None:
            self.ack(chosen)
        else:
            self.nack(chosen, delay_ms)

    def ack(self, chosen: int) -> None:
        channel, subscriber, batch = self.batches[-1 - chosen % len(self.batches)]
        model, subscription = self.model(channel), self.channel(channel).subscription(subscriber)
        if subscriber not in model.cursors:
            with pytest.raises(SubscriptionNotFoundError):
                self.run(subscription.ack(batch))
            return
        mark = batch.messages[-1]
        index = model.place_of(subscriber, mark.clock, mark.id)
        assert self.run(subscription.ack(batch)) == (index is not None)
        if index is not None:
            model.cursors[subscriber] = index
            model.paused.pop(subscriber, None)

    def nack(self, chosen: int, delay_ms: int) -> None:
        channel, subscriber, batch = self.batches[-1 - chosen % len(self.batches)]
        model, subscription = self.model(channel), self.channel(channel).subscription(subscriber)
        if subscriber not in model.cursors:
            with pytest.raises(SubscriptionNotFoundError):
                self.run(subscription.nack(batch, delay_ms=delay_ms))
            return
        mark = batch.messages[-1]
        index = model.place_of(subscriber, mark.clock, mark.id)
        assert self.run(subscription.nack(batch, delay_ms=delay_ms)) == (index is not None)
        if index is not None:
            model.paused.pop(subscriber, None)
            if delay_ms:
                model.paused[subscriber] = index

    # --------------------------------------------------------------------------- looking

    @rule(channel=CHANNELS, subscriber=SUBSCRIBERS, limit=st.sampled_from([1, 2, 64]), name=IDS)
    def look(self, channel: str, subscriber: str, limit: int, name: str) -> None:
        self.backlog(channel, subscriber, limit)
        self.age(channel, subscriber)
        self.find(channel, name)

    def backlog(self, channel: str, subscriber: str, limit: int) -> None:
        model, subscription = self.model(channel), self.channel(channel).subscription(subscriber)
        if subscriber not in model.cursors:
            with pytest.raises(SubscriptionNotFoundError):
                self.run(subscription.backlog(limit=limit))
            return
        cursor, found, after = model.cursors[subscriber], [], None
        while True:
            page = self.run(subscription.backlog(after=after, limit=limit))
            assert page.unread == model.last - cursor
            assert len(page.messages) <= limit
            found += [message.clock for message in page.messages]
            after = page.after
            if after is None:
                break
        assert found == [model.clocks[index] for index in model.living(cursor)]

    def age(self, channel: str, subscriber: str) -> None:
        model = self.model(channel)
        call = self.store.are_old(self.prefix + channel, subscriber, NAMES)
        if subscriber not in model.cursors:
            with pytest.raises(SubscriptionNotFoundError):
                self.run(call)
            return
        cursor = model.cursors[subscriber]
        assert self.run(call) == [name in model.known and model.known[name] <= cursor for name in NAMES]

    def find(self, channel: str, name: str) -> None:
        model = self.model(channel)
        found = self.run(self.channel(channel).message(name))
        index = model.known.get(name)
        if index is None:
            assert found is None
        else:
            assert (found.id, found.content, found.clock) == (
                *(model.messages[index] or ()),
                model.clocks[index],
            )

    def teardown(self) -> None:
        for channel, model in self.models.items():
            info = self.run(self.channel(channel).info())
            if info is not None:
                assert info.clock == model.clocks[-1]
                assert info.unread == {name: model.last - cursor for name, cursor in model.cursors.items()}


@pytest.fixture(params=["embedded", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path: Path, real_servers: RealServers) -> Iterator[str]:
    if request.param == "embedded":
        yield f"embedded:{tmp_path / 'store.pen'}?durability=relaxed"
    else:
        yield real_servers.get("valkey").url


@pytest.mark.slow
@pytest.mark.timeout(600)  # a failure is made small first
def test_random_sequences(place: str) -> None:
    with asyncio.Runner() as runner:

        async def begin() -> tuple[penstock.Penstock, ChannelStore]:
            ps = await penstock.open(place)
            return ps, ChannelStore(ps)

        ps, store = runner.run(begin())
        try:
            run_state_machine_as_test(
                lambda: Machine(runner, ps, store),  # type: ignore[arg-type]  # it is called
                settings=settings(
                    max_examples=scaled(80),
                    derandomize=IS_CI,
                    print_blob=True,
                    stateful_step_count=40,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(store.close())
            runner.run(ps.close())
