"""``/v1/streams``: whoever waits and whoever follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.gateway.v1.stream_reading import Page, StreamReader
from penstock.testing.servers import RealServer
from tests.gateway.harness import RawClient, on_both_places, on_one_place
from tests.gateway.whole import ADMIN, ORDERS, Whole, append, code_of, data_of, on_every_place, whole_worker
from tests.places import until

GROUP = ORDERS + "/groups/billing"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        yield worker


# ------------------------------------------------------------------------------ waiting


@on_every_place
async def test_a_long_poll_hears_of_the_next_message(worker: Whole) -> None:
    await append(worker, 1)
    params = {"offset": "now", "live": "long-poll", "wait": "20s"}
    polling = asyncio.create_task(worker.http.get(ORDERS, params=params))
    await until(lambda: worker.services.waiting == 1)
    await append(worker, 1, start=2)
    answer = await polling
    assert data_of(answer) == ["2"]
    assert answer.headers["stream-next-offset"] == "3"
    assert worker.services.waiting == 0


@on_both_places
async def test_a_long_poll_for_a_tag_overlooks_others(worker: Whole) -> None:
    params = {"live": "long-poll", "tag": "b"}
    polling = asyncio.create_task(worker.http.get(ORDERS, params=params))
    await until(lambda: worker.services.waiting == 1)
    await append(worker, 3, tag="a")
    await append(worker, 1, tag="b", start=9)
    assert data_of(await polling) == ["9"]


@on_both_places
async def test_a_long_poll_without_news_answers_204(worker: Whole) -> None:
    await append(worker, 2)
    for params, headers in (
        ({"wait": "10ms"}, {}),
        ({"wait": "0"}, {}),
        ({}, {"Prefer": "wait=0"}),
    ):
        answer = await worker.http.get(
            ORDERS, params={"offset": 3, "live": "long-poll", **params}, headers=headers
        )
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["stream-next-offset"] == "3"
        assert answer.headers["stream-up-to-date"] == "true"


@on_both_places
async def test_a_client_that_goes_frees_its_place(worker: Whole) -> None:
    for query in ("?live=long-poll", "?live=sse"):
        client = await RawClient.get(worker.port, ORDERS + query)
        await until(lambda: worker.services.waiting == 1)
        client.vanish()
        await until(lambda: worker.services.waiting == 0)


@on_one_place
async def test_places_are_bounded(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with whole_worker(tmp_path, storage, http={"limits": {"idlePolls": 1}}) as worker:
        client = await RawClient.get(worker.port, ORDERS + "?live=sse")
        await until(lambda: worker.services.waiting == 1)
        for live in ("long-poll", "sse"):
            refused = await worker.http.get(ORDERS, params={"live": live})
            assert code_of(refused) == (503, "unavailable")
            assert "retry-after" in refused.headers
        client.vanish()


@on_both_places
async def test_whoever_waits_is_answered_when_the_worker_stops(worker: Whole) -> None:
    polling = asyncio.create_task(worker.http.get(ORDERS, params={"live": "long-poll"}))
    wish = {"consumer": "ann", "wait": "20s"}
    reading = asyncio.create_task(worker.http.post(GROUP + "/read", json=wish))
    await until(lambda: worker.services.waiting == 2)
    await worker.stop()
    assert (await polling).status_code == 204
    assert (await reading).json() == {"messages": [], "gone": []}


# ------------------------------------------------------------------------------ following


@on_every_place
async def test_events_carry_messages_and_their_offsets(worker: Whole) -> None:
    await append(worker, 2, tag="t")
    async with worker.follow(f"{ORDERS}?live=sse") as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        one, two = await stream.take(2)
        assert (one.name, one.id, one.json["data"], one.json["tag"]) == ("message", "1", "1", "t")
        assert two.id == "2"
        await stream.until_comment()
        await append(worker, 1, start=3)
        three = await stream.next()
        assert three is not None
        assert (three.id, three.json["data"]) == ("3", "3")
    await until(lambda: worker.services.waiting == 0)


@on_both_places
async def test_whoever_comes_again_goes_on_behind_the_last_event(worker: Whole) -> None:
    await append(worker, 3)
    async with worker.follow(f"{ORDERS}?live=sse&offset=1", headers={"Last-Event-ID": "2"}) as stream:
        event = await stream.next()
        assert event is not None
        assert event.id == "3"
    async with worker.follow(f"{ORDERS}?live=sse&offset=2", headers={"Last-Event-ID": "x-1"}) as stream:
        event = await stream.next()
        assert event is not None
        assert event.id == "2"


@pytest.mark.parametrize("storage", ["valkey"], indirect=True)
async def test_followers_survive_lost_connections(worker: Whole, valkey_server: RealServer) -> None:
    await append(worker, 1)
    async with worker.follow(f"{ORDERS}?live=sse") as stream:
        assert (await stream.take(1))[0].id == "1"
        async with penstock.open(valkey_server.url) as other:
            await other.execute("CLIENT", "KILL", "SKIPME", "yes")
            await other.stream("orders").write(entry=b"2")
        event = await stream.next()
        assert event is not None
        assert (event.name, event.id, event.json["data"]) == ("message", "2", "2")


@on_both_places
async def test_a_follower_whose_token_is_revoked_is_sent_away(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with whole_worker(tmp_path, storage, heartbeat_ms=20, credential_s=0, requireTokens=True) as worker:
        wish = {"name": "r", "scopes": ["subscribe"], "streams": ["*"]}
        made = (await worker.http.post("/v1/tokens", headers=ADMIN, json=wish)).json()
        headers = {"Authorization": f"Bearer {made['bearer']}"}
        async with worker.follow(f"{ORDERS}?live=sse", headers=headers) as stream:
            await stream.until_comment()
            await worker.http.delete(f"/v1/tokens/{made['token']['id']}", headers=ADMIN)
            end = await stream.next()
            assert end is not None
            assert (end.name, end.json["reason"]) == ("end", "unauthorized")


@on_one_place
async def test_a_gap_is_told_to_whoever_comes_again(worker: Whole) -> None:
    await append(worker, 10)
    await worker.services.store.stream("orders").evict(upto=7)
    async with worker.follow(f"{ORDERS}?live=sse", headers={"Last-Event-ID": "2"}) as stream:
        gap, message = await stream.take(2)
        assert (gap.name, gap.json) == ("gap", {"from": 3, "first": 8})
        assert message.id == "8"


@on_one_place
async def test_a_stream_of_events_ends_after_its_time(worker: Whole) -> None:
    async with worker.follow(f"{ORDERS}?live=sse&for=100ms") as stream:
        assert await stream.next() is None
        assert stream.comments >= 1


@on_both_places
async def test_followers_hear_of_the_end(worker: Whole) -> None:
    await append(worker, 1)
    async with worker.follow(f"{ORDERS}?live=sse&offset=now") as stream:
        await until(lambda: worker.services.waiting == 1)
        assert (await worker.http.delete(ORDERS, headers=ADMIN)).status_code == 204
        end = await stream.next()
        assert end is not None
        assert end.name == "end"
        assert end.json["reason"] in ("stream-removed", "stream-not-found")
    async with worker.follow(f"{ORDERS}?live=sse") as stream:
        await until(lambda: worker.services.waiting == 1)
        stopping = asyncio.create_task(worker.stop())
        end = await stream.next(limit_s=5)
        await stopping
        assert end is not None
        assert end.json["reason"] == "shutdown"


@on_one_place
async def test_a_follower_that_does_not_read_is_not_read_for(
    worker: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 MB only what sockets hold is read, until the client takes it."""
    for _ in range(60):
        await worker.http.post(ORDERS, json=[{"data": "x" * 10_000}] * 50)
    pages = 0
    read = StreamReader.page

    async def counted(reader: StreamReader, start: int) -> Page:
        nonlocal pages
        pages += 1
        return await read(reader, start)

    monkeypatch.setattr(StreamReader, "page", counted)
    client = await RawClient.get(worker.port, f"{ORDERS}?live=sse&limit=10")
    await client.until(b"\r\n\r\n")
    await until(lambda: pages > 1)
    for _ in range(300):  # as many turns of the loop as it would take to read everything
        await worker.http.get("/v1/health")
    assert pages < 200
    received = 0
    async with asyncio.timeout(20):
        while received < 30_000_000:
            received += len(await client.reader.read(1 << 20))
    await until(lambda: pages >= 300)
    client.vanish()
    await until(lambda: worker.services.waiting == 0)
