"""What messages, fetches and handles of the DSPS API mean, over HTTP; and faults that must not be there."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable
from time import monotonic
from typing import Any

from tests.gateway.conftest import Answer, Connection, Start, Worker, polling
from tests.places import until

MALFORMED = "dsps.storage.ack-handle-malformed"


async def publish_many(gateway: Worker, count: int, first: int = 0) -> list[str]:
    ids = [f"m-{number}" for number in range(first, first + count)]
    for each in ids:
        assert (await gateway.publish(each, b'"%b"' % each.encode())).status == 200
    return ids


async def waiting(gateway: Worker, polls: int = 1) -> None:
    """Until so many long polls wait in the store."""
    await until(lambda: gateway.services.channels.waiting == polls)


async def started(work: Awaitable[Answer], gateway: Worker) -> asyncio.Task[Answer]:
    """A long poll that waits."""
    task = asyncio.ensure_future(work)
    await waiting(gateway)
    return task


# ----------------------------------------------------------------------------- publishing


async def test_publishing_needs_no_subscriber_and_later_ones_start_at_the_end(gateway: Worker) -> None:
    assert (await gateway.publish("m-1")).status == 200
    await gateway.subscribe()
    assert await gateway.ids() == []
    await gateway.publish("m-2")
    assert await gateway.ids() == ["m-2"]


async def test_subscribing_again_changes_nothing_and_anew_starts_at_the_end(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    await gateway.subscribe()
    assert await gateway.ids() == ["m-1"]
    await gateway.unsubscribe()
    await gateway.subscribe()
    assert await gateway.ids() == []


async def test_a_duplicate_is_the_same_answer_and_the_first_content_stays(gateway: Worker) -> None:
    await gateway.subscribe()
    first, second = await gateway.publish("m-1", b'"first"'), await gateway.publish("m-1", b'"second"')
    assert (first.status, first.body) == (second.status, second.body)
    fields = (await gateway.fetch()).json
    assert fields["messages"] == [{"content": "first", "messageID": "m-1"}]
    await gateway.ack(fields["ackHandle"])
    await gateway.publish("m-1", b'"third"')
    assert await gateway.ids() == [], "an acknowledged message does not rise again"


async def test_ids_are_of_their_channel(gateway: Worker) -> None:
    await gateway.subscribe(channel="a")
    await gateway.subscribe(channel="b")
    await gateway.publish("m-1", b"1", "a")
    await gateway.publish("m-1", b"2", "b")
    for channel, content in (("a", 1), ("b", 2)):
        assert [each["content"] for each in (await gateway.fetch(channel=channel)).json["messages"]] == [
            content
        ]


# -------------------------------------------------------------------------------- fetching


async def test_the_same_comes_again_until_it_is_acknowledged(gateway: Worker) -> None:
    await gateway.subscribe()
    ids = await publish_many(gateway, 5)
    assert [await gateway.ids() for _ in range(3)] == [ids] * 3
    fields = (await gateway.fetch("?max=2")).json
    assert fields["moreMessages"] is True
    await publish_many(gateway, 1, first=5)
    assert (await gateway.ack(fields["ackHandle"])).status == 204
    assert await gateway.ids() == ["m-2", "m-3", "m-4", "m-5"]


async def test_more_messages(gateway: Worker) -> None:
    await gateway.subscribe()
    await publish_many(gateway, 16)
    for limit, more in ((15, True), (16, False), (17, False)):
        assert (await gateway.fetch(f"?max={limit}")).json["moreMessages"] is more


async def test_subscribers_are_independent(gateway: Worker) -> None:
    await gateway.subscribe("ann")
    await gateway.publish("m-1")
    await gateway.subscribe("bob")
    await gateway.publish("m-2")
    handle = (await gateway.fetch(subscriber="ann")).json["ackHandle"]
    await gateway.ack(handle, "ann")
    assert await gateway.ids(subscriber="ann") == []
    assert await gateway.ids(subscriber="bob") == ["m-2"]


async def test_a_long_poll_is_answered_by_the_first_message(gateway: Worker) -> None:
    await gateway.subscribe()
    poll = await started(gateway.fetch("?timeout=20s"), gateway)
    began = monotonic()
    await gateway.publish("m-1")
    assert [each["messageID"] for each in (await poll).json["messages"]] == ["m-1"]
    assert monotonic() - began < 15


async def test_a_long_poll_hears_what_another_worker_is_given(start: Start) -> None:
    here, there = await start(), await start()
    await there.subscribe()
    poll = await started(here.fetch("?timeout=20s"), here)
    await there.publish("m-1")
    assert [each["messageID"] for each in (await poll).json["messages"]] == ["m-1"]


async def test_a_long_poll_does_not_end_before_its_time(gateway: Worker) -> None:
    await gateway.subscribe()
    began = monotonic()
    poll = await started(gateway.fetch("?timeout=700ms"), gateway)
    await gateway.publish("m-1", channel="another")
    await gateway.subscribe("bob")
    assert (await poll).json == {"channelID": "room", "messages": [], "moreMessages": False}
    assert 0.69 <= monotonic() - began < 10


async def test_a_long_poll_with_something_to_give_does_not_wait(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    answer = await gateway.fetch("?timeout=20s", limit_s=5)
    assert len(answer.json["messages"]) == 1


async def test_no_message_is_missed_between_two_polls(gateway: Worker) -> None:
    """Publishing all the time, polling all the time: everything comes, in order."""
    await gateway.subscribe()
    publishing = asyncio.create_task(publish_many(gateway, 100))
    seen: list[str] = []
    while len(seen) < 100:
        fields = (await gateway.fetch("?timeout=10s&max=7", limit_s=9)).json
        seen += [each["messageID"] for each in fields["messages"]]
        await gateway.ack(fields["ackHandle"])
    assert seen == await publishing


async def test_a_subscriber_that_is_removed_ends_its_polls(gateway: Worker) -> None:
    await gateway.subscribe()
    poll = await started(gateway.fetch("?timeout=20s"), gateway)
    await gateway.unsubscribe()
    answer = await asyncio.wait_for(poll, 5)
    assert (answer.status, answer.json["code"]) == (404, "dsps.storage.subscription-not-found")


async def test_a_worker_that_stops_answers_its_polls(gateway: Worker) -> None:
    await gateway.subscribe()
    poll = await started(gateway.fetch("?timeout=20s"), gateway)
    gateway.services.channels.release()
    answer = await asyncio.wait_for(poll, 5)
    assert (answer.status, answer.json["messages"], answer.json["moreMessages"]) == (200, [], False)


# --------------------------------------------------------------------------------- handles


def handle_of(value: Any) -> str:
    return base64.b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()


def forged(
    kind: str, mark: dict[str, Any], last: bytes, channel: str = "room", subscriber: str = "ann"
) -> str:
    """A handle with the checksum that everybody can compute."""
    crc = binascii.crc32(b"\0".join([kind.encode(), channel.encode(), subscriber.encode(), last]))
    xs = base64.b64encode(crc.to_bytes(4, "big")).rstrip(b"=").decode()
    return handle_of({"default": json.dumps({**mark, "xs": xs}, separators=(",", ":"))})


async def test_a_handle_is_base64_of_a_part_for_each_storage(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    handle = (await gateway.fetch()).json["ackHandle"]
    assert handle.rstrip("=").isalnum(), "it survives a URL as it is"
    parts = json.loads(base64.b64decode(handle, validate=True))
    assert parts.keys() == {"default"}
    assert isinstance(parts["default"], str)


async def test_newest_stale_and_partial_handles(gateway: Worker) -> None:
    await gateway.subscribe()
    await publish_many(gateway, 4)
    first = (await gateway.fetch("?max=1")).json["ackHandle"]
    third = (await gateway.fetch("?max=3")).json["ackHandle"]
    for handle, left in ((third, ["m-3"]), (third, ["m-3"]), (first, ["m-3"])):
        answer = await gateway.ack(handle)
        assert (answer.status, answer.body) == (204, b"")
        assert await gateway.ids() == left


async def test_a_handle_of_an_earlier_life_changes_nothing(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.publish("m-1")
    handle = (await gateway.fetch()).json["ackHandle"]
    await gateway.unsubscribe()
    await gateway.subscribe()
    await gateway.publish("m-2")
    assert (await gateway.ack(handle)).status == 204
    assert await gateway.ids() == ["m-2"]


async def test_a_handle_of_somebody_else(gateway: Worker) -> None:
    await gateway.subscribe()
    await gateway.subscribe("bob")
    await gateway.subscribe(channel="hall")
    await gateway.publish("m-1")
    await gateway.publish("m-1", channel="hall")
    handle = (await gateway.fetch()).json["ackHandle"]
    for subscriber, channel in (("bob", "room"), ("ann", "hall"), ("nobody", "room"), ("ann", "nowhere")):
        answer = await gateway.ack(handle, subscriber, channel)
        assert (answer.status, answer.json["code"]) == (400, MALFORMED)
    assert await gateway.ids(subscriber="bob") == ["m-1"]
    assert await gateway.ids(channel="hall") == ["m-1"]


async def test_handles_that_nobody_gave(gateway: Worker) -> None:
    await gateway.subscribe()
    await publish_many(gateway, 3)
    real = (await gateway.fetch("?max=1")).json["ackHandle"]
    part = json.loads(json.loads(base64.b64decode(real))["default"])
    handles = [
        "nonsense", "=", "a", "%%%", real[:-4], real[:-1] + "!", real + "AAAA", " " + real, "x" * 20_000,
        base64.b64encode(b"not json").decode(), base64.b64encode(b"\xff\xfe").decode(),
        *map(handle_of, ({}, None, [], 1, "text", {"default": 1}, {"default": None}, {"default": ""})),
        handle_of({"other": "x"}),
        handle_of({"default": "{}"}),
        handle_of({"default": json.dumps({**part, "clk": part["clk"] + 1})}),
        handle_of({"default": json.dumps({**part, "mid": "m-2"})}),
        handle_of({"default": json.dumps({**part, "xs": "AAAAAAAAAAAAAAAA"})}),
        handle_of({"other": json.loads(base64.b64decode(real))["default"]}),
        forged("dsps.storage.redis", {"clk": 2}, (2).to_bytes(8, "big", signed=True)),
        forged("dsps.storage.redis", {"clk": 99}, (99).to_bytes(8, "big", signed=True)),
        forged("dsps.storage.on-memory", {"mid": "m-1"}, b"m-1"),
    ]  # fmt: skip
    for handle in handles:
        answer = await gateway.ack(handle)
        assert (answer.status, answer.json["code"]) == (400, MALFORMED), handle[:200]
    assert await gateway.ids() == ["m-0", "m-1", "m-2"], "nothing has moved"
    assert (await gateway.ack(real)).status == 204


async def test_an_empty_handle_for_nobody_is_no_success(gateway: Worker) -> None:
    for value in ({}, None, {"other": "x"}):
        answer = await gateway.ack(handle_of(value), "nobody")
        assert answer.status in (400, 404)


async def test_a_handle_with_its_plus_signs_unescaped(start: Start) -> None:
    """Names of storages may bring them in; a query turns them into spaces."""
    gateway = await start()
    await gateway.subscribe()
    await gateway.publish("m-1")
    handle = (await gateway.fetch()).json["ackHandle"]
    answer = await gateway.ask("DELETE", f"{polling()}/message?ackHandle={handle}")
    assert answer.status == 204
    assert await gateway.ids() == []


async def test_a_handle_is_good_on_every_worker(start: Start) -> None:
    here, there = await start(), await start()
    await here.subscribe()
    await here.publish("m-1")
    handle = (await here.fetch()).json["ackHandle"]
    assert (await there.ack(handle)).status == 204
    assert await here.ids() == []


# ----------------------------------------------------------- faults that must not be there


async def test_expired_messages_do_not_hide_those_behind_them(gateway: Worker) -> None:
    """The oldest bodies are gone before the subscriber read them, as many as a fetch gives and more."""
    await gateway.subscribe()
    await publish_many(gateway, 200)
    keys = [f"c.{{room}}.m.{clock}" for clock in range(1, 191)]
    assert await gateway.services.store.execute("DEL", *keys) == 190
    answer = await gateway.fetch("?max=4")
    assert [each["messageID"] for each in answer.json["messages"]] == [
        f"m-{number}" for number in range(190, 194)
    ]
    assert answer.json["moreMessages"] is True
    assert (await gateway.ack(answer.json["ackHandle"])).status == 204
    assert len(await gateway.ids()) == 6


async def test_all_expired_is_nothing_and_the_next_one_comes(gateway: Worker) -> None:
    await gateway.subscribe()
    await publish_many(gateway, 10)
    await gateway.services.store.execute("DEL", *(f"c.{{room}}.m.{clock}" for clock in range(1, 11)))
    assert (await gateway.fetch("?max=3")).json == {
        "channelID": "room",
        "messages": [],
        "moreMessages": False,
    }
    poll = await started(gateway.fetch("?max=3&timeout=20s"), gateway)
    await gateway.publish("late")
    assert [each["messageID"] for each in (await poll).json["messages"]] == ["late"]


async def test_limits_that_would_break_others(gateway: Worker) -> None:
    await gateway.subscribe()
    await publish_many(gateway, 2)
    assert (await gateway.fetch("?max=-1")).status == 400
    assert await gateway.ids("?max=9223372036854775807") == ["m-0", "m-1"]
    assert await gateway.ids() == ["m-0", "m-1"]


# ---------------------------------------------------------------------- a client of browsers


async def test_what_the_javascript_client_sends(gateway: Worker) -> None:
    """Its requests in its order: cache-busters, forms that are JSON, an escaped handle, one connection."""
    form = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Accept", "application/json, text/plain, */*"),
    ]
    accept = form[1:]
    stamp = iter(range(1_600_000_000_000, 1_700_000_000_000))
    message, subscriber = "msg-0b9f6a8e-53a5-4d2b-9c3e-7a3f6a8e53a5", "s-7f6a8e53-a54d-2b9c-3e7a-3f6a8e53a50b"
    path = polling("chat", subscriber)
    async with Connection.open(gateway.port) as listener, Connection.open(gateway.port) as speaker:
        assert (await listener.ask("PUT", f"{path}?_={next(stamp)}", b"", form)).status == 200
        began = monotonic()
        listener.send("GET", f"{path}?timeout=1s&max=32&_={next(stamp)}", headers=accept)
        answer = await listener.receive()
        assert answer.json["messages"] == []
        assert monotonic() - began >= 0.99, "an empty answer before its time would make the client sleep"
        listener.send("GET", f"{path}?timeout=30s&max=32&_={next(stamp)}", headers=accept)
        await waiting(gateway)
        target = f"/channel/chat/message/{message}?_={next(stamp)}"
        assert (await speaker.ask("PUT", target, b'{"hi":"there & then"}', form)).status == 200
        fields = (await listener.receive()).json
        assert fields["messages"] == [{"content": {"hi": "there & then"}, "messageID": message}]
        handle = fields["ackHandle"].replace("=", "%3D").replace("+", "%2B").replace("/", "%2F")
        ack = await listener.ask(
            "DELETE", f"{path}/message?ackHandle={handle}&_={next(stamp)}", headers=accept
        )
        assert ack.status == 204
        left = await listener.ask("GET", f"{path}?timeout=0s&max=32&_={next(stamp)}", headers=accept)
        assert left.json["messages"] == []
        assert (await listener.ask("DELETE", f"{path}?_={next(stamp)}", headers=accept)).status == 200
        end = await listener.ask("GET", f"{path}?timeout=30s&max=32&_={next(stamp)}", headers=accept)
        assert (end.status, end.json["code"]) == (404, "dsps.storage.subscription-not-found")
