"""Acknowledging: which receipts count, which do nothing, which are refused, and what each leaves behind."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any

import pytest

import penstock
from penstock.channels import Channel, ChannelStore, Subscription
from penstock.channels.clocks import MAX, MIN
from penstock.channels.receipts import Mark, Seal, wrap
from penstock.errors import ReceiptError, SubscriptionNotFoundError
from tests.channels.conftest import TTL_S, ids, keys_of, number_at, numbered, set_clocks


@pytest.fixture
async def alice(room: Channel) -> Subscription:
    return await room.subscribe("alice")


async def receipt_of(subscription: Subscription, limit: int = 64) -> str:
    receipt = (await subscription.fetch(limit)).receipt
    assert receipt is not None
    return receipt


async def sealed(ps: penstock.Penstock, clock: int, message_id: str = "m1") -> str:
    """What the store would have issued to alice for a message at this clock."""
    secret: Any = await ps.execute("GET", "channels.secret")
    if secret is None:
        secret = b"0" * 64
        await ps.execute("SET", "channels.secret", secret)
    return wrap({"default": Seal("default", secret).issue("room", "alice", Mark(clock, message_id))})


def parts_of(receipt: str) -> dict[str, Any]:
    return {store: json.loads(part) for store, part in json.loads(base64.b64decode(receipt)).items()}


def packed(value: Any) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode()


# ------------------------------------------------------------------------------- which count


async def test_the_newest_takes_everything_before_it(room: Channel, alice: Subscription) -> None:
    await room.publish_many(numbered(1, 5))
    receipt = await receipt_of(alice, 3)
    assert await alice.ack(receipt)
    assert ids(await alice.fetch()) == ["m4", "m5"]


async def test_a_stale_one_changes_nothing(ps: penstock.Penstock, room: Channel, alice: Subscription) -> None:
    await room.publish_many(numbered(1, 4))
    two, four = await receipt_of(alice, 2), await receipt_of(alice)
    assert await alice.ack(four)
    for key in ("c.{room}.clock", "c.{room}.r.alice"):
        await ps.execute("EXPIRE", key, 100)
    assert [await alice.ack(two), await alice.ack(four)] == [False, False]
    assert [await alice.nack(two), await alice.nack(four, delay_ms=60_000)] == [False, False]
    for key in ("c.{room}.clock", "c.{room}.r.alice"):
        assert await ps.execute("GET", key) == b"4"
        assert 0 < await ps.execute("TTL", key) <= 100
    await room.publish("m5", 5)
    assert ids(await alice.fetch()) == ["m5"]


async def test_one_of_the_future_changes_nothing(
    ps: penstock.Penstock, room: Channel, alice: Subscription
) -> None:
    await room.publish_many(numbered(1, 2))
    assert not await alice.ack(await sealed(ps, 3, "m3"))
    assert not await alice.nack(await sealed(ps, 3, "m3"), delay_ms=60_000)
    assert await ps.execute("GET", "c.{room}.r.alice") == b"0"
    assert ids(await alice.fetch()) == ["m1", "m2"]


async def test_of_anybody_who_shares_the_store(
    room: Channel, alice: Subscription, other: penstock.Penstock
) -> None:
    await room.publish("m1", 1)
    receipt = await receipt_of(alice)
    assert await other.channel("room").subscription("alice").ack(receipt)
    assert await alice.fetch() == ((), False, None)


async def test_after_its_messages_have_expired(
    ps: penstock.Penstock, room: Channel, alice: Subscription
) -> None:
    await room.publish_many(numbered(1, 3))
    receipt = await receipt_of(alice, 2)
    for key in ("m.1", "m.2", "mid.m1", "mid.m2"):
        await ps.execute("DEL", "c.{room}." + key)
    assert await alice.ack(receipt)
    assert ids(await alice.fetch()) == ["m3"]


# ---------------------------------------------------------------------------- which are refused


async def test_foreign_ones(ps: penstock.Penstock, room: Channel, store: ChannelStore) -> None:
    alice, bob = await room.subscribe("alice"), await room.subscribe("bob")
    elsewhere = await Channel(store, "attic").subscribe("alice")
    await room.publish("m1", 1)
    await Channel(store, "attic").publish("m1", 1)
    receipt = await receipt_of(alice)
    for foreign in (bob, elsewhere, room.subscription("nobody"), Channel(store, "no").subscription("alice")):
        name, channel = foreign.subscriber, foreign.channel.name
        text = f"the receipt was not issued for subscriber '{name}' of channel '{channel}'"
        with pytest.raises(ReceiptError, match=text):
            await foreign.ack(receipt)
        with pytest.raises(ReceiptError, match=text):
            await foreign.nack(receipt, delay_ms=60_000)
    assert ids(await bob.fetch()) == ids(await elsewhere.fetch()) == ["m1"]
    assert await alice.ack(receipt)


async def test_for_a_subscriber_who_is_gone(room: Channel, alice: Subscription) -> None:
    await room.publish("m1", 1)
    receipt = await receipt_of(alice)
    await alice.unsubscribe()
    with pytest.raises(SubscriptionNotFoundError):
        await alice.ack(receipt)
    await alice.create()
    assert not await alice.ack(receipt)  # a new one has begun behind it


async def test_forged_and_tampered_ones(ps: penstock.Penstock, room: Channel, alice: Subscription) -> None:
    await room.publish_many(numbered(1, 3))
    part = parts_of(await receipt_of(alice, 1))["default"]
    changed = [
        {**part, "clk": 2},
        {**part, "mid": "m2"},
        {**part, "clk": 2, "mid": "m2"},
        {**part, "xs": part["xs"][::-1]},
        {**part, "xs": part["xs"][:-1]},
        {**part, "xs": part["xs"] + "A"},
        {**part, "xs": ""},
        {**part, "xs": "é"},
    ]
    for forged in changed:
        with pytest.raises(ReceiptError, match="was not issued for subscriber 'alice'"):
            await alice.ack(packed({"default": json.dumps(forged)}))
    malformed: list[Any] = [
        {**part, "clk": MAX + 1},
        {**part, "clk": MIN - 1},
        {**part, "clk": 10**30},
        {**part, "clk": 1.5},
        {**part, "clk": "1"},
        {**part, "mid": "M 1"},
        {**part, "mid": None},
        {**part, "more": 1},
        {"clk": 1, "xs": part["xs"]},
        {},
        [],
        None,
    ]
    for forged in malformed:
        with pytest.raises(ReceiptError, match="does not decode; send it back as it came"):
            await alice.ack(packed({"default": json.dumps(forged)}))
    assert await ps.execute("GET", "c.{room}.r.alice") == b"0"


async def test_a_checksum_that_anybody_can_make_is_not_enough(room: Channel, alice: Subscription) -> None:
    """The handles of DSPS carry a CRC: whoever knows the algorithm can make one."""
    await room.publish("m1", 1)
    text = b"\0".join([b"dsps.storage.redis", b"room", b"alice", struct.pack(">q", 1)])
    xs = base64.b64encode(struct.pack(">I", binascii.crc32(text))).rstrip(b"=").decode()
    for part in ({"clk": 1, "xs": xs}, {"clk": 1, "mid": "m1", "xs": xs}):
        with pytest.raises(ReceiptError):
            await alice.ack(packed({"default": json.dumps(part)}))
    assert ids(await alice.fetch()) == ["m1"]


MALFORMED = {
    "no Base64": "!",
    "no Base64 at the end": "e30=!",
    "cut": "e30",
    "not ASCII": "é30=",
    "empty": "",
    "of another alphabet": "_-__",
    "no JSON": packed(b"{"),
    "no UTF-8": packed(b'{"default":"\xff"}'),
    "a list": packed([]),
    "a number": packed(1),
    "parts that are no text": packed({"default": 1}),
    "a part of null": packed({"default": None}),
    "deep": packed(b"[" * 5_000),
}


async def test_what_is_no_receipt_at_all(room: Channel, alice: Subscription) -> None:
    await room.publish("m1", 1)
    for why, receipt in MALFORMED.items():
        for call in (alice.ack, alice.nack):
            with pytest.raises(ReceiptError, match="does not decode; send it back as it came"):
                await call(receipt)
                pytest.fail(f"accepted: {why}")
    with pytest.raises(ReceiptError, match="too long to be one"):
        await alice.ack("A" * 20_000)
    assert ids(await alice.fetch()) == ["m1"]


async def test_empty_objects_null_and_unknown_stores(room: Channel, alice: Subscription) -> None:
    await room.publish("m1", 1)
    own = json.loads(base64.b64decode(await receipt_of(alice)))["default"]
    for subscription in (alice, room.subscription("nobody")):
        with pytest.raises(ReceiptError, match="the receipt is empty; send it back as it came"):
            await subscription.ack(packed({}))
        with pytest.raises(ReceiptError, match="does not decode"):
            await subscription.ack(packed(None))
        with pytest.raises(ReceiptError, match="the receipt has nothing of store 'default'"):
            await subscription.ack(packed({"elsewhere": own}))
    assert await alice.ack(packed({"elsewhere": "whatever", "default": own}))


async def test_stores_of_other_names_and_secrets(ps: penstock.Penstock) -> None:
    async def fetch(store: ChannelStore) -> str:
        subscription = await Channel(store, "room").subscribe("alice")
        await Channel(store, "room").publish("m1", 1)
        return await receipt_of(subscription)

    one, two = ChannelStore(ps, "one", b"secret"), ChannelStore(ps, "two", b"secret")
    same, stranger = ChannelStore(ps, "one", b"secret"), ChannelStore(ps, "one", b"other")
    receipt = await fetch(one)
    assert list(parts_of(receipt)) == ["one"]
    with pytest.raises(ReceiptError, match="nothing of store 'two'"):
        await Channel(two, "room").subscription("alice").ack(receipt)
    renamed = base64.b64encode(base64.b64decode(receipt).replace(b'"one"', b'"two"')).decode()
    with pytest.raises(ReceiptError, match="was not issued"):
        await Channel(two, "room").subscription("alice").ack(renamed)
    with pytest.raises(ReceiptError, match="was not issued"):
        await Channel(stranger, "room").subscription("alice").ack(receipt)
    assert await Channel(same, "room").subscription("alice").ack(receipt)
    assert "channels.secret" not in await keys_of(ps)


async def test_a_receipt_survives_a_url(room: Channel, alice: Subscription) -> None:
    for number in range(50):
        await room.publish(f"id_{number}-x", number)
        assert set(await receipt_of(alice)) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789="
        )


# -------------------------------------------------------------------------------- boundaries

BOUNDARIES = [
    # cursor, clock, acknowledged, whether it moves
    (10, 20, 9, False),
    (10, 20, 10, False),
    (10, 20, 11, True),
    (10, 20, 19, True),
    (10, 20, 20, True),
    (10, 20, 21, False),
    (10, 10, 10, False),
    (10, 10, 11, False),
    (MAX - 2, MIN + 2, MAX - 3, False),
    (MAX - 2, MIN + 2, MAX - 2, False),
    (MAX - 2, MIN + 2, MAX - 1, True),
    (MAX - 2, MIN + 2, MAX, True),
    (MAX - 2, MIN + 2, MIN, True),
    (MAX - 2, MIN + 2, MIN + 2, True),
    (MAX - 2, MIN + 2, MIN + 3, False),
    (MAX - 2, MIN + 2, 0, False),
    (MAX, MIN, MIN, True),
    (MAX, MIN, MAX, False),
]


async def test_the_boundaries_of_an_acknowledgement(ps: penstock.Penstock, room: Channel) -> None:
    alice = room.subscription("alice")
    assert len(BOUNDARIES) == 18
    for cursor, clock, acknowledged, moves in BOUNDARIES:
        await set_clocks(ps, "room", clock, alice=cursor)
        for key in ("clock", "r.alice"):
            await ps.execute("EXPIRE", "c.{room}." + key, 100)
        case = (cursor, clock, acknowledged)
        assert await alice.ack(await sealed(ps, acknowledged)) is moves, case
        assert await number_at(ps, "c.{room}.r.alice") == (acknowledged if moves else cursor), case
        assert await number_at(ps, "c.{room}.clock") == clock, case
        for key in ("clock", "r.alice"):
            ttl_s: Any = await ps.execute("TTL", "c.{room}." + key)
            assert (ttl_s > 100) is moves, case
            assert ttl_s <= TTL_S, case


# ----------------------------------------------------------------- a channel of the same name


async def forget(ps: penstock.Penstock) -> None:
    """The channel expires."""
    for key in await keys_of(ps):
        if key.startswith("c.{room}."):
            await ps.execute("DEL", key)


async def test_an_old_receipt_in_a_channel_that_was_made_again(
    ps: penstock.Penstock, room: Channel, alice: Subscription
) -> None:
    await room.publish_many(numbered(1, 2))
    receipt = await receipt_of(alice)
    await forget(ps)
    with pytest.raises(SubscriptionNotFoundError):
        await alice.ack(receipt)

    await alice.create()
    assert not await alice.ack(receipt)
    await room.publish_many([("n1", 1), ("n2", 2), ("n3", 3)])
    assert not await alice.ack(receipt)  # its clock is that of n2
    assert not await alice.nack(receipt, delay_ms=60_000)
    assert ids(await alice.fetch()) == ["n1", "n2", "n3"]
    await room.publish("m2", 2)  # its id has another clock
    assert not await alice.ack(receipt)
    assert not await alice.nack(receipt, delay_ms=60_000)
    assert ids(await alice.fetch()) == ["n1", "n2", "n3", "m2"]
