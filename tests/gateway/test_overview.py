"""``/v1/overview``: everything at one look, and its followers, who share one reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.gateway.overview import OverviewReader
from penstock.gateway.sharing import SharedFeed
from penstock.gateway.store_figures import StoreReader
from penstock.gateway.v1 import overview as overview_routes
from penstock.testing.servers import RealServer
from penstock.transactions import Wait
from tests.gateway.harness import EventStream, on_both_places, on_every_place, on_one_place
from tests.gateway.shop import GROUP, Shop, open_shop
from tests.gateway.whole import ADMIN, code_of, whole_worker
from tests.places import until

EVENTS = "/v1/overview/events"


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, heartbeat_ms=50) as shop:
        shop.http.headers.update(ADMIN)
        yield shop


async def next_event(stream: EventStream) -> dict[str, Any]:
    event = await stream.next()
    assert event is not None
    assert event.name == "overview", event
    found: dict[str, Any] = event.json
    return found


# ------------------------------------------------------------------------------ one look


@on_every_place
async def test_everything_at_one_look(shop: Shop) -> None:
    await shop.deploy("checkout", "add", Wait("paid"))
    await shop.deploy("slow", "hold")
    async with shop.working():
        waiting = await shop.started()
        await shop.started("slow")
        later = await shop.started(delay_ms=3_600_000)

        async def all_are_there() -> bool:
            found = (await shop.http.get("/v1/overview")).json()["transactions"]
            return (found["running"], found["sleeping"], found["waiting"]) == (1, 2, 1)

        await until(all_are_there)
        found = (await shop.http.get("/v1/overview?level=60s")).json()
        assert found["transactions"] == {
            "queued": 0, "running": 1, "sleeping": 2, "waiting": 1, "dead": 0, "to_archive": 0, "webhooks": 0,
            "outbox": 0, "total": 3,
        }  # fmt: skip
        (group,) = found["node_groups"]
        assert (group["name"], group["running"], group["workers"]) == (GROUP, 1, 1)
        shop.gate.set()
        statistics = found["statistics"]
        assert (statistics["level"], len(statistics["slots"])) == ("60s", 121)
        assert statistics["total"]["queued"] >= 2
        assert found["jobs"] == {"running": 0, "failing": 0, "alive_nodes": 0}
        assert found["store"]["keys"] > 0
        assert found["now_ms"] > 0
        for state, tx in (("waiting", waiting), ("sleeping", later)):
            (one,) = (await shop.http.get(f"/v1/transactions?state={state}")).json()["transactions"]
            assert one["id"] == tx


@on_one_place
async def test_a_gateway_without_transactions(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with whole_worker(tmp_path, storage, transactions={"enabled": False}) as worker:
        found = (await worker.http.get("/v1/overview", headers=ADMIN)).json()
        assert (found["transactions"], found["statistics"], found["node_groups"]) == (None, None, [])
        assert found["store"]["kind"] == "embedded"


@on_both_places
async def test_looks_that_follow_find_what_is_new(shop: Shop) -> None:
    """Slots that are over are read once: what they say is what reading everything would say."""
    service = shop.gateway.services.transactions
    assert service is not None
    facility, store = service.facility, shop.gateway.services.store
    clock = ManualClock()
    reader = OverviewReader(store, facility, StoreReader(store), clock)
    assert (await reader.read("5s")).statistics is not None
    await shop.deploy("checkout", "add")
    async with shop.working():
        for _ in range(3):
            await shop.ended(await shop.started())
            clock.advance_ms(6_000)
            found = (await reader.read("5s")).statistics
            whole = await facility.statistics.read("5s")
            assert found is not None
            assert found.total.started == whole.total.started
            assert found.total.ended == whole.total.ended
            assert len(found.slots) == len(whole.slots)
    last = await reader.read("5s")
    assert last.transactions is not None
    assert [group.name for group in last.transactions.groups] == [GROUP]


# ------------------------------------------------------------------------------ followers


@on_both_places
async def test_followers_see_what_changes(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    async with shop.gateway.follow(EVENTS) as stream:
        first = await next_event(stream)
        assert stream.retry_ms == 2_000
        assert (first["transactions"]["total"], first["statistics"]["level"]) == (0, "5s")
        await shop.started()
        while (await next_event(stream))["transactions"]["total"] != 1:
            pass
        async with shop.gateway.follow(EVENTS + "?level=600s") as other:
            assert (await next_event(other))["statistics"]["level"] == "600s"
    await until(lambda: shop.gateway.services.waiting == 0)


@on_one_place
async def test_the_time_that_was_asked_for_ends_it(shop: Shop) -> None:
    async with shop.gateway.follow(EVENTS + "?for=150ms") as stream:
        end = await stream.next()
        while end is not None and end.name != "end":
            end = await stream.next()
        assert end is not None
        assert end.json["reason"] == "time-over"
        assert stream.comments >= 1
        assert await stream.next() is None


@on_one_place
async def test_a_gateway_that_stops_says_so(shop: Shop) -> None:
    async with shop.gateway.follow(EVENTS) as stream:
        await next_event(stream)
        await shop.gateway.stop()
        end = await stream.next()
        while end is not None and end.name != "end":
            end = await stream.next()
        assert end is not None
        assert end.json["reason"] == "shutdown"


@on_one_place
async def test_a_credential_that_is_revoked_ends_it(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with whole_worker(tmp_path, storage, heartbeat_ms=20, credential_s=0.02) as worker:
        tokens = worker.services.tokens
        assert tokens is not None
        made = await tokens.create("wall", ["observe"])
        async with worker.follow(EVENTS, {"Authorization": f"Bearer {made.bearer}"}) as stream:
            await next_event(stream)
            await tokens.revoke(made.token.id)
            event = await stream.next()
            while event is not None and event.name != "end":
                event = await stream.next()
            assert event is not None
            assert event.json["reason"] == "unauthorized"


@on_one_place
async def test_who_cannot_follow(shop: Shop) -> None:
    assert code_of(await shop.http.get(EVENTS + "?level=1s")) == (400, "invalid-parameter")
    assert code_of(await shop.http.get("/v1/overview?level=1s")) == (400, "invalid-parameter")
    assert code_of(await shop.http.get(EVENTS + "?for=0s")) == (400, "invalid-parameter")
    shop.gateway.services.waiting = shop.gateway.services.config.http.limits.idle_polls
    assert code_of(await shop.http.get(EVENTS)) == (503, "unavailable")
    shop.gateway.services.waiting = 0
    del shop.http.headers["authorization"]
    assert (await shop.http.get(EVENTS)).status_code == 401


@pytest.fixture
def frail() -> Iterator[RealServer]:
    with RealServer() as server:
        yield server


async def test_followers_survive_a_store_that_is_away(
    tmp_path: Path, frail: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_routes, "PATIENCE_S", 0.5)
    storage = {"redis": {"singleNode": f"127.0.0.1:{frail.port}"}}
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        worker.http.headers.update(ADMIN)
        async with worker.follow(EVENTS) as stream:
            assert (await next_event(stream))["store"] is not None
            frail.kill()
            while (found := await next_event(stream))["store"] is not None:
                pass
            assert (found["transactions"], found["statistics"], found["jobs"]) == (None, None, None)
            assert (found["node_groups"], found["now_ms"] > 0) == ([], True)
            frail.restart()
            while (await next_event(stream))["store"] is None:
                pass


# ------------------------------------------------------------------------------ one reader for all


async def test_a_hundred_followers_cost_one_read() -> None:
    values: asyncio.Queue[str] = asyncio.Queue()
    reads = 0

    async def read() -> str:
        nonlocal reads
        reads += 1
        return await values.get()

    feed: SharedFeed[str] = SharedFeed(read, every_s=0)
    taken: list[list[str]] = []

    async def follow() -> None:
        seen, mine = 0, []
        with feed.followed():
            while len(mine) < 2:
                news = await feed.following(seen, timeout_s=20)
                assert news is not None
                seen = news.number
                mine.append(news.value)
        taken.append(mine)

    followers = [asyncio.create_task(follow()) for _ in range(100)]
    await until(lambda: reads == 1)
    values.put_nowait("one")
    await until(lambda: reads == 2)
    values.put_nowait("two")
    await asyncio.gather(*followers)
    assert taken == [["one", "two"]] * 100
    assert reads <= 3
    settled = reads
    values.put_nowait("three")
    await asyncio.sleep(0)
    assert (reads, values.qsize()) == (settled, 1)  # nobody follows, so nobody reads

    with feed.followed():
        news = await feed.following(0, timeout_s=20)
        assert (news is not None and news.value) == "three"
        assert await feed.following(99, timeout_s=0) is None
        waiting = asyncio.create_task(feed.following(99, timeout_s=20))
        await asyncio.sleep(0)
        feed.nudge()
        assert await waiting is None


async def test_a_read_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([RuntimeError("odd"), "fine"])

    async def read() -> str:
        answer = next(answers, "more")
        if isinstance(answer, Exception):
            raise answer
        return answer

    feed: SharedFeed[str] = SharedFeed(read, every_s=0.01)
    with feed.followed():
        news = await feed.following(0, timeout_s=20)
    assert news is not None
    assert news.value in ("fine", "more")
    assert "could not be read" in caplog.text
