"""Pub/sub over HTTP: payloads as they are, patterns, losses that are told, topics that nobody may touch."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import RealServer, find_server
from tests.gateway.harness import (
    TOKENS,
    EventStream,
    RawClient,
    Times,
    V1Worker,
    on_both_places,
    on_every_place,
    on_one_place,
    v1_worker,
)
from tests.places import until

ENABLED = {"enabled": True}


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[V1Worker]:
    async with v1_worker(tmp_path, storage, pubsub=ENABLED) as worker:
        yield worker


async def heard(stream: EventStream) -> Any:
    event = await stream.next()
    assert event is not None
    assert event.name == "message", event
    return event.json


@on_both_places
async def test_what_is_published_reaches_who_listens(worker: V1Worker) -> None:
    nobody = await worker.http.post("/v1/pubsub/news", content=b"early")
    assert nobody.json() == {"receivers": 0}
    async with worker.follow("/v1/pubsub/news/events") as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        answer = await worker.http.post("/v1/pubsub/news", content=b'{"a": 1}\n')
        assert (answer.status_code, answer.json()) == (200, {"receivers": 1})
        assert await heard(stream) == {"topic": "news", "data": '{"a": 1}\n'}
        await worker.http.post("/v1/pubsub/news", content=b"\xff\x00raw")
        assert await heard(stream) == {
            "topic": "news",
            "data_base64": base64.b64encode(b"\xff\x00raw").decode(),
        }
        await worker.http.post("/v1/pubsub/news", content=b"")
        assert await heard(stream) == {"topic": "news", "data": ""}
    await until(lambda: worker.services.waiting == 0)


@on_every_place
async def test_patterns_follow_many_topics(worker: V1Worker) -> None:
    async with worker.follow("/v1/pubsub/room.*/events?pattern=true") as stream:
        for topic in ("room.1", "hall.1", "room.%C3%A9%2F2"):
            await worker.http.post(f"/v1/pubsub/{topic}", content=topic.encode())
        assert await heard(stream) == {"topic": "room.1", "data": "room.1"}
        assert (await heard(stream))["topic"] == "room.é/2"
    async with worker.follow("/v1/pubsub/room.*/events") as stream:
        await worker.http.post("/v1/pubsub/room.1", content=b"no")
        await worker.http.post("/v1/pubsub/room.*", content=b"yes")
        assert (await heard(stream))["data"] == "yes"


@on_both_places
async def test_topics_of_our_own_are_out_of_reach(worker: V1Worker) -> None:
    for topic in ("dsps.c.%7Broom%7D", "channels.outboxes", "penstock.gateway", "__keyspace@0__:x"):
        for answer in (
            await worker.http.post(f"/v1/pubsub/{topic}", content=b"{}"),
            await worker.http.get(f"/v1/pubsub/{topic}/events"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "topic-reserved")
    async with worker.follow("/v1/pubsub/*/events?pattern=true") as stream:
        await worker.subscribe()
        await worker.publish("m1", "secret")
        await worker.services.store.publish("penstock.gateway", b"{}")
        await worker.http.post("/v1/pubsub/open", content=b"after")
        assert await heard(stream) == {"topic": "open", "data": "after"}


@on_one_place
async def test_without_pubsub_there_is_nothing(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage) as worker:
        for answer in (
            await worker.http.post("/v1/pubsub/news", content=b"x"),
            await worker.http.get("/v1/pubsub/news/events"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "pubsub-disabled")


@on_one_place
@pytest.mark.parametrize("path", ["/v1/pubsub/%FF", f"/v1/pubsub/{'x' * 600}", "/v1/pubsub/"])
async def test_bad_topics_are_refused(worker: V1Worker, path: str) -> None:
    assert (await worker.http.post(path, content=b"x")).status_code == 400
    assert (await worker.http.get(f"{path}/events?pattern=perhaps")).status_code == 400


@on_one_place
async def test_tokens_open_topics_and_patterns_give_no_more(tmp_path: Path, storage: dict[str, Any]) -> None:
    tokens = [
        *TOKENS,
        {"name": "q", "secret": "one-letter-secret", "scopes": ["subscribe"], "channels": ["a?c"]},
    ]
    settings = {"pubsub": ENABLED, "requireTokens": True, "tokens": tokens}
    async with v1_worker(tmp_path, storage, **settings) as worker:
        everything = {"Authorization": "Bearer all-rights-secret"}
        narrow = {"Authorization": "Bearer one-letter-secret"}
        assert (await worker.http.get("/v1/pubsub/abc/events")).status_code == 401
        assert (await worker.http.post("/v1/pubsub/abc", content=b"x", headers=narrow)).status_code == 403
        assert (await worker.http.get("/v1/pubsub/*/events?pattern=true", headers=narrow)).status_code == 403
        # The pattern's own text is granted, and what it reaches beyond that is not.
        async with worker.follow("/v1/pubsub/a*c/events?pattern=true", narrow) as stream:
            for topic in ("abbc", "abc"):
                await worker.http.post(f"/v1/pubsub/{topic}", content=b"x", headers=everything)
            assert (await heard(stream))["topic"] == "abc"


@on_one_place
async def test_a_revoked_token_hears_no_more(tmp_path: Path, storage: dict[str, Any]) -> None:
    times = Times(heartbeat_ms=50, credential_s=0.05)
    settings = {"pubsub": ENABLED, "requireTokens": True, "tokens": TOKENS}
    async with v1_worker(tmp_path, storage, times, **settings) as worker:
        assert worker.services.tokens is not None
        created = await worker.services.tokens.create("app", ["subscribe"], channels=["news"])
        headers = {"Authorization": f"Bearer {created.bearer}"}
        async with worker.follow("/v1/pubsub/news/events", headers) as stream:
            await stream.until_comment()
            await worker.services.tokens.revoke(created.token.id)
            end = await stream.next()
            assert end is not None
            assert (end.name, end.json["reason"]) == ("end", "unauthorized")


@on_both_places
async def test_a_worker_that_stops_says_so(worker: V1Worker) -> None:
    async with worker.follow("/v1/pubsub/news/events") as stream:
        await until(lambda: worker.services.waiting == 1)
        stopping = asyncio.create_task(worker.stop())
        end = await stream.next()
        assert end is not None
        assert (end.name, end.json["reason"]) == ("end", "shutdown")
        assert await stream.next() is None
        await stopping


@on_both_places
async def test_clients_that_vanish_leave_no_subscription(worker: V1Worker) -> None:
    clients = [await RawClient.get(worker.port, "/v1/pubsub/news/events") for _ in range(20)]
    for client in clients:
        await client.until(b"retry: 2000")
    assert (await worker.http.post("/v1/pubsub/news", content=b"x")).json()["receivers"] >= 1
    for client in clients:
        client.vanish()
    await until(lambda: worker.services.waiting == 0)

    async def nobody_listens() -> bool:
        return (await worker.http.post("/v1/pubsub/news", content=b"x")).json() == {"receivers": 0}

    await until(nobody_listens)


@on_one_place
async def test_a_client_that_does_not_read_is_told_what_it_lost(worker: V1Worker) -> None:
    client = await RawClient.get(worker.port, "/v1/pubsub/news/events")
    await client.until(b"retry: 2000")
    payload = b"x" * 2_000
    for _ in range(250):
        await asyncio.gather(*(worker.services.store.publish("news", payload) for _ in range(100)))
    found = b""
    async with asyncio.timeout(60):
        while b"event: dropped" not in found:
            found = found[-20:] + await client.reader.read(65_536)
            assert found
    client.vanish()
    await until(lambda: worker.services.waiting == 0)


async def test_a_lost_server_is_a_gap(tmp_path: Path) -> None:
    with RealServer(find_server("valkey")) as server:
        storage = {"redis": {"singleNode": f"127.0.0.1:{server.port}"}}
        async with (
            v1_worker(tmp_path, storage, pubsub=ENABLED) as worker,
            worker.follow("/v1/pubsub/news/events") as stream,
        ):
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            gap = await stream.next()
            assert gap is not None
            assert gap.name == "gap"
            assert gap.json["duration_s"] >= 0
            await worker.http.post("/v1/pubsub/news", content=b"again")
            assert (await heard(stream))["data"] == "again"


async def test_a_store_that_is_down_is_503(tmp_path: Path) -> None:
    storage = {"redis": {"singleNode": "127.0.0.1:1", "timeout": {"connect": "200ms", "read": "300ms"}}}
    async with v1_worker(tmp_path, storage, pubsub=ENABLED) as worker:
        for answer in (
            await worker.http.post("/v1/pubsub/news", content=b"x"),
            await worker.http.get("/v1/pubsub/news/events"),
        ):
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
        assert worker.services.waiting == 0
