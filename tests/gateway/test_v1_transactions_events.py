"""``/v1/transactions/{transaction}/events``: state and progress as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.transactions import Progress, Wait
from tests.gateway.harness import EventStream, on_both_places, on_every_place, on_one_place
from tests.gateway.shop import ACME, TOKENS, Shop, open_shop
from tests.gateway.whole import code_of
from tests.places import until


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, heartbeat_ms=50) as shop:
        yield shop


def events_of(tx: str, query: str = "") -> str:
    return f"/v1/transactions/{tx}/events{query}"


async def next_where(stream: EventStream, **wanted: Any) -> dict[str, Any]:
    """The next state that is like this."""
    while True:
        event = await stream.next()
        assert event is not None
        found: dict[str, Any] = event.json
        if event.name == "state" and all(found.get(name) == value for name, value in wanted.items()):
            return found


@on_every_place
async def test_a_follower_hears_everything_up_to_the_end(shop: Shop) -> None:
    await shop.deploy("checkout", "report", Wait("paid"), "add")
    tx = await shop.started(input={"n": 1})
    async with shop.gateway.follow(events_of(tx)) as stream:
        first = await stream.next()
        assert first is not None
        assert stream.retry_ms == 2_000
        assert (first.name, first.json["state"]) == ("state", "queued")
        assert "input" not in first.json
        async with shop.working():
            names = []
            while True:
                event = await stream.next()
                assert event is not None
                names.append(event.name)
                if event.name == "progress":
                    assert event.json == {"id": tx, "progress": {"percent": 50}}
                if event.name == "state" and event.json["state"] == "waiting":
                    break
            assert names.count("progress") == 1
            await shop.http.put(f"/v1/transactions/{tx}/switches/paid", json={"value": True})
            ended = await next_where(stream, state="ended")
        assert (ended["status"], ended["output"]) == ("success", {"n": 2})
        end = await stream.next()
        assert end is not None
        assert (end.name, end.json["reason"]) == ("end", "ended")
        assert await stream.next() is None
    assert shop.gateway.services.waiting == 0


@on_both_places
async def test_who_comes_again_is_not_told_the_same(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    async with shop.gateway.follow(events_of(tx)) as stream:
        first = await stream.next()
    assert first is not None
    assert first.id
    async with shop.gateway.follow(events_of(tx), {"Last-Event-ID": first.id}) as stream:
        await stream.until_comment()
        async with shop.working():
            assert (await next_where(stream, state="ended"))["status"] == "success"
    async with shop.gateway.follow(events_of(tx)) as stream:
        (last, end) = await stream.take(2)
        assert (last.json["state"], end.name) == ("ended", "end")
    answer = await shop.http.get(events_of(tx), headers={"Last-Event-ID": last.id or ""})
    assert (answer.status_code, answer.content) == (204, b"")


@on_one_place
async def test_the_last_report_of_progress_is_told_to_late_comers(shop: Shop) -> None:
    await shop.deploy("checkout", Progress({"percent": 90}), "hold")
    tx = await shop.started()
    async with shop.working():

        async def has_reported() -> bool:
            return "progress" in (await shop.look(tx)).json()

        await until(has_reported)
        async with shop.gateway.follow(events_of(tx)) as stream:
            (progress, state) = await stream.take(2)
        assert (progress.json["progress"], state.name) == ({"percent": 90}, "state")


@on_one_place
async def test_signs_of_life_and_the_end_of_the_time(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    async with shop.gateway.follow(events_of(tx, "?for=120ms")) as stream:
        (_, end) = await stream.take(2)
        assert end.json["reason"] == "time-over"
        assert stream.comments >= 1
    metrics = (await shop.http.get("/metrics")).text
    assert "penstock_event_streams_open 0.0" in metrics


@on_one_place
async def test_a_gateway_that_stops_says_so(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    async with shop.gateway.follow(events_of(tx)) as stream:
        await stream.next()
        await shop.gateway.stop()
        end = await stream.next()
        assert end is not None
        assert (end.name, end.json["reason"]) == ("end", "shutdown")


@on_one_place
async def test_who_goes_leaves_nothing_behind(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    async with shop.gateway.follow(events_of(tx)) as stream:
        await stream.next()
        assert shop.gateway.services.waiting == 1
    await until(lambda: shop.gateway.services.waiting == 0)
    service = shop.gateway.services.transactions
    assert service is not None
    await until(lambda: service.facility.waiting == 0)


@on_one_place
async def test_what_cannot_be_followed(shop: Shop) -> None:
    missing = await shop.http.get(events_of(f"tx-0-{'0' * 31}"))
    assert code_of(missing) == (404, "transaction-not-found")
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    assert code_of(await shop.http.get(events_of(tx, "?for=-1s"))) == (400, "invalid-parameter")
    shop.gateway.services.waiting = shop.gateway.services.config.http.limits.idle_polls
    assert code_of(await shop.http.get(events_of(tx))) == (503, "unavailable")
    shop.gateway.services.waiting = 0


@on_one_place
async def test_a_credential_that_is_revoked_ends_it(tmp_path: Path, storage: dict[str, Any]) -> None:
    settings = {"requireTokens": True, "tokens": TOKENS, "heartbeat_ms": 20, "credential_s": 0.02}
    async with open_shop(tmp_path, storage, **settings) as shop:
        await shop.deploy("checkout", "add")
        tokens = shop.gateway.services.tokens
        assert tokens is not None
        made = await tokens.create("guest", ["transactions:read"], owner="acme")
        tx = (await shop.start(headers=ACME)).json()["id"]
        headers = {"Authorization": f"Bearer {made.bearer}"}
        async with shop.gateway.follow(events_of(tx), headers) as stream:
            await stream.next()
            await tokens.revoke(made.token.id)
            end = await stream.next()
            assert end is not None
            assert (end.name, end.json["reason"]) == ("end", "unauthorized")


@pytest.mark.parametrize("storage", ["valkey"], indirect=True)
async def test_a_store_that_was_away(shop: Shop, storage: dict[str, Any]) -> None:
    """Connections are cut; the follower goes on with what happened meanwhile."""
    await shop.deploy("checkout", Wait("paid"), "add")
    async with shop.working():
        tx = await shop.started()
        async with shop.gateway.follow(events_of(tx)) as stream:
            await next_where(stream, state="waiting")
            async with penstock.open(f"redis://{storage['redis']['singleNode']}") as other:
                for kind in ("normal", "pubsub"):
                    await other.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                await other.transactions.set_switch(tx, "paid", True)
                assert (await next_where(stream, state="ended"))["status"] == "success"
