"""Subscriptions over WebSockets: frames, windows, credentials, and every way in which a socket ends."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from websockets.exceptions import InvalidStatus

from tests.gateway.harness import (
    TOKENS,
    Socket,
    Times,
    V1Worker,
    on_both_places,
    on_every_place,
    on_one_place,
    v1_worker,
)
from tests.places import until
from tests.unit.gateway.auth.signing import ISSUER, SECRET


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[V1Worker]:
    async with v1_worker(tmp_path, storage) as worker:
        yield worker


def ids(frame: dict[str, Any]) -> list[str]:
    assert frame["type"] == "messages", frame
    return [message["id"] for message in frame["messages"]]


async def refused(worker: V1Worker, query: str = "", **options: Any) -> tuple[int, str]:
    """Status and code of the answer to a socket that was not opened."""
    with pytest.raises(InvalidStatus) as caught:
        async with worker.socket(query, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}").get("code", "")


# --------------------------------------------------------------------------------- messages


@on_every_place
async def test_messages_are_acknowledged_by_receipts(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish("m1", {"n": 1.5})
    async with worker.socket() as ann:
        assert ann.client.subprotocol == "penstock.v1"
        first = await ann.next()
        assert first["messages"] == [{"id": "m1", "content": {"n": 1.5}, "clock": 1}]
        assert first["more"] is False
        await worker.publish("m2", 2)
        second = await ann.next()
        assert ids(second) == ["m2"]
        await ann.send("ack", receipt=first["receipt"])
        assert await ann.next() == {"type": "acked", "receipt": first["receipt"], "moved": True}
        assert await worker.unread() == 1
        await ann.send("ack", receipt=first["receipt"])
        assert (await ann.next())["moved"] is False
    async with worker.socket() as ann:
        assert ids(await ann.next()) == ["m2"]


@on_both_places
async def test_a_full_window_waits_for_acknowledgements(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, Times(heartbeat_ms=100)) as worker:
        await worker.subscribe()
        await worker.publish_many(10)
        async with worker.socket("?window=4") as ann:
            got = await ann.next()
            assert (ids(got), got["more"]) == (["m1", "m2", "m3", "m4"], True)
            # Nothing but signs of life until there is room.
            for _ in range(3):
                assert (await ann.next())["type"] == "heartbeat"
            received = ids(got)
            while len(received) < 10:
                await ann.send("ack", receipt=got["receipt"])
                got = await ann.next("messages")
                received += ids(got)
                assert len(got["messages"]) <= 4
            assert received == [f"m{number}" for number in range(1, 11)]
            await ann.send("ack", receipt=got["receipt"])
            assert (await ann.next("acked"))["moved"] is True
        assert await worker.unread() == 0


@on_one_place
async def test_a_window_counts_what_is_out_already(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(3)
    async with worker.socket("?window=4") as ann:
        assert len(ids(await ann.next())) == 3
        await worker.publish_many(3, start=4)
        last = await ann.next()
        assert (ids(last), last["more"]) == (["m4"], True)
        await ann.send("ack", receipt=last["receipt"])
        assert ids(await ann.next("messages")) == ["m5", "m6"]


@on_every_place
async def test_nack_brings_the_same_again(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(2)
    async with worker.socket("?window=2") as ann:
        first = await ann.next()
        await ann.send("nack", receipt=first["receipt"], delay_ms=150)
        assert await ann.next("nacked") == {"type": "nacked", "receipt": first["receipt"], "returned": True}
        again = await ann.next("messages")
        assert ids(again) == ["m1", "m2"]
        await ann.send("ack", receipt=again["receipt"])
        await ann.next("acked")
        await ann.send("nack", receipt=again["receipt"])
        assert (await ann.next("nacked"))["returned"] is False
        await worker.publish("m3", 3)
        assert ids(await ann.next("messages")) == ["m3"]


@on_both_places
async def test_publishing_over_a_socket(worker: V1Worker) -> None:
    async with worker.socket("?create=true") as ann:
        await ann.send("publish", id="m1", content={"b": 1, "a": [1.0]})
        frames = [await ann.next(), await ann.next()]
        assert {"type": "published", "id": "m1", "duplicate": False} in frames
        assert [ids(frame) for frame in frames if frame["type"] == "messages"] == [["m1"]]
        await ann.send("publish", id="m1", content=2)
        assert await ann.next("published") == {"type": "published", "id": "m1", "duplicate": True}
        await ann.send("publish", content=None)
        assert (await ann.next("published"))["id"].startswith("msg-")
        stored = await worker.http.get("/v1/channels/room/messages/m1")
        assert stored.content == b'{"id":"m1","content":{"b":1,"a":[1.0]},"clock":1}'


@on_one_place
async def test_what_cannot_be_done_is_an_error_and_the_socket_goes_on(worker: V1Worker) -> None:
    async with worker.socket("?create=true") as ann:
        await ann.send("publish", id="NOT AN ID", content=1)
        error = await ann.next("error")
        assert (error["to"], error["id"], error["code"]) == ("publish", "NOT AN ID", "invalid-parameter")
        assert error["retryable"] is False
        await ann.send("ack", receipt="forged")
        assert (await ann.next("error"))["code"] == "receipt-malformed"
        await ann.send("nack", receipt="forged")
        assert (await ann.next("error"))["to"] == "nack"
        await ann.send("ping")
        assert (await ann.next())["type"] == "pong"


@on_one_place
async def test_a_long_batch_comes_in_pieces_and_the_last_has_the_receipt(worker: V1Worker) -> None:
    await worker.subscribe()
    for start in (1, 6):
        await worker.publish_many(5, start=start, content="x" * 150_000)
    async with worker.socket(max_size=1024 * 1024) as ann:
        got: list[str] = []
        receipts: list[str | None] = []
        while len(got) < 10:
            frame = await ann.next("messages")
            got += ids(frame)
            receipts.append(frame["receipt"])
        assert got == [f"m{number}" for number in range(1, 11)]
        assert len(receipts) > 2
        assert receipts[-1] is not None
        assert None in receipts
        await ann.send("ack", receipt=receipts[-1])
        assert (await ann.next("acked"))["moved"] is True
    assert await worker.unread() == 0


@on_one_place
async def test_silence_is_filled_with_heartbeats(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with (
        v1_worker(tmp_path, storage, Times(heartbeat_ms=50)) as worker,
        worker.socket("?create=true") as ann,
    ):
        assert [(await ann.next())["type"] for _ in range(3)] == ["heartbeat"] * 3


# ---------------------------------------------------------------------------------- opening


@on_both_places
async def test_what_is_refused_before_the_socket_opens(worker: V1Worker) -> None:
    assert await refused(worker) == (404, "subscription-not-found")
    assert await refused(worker, "?window=0") == (400, "invalid-parameter")
    assert await refused(worker, subscriber="UPPER") == (400, "invalid-parameter")
    offered = await refused(worker, "?create=true", subprotocols=["chat"])
    assert offered == (400, "subprotocol-not-supported")
    async with worker.socket("?create=true", subprotocols=None) as ann:
        assert ann.client.subprotocol is None
        await ann.send("ping")
        assert (await ann.next())["type"] == "pong"
    plain = await worker.http.get("/v1/channels/room/subscriptions/ann/socket")
    assert plain.status_code in (404, 426)


@on_one_place
async def test_a_channel_without_a_rule_has_no_socket(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, channels=[{"regex": "hall"}]) as worker:
        assert await refused(worker, "?create=true") == (404, "channel-not-configured")


@on_one_place
async def test_pages_of_other_sites_open_no_socket(tmp_path: Path, storage: dict[str, Any]) -> None:
    cors = {"cors": {"origins": ["https://friend.example"]}}
    async with v1_worker(tmp_path, storage, http=cors) as worker:
        assert await refused(worker, "?create=true", origin="https://evil.example") == (
            403,
            "origin-not-allowed",
        )
        for origin in ("https://friend.example", f"http://127.0.0.1:{worker.port}"):
            async with worker.socket("?create=true", origin=origin) as ann:
                await ann.send("ping")
                assert (await ann.next())["type"] == "pong"


@on_one_place
async def test_the_number_of_followers_is_bounded(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, http={"limits": {"idlePolls": 1}}) as worker:
        async with worker.socket("?create=true"):
            assert await refused(worker, "?create=true") == (503, "unavailable")
        await until(lambda: worker.services.waiting == 0)


# ------------------------------------------------------------------------------- credentials


@on_one_place
async def test_credentials_in_every_place_but_the_url(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, requireTokens=True, tokens=TOKENS) as worker:
        good = "reader-secret-123"
        headers = {"Authorization": f"Bearer {good}"}
        async with worker.socket("?create=true", additional_headers=headers) as ann:
            await _can_read_but_not_publish(ann)
        listed = ["penstock.v1", f"bearer.{good}"]
        async with worker.socket(subprotocols=listed, origin="https://elsewhere.example") as ann:
            assert ann.client.subprotocol == "penstock.v1"
            await _can_read_but_not_publish(ann)
        async with worker.socket() as ann:
            await ann.send("auth", token=good)
            assert (await ann.next())["type"] == "authenticated"
            await _can_read_but_not_publish(ann)
            await ann.send("auth", token="all-rights-secret")
            assert (await ann.next())["type"] == "authenticated"
            await ann.send("publish", id="m1", content=1)
            assert (await ann.next("published"))["duplicate"] is False
        bad = ["penstock.v1", "bearer.wrong"]
        assert await refused(worker, subprotocols=bad) == (403, "auth-invalid")


async def _can_read_but_not_publish(ann: Socket) -> None:
    await ann.send("publish", id="x", content=1)
    error = await ann.next("error")
    assert (error["to"], error["code"]) == ("publish", "auth-forbidden")


@on_one_place
async def test_a_jwt_opens_the_channel_it_was_issued_for(tmp_path: Path, storage: dict[str, Any]) -> None:
    (tmp_path / "key").write_bytes(SECRET)
    rule = {
        "iss": [ISSUER],
        "keys": {"HS256": [str(tmp_path / "key")]},
        "claims": {"room": "{{.channel.id}}"},
    }
    channels = [{"regex": "(?P<id>.+)", "jwt": rule}]
    async with v1_worker(tmp_path, storage, channels=channels) as worker:
        good, other = (
            jwt.encode({"iss": ISSUER, "exp": time.time() + 60, "room": room}, SECRET, "HS256")
            for room in ("room", "hall")
        )
        async with worker.socket("?create=true", subprotocols=["penstock.v1", f"bearer.{good}"]) as ann:
            await ann.send("publish", id="m1", content=1)
            assert (await ann.next("published"))["id"] == "m1"
        async with worker.socket() as ann:
            await ann.send("auth", token=good)
            assert ids(await ann.next("messages")) == ["m1"]
        assert await refused(worker, subprotocols=["penstock.v1", f"bearer.{other}"]) == (403, "auth-invalid")
        events = "/v1/channels/room/subscriptions/ann/events"
        assert (await worker.http.get(events)).status_code == 401
        async with worker.follow(events, {"Authorization": f"Bearer {good}"}) as stream:
            assert [event.json["id"] for event in await stream.take(1)] == ["m1"]


@on_one_place
@pytest.mark.parametrize(
    "first", [{"type": "auth", "token": "wrong"}, {"type": "ping"}, {"type": "publish", "content": 1}, None]
)
async def test_no_or_a_bad_credential_ends_the_socket(
    tmp_path: Path, storage: dict[str, Any], first: dict[str, Any] | None
) -> None:
    times = Times(auth_timeout_s=0.2)
    async with v1_worker(tmp_path, storage, times, requireTokens=True, tokens=TOKENS) as worker:
        async with worker.socket("?create=true") as ann:
            if first is not None:
                await ann.client.send(json.dumps(first))
            code, reason = await ann.closed()
            assert code == 1008
            assert reason is not None
            assert "auth" in reason
        assert await worker.services.channels.info("room") is None


@on_one_place
async def test_a_credential_that_expires_ends_the_socket(tmp_path: Path, storage: dict[str, Any]) -> None:
    times = Times(heartbeat_ms=50, credential_s=0.05)
    async with v1_worker(tmp_path, storage, times, requireTokens=True, tokens=TOKENS) as worker:
        assert worker.services.tokens is not None
        created = await worker.services.tokens.create("app", ["subscribe"], channels=["room"])
        async with worker.socket(
            "?create=true&window=1", subprotocols=["penstock.v1", f"bearer.{created.bearer}"]
        ) as ann:
            # Also a socket whose window is full is looked at.
            await worker.services.channels.publish("room", [("m1", b"1")], expire_ms=60_000)
            await ann.next("messages")
            await worker.services.tokens.revoke(created.token.id)
            code, reason = await ann.closed()
            assert (code, (reason or "").split(":")[0]) == (1008, "unauthorized")


# ----------------------------------------------------------------------------------- endings


@on_one_place
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"bytes", 1003),
        ("not json", 1003),
        ('{"type":"unknown"}', 1008),
        ('{"type":"ack"}', 1008),
        ('{"type":"ack","receipt":1}', 1008),
        ('{"type":"nack","receipt":"x","delay_ms":-5}', 1008),
        ("[]", 1008),
        ('{"type":"publish","id":"a"}', 1008),
        ('{"type":"publish","content":"' + "x" * 1_100_000 + '"}', 1009),
        ('{"type":"publish","content":' + "[" * 100_000, 1003),
    ],
)
async def test_bad_frames_end_the_socket_with_a_reason(
    worker: V1Worker, frame: str | bytes, code: int
) -> None:
    async with worker.socket("?create=true") as ann:
        await ann.client.send(frame)
        closed, reason = await ann.closed()
        assert closed == code
        assert reason
    await until(lambda: worker.services.waiting == 0)


@on_both_places
async def test_a_removed_subscription_ends_the_socket(worker: V1Worker) -> None:
    await worker.subscribe()
    async with worker.socket() as ann:
        await until(lambda: worker.services.channels.waiting == 1)
        await worker.http.delete("/v1/channels/room/subscriptions/ann")
        code, reason = await ann.closed()
        assert (code, (reason or "").split(":")[0]) == (1008, "subscription-removed")


@on_both_places
async def test_a_worker_that_stops_goes_away_at_once(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish("m1", 1)
    async with worker.socket("?window=1") as full, worker.socket("?create=true", subscriber="bob") as idle:
        await full.next("messages")
        await until(lambda: worker.services.channels.waiting == 1)
        stopping = asyncio.create_task(worker.stop())
        for each in (full, idle):
            code, reason = await each.closed()
            assert (code, bool(reason)) == (1001, True)
        await stopping


@on_both_places
async def test_clients_that_vanish_free_their_places(worker: V1Worker) -> None:
    await worker.subscribe()
    clients = [await worker.socket().__aenter__() for _ in range(20)]
    await until(lambda: worker.services.waiting == 20 and worker.services.channels.waiting == 20)
    for client in clients:
        client.client.transport.abort()
    await until(lambda: worker.services.waiting == 0 and worker.services.channels.waiting == 0)


@on_one_place
@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_client_that_does_not_read_is_told_to_come_later(
    tmp_path: Path, storage: dict[str, Any], comes_back: bool
) -> None:
    async with v1_worker(tmp_path, storage, Times(send_timeout_s=3.0 if comes_back else 0.3)) as worker:
        await worker.subscribe()
        for start in range(0, 800, 20):
            await worker.publish_many(20, start=start + 1, content="x" * 20_000)
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        small.connect(("127.0.0.1", worker.port))
        small.setblocking(False)
        async with worker.socket("?window=10000", sock=small, max_queue=1) as ann:
            await ann.next("messages")
            ann.client.transport.pause_reading()
            if comes_back:
                # Our side has given up, and tries to say so.
                await until(lambda: not _is_read_from())
            else:
                await until(lambda: worker.services.waiting == 0)
            ann.client.transport.resume_reading()
            code, reason = await ann.closed()
            assert (code, reason) == ((1013, "the client does not read") if comes_back else (1006, ""))
        await until(lambda: worker.services.waiting == 0)
        # Nothing was lost.
        assert await worker.unread() == 800


def _is_read_from() -> bool:
    """Whether a session takes frames at this moment."""
    return any("Session._read" in repr(task.get_coro()) for task in asyncio.all_tasks())


@on_one_place
async def test_two_hundred_sockets_get_each_message(worker: V1Worker) -> None:
    clients = [
        await worker.socket("?create=true", subscriber=f"s{number}").__aenter__() for number in range(200)
    ]
    await until(lambda: worker.services.channels.waiting == 200)
    await worker.publish("m1", "all")
    frames = await asyncio.gather(*(client.next("messages") for client in clients))
    for client, frame in zip(clients, frames, strict=True):
        assert ids(frame) == ["m1"]
        await client.send("ack", receipt=frame["receipt"])
    await asyncio.gather(*(client.next("acked") for client in clients))
    info = await worker.services.channels.info("room")
    assert info is not None
    assert set(info.unread.values()) == {0}
    await asyncio.gather(*(client.client.close() for client in clients))
    await until(lambda: worker.services.waiting == 0)


async def test_a_store_that_is_down_opens_no_socket(tmp_path: Path) -> None:
    storage = {"redis": {"singleNode": "127.0.0.1:1", "timeout": {"connect": "200ms", "read": "300ms"}}}
    async with v1_worker(tmp_path, storage) as worker:
        assert await refused(worker) == (503, "unavailable")
