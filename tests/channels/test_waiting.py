"""Long polls: who wakes them, from where, and what they survive."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

import penstock
from penstock.channels import Channel, ChannelStore, keys
from penstock.errors import SubscriptionNotFoundError
from penstock.testing.clusters import RealCluster
from tests.channels.conftest import ids, number_at, numbered, only_on
from tests.places import until

#: Longer than anything here takes: a poll that returns was woken.
LONG_MS = 60_000


async def test_a_poll_waits_for_its_whole_time(room: Channel) -> None:
    alice = await room.subscribe("alice")
    begin_s = time.monotonic()
    assert await alice.fetch(timeout_ms=200) == ((), False, None)
    assert time.monotonic() - begin_s >= 0.19


async def test_what_is_there_is_given_at_once(room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", 1)
    assert ids(await asyncio.wait_for(alice.fetch(timeout_ms=LONG_MS), 10)) == ["m1"]


async def test_messages_of_other_channels_and_duplicates_wake_nobody_for_good(
    room: Channel, store: ChannelStore
) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", 1)
    await alice.ack(await alice.fetch())
    poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
    await until(lambda: store.waiting == 1)
    await Channel(store, "attic").publish("m1", 1)
    await room.publish("m1", 1)
    await room.subscribe("bob")
    await store._client.publish("dsps.c.{room}", "new message")  # a false alarm
    await store.probe()
    assert not poll.done()
    await room.publish("m2", 2)
    assert ids(await poll) == ["m2"]


async def test_every_waiter_of_a_channel_is_woken(room: Channel, store: ChannelStore) -> None:
    subscriptions = [await room.subscribe(f"s{number}") for number in range(20)]
    polls = [asyncio.create_task(each.fetch(timeout_ms=LONG_MS)) for each in subscriptions for _ in range(3)]
    await until(lambda: store.waiting == 60)
    await room.publish("m1", 1)
    assert [ids(batch) for batch in await asyncio.gather(*polls)] == [["m1"]] * 60
    assert store.waiting == 0


async def test_no_message_slips_between_looking_and_waiting(room: Channel, other: penstock.Penstock) -> None:
    """Polls and publications begin at the same time, over and over: no poll may sleep through one."""
    alice = await room.subscribe("alice")
    elsewhere = other.channel("room")
    for number in range(100):
        poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
        await asyncio.gather(elsewhere.publish(f"m{number}", number), *(asyncio.sleep(0) for _ in range(3)))
        batch = await asyncio.wait_for(poll, 10)
        assert ids(batch) == [f"m{number}"]
        await alice.ack(batch)


@only_on("embedded", "server", "cluster")
async def test_two_thousand_waiting_fetches(store: ChannelStore) -> None:
    rooms = [Channel(store, f"room-{number}") for number in range(100)]
    subscriptions = [await room.subscribe(f"s{number}") for room in rooms for number in range(20)]
    polls = [asyncio.create_task(each.fetch(timeout_ms=LONG_MS)) for each in subscriptions]
    await until(lambda: store.waiting == 2_000)
    await rooms[7].publish("m1", 1)
    assert [ids(batch) for batch in await asyncio.gather(*polls[140:160])] == [["m1"]] * 20
    assert store.waiting == 1_980
    await asyncio.gather(*(room.publish("m1", 1) for room in rooms))
    assert [ids(batch) for batch in await asyncio.gather(*polls)] == [["m1"]] * 2_000
    assert store.waiting == 0


async def test_a_subscriber_who_is_removed_while_waiting(
    room: Channel, store: ChannelStore, other: penstock.Penstock
) -> None:
    alice, bob = await room.subscribe("alice"), await room.subscribe("bob")
    polls = [asyncio.create_task(each.fetch(timeout_ms=LONG_MS)) for each in (alice, bob)]
    await until(lambda: store.waiting == 2)
    assert await other.channel("room").subscription("alice").unsubscribe()
    with pytest.raises(SubscriptionNotFoundError):
        await asyncio.wait_for(polls[0], 10)
    assert not polls[1].done()
    await room.publish("m1", 1)
    assert ids(await polls[1]) == ["m1"]


async def test_release_answers_everybody(room: Channel, store: ChannelStore) -> None:
    alice = await room.subscribe("alice")
    polls = [asyncio.create_task(alice.fetch(timeout_ms=LONG_MS)) for _ in range(5)]
    await until(lambda: store.waiting == 5)
    store.release()
    assert await asyncio.wait_for(asyncio.gather(*polls), 10) == [((), False, None)] * 5
    # From now on nobody waits, and what is there is given all the same.
    assert await asyncio.wait_for(alice.fetch(timeout_ms=LONG_MS), 10) == ((), False, None)
    await room.publish("m1", 1)
    assert ids(await alice.fetch(timeout_ms=LONG_MS)) == ["m1"]


async def test_closing_the_client_ends_polls(url: str) -> None:
    async with penstock.open(url) as ps:
        alice = await ps.channel("room").subscribe("alice")
        poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
        await until(lambda: ps._channels.waiting == 1)
    assert await asyncio.wait_for(poll, 10) == ((), False, None)


@only_on("embedded", "server")
async def test_a_poll_keeps_its_subscriber_alive(
    store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for longer than the subscriber would live without being used."""
    monkeypatch.setattr(keys, "GRACE_MS", 0)
    short = Channel(store, "room", 3_000)
    alice = await short.subscribe("alice")
    begin_s = time.monotonic()
    poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
    while time.monotonic() - begin_s < 3.5:
        await asyncio.sleep(0.05)
        assert not poll.done()
    await short.publish("m1", 1)
    assert ids(await asyncio.wait_for(poll, 10)) == ["m1"]


async def test_consuming_is_a_loop_of_polls(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.publish_many(numbered(1, 5))
    seen: list[str] = []

    async def consume() -> None:
        async for message in alice.consume(2):
            seen.append(message.id)  # noqa: PERF401  (it never ends)

    async def is_acknowledged() -> bool:
        return await number_at(ps, "c.{room}.r.alice") == 5

    task = asyncio.create_task(consume())
    await until(is_acknowledged)
    assert seen == ["m1", "m2", "m3", "m4", "m5"]
    await room.publish("m6", 6)
    await until(lambda: seen[-1] == "m6")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # What was handed out last was not handled to its end, as far as anybody knows.
    await room.publish("m7", 7)
    async for message in alice.consume():
        assert message.id in ("m6", "m7")
        break
    assert ids(await alice.fetch())[-1] == "m7"


# --------------------------------------------------------------------------- across processes

_PUBLISHER = """
import asyncio, sys, penstock

async def main():
    async with penstock.open(sys.argv[1]) as ps:
        print("ready", flush=True)
        for line in sys.stdin:
            await ps.channel("room").publish(line.strip(), line.strip())

asyncio.run(main())
"""


@only_on("embedded", "server", "cluster")
async def test_a_publisher_in_another_process(url: str, room: Channel, store: ChannelStore) -> None:
    alice = await room.subscribe("alice")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PUBLISHER, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
        for number in range(5):
            poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
            await until(lambda: store.waiting == 1)
            process.stdin.write(b"m%d\n" % number)
            batch = await asyncio.wait_for(poll, 10)
            assert ids(batch) == [f"m{number}"]
            await alice.ack(batch)
    finally:
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0


# ------------------------------------------------------------------- a subscription that is lost


@only_on("server", "redis")
async def test_wake_ups_that_are_lost(room: Channel, store: ChannelStore, other: penstock.Penstock) -> None:
    """The connection that hears of messages is cut while polls wait, and a message comes meanwhile."""
    subscriptions = [await room.subscribe(f"s{number}") for number in range(10)]
    for number in range(5):
        polls = [asyncio.create_task(each.fetch(timeout_ms=LONG_MS)) for each in subscriptions]
        await until(lambda: store.waiting == 10)
        await until(lambda: other.execute("CLIENT", "LIST", "TYPE", "pubsub"))
        unheard = other.transaction()  # nobody is told of the message
        unheard.execute("CLIENT", "KILL", "TYPE", "pubsub")
        unheard.execute("SET", "c.{room}.clock", number + 1)
        unheard.execute("SET", f"c.{{room}}.m.{number + 1}", f'{{"id":"m{number}","content":1}}')
        unheard.execute("SET", f"c.{{room}}.mid.m{number}", number + 1)
        assert (await unheard.all())[0] == 1
        for subscription, batch_of_one in zip(
            subscriptions, await asyncio.wait_for(asyncio.gather(*polls), 20), strict=True
        ):
            assert ids(batch_of_one) == [f"m{number}"]
            assert await subscription.ack(batch_of_one)


@only_on("cluster")
async def test_wake_ups_that_are_lost_on_a_cluster(
    room: Channel, store: ChannelStore, other: penstock.Penstock, cluster: RealCluster
) -> None:
    alice = await room.subscribe("alice")
    for number in range(5):
        poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
        await until(lambda: store.waiting == 1)
        killed = sum(node.execute("CLIENT", "KILL", "TYPE", "pubsub") for node in cluster.primaries)
        assert killed == 1
        await other.channel("room").publish(f"m{number}", number)
        batch = await asyncio.wait_for(poll, 20)
        assert ids(batch) == [f"m{number}"]
        await alice.ack(batch)


@only_on("server")
async def test_a_user_who_may_not_publish_wake_ups(ps: penstock.Penstock, url: str) -> None:
    """What was published stays published; who waits sees it at the latest when they look again."""
    await ps.execute("ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish")
    try:
        alice = await ps.channel("room").subscribe("alice")
        async with penstock.open(url.replace("redis://", "redis://mute:any@")) as mute:
            assert await mute.channel("room").publish("m1", 1)
            batch = await alice.fetch()
            assert ids(batch) == ["m1"]
            muted = mute.channel("room").subscription("alice")
            assert await muted.nack(batch)
            assert await muted.unsubscribe()
    finally:
        await ps.execute("ACL", "DELUSER", "mute")


async def test_the_subscription_is_given_up_when_nobody_waits(
    ps: penstock.Penstock, room: Channel, store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.waking._LINGER_S", 0.05)

    async def patterns() -> Any:
        return await ps.execute("PUBSUB", "NUMPAT")

    alice = await room.subscribe("alice")
    for number in range(3):
        poll = asyncio.create_task(alice.fetch(timeout_ms=LONG_MS))
        await until(lambda: store.waiting == 1)
        if "cluster" not in str(ps):
            assert await patterns() == 1
        await asyncio.sleep(0.1)  # longer than it lingers: it must not go while somebody waits
        await room.publish(f"m{number}", number)
        batch = await asyncio.wait_for(poll, 10)
        await alice.ack(batch)
        assert ids(batch) == [f"m{number}"]
        await until(lambda: store._wakeups._subscriber is None)

        async def nobody() -> bool:
            return "cluster" in str(ps) or await patterns() == 0

        await until(nobody)
