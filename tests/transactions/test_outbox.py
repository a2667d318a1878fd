"""From the outbox to streams and channels: in order, each once, and nobody stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import penstock
from penstock.channels import ChannelStore
from penstock.delivering import StoreOutlet
from penstock.errors import CommandError, ConnectionLostError, NotSentError, UsageError
from penstock.streams import StreamCommands
from penstock.transactions.keys import partition_of, prefix_of
from penstock.transactions.model import Record, Settlement
from penstock.transactions.outbox import (
    OutboxEntry,
    OutboxForwarder,
    OutboxSettings,
    channel_destination,
    encode_channel_message,
    encode_stream_message,
    stream_destination,
)
from penstock.transactions.store import TransactionStore
from tests.places import until
from tests.transactions.conftest import put_pipeline

pytestmark = pytest.mark.parametrize("url", ["embedded-3", "server-3", "cluster-3"], indirect=True)

QUICK = OutboxSettings(first_pause_ms=1, max_pause_ms=5, patience_ms=100, lock_ms=300)


class Writer:
    """A transaction that is held, and whose steps write to the outbox."""

    def __init__(self, store: TransactionStore, record: Record) -> None:
        self.partition = partition_of(record.id)
        self._store = store
        self._record = record
        self._seq = 0

    async def write(self, *words: Any) -> None:
        self._seq += 1
        kept = Settlement("keep", self._record.id, self._record.token, self._seq, outbox=words)
        assert await self._store.settle(self.partition, [kept]) == ["ok"]

    async def write_stream(self, name: str, numbers: Sequence[int]) -> None:
        words = [(stream_destination(name), encode_stream_message("t", b"%d" % each)) for each in numbers]
        await self.write(*(word for pair in words for word in pair))

    async def left(self) -> int:
        length: Any = await self._store.client.execute("LLEN", f"{prefix_of(self.partition)}outboxL")
        return length // 3


@pytest.fixture
async def writer(store: TransactionStore) -> Writer:
    await put_pipeline(store, "noop")
    started = await store.start("noop", b"{}", owner="acme")
    taken = await store.dequeue(partition_of(started.id), "w1", ["shop"], limit=1, lease_ms=600_000)
    return Writer(store, taken.records[0])


@pytest.fixture
async def outlet(ps: penstock.Penstock) -> AsyncIterator[StoreOutlet]:
    channels = ChannelStore(ps)
    yield StoreOutlet(StreamCommands(ps), channels)
    await channels.close()


@pytest.fixture
async def forwarder(store: TransactionStore, outlet: StoreOutlet) -> AsyncIterator[OutboxForwarder]:
    forwarder = OutboxForwarder(store, outlet, "n1", QUICK)
    yield forwarder
    await forwarder.close()


async def forward(forwarder: OutboxForwarder, writer: Writer) -> None:
    forwarder.kick(writer.partition)
    async with asyncio.timeout(30):
        await forwarder.idle()


async def numbers_in(ps: penstock.Penstock, name: str) -> list[int]:
    reply: Any = await StreamCommands(ps).execute("TREAD", name, 0, 100_000)
    return [int(entry) for _, _, entry in reply]


async def entries_of(store: TransactionStore, partition: int, limit: int = 100) -> list[OutboxEntry]:
    """What a forwarder has taken that is dead by now, and whose lock has run out."""
    words = await store.run("outbox", partition, "take", "the dead", 60_000, limit)
    assert await store.run("outbox", partition, "leave", "the dead", 0) == 1
    return [
        OutboxEntry(partition, int(number), *destination.decode().split(":", 1), payload)
        for number, destination, payload in zip(words[::3], words[1::3], words[2::3], strict=True)
    ]


# ----------------------------------------------------------------------------------------------- order


async def test_everything_arrives_in_order(
    ps: penstock.Penstock, writer: Writer, forwarder: OutboxForwarder
) -> None:
    alice = await ps.channel("room").subscribe("alice")
    for number in range(150):
        await writer.write(
            stream_destination(f"s{number % 2}"), encode_stream_message("", b"%d" % number),
            channel_destination("room"), encode_channel_message(f"m-{number}", {"n": number}),
        )  # fmt: skip
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s0") == list(range(0, 150, 2))
    assert await numbers_in(ps, "s1") == list(range(1, 150, 2))
    batch = await alice.fetch(limit=1_000)
    assert [(message.id, message.content) for message in batch.messages] == [
        (f"m-{number}", {"n": number}) for number in range(150)
    ]
    assert await writer.left() == 0
    assert await forwarder.dead(writer.partition) == []


async def test_what_comes_while_it_forwards_goes_out_at_once(
    ps: penstock.Penstock, writer: Writer, forwarder: OutboxForwarder
) -> None:
    for number in range(200):
        await writer.write_stream("s", [number])
        forwarder.kick(writer.partition)
    await until(lambda: _has(ps, "s", 200))
    assert await numbers_in(ps, "s") == list(range(200))


async def _has(ps: penstock.Penstock, name: str, count: int) -> bool:
    return len(await numbers_in(ps, name)) == count


async def test_a_look_forwards_only_if_there_is_something(writer: Writer, forwarder: OutboxForwarder) -> None:
    forwarder.look(writer.partition, 0)
    assert repr(forwarder).endswith("busy with partitions []>")
    await writer.write_stream("s", [1])
    forwarder.look(writer.partition, 3)
    await until(lambda: _is_empty(writer))


async def _is_empty(writer: Writer) -> bool:
    return await writer.left() == 0


# ------------------------------------------------------------------------------------------ exactly once


async def test_what_was_sent_and_not_removed_is_not_sent_again(
    ps: penstock.Penstock,
    store: TransactionStore,
    writer: Writer,
    outlet: StoreOutlet,
    forwarder: OutboxForwarder,
) -> None:
    alice = await ps.channel("room").subscribe("alice")
    await writer.write_stream("s", range(10))
    await writer.write(channel_destination("room"), encode_channel_message("m-1", 1))
    taken = await entries_of(store, writer.partition)
    assert await outlet.send(taken[:10]) == 10
    assert await outlet.send(taken[10:]) == 1
    await forward(forwarder, writer)
    assert await writer.left() == 0
    assert await numbers_in(ps, "s") == list(range(10))
    assert [message.id for message in (await alice.fetch()).messages] == ["m-1"]


@pytest.mark.parametrize("cut", [1, 3, 9])
async def test_what_was_sent_in_part_is_completed(
    ps: penstock.Penstock,
    store: TransactionStore,
    writer: Writer,
    outlet: StoreOutlet,
    forwarder: OutboxForwarder,
    cut: int,
) -> None:
    await writer.write_stream("s", range(10))
    taken = await entries_of(store, writer.partition)
    await outlet.send(taken[:cut])
    assert await outlet.send(taken) == cut, "it tells how far the stream is"
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == list(range(10))
    assert await forwarder.dead(writer.partition) == []


async def test_repetitions_that_the_stream_has_forgotten_are_recognised_too(
    ps: penstock.Penstock,
    store: TransactionStore,
    writer: Writer,
    outlet: StoreOutlet,
    forwarder: OutboxForwarder,
) -> None:
    """A stream remembers a hundred calls of a producer; here are more, all of which come again."""
    await writer.write_stream("s", range(130))
    taken = await entries_of(store, writer.partition, 130)
    for entry in taken:
        await outlet.send([entry])
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == list(range(130))
    await writer.write_stream("s", [130])
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == list(range(131))
    assert await forwarder.dead(writer.partition) == []


async def test_numbers_with_gaps_go_out_under_their_own(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    """Else what comes after a message that was buried would be taken for a repetition, or not for one."""
    await writer.write_stream("s", range(5))
    taken = await entries_of(store, writer.partition)
    some = [taken[0], taken[1], taken[3]]
    assert await outlet.send(some) == 2
    assert await outlet.send(some[2:]) == 1
    assert await outlet.send([taken[3]]) == 1
    assert await numbers_in(ps, "s") == [0, 1, 3]
    assert await outlet.send(taken[4:]) == 1
    assert await numbers_in(ps, "s") == [0, 1, 3, 4]


class Careless:
    """An outlet whose answers get lost, and which takes its time."""

    def __init__(self, outlet: StoreOutlet, every: int) -> None:
        self._outlet = outlet
        self._every = every
        self.calls = 0

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        self.calls += 1
        count = await self._outlet.send(entries[:3])
        if self.calls % self._every == 0:
            raise ConnectionLostError("the answer was lost")
        return count


async def test_lost_answers_double_nothing(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    """All in all it takes longer than anybody's patience, but it goes on all the time."""
    careless = Careless(outlet, 2)
    settings = OutboxSettings(first_pause_ms=40, max_pause_ms=40, patience_ms=600)
    forwarder = OutboxForwarder(store, careless, "n1", settings)
    await writer.write_stream("s", range(60))
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == list(range(60))
    assert careless.calls >= 30
    await forwarder.close()


class Stalling:
    """An outlet that sleeps for longer than its lock lives, now and then, before or after it sends."""

    def __init__(self, outlet: StoreOutlet, pause_s: float) -> None:
        self._outlet = outlet
        self._pause_s = pause_s
        self.calls = 0

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        self.calls += 1
        if self.calls % 5 == 1:
            await asyncio.sleep(self._pause_s)
        count = await self._outlet.send(entries)
        if self.calls % 5 == 3:
            await asyncio.sleep(self._pause_s)
        return count


async def test_two_that_race_write_each_once(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    """Locks of a few ms are lost all the time; both send the same, and neither loses or doubles anything."""
    hasty = OutboxSettings(batch=7, lock_ms=3, first_pause_ms=1, max_pause_ms=2)
    racers = [
        OutboxForwarder(store, Stalling(outlet, pause_s), f"n{place}", hasty)
        for place, pause_s in enumerate((0.004, 0.011))
    ]
    alice = await ps.channel("room").subscribe("alice")
    for first in range(0, 300, 10):
        await writer.write_stream("s", range(first, first + 10))
        await writer.write(channel_destination("room"), encode_channel_message(f"m-{first}", first))
        for racer in racers:
            racer.kick(writer.partition)

    async def is_done() -> bool:
        for racer in racers:
            racer.look(writer.partition, await writer.left())
        return await writer.left() == 0

    await until(is_done, limit_s=60)
    for racer in racers:
        await racer.close()
    assert await numbers_in(ps, "s") == list(range(300))
    found = [message.content for message in (await alice.fetch(limit=1_000)).messages]
    assert found == list(range(0, 300, 10))


async def test_who_has_lost_the_lock_removes_nothing(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    """The lock goes to another while a refused message is about to be buried."""
    await writer.write_stream("s", [1])

    class Robbed:
        async def send(self, entries: Sequence[OutboxEntry]) -> int:
            await ps.execute("SET", f"{prefix_of(writer.partition)}outboxLock", "another")
            raise UsageError("no")

    forwarder = OutboxForwarder(store, Robbed(), "n1", QUICK)
    await forward(forwarder, writer)
    assert await writer.left() == 1
    assert await forwarder.dead(writer.partition) == []
    await forwarder.close()


async def test_what_a_dead_holder_left_is_found_after_its_lock(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, forwarder: OutboxForwarder
) -> None:
    """One kick is enough, although somebody has the lock and says nothing any more."""
    await writer.write_stream("s", [1])
    await store.run("outbox", writer.partition, "take", "the dead", 200, 10)
    forwarder.kick(writer.partition)
    await until(lambda: _is_empty(writer))
    assert await numbers_in(ps, "s") == [1]


async def test_close_gives_the_lock_back(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer
) -> None:
    class Endless:
        async def send(self, entries: Sequence[OutboxEntry]) -> int:
            return await asyncio.Event().wait() or 0

    forwarder = OutboxForwarder(store, Endless(), "n1", OutboxSettings(lock_ms=60_000))
    await writer.write_stream("s", [1])
    forwarder.kick(writer.partition)
    lock = f"{prefix_of(writer.partition)}outboxLock"
    await until(lambda: ps.execute("EXISTS", lock))
    await forwarder.close(grace_ms=10)
    assert await ps.execute("EXISTS", lock) == 0
    assert await writer.left() == 1
    forwarder.kick(writer.partition)
    assert "closed, busy with partitions []" in repr(forwarder)


# ------------------------------------------------------------------------------------------------ graves


async def test_a_destination_of_another_type_stops_nobody(
    ps: penstock.Penstock, writer: Writer, forwarder: OutboxForwarder
) -> None:
    await ps.execute("SET", "wrong", "text")
    await writer.write_stream("wrong", [1, 2])
    await writer.write_stream("s", range(5))
    await writer.write_stream("wrong", [3])
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == list(range(5))
    assert await writer.left() == 0
    dead = await forwarder.dead(writer.partition)
    assert [(each.destination, each.number) for each in dead] == [("stream:wrong", n) for n in (1, 2, 3)]
    assert all("WRONGTYPE" in each.reason and each.at_ms > 0 for each in dead)

    await ps.execute("DEL", "wrong")
    await writer.write_stream("wrong", [4])
    assert await forwarder.revive(writer.partition) == 3
    await forwarder.idle()
    assert await forwarder.dead(writer.partition) == []
    assert await numbers_in(ps, "wrong") == [4, 1, 2, 3]
    assert await forwarder.revive(writer.partition) == 0


async def test_a_burial_removes_its_batch_and_nothing_behind(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    forwarder = OutboxForwarder(
        store, outlet, "n1", OutboxSettings(batch=2, first_pause_ms=1, max_pause_ms=2, lock_ms=300)
    )
    await ps.execute("SET", "wrong", "text")
    for number in range(9):
        await writer.write_stream("wrong" if number % 3 == 1 else "s", [number])
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == [0, 2, 3, 5, 6, 8]
    assert [each.number for each in await forwarder.dead(writer.partition)] == [1, 2, 3]
    await forwarder.close()


async def test_one_bad_message_does_not_take_its_neighbours_along(
    ps: penstock.Penstock, writer: Writer, forwarder: OutboxForwarder
) -> None:
    await writer.write_stream("s", [1, 2])
    await writer.write(stream_destination("s"), b"\xc1 no msgpack")
    await writer.write_stream("s", [3])
    await writer.write("pigeon:home", b"x", "stream:", b"x", "channel:BAD", encode_channel_message("m", 1))
    await writer.write("channel:room", encode_stream_message("m", b"not json"))
    await forward(forwarder, writer)
    assert await numbers_in(ps, "s") == [1, 2, 3]
    dead = {each.destination: each.reason for each in await forwarder.dead(writer.partition)}
    assert dead.keys() == {"stream:s", "pigeon:home", "stream:", "channel:BAD", "channel:room"}
    assert "payload must be a message for a stream" in dead["stream:s"]
    assert "destination must be stream:<name>" in dead["pigeon:home"]
    assert "channel must be 1 to 63" in dead["channel:BAD"]
    assert await writer.left() == 0


class Partial:
    """An outlet that cannot reach one destination."""

    def __init__(self, outlet: StoreOutlet, error: Exception) -> None:
        self._outlet = outlet
        self.error: Exception | None = error
        self.tries = 0

    async def send(self, entries: Sequence[OutboxEntry]) -> int:
        if self.error is not None and entries[0].name == "away":
            self.tries += 1
            raise self.error
        return await self._outlet.send(entries)


@pytest.mark.parametrize("error", [NotSentError("cut"), CommandError("CLUSTERDOWN"), CommandError("OOM x")])
async def test_who_is_away_is_waited_for_and_then_buried(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet, error: Exception
) -> None:
    partial = Partial(outlet, error)
    forwarder = OutboxForwarder(store, partial, "n1", QUICK)
    await writer.write_stream("away", range(3))
    await writer.write_stream("s", range(3))
    await forward(forwarder, writer)
    assert partial.tries > QUICK.tries, "it is waited for, not just tried a few times"
    assert await numbers_in(ps, "s") == [0, 1, 2]
    assert len(await forwarder.dead(writer.partition)) == 3

    # The next ones do not wait for it as long again.
    tries = partial.tries
    await writer.write_stream("away", range(3, 6))
    await forward(forwarder, writer)
    assert partial.tries == tries + 1
    partial.error = None
    assert await forwarder.revive(writer.partition) == 6
    await forwarder.idle()
    assert await numbers_in(ps, "away") == list(range(6))
    await forwarder.close()


async def test_who_comes_back_in_time_loses_nothing(
    ps: penstock.Penstock, store: TransactionStore, writer: Writer, outlet: StoreOutlet
) -> None:
    partial = Partial(outlet, NotSentError("cut"))
    # A lock that outlasts any stall of the machine, or somebody else would be right to take over.
    patient = OutboxSettings(first_pause_ms=1, max_pause_ms=50, patience_ms=60_000, lock_ms=2_000)
    forwarder = OutboxForwarder(store, partial, "n1", patient)
    await writer.write_stream("away", range(3))
    forwarder.kick(writer.partition)
    beyond_s = asyncio.get_running_loop().time() + 2.5
    await until(lambda: asyncio.get_running_loop().time() > beyond_s)  # the life of the lock
    assert partial.tries > 3
    for _ in range(5):
        assert await store.run("outbox", writer.partition, "take", "another", 1_000, 1) == []
        tries = partial.tries
        await until(lambda tries=tries: partial.tries > tries + 3)
    partial.error = None
    await forwarder.idle()
    assert await numbers_in(ps, "away") == [0, 1, 2]
    assert await forwarder.dead(writer.partition) == []
    await forwarder.close()


async def test_nobody_is_buried_while_the_store_is_away(
    ps: penstock.Penstock, writer: Writer, outlet: StoreOutlet
) -> None:
    class Cut(TransactionStore):
        is_down = False
        refused = 0

        async def run(self, name: str, partition: int, *arguments: Any, readonly: bool = False) -> Any:
            if self.is_down:
                self.refused += 1
                raise NotSentError("cut")
            return await super().run(name, partition, *arguments, readonly=readonly)

    store = Cut(ps)
    partial = Partial(outlet, NotSentError("cut"))
    settings = OutboxSettings(first_pause_ms=1, max_pause_ms=5, patience_ms=500, lock_ms=100)
    forwarder = OutboxForwarder(store, partial, "n1", settings)
    await writer.write_stream("away", range(3))
    forwarder.kick(writer.partition)
    await until(lambda: partial.tries > 0)
    store.is_down = True
    await until(lambda: store.refused > 8)
    partial.error, store.is_down = None, False
    await forwarder.idle()
    assert await numbers_in(ps, "away") == [0, 1, 2]
    assert await forwarder.dead(writer.partition) == []
    await forwarder.close()


async def test_an_outlet_that_does_nothing_is_an_error_not_an_endless_loop(
    store: TransactionStore, writer: Writer
) -> None:
    class Idle:
        async def send(self, entries: Sequence[OutboxEntry]) -> int:
            return 0

    forwarder = OutboxForwarder(store, Idle(), "n1", QUICK)
    await writer.write_stream("s", [1])
    await forward(forwarder, writer)
    (dead,) = await forwarder.dead(writer.partition)
    assert "must bring at least one message there" in dead.reason
    await forwarder.close()
