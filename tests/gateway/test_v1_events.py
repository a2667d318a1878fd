"""Subscriptions as server-sent events: what comes, what acknowledges it, how streams end, who may vanish."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import RealServer, find_server
from tests.gateway.harness import (
    TOKENS,
    Event,
    RawClient,
    Times,
    V1Worker,
    on_both_places,
    on_every_place,
    on_one_place,
    v1_worker,
)
from tests.places import until

EVENTS = "/v1/channels/room/subscriptions/ann/events"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[V1Worker]:
    async with v1_worker(tmp_path, storage) as worker:
        yield worker


def ids(events: list[Event]) -> list[str]:
    return [event.json["id"] for event in events]


# -------------------------------------------------------------------------------- messages


@on_both_places
async def test_messages_come_as_events_and_the_last_has_the_receipt(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish("m1", {"text": "line\nbreak", "n": 1.5})
    await worker.publish("m2", None)
    async with worker.follow(EVENTS) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.response.headers
        first, second = await stream.take(2)
        assert stream.retry_ms == 2_000
        assert first == Event("message", '{"id":"m1","content":{"text":"line\\nbreak","n":1.5}}')
        assert (second.json, second.name) == ({"id": "m2", "content": None}, "message")
        assert second.id is not None
        await worker.publish("m3", 3)
        third = await stream.next()
        assert third is not None
        assert (third.json["content"], third.id is not None) == (3, True)
    assert await worker.unread() == 3
    acked = await worker.http.post("/v1/channels/room/subscriptions/ann/ack", json={"receipt": second.id})
    assert acked.json() == {"moved": True}
    assert await worker.unread() == 1


@on_every_place
async def test_last_event_id_acknowledges_and_goes_on_behind_it(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(2)
    async with worker.follow(EVENTS) as stream:
        events = await stream.take(2)
    await worker.publish("m3", 3)
    async with worker.follow(EVENTS, {"Last-Event-ID": str(events[1].id)}) as stream:
        assert ids(await stream.take(1)) == ["m3"]
        assert await worker.unread() == 1


@on_both_places
async def test_without_last_event_id_the_same_comes_again(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(2)
    for _ in range(2):
        async with worker.follow(EVENTS) as stream:
            assert ids(await stream.take(2)) == ["m1", "m2"]


@on_both_places
@pytest.mark.parametrize(
    "last_id", ["nonsense", "eyJkZWZhdWx0IjoiIn0=", "€".encode().decode("latin-1"), "stale"]
)
async def test_a_last_event_id_that_is_wrong_breaks_nothing(worker: V1Worker, last_id: str) -> None:
    await worker.subscribe()
    if last_id == "stale":
        await worker.publish("m0", 0)
        async with worker.follow(EVENTS) as stream:
            last_id = str((await stream.take(1))[0].id)
        await worker.http.post("/v1/channels/room/subscriptions/ann/ack", json={"receipt": last_id})
    await worker.publish("m1", 1)
    async with worker.http.stream(
        "GET", EVENTS, headers=[(b"Last-Event-ID", last_id.encode("latin-1"))]
    ) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data"):
                assert json.loads(line[6:])["id"] == "m1"
                break


@on_both_places
async def test_auto_acknowledges_a_batch_when_the_next_was_fetched(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with v1_worker(tmp_path, storage, Times(heartbeat_ms=200)) as worker:
        await worker.subscribe()
        await worker.publish_many(3)
        async with worker.follow(f"{EVENTS}?ack=auto&window=2") as stream:
            assert ids(await stream.take(3)) == ["m1", "m2", "m3"]
            # The client is still there when nothing more came: it has got them.
            await stream.until_comment()
            await until(lambda: _is_read(worker))
            await worker.publish_many(4, start=4)
            assert ids(await stream.take(4)) == ["m4", "m5", "m6", "m7"]
            await stream.until_comment()
            await until(lambda: _is_read(worker))


async def _is_read(worker: V1Worker) -> bool:
    return await worker.unread() == 0


@on_both_places
async def test_create_makes_the_subscription(worker: V1Worker) -> None:
    missing = await worker.http.get(EVENTS)
    assert (missing.status_code, missing.json()["code"]) == (404, "subscription-not-found")
    async with worker.follow(f"{EVENTS}?create=true", {"Last-Event-ID": "old"}) as stream:
        await worker.publish("m1", 1)
        assert ids(await stream.take(1)) == ["m1"]


# ------------------------------------------------------------------------------------ endings


@on_every_place
async def test_a_full_window_ends_the_stream_and_coming_again_acknowledges(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(10)
    got: list[str] = []
    last_id = ""
    for _ in range(4):
        async with worker.follow(f"{EVENTS}?window=3", {"Last-Event-ID": last_id}) as stream:
            while len(got) < 10 and (event := await stream.next()) is not None:
                got.append(event.json["id"])
                last_id = event.id or last_id
    assert got == [f"m{number}" for number in range(1, 11)]
    assert await worker.unread() == 1


@on_one_place
async def test_a_stream_ends_after_its_time(worker: V1Worker) -> None:
    await worker.subscribe()
    async with worker.follow(f"{EVENTS}?for=200ms") as stream:
        assert await stream.next() is None
    await until(lambda: worker.services.waiting == 0)


@on_one_place
async def test_silence_is_filled_with_comments(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with (
        v1_worker(tmp_path, storage, Times(heartbeat_ms=50)) as worker,
        worker.follow(f"{EVENTS}?create=true") as stream,
    ):
        for _ in range(3):
            await stream.until_comment()
        await worker.publish("m1", 1)
        assert ids(await stream.take(1)) == ["m1"]


@on_both_places
async def test_removing_the_subscription_ends_the_stream(worker: V1Worker) -> None:
    await worker.subscribe()
    async with worker.follow(EVENTS) as stream:
        await until(lambda: worker.services.channels.waiting == 1)
        await worker.http.delete("/v1/channels/room/subscriptions/ann")
        end = await stream.next()
        assert end is not None
        assert (end.name, end.json["reason"]) == ("end", "subscription-removed")
        assert await stream.next() is None
    await until(lambda: worker.services.waiting == 0)


@on_both_places
async def test_a_worker_that_stops_says_so(worker: V1Worker) -> None:
    await worker.subscribe()
    async with worker.follow(EVENTS) as stream:
        await until(lambda: worker.services.channels.waiting == 1)
        stopping = asyncio.create_task(worker.stop())
        end = await stream.next()
        assert end is not None
        assert (end.name, end.json["reason"]) == ("end", "shutdown")
        assert await stream.next() is None
        await stopping


@on_one_place
async def test_a_channel_that_is_never_quiet_does_not_hold_a_worker_up(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(600)
    worker.services.life.is_stopping = True
    async with worker.follow(EVENTS) as stream:
        events = await stream.take(257)
        assert [event.name for event in events] == ["message"] * 256 + ["end"]
        assert events[-1].json["reason"] == "shutdown"
        assert await stream.next() is None


@on_one_place
async def test_a_revoked_credential_ends_the_stream(tmp_path: Path, storage: dict[str, Any]) -> None:
    times = Times(heartbeat_ms=50, credential_s=0.05)
    async with v1_worker(tmp_path, storage, times, requireTokens=True, tokens=TOKENS) as worker:
        assert worker.services.tokens is not None
        assert (await worker.http.get(f"{EVENTS}?create=true")).status_code == 401
        created = await worker.services.tokens.create("app", ["subscribe"], channels=["room"])
        headers = {"Authorization": f"Bearer {created.bearer}"}
        async with worker.follow(f"{EVENTS}?create=true", headers) as stream:
            await stream.until_comment()
            await worker.services.tokens.revoke(created.token.id)
            end = await stream.next()
            assert end is not None
            assert (end.name, end.json["reason"]) == ("end", "unauthorized")


# ------------------------------------------------------------------------------------- faults


@on_both_places
async def test_clients_that_vanish_are_forgotten(worker: V1Worker) -> None:
    await worker.subscribe()
    clients = [await RawClient.get(worker.port, EVENTS) for _ in range(20)]
    for client in clients:
        await client.until(b"retry: 2000")
    await until(lambda: worker.services.waiting == 20 and worker.services.channels.waiting == 20)
    for client in clients:
        client.vanish()
    await until(lambda: worker.services.waiting == 0 and worker.services.channels.waiting == 0)


@on_one_place
async def test_a_client_that_does_not_read_is_not_read_for(worker: V1Worker) -> None:
    """Its messages stay in the store, not in our memory."""
    await worker.subscribe()
    fetched = 0
    fetch = worker.services.channels.fetch

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal fetched
        batch = await fetch(*arguments, **options)
        fetched += len(batch.messages)
        return batch

    worker.services.channels.fetch = counted  # type: ignore[method-assign]
    for start in range(0, 2_000, 20):
        await worker.publish_many(20, start=start + 1, content="x" * 20_000)
    client = await RawClient.get(worker.port, f"{EVENTS}?window=10000")
    await client.until(b"retry")
    settled = -1
    while settled != fetched:
        settled = fetched
        await asyncio.sleep(0.3)
    assert 0 < fetched < 1_500
    # Others do not feel it.
    assert (await worker.http.get("/v1/channels/room")).status_code == 200
    client.vanish()
    await until(lambda: worker.services.waiting == 0)


async def test_a_stream_survives_a_store_that_goes_away(tmp_path: Path) -> None:
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RealServer(find_server("valkey"), options=options) as server:
        timeout = {"connect": "500ms", "read": "500ms"}
        storage = {"redis": {"singleNode": f"127.0.0.1:{server.port}", "timeout": timeout}}
        async with v1_worker(tmp_path, storage, Times(heartbeat_ms=100)) as worker:
            await worker.subscribe()
            async with worker.follow(EVENTS) as stream:
                await worker.publish("m1", 1)
                assert ids(await stream.take(1)) == ["m1"]
                await asyncio.to_thread(server.kill)
                assert (await worker.http.get(EVENTS)).status_code == 503
                for _ in range(3):
                    await stream.until_comment()
                await asyncio.to_thread(server.restart)
                await until(lambda: _is_published(worker, "m2"))
                assert ids(await stream.take(1)) == ["m2"]


async def _is_published(worker: V1Worker, message: str) -> bool:
    path = f"/v1/channels/room/messages?id={message}"
    return (await worker.http.post(path, content=b"2")).status_code in (200, 201)


@pytest.mark.slow
@on_both_places
async def test_five_hundred_streams_at_once(worker: V1Worker) -> None:
    names = [f"s{number}" for number in range(500)]
    await asyncio.gather(*(worker.services.channels.create("room", name, expire_ms=60_000) for name in names))
    paths = [f"/v1/channels/room/subscriptions/{name}/events" for name in names]
    clients = [await RawClient.get(worker.port, path) for path in paths]
    await asyncio.gather(*(client.until(b"retry: 2000") for client in clients))
    await until(lambda: worker.services.waiting == 500)
    await worker.publish("m1", {"hello": "all"})
    heads = await asyncio.gather(*(client.until(b"\nid: ") for client in clients))
    assert all(b'{"id":"m1","content":{"hello":"all"}}' in head for head in heads)
    for client in clients[:250]:
        client.vanish()
    await until(lambda: worker.services.waiting == 250)
    await worker.publish("m2", 2)
    heads = await asyncio.gather(*(client.until(b'"id":"m2"') for client in clients[250:]))
    assert len(heads) == 250
    for client in clients[250:]:
        client.vanish()
    await until(lambda: worker.services.waiting == 0 and worker.services.channels.waiting == 0)
