"""Outboxes: what webhooks wait for, kept with the message, dropped when handed on, forgotten when idle."""

from __future__ import annotations

import penstock
from penstock.channels import ChannelStore

EXPIRE_MS = 60_000
LONG_AGO_S = 7_200


async def test_an_outbox_holds_new_messages_until_they_are_handed_on(store: ChannelStore) -> None:
    messages = [("m1", b"1"), ("m2", b"2")]
    assert await store.publish("room", messages, expire_ms=EXPIRE_MS, outbox=True) == [True, True]
    assert await store.publish("room", messages, expire_ms=EXPIRE_MS, outbox=True) == [False, False]
    assert await store.publish("room", [("m3", b"3")], expire_ms=EXPIRE_MS) == [True]
    entries = [b'1 {"id":"m1","content":1}', b'2 {"id":"m2","content":2}']
    assert await store.read_outbox("room", 10) == entries
    assert await store.outboxes() == ["room"]
    assert await store.forwarded("room", entries[:1]) == 1
    assert await store.forwarded("room", entries[:1]) == 1, "somebody else had handed it on"
    assert await store.read_outbox("room", 10) == entries[1:]


async def test_an_outbox_is_forgotten_only_when_its_channel_was_silent_for_long(
    ps: penstock.Penstock, store: ChannelStore
) -> None:
    await store.publish("room", [("m1", b"1")], expire_ms=EXPIRE_MS, outbox=True)
    await store.forget_outbox("room")
    assert await store.outboxes() == ["room"]
    await ps.execute("ZINCRBY", "channels.outboxes", -LONG_AGO_S, "room")
    await store.forget_outbox("room")
    assert await store.outboxes() == []
