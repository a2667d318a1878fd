"""Limits, node groups, workers, schedules, numbers and webhooks of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from penstock.gateway.transaction_figures import MAX_PIPELINES, _last_day
from penstock.transactions.statistics import Sample
from tests.gateway.harness import on_both_places, on_every_place, on_one_place
from tests.gateway.shop import ACME, BOLT, GROUP, OPERATOR, TOKENS, Shop, open_shop
from tests.gateway.whole import code_of
from tests.places import until
from tests.webhooks.receiver import Receiver

LOOPBACK = {"webhooks": {"allowedNetworks": ["127.0.0.0/8"]}}


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage, tokens=TOKENS, transactions=LOOPBACK) as shop:
        await shop.deploy("checkout", "add")
        shop.http.headers.update(OPERATOR)
        yield shop


# ------------------------------------------------------------------------------ limits


@on_every_place
async def test_pausing_and_resuming(shop: Shop) -> None:
    paused = await shop.http.post("/v1/limits/pipelines/checkout/pause")
    assert (paused.json()["kind"], paused.json()["name"]) == ("pipelines", "checkout")
    assert paused.json()["is_paused"] is True
    async with shop.working():
        tx = await shop.started(input={"n": 1})

        async def is_held() -> bool:
            return (await shop.look(tx)).json().get("held") == "p:checkout"

        await until(is_held)
        (limit,) = (await shop.http.get("/v1/limits")).json()["limits"]
        assert limit["is_paused"] is True
        resumed = await shop.http.post("/v1/limits/pipelines/checkout/resume")
        assert resumed.json()["is_paused"] is False
        await shop.ended(tx)
    assert (await shop.http.get("/v1/limits")).json()["limits"] == []


@on_one_place
async def test_setting_limits(shop: Shop) -> None:
    wish = {"concurrency": 5, "rate": 10.5, "burst": 3}
    put = await shop.http.put("/v1/limits/owners/acme", json=wish)
    assert put.json() == {"kind": "owners", "name": "acme", "is_paused": False, "max_queued": 0, **wish}
    await shop.http.put("/v1/limits/node-groups/shop", json={"max_queued": 7})
    found = (await shop.http.get("/v1/limits")).json()["limits"]
    assert [(each["kind"], each["name"]) for each in found] == [("node-groups", "shop"), ("owners", "acme")]
    assert (found[0]["max_queued"], found[1]["rate"]) == (7, 10.5)
    assert (await shop.http.delete("/v1/limits/owners/acme")).status_code == 204
    assert len((await shop.http.get("/v1/limits")).json()["limits"]) == 1
    for path, body, expected in (
        ("colours/red", {}, (404, "limit-not-found")),
        ("owners/no%20spaces", {"rate": 1}, (400, "bad-request")),
        ("owners/acme", {"rate": -1}, (400, "invalid-body")),
        ("owners/acme", {"burst": 0}, (400, "invalid-body")),
        ("owners/acme", {"speed": 1}, (400, "invalid-body")),
    ):
        assert code_of(await shop.http.put(f"/v1/limits/{path}", json=body)) == expected, path


# ------------------------------------------------------------------------------ groups and workers


@on_both_places
async def test_node_groups_and_workers(shop: Shop) -> None:
    for _ in range(3):
        await shop.started()
    wished = await shop.http.put(f"/v1/node-groups/{GROUP}", json={"concurrency": 2})
    assert wished.json() == {"name": GROUP, "concurrency": 2}
    (group,) = (await shop.http.get("/v1/node-groups")).json()["node_groups"]
    assert (group["name"], group["in"], group["running"], group["workers"]) == (GROUP, 3, 0, 0)
    assert group["concurrency"] == 2
    async with shop.working():

        async def workers() -> Any:
            return (await shop.http.get("/v1/workers")).json()["workers"]

        await until(workers)
        (worker,) = await workers()
        assert worker["node_groups"] == [GROUP]
        assert "add" in worker["steps"]
    cleared = await shop.http.put(f"/v1/node-groups/{GROUP}", json={"concurrency": None})
    assert cleared.json()["concurrency"] is None
    for body in ({}, {"concurrency": 0}, {"concurrency": "many"}):
        assert (await shop.http.put(f"/v1/node-groups/{GROUP}", json=body)).status_code == 400


# ------------------------------------------------------------------------------ numbers


@on_both_places
async def test_statistics(shop: Shop) -> None:
    async with shop.working():
        for headers in (ACME, ACME, BOLT):
            tx = (await shop.start(headers=headers)).json()["id"]
            await shop.ended(tx)
    answer = await shop.http.get("/v1/transaction-statistics", params={"level": "5s", "by": "owner"})
    found = answer.json()
    assert found["total"]["ended"] == {"success": 3}
    assert found["total"]["latency"]["count"] == 3
    assert {name: part["queued"] for name, part in found["parts"].items()} == {"acme": 2, "bolt": 1}
    assert sum(slot["queued"] for slot in found["slots"]) == 3
    mine = (await shop.http.get("/v1/transaction-statistics", headers=ACME)).json()
    assert (mine["level"], mine["total"]["queued"]) == ("60s", 2)
    for query in ({"level": "1s"}, {"by": "colour"}, {"since": "then"}):
        assert (await shop.http.get("/v1/transaction-statistics", params=query)).status_code == 400
    for query, expected in (({"by": "owner"}, 400), ({"owner": "bolt"}, 403)):
        answer = await shop.http.get("/v1/transaction-statistics", params=query, headers=ACME)
        assert answer.status_code == expected
    overview = (await shop.http.get("/v1/transaction-overview")).json()
    assert (overview["total"], overview["queued"], overview["running"]) == (3, 0, 0)


def test_metrics_have_few_labels() -> None:
    samples = [
        Sample("transactions_queued", {"pipeline": f"p{n}", "node_group": "g", "owner": f"o{n}"}, n + 1)
        for n in range(MAX_PIPELINES + 50)
    ]
    events, _ = _last_day(samples)
    labels = [sample.labels["pipeline"] for sample in events.samples]
    assert len(labels) == MAX_PIPELINES + 1
    assert "other" in labels
    assert sum(sample.value for sample in events.samples) == sum(sample.value for sample in samples)


# ------------------------------------------------------------------------------ schedules


@on_both_places
async def test_schedules(shop: Shop) -> None:
    nightly = "/v1/schedules/nightly"
    for path in ("", "/pause", "/resume", "/run"):
        method = "POST" if path else "GET"
        assert code_of(await shop.http.request(method, nightly + path)) == (404, "schedule-not-found")
    wish = {"pipeline": "checkout", "cron": "0 2 * * *", "owner": "acme", "input": {"n": 4}}
    put = (await shop.http.put(nightly, json=wish)).json()
    assert (put["schedule"]["name"], put["fires"], put["fired_ms"]) == ("nightly", 0, None)
    looked = (await shop.http.get(nightly)).json()
    assert looked["fires_ms"][0] == put["next_ms"]
    assert len(looked["fires_ms"]) == 5
    assert (await shop.http.post(nightly + "/pause")).json()["next_ms"] is None
    assert (await shop.http.post(nightly + "/resume")).json()["next_ms"] == put["next_ms"]
    ran = await shop.http.post(nightly + "/run")
    assert ran.status_code == 202
    tx = ran.json()["transaction"]
    assert ran.headers["location"] == f"/v1/transactions/{tx}"
    async with shop.working():
        ended = await shop.ended(tx, ACME)
    assert (ended["owner"], ended["output"]) == ("acme", {"n": 5})
    page = (await shop.http.get("/v1/schedules")).json()
    assert [each["schedule"]["name"] for each in page["schedules"]] == ["nightly"]
    assert (await shop.http.delete(nightly)).status_code == 204
    assert code_of(await shop.http.delete(nightly)) == (404, "schedule-not-found")


@on_one_place
async def test_schedules_that_make_no_sense(shop: Shop) -> None:
    for body in (
        {"pipeline": "checkout"},
        {"pipeline": "checkout", "cron": "nonsense"},
        {"pipeline": "checkout", "cron": "0 2 * * *", "every_ms": 5_000},
        {"pipeline": "checkout", "cron": "0 2 * * *", "timezone": "Moon/Crater"},
        {"pipeline": "checkout", "every_ms": 1},
        {"pipeline": "checkout", "every_ms": 5_000, "catch_up": "some"},
        {"cron": "0 2 * * *"},
    ):
        assert (await shop.http.put("/v1/schedules/s", json=body)).status_code == 400, body
    body = {"pipeline": "nobody", "every_ms": 3_600_000}
    assert (await shop.http.put("/v1/schedules/s", json=body)).status_code == 200
    assert code_of(await shop.http.post("/v1/schedules/s/run")) == (404, "pipeline-not-found")


# ------------------------------------------------------------------------------ webhooks


@on_both_places
async def test_a_webhook_hears_of_the_end(shop: Shop) -> None:
    await shop.deploy("reporting", "report", "add")
    async with Receiver() as receiver, shop.working():
        wish = {"webhook": receiver.url, "webhook_progress": True, "external_id": "w-1"}
        tx = (await shop.start("reporting", headers=ACME, **wish)).json()["id"]
        await until(lambda: len(receiver.received) == 2)
        secret = (await shop.http.get("/v1/transaction-webhook-secret", headers=ACME)).json()["secret"]
        events = [Webhook(secret).verify(each.body, each.headers) for each in receiver.received]
        assert [event["type"] for event in events] == ["transaction.progress", "transaction.complete"]
        assert events[0]["data"]["progressReport"] == {"percent": 50}
        assert events[1]["data"]["metadata"]["txId"] == tx
        assert events[1]["data"]["metadata"]["status"] == "success"

        async def is_told() -> bool:
            return (await shop.look(tx, ACME)).json().get("webhook_status") == "delivered"

        await until(is_told)
        rotated = await shop.http.post("/v1/transaction-webhook-secret/rotate", headers=ACME)
        assert (rotated.json()["owner"], rotated.json()["secret"] != secret) == ("acme", True)
        now = await shop.http.get("/v1/transaction-webhook-secret", headers=ACME)
        assert now.json()["secret"] == rotated.json()["secret"]
        other = await shop.http.get("/v1/transaction-webhook-secret", params={"owner": "acme"})
        assert other.json() == now.json()
        assert (await shop.http.get("/v1/transaction-webhook-secret", headers=BOLT)).status_code == 403


@on_one_place
async def test_who_was_told_spares_the_webhook(tmp_path: Path, storage: dict[str, Any]) -> None:
    settings = {"transactions": {"webhooks": {"enabled": False, "allowedNetworks": ["127.0.0.0/8"]}}}
    async with Receiver() as receiver, open_shop(tmp_path, storage, **settings) as shop:
        await shop.deploy("checkout", "hold")
        wish = {"webhook": receiver.url, "poll_cancels_webhook": True}
        spared, kept, unasked = [await shop.started(**wish) for _ in range(3)]
        async with shop.working():
            waiting = asyncio.gather(
                shop.look(spared, wait="15s"),
                shop.look(kept, wait="15s", cancel_webhook="false"),
            )
            await until(lambda: shop.gateway.services.waiting == 2)
            shop.gate.set()
            await waiting

            async def has_ended() -> bool:
                return bool((await shop.look(unasked)).json()["state"] == "ended")

            await until(has_ended)
        for tx, status in ((spared, "cancelled"), (kept, "pending"), (unasked, "pending")):
            assert (await shop.look(tx)).json()["webhook_status"] == status
