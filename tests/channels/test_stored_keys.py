"""The keys of a channel, exactly, and how long they live: whoever follows the table may share the store."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import penstock
from penstock.channels import Channel, ChannelStore
from penstock.errors import CommandError
from tests.channels.conftest import TTL_S, ids, keys_of, numbered

LOW_S = 100


async def values_of(ps: penstock.Penstock) -> dict[str, bytes]:
    return {key: bytes(await ps.execute("GET", key)) for key in await keys_of(ps) if key.startswith("c.")}


async def test_every_key_of_a_scenario(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await room.subscribe("bob")
    assert await values_of(ps) == {"c.{room}.clock": b"0", "c.{room}.r.alice": b"0", "c.{room}.r.bob": b"0"}

    await room.publish("msg123", {"text": "hello!"})
    expected = {
        "c.{room}.clock": b"1",
        "c.{room}.m.1": b'{"id":"msg123","content":{"text":"hello!"}}',
        "c.{room}.mid.msg123": b"1",
        "c.{room}.r.alice": b"0",
        "c.{room}.r.bob": b"0",
    }
    assert await values_of(ps) == expected
    batch = await alice.fetch()
    assert await values_of(ps) == expected
    assert await alice.nack(batch, delay_ms=60_000)
    assert await values_of(ps) == {**expected, "c.{room}.nack.alice": b"1"}
    assert 0 < await ps.execute("PTTL", "c.{room}.nack.alice") <= 60_000
    assert await alice.ack(batch)
    assert await values_of(ps) == {**expected, "c.{room}.r.alice": b"1"}
    assert await alice.unsubscribe()
    del expected["c.{room}.r.alice"]
    assert await values_of(ps) == expected

    assert set(await keys_of(ps)) - set(expected) == {"channels.secret"}
    assert await ps.execute("TTL", "channels.secret") == -1
    secret: Any = await ps.execute("GET", "channels.secret")
    assert len(bytes.fromhex(secret.decode())) == 32


async def test_a_store_without_receipts_has_no_secret(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    await alice.fetch()
    assert "channels.secret" not in await keys_of(ps)


@pytest.mark.parametrize(("expire_ms", "ttl_s"), [(1, 16), (1_000, 16), (1_001, 17), (30 * 60_000, TTL_S)])
async def test_the_life_of_keys_is_the_expiry_and_a_grace(
    ps: penstock.Penstock, store: ChannelStore, expire_ms: int, ttl_s: int
) -> None:
    room = Channel(store, "room", expire_ms)
    await room.subscribe("alice")
    await room.publish("m1", 1)
    for key in await keys_of(ps):
        assert ttl_s - 5 < await ps.execute("TTL", key) <= ttl_s, key


# ----------------------------------------------------------------- who renews the life of what


Operation = Callable[[Channel], Awaitable[Any]]


async def _ack_again(room: Channel) -> None:
    assert not await room.subscription("alice").ack(_RECEIPTS["stale"])


async def _ack(room: Channel) -> None:
    assert await room.subscription("alice").ack(_RECEIPTS["new"])


async def _nack(room: Channel) -> None:
    assert await room.subscription("alice").nack(_RECEIPTS["new"], delay_ms=50_000)


async def _fetch_nothing(room: Channel) -> None:
    assert not (await room.subscription("bob").fetch()).messages


async def _fetch_of_a_paused(room: Channel) -> None:
    await room.subscription("alice").nack(_RECEIPTS["new"], delay_ms=50_000)
    assert not (await room.subscription("alice").fetch()).messages


async def _remove(room: Channel) -> None:
    assert await room.subscription("alice").unsubscribe()


_RECEIPTS: dict[str, str] = {}
RENEWALS: dict[str, tuple[Operation, set[str]]] = {
    "create new": (lambda room: room.subscription("carol").create(), {"clock", "r.carol"}),
    "create existing": (lambda room: room.subscription("alice").create(), {"clock"}),
    "publish new": (lambda room: room.publish("m3", 3), {"clock", "m.3", "mid.m3"}),
    "publish duplicate": (lambda room: room.publish("m2", "x"), {"clock"}),
    "publish both": (lambda room: room.publish_many(numbered(2, 3)), {"clock", "m.3", "mid.m3"}),
    "publish nothing": (lambda room: room.publish_many([]), set()),
    "fetch": (lambda room: room.subscription("alice").fetch(), {"clock", "r.alice"}),
    "fetch nothing": (_fetch_nothing, {"clock", "r.bob"}),
    "fetch while paused": (_fetch_of_a_paused, {"clock", "r.alice"}),
    "ack": (_ack, {"clock", "r.alice"}),
    "ack stale": (_ack_again, set()),
    "nack": (_nack, set()),
    "delete": (_remove, set()),
    "delete nobody": (lambda room: room.subscription("nobody").unsubscribe(), set()),
    "backlog": (lambda room: room.subscription("alice").backlog(), set()),
    "message": (lambda room: room.message("m2"), set()),
    "info": (lambda room: room.info(), set()),
}


def of_another_process(ps: penstock.Penstock, room: Channel) -> Channel:
    """The same channel to somebody who does not remember when it was renewed last."""
    return Channel(ChannelStore(ps), room.name, room.expire_ms)


@pytest.mark.parametrize("name", RENEWALS)
async def test_who_renews_what(ps: penstock.Penstock, room: Channel, name: str) -> None:
    alice = await room.subscribe("alice")
    await room.publish("m1", 1)
    _RECEIPTS["stale"] = (await alice.fetch()).receipt or ""
    await alice.ack(_RECEIPTS["stale"])
    await room.publish("m2", 2)
    _RECEIPTS["new"] = (await alice.fetch()).receipt or ""
    await room.subscribe("bob")
    before = await values_of(ps)
    for key in before:
        await ps.execute("EXPIRE", key, LOW_S)

    operation, expected = RENEWALS[name]
    await operation(of_another_process(ps, room))

    after = await values_of(ps)
    lives: dict[str, Any] = {key: await ps.execute("TTL", key) for key in after}
    renewed = {key.removeprefix("c.{room}.") for key, ttl_s in lives.items() if ttl_s > LOW_S}
    assert renewed == expected
    assert all(0 < ttl_s <= TTL_S for ttl_s in lives.values())
    assert set(before) - set(after) == ({"c.{room}.r.alice"} if name == "delete" else set())


async def test_who_has_renewed_lately_only_reads(ps: penstock.Penstock, room: Channel) -> None:
    store = ChannelStore(ps)
    alice = await Channel(store, room.name, room.expire_ms).subscribe("alice")
    await alice.fetch()
    await ps.execute("EXPIRE", "c.{room}.r.alice", LOW_S)
    await alice.fetch()
    assert await ps.execute("TTL", "c.{room}.r.alice") <= LOW_S
    store._renewals["room", "alice"] = 0.0  # the time is over
    await alice.fetch()
    assert await ps.execute("TTL", "c.{room}.r.alice") > LOW_S


async def test_a_fetch_renews_what_has_lost_a_second(ps: penstock.Penstock, room: Channel) -> None:
    await room.subscribe("alice")
    for low in ("clock", "r.alice"):  # any of the two renews both
        for key in ("clock", "r.alice"):
            await ps.execute("PEXPIRE", "c.{room}." + key, TTL_S * 1_000)
        await ps.execute("PEXPIRE", "c.{room}." + low, TTL_S * 1_000 - 30_000)
        await of_another_process(ps, room).subscription("alice").fetch()
        assert await ps.execute("PTTL", "c.{room}." + low) > TTL_S * 1_000 - 29_000


async def test_a_fetch_that_comes_soon_writes_nothing(ps: penstock.Penstock, room: Channel) -> None:
    alice = await room.subscribe("alice")
    while True:
        begin_s = time.monotonic()
        for key in ("clock", "r.alice"):
            await ps.execute("PEXPIRE", "c.{room}." + key, TTL_S * 1_000 - 300)
        await alice.fetch()
        lives: list[Any] = [await ps.execute("PTTL", "c.{room}." + key) for key in ("clock", "r.alice")]
        if time.monotonic() - begin_s < 0.6:  # else a second has gone, and it was right to write
            break
    assert all(ttl_ms <= TTL_S * 1_000 - 300 for ttl_ms in lives)


async def test_a_shorter_expiry_leaves_subscribers_their_channel(
    ps: penstock.Penstock, store: ChannelStore
) -> None:
    """Somebody who publishes with a short expiry must not take the clock from cursors that live longer:
    a channel that counts from the start under them would look like one that went round."""
    long, short = Channel(store, "room", 3_600_000), Channel(store, "room", 1_000)
    alice = await long.subscribe("alice")
    bob = await short.subscribe("bob")
    operations: list[Callable[[], Awaitable[Any]]] = [
        lambda: short.publish("m1", 1),
        lambda: short.publish("m1", 1),
        lambda: short.subscribe("carol"),
        bob.fetch,
    ]

    async def ack() -> None:
        assert await bob.ack(await bob.fetch())

    for operation in [*operations, ack]:
        await operation()
        clock_ms: Any = await ps.execute("PTTL", "c.{room}.clock")
        cursor_ms: Any = await ps.execute("PTTL", "c.{room}.r.alice")
        assert clock_ms >= cursor_ms > 3_000_000
    assert 0 < await ps.execute("TTL", "c.{room}.m.1") <= 16
    assert ids(await alice.fetch()) == ["m1"]


# ------------------------------------------------------------------------- what others wrote


async def test_bodies_of_other_programs(ps: penstock.Penstock, room: Channel) -> None:
    """Other spaces, another order of fields."""
    alice = await room.subscribe("alice")
    bodies = [b'{ "id": "m1", "content": { "a": 1.0 } }', b'{"content":"x","id":"m2"}']
    for clock, body in enumerate(bodies, 1):
        await ps.execute("SET", f"c.{{room}}.m.{clock}", body)
        await ps.execute("SET", f"c.{{room}}.mid.m{clock}", clock)
    await ps.execute("SET", "c.{room}.clock", 2, "EX", TTL_S)
    batch = await alice.fetch()
    assert [(message.id, message.raw) for message in batch.messages] == [
        ("m1", b'{ "a": 1.0 }'),
        ("m2", b'"x"'),
    ]
    assert await alice.ack(batch)


@pytest.mark.parametrize("key", ["clock", "r.alice"])
async def test_a_clock_that_is_none_is_named(ps: penstock.Penstock, room: Channel, key: str) -> None:
    alice = await room.subscribe("alice")
    await ps.execute("SET", "c.{room}." + key, "abc")
    with pytest.raises(CommandError, match=r"CORRUPTCLOCK the value of c\.\{room\}\." + key):
        await alice.fetch()
    if key == "clock":
        with pytest.raises(CommandError, match="CORRUPTCLOCK"):
            await room.publish("m1", 1)


async def test_the_outbox(ps: penstock.Penstock, store: ChannelStore) -> None:
    one, two = b'1 {"id":"m1","content":1}', b'2 {"id":"m2","content":2}'
    assert await store.publish("room", [("m1", b"1")], expire_ms=1_000, outbox=True) == [True]
    assert await store.publish("room", [("m1", b"9"), ("m2", b"2")], expire_ms=1_000, outbox=True) == [
        False,
        True,
    ]
    assert await store.publish("room", [("m3", b"3")], expire_ms=1_000) == [True]
    assert await store.outboxes() == ["room"]
    assert await store.read_outbox("room", 10) == [one, two]
    assert await store.read_outbox("room", 1) == [one]
    assert await ps.execute("TTL", "c.{room}.out") == -1
    assert await store.forwarded("room", [two]) == 2  # not at the head: somebody else was faster
    assert await store.forwarded("room", [one]) == 1
    assert await store.forwarded("room", [one, two]) == 1
    assert await store.forwarded("room", [two]) == 0
    assert await store.read_outbox("room", 10) == []
    await store.forget_outbox("room")
    assert await store.outboxes() == ["room"]  # it may publish again without saying so
    score: Any = await ps.execute("ZSCORE", "channels.outboxes", "room")
    await ps.execute("ZADD", "channels.outboxes", float(score) - 3_700, "room")
    await store.forget_outbox("room")
    assert await store.outboxes() == []
