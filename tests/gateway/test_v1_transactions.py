"""``/v1/transactions``: start, wait, look, list, control."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.transactions import Delay, Limit, Parallel, Wait
from tests.gateway.harness import RawClient, on_both_places, on_every_place, on_one_place
from tests.gateway.shop import ADMIN, GROUP, Shop, open_shop
from tests.gateway.whole import code_of
from tests.places import until


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage) as shop:
        yield shop


# ------------------------------------------------------------------------------ starting


@on_every_place
async def test_from_start_to_end(shop: Shop) -> None:
    await shop.deploy("checkout", "add", "add")
    answer = await shop.start(input={"n": 5}, metadata={"lang": "de"}, external_id="order 1/ü")
    assert answer.status_code == 202
    begun = answer.json()
    assert (begun["state"], begun["status"], begun["owner"]) == ("queued", "running", "default")
    assert answer.headers["location"] == f"/v1/transactions/{begun['id']}"
    assert answer.headers["retry-after"] == "1"
    assert "idempotent-replayed" not in answer.headers
    async with shop.working():
        ended = await shop.ended(begun["id"])
    assert (ended["status"], ended["output"], ended["input"]) == ("success", {"n": 7}, {"n": 5})
    assert (ended["metadata"], ended["external_id"]) == ({"lang": "de"}, "order 1/ü")
    found = await shop.http.get("/v1/transactions/by-external-id/order%201%2F%C3%BC", params={"trail": "1"})
    assert found.json()["id"] == begun["id"]
    assert [entry["name"] for entry in found.json()["trail"] if entry["kind"] == "step"] == ["add", "add-2"]


@on_every_place
async def test_whoever_prefers_to_wait_gets_the_end(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    async with shop.working():
        answer = await shop.start(headers={"Prefer": "respond-async, wait=15"}, input={"n": 1})
    assert (answer.status_code, answer.json()["output"]) == (200, {"n": 2})
    assert "retry-after" not in answer.headers
    # Nobody works any more: time is up, and it goes on.
    late = await shop.http.post("/v1/transactions?wait=20ms", json={"pipeline": "checkout"})
    assert (late.status_code, late.json()["state"]) == (202, "queued")


@on_both_places
async def test_numbers_stay_as_they_were_written(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    body = b'{"pipeline": "checkout", "input": {"big": 123456789012345678901234567890, "exact": 1.10}}'
    begun = await shop.http.post("/v1/transactions", content=body)
    key = f"{{p{begun.json()['id'].split('-')[1]}}}.stateH:{begun.json()['id']}"
    stored = await shop.gateway.services.store.execute("HGET", key, "d:0")
    assert stored == b'{"big":123456789012345678901234567890,"exact":1.10}'


@on_both_places
async def test_a_key_makes_repeating_safe(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    key = {"Idempotency-Key": '"order-7"'}
    first = await shop.start(headers=key, input={"n": 1})
    again = await shop.start(headers=key, input={"n": 1})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert first.json()["external_id"] == "order-7"
    assert code_of(await shop.start(headers=key, input={"n": 2})) == (422, "idempotency-key-reused")
    assert code_of(await shop.start(external_id="order-7", input={"n": 2})) == (409, "external-id-taken")
    # What the body says counts more than the header.
    other = await shop.start(headers=key, input={"n": 2}, external_id="order-8")
    assert (other.status_code, other.json()["external_id"]) == (202, "order-8")
    async with shop.working():
        await shop.ended(first.json()["id"])
    done = await shop.start(headers=key, input={"n": 1})
    assert (done.status_code, done.json()["output"]) == (200, {"n": 2})


@on_one_place
async def test_what_cannot_be_started(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    await shop.deploy("part", "add", is_startable=False)
    for wish, expected in (
        ({"pipeline": "nobody"}, (404, "pipeline-not-found")),
        ({"pipeline": "part"}, (404, "pipeline-not-found")),
        ({"version": "0" * 20}, (404, "pipeline-not-found")),
        ({"pipeline": "no spaces"}, (400, "invalid-body")),
        ({"priority": 10}, (400, "invalid-body")),
        ({"delay_ms": -1}, (400, "invalid-body")),
        ({"inptu": 1}, (400, "invalid-body")),
        ({"external_id": "a\nb"}, (400, "bad-request")),
        ({"at": "tomorrow"}, (400, "invalid-parameter")),
        ({"at": "2030-01-01T00:00:00"}, (400, "invalid-parameter")),
        ({"webhook": "http://127.0.0.1/hook"}, (400, "bad-request")),
        ({"webhook": "ftp://example.com/"}, (400, "bad-request")),
        ({"owner": "acme"}, (403, "owner-not-allowed")),
    ):
        assert code_of(await shop.start(**{"pipeline": "checkout", **wish})) == expected, wish
    for body in (b"", b"{", b"[]", b'{"pipeline":"checkout","input":nope}'):
        assert (await shop.http.post("/v1/transactions", content=body)).status_code == 400, body
    assert (await shop.http.get("/v1/transactions")).json()["transactions"] == []


@on_both_places
async def test_a_full_queue_is_told_with_when_to_come_again(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    await shop.transactions.limit(Limit(max_queued=1), node_group=GROUP)
    partitions = await shop.transactions.store.partitions()
    answers = [await shop.start() for _ in range(partitions + 1)]
    assert answers[0].status_code == 202
    assert code_of(answers[-1]) == (429, "too-many-queued")
    assert answers[-1].headers["retry-after"] == "1"


@on_one_place
async def test_a_start_that_was_made_is_answered_so(shop: Shop) -> None:
    """Too many wait already, so nobody waits; the transaction is there all the same."""
    await shop.deploy("checkout", "add")
    shop.gateway.services.waiting = shop.gateway.services.config.http.limits.idle_polls
    answer = await shop.start(headers={"Prefer": "wait=10"})
    assert answer.status_code == 202
    shop.gateway.services.waiting = 0
    assert (await shop.look(answer.json()["id"])).json()["state"] == "queued"


@on_one_place
async def test_starting_later(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    for wish in ({"delay_ms": 3_600_000}, {"at": "2026-12-31T23:59:59.5Z"}, {"at": 1798761599500}):
        begun = (await shop.start(**wish)).json()
        assert begun["state"] == "sleeping", wish
    woken = await shop.control(begun["id"], "wake", reason="now")
    assert woken.json()["state"] == "queued"


# ------------------------------------------------------------------------------ waiting


@on_every_place
async def test_any_number_of_waiters_hear_of_the_end(shop: Shop) -> None:
    await shop.deploy("checkout", "hold")
    tx = await shop.started()
    async with shop.working():
        waiting = [asyncio.create_task(shop.look(tx, wait="15")) for _ in range(5)]
        await until(lambda: shop.gateway.services.waiting == 5)
        metrics = (await shop.http.get("/metrics")).text
        assert "penstock_polls_waiting 5.0" in metrics
        shop.gate.set()
        answers = await asyncio.gather(*waiting)
    assert {answer.json()["status"] for answer in answers} == {"success"}
    assert shop.gateway.services.waiting == 0


@on_both_places
async def test_time_is_up(shop: Shop) -> None:
    await shop.deploy("checkout", "hold")
    tx = await shop.started()
    answer = await shop.look(tx, wait="30ms")
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")
    assert answer.headers["retry-after"] == "1"
    assert code_of(await shop.look(tx, wait="soon")) == (400, "invalid-parameter")


@on_one_place
async def test_who_goes_does_not_wait_on(shop: Shop) -> None:
    await shop.deploy("checkout", "hold")
    tx = await shop.started()
    client = await RawClient.get(shop.gateway.port, f"/v1/transactions/{tx}?wait=20s")
    await until(lambda: shop.gateway.services.waiting == 1)
    client.vanish()
    await until(lambda: shop.gateway.services.waiting == 0)
    facility = shop.gateway.services.transactions
    assert facility is not None
    await until(lambda: facility.facility.waiting == 0)


@on_one_place
async def test_a_gateway_that_stops_answers_whoever_waits(shop: Shop) -> None:
    await shop.deploy("checkout", "hold")
    tx = await shop.started()
    waiting = asyncio.create_task(shop.look(tx, wait="20s"))
    await until(lambda: shop.gateway.services.waiting == 1)
    await shop.gateway.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")


@on_one_place
async def test_who_has_it_is_not_sent_it_again(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    first = await shop.look(tx)
    tag = first.headers["etag"]
    again = await shop.look(tx, {"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    async with shop.working():
        await shop.ended(tx)
    changed = await shop.look(tx, {"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


# ------------------------------------------------------------------------------ looking


@on_one_place
async def test_what_is_not_there(shop: Shop) -> None:
    for tx in ("nonsense", "tx-0-", f"tx-0-{'0' * 31}", f"tx-999-{'0' * 31}"):
        assert code_of(await shop.look(tx)) == (404, "transaction-not-found"), tx
        assert code_of(await shop.look(tx, wait="1s")) == (404, "transaction-not-found"), tx
        assert code_of(await shop.control(tx, "cancel")) == (404, "transaction-not-found"), tx
    found = await shop.http.get("/v1/transactions/by-external-id/none")
    assert code_of(found) == (404, "transaction-not-found")


@on_both_places
async def test_children(shop: Shop) -> None:
    await shop.deploy("checkout", Parallel({"eu": ["add"], "us": ["add"]}))
    async with shop.working():
        tx = await shop.started(input={"n": 1})
        ended = await shop.ended(tx)
    assert ended["output"] == {"eu": {"n": 2}, "us": {"n": 2}}
    children = (await shop.http.get(f"/v1/transactions/{tx}/children")).json()["children"]
    assert [child["id"] for child in children] == [f"{tx}.1.0", f"{tx}.1.1"]
    assert {child["parent"] for child in children} == {tx}
    roots = (await shop.http.get("/v1/transactions", params={"roots": "true"})).json()["transactions"]
    assert [each["id"] for each in roots] == [tx]


@on_every_place
async def test_pages(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    await shop.deploy("refund", "fail")
    ids = [await shop.started() for _ in range(5)]
    refund = await shop.started("refund", external_id="r-1")
    found: list[str] = []
    target = "/v1/transactions?limit=2&pipeline=checkout"
    while target:
        answer = await shop.http.get(target)
        page = answer.json()
        found += [each["id"] for each in page["transactions"]]
        target = answer.links["next"]["url"] if page["cursor"] else ""
    assert sorted(found) == sorted(ids)
    async with shop.working():
        await shop.ended(refund)
    for query, expected in (
        ({"status": "failed"}, [refund]),
        ({"external_id": "r-1"}, [refund]),
        ({"pipeline": "refund", "state": "ended"}, [refund]),
        ({"node_group": "other"}, []),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"since": "2020-01-01T00:00:00Z", "pipeline": "refund"}, [refund]),
        ({"state": "dead"}, []),
    ):
        page = (await shop.http.get("/v1/transactions", params=query)).json()
        assert [each["id"] for each in page["transactions"]] == expected, query
    for query in ({"state": "gone"}, {"status": "good"}, {"cursor": "x"}, {"limit": "0"}, {"since": "then"}):
        assert (await shop.http.get("/v1/transactions", params=query)).status_code == 400, query


@on_every_place
async def test_what_a_step_got_and_gave(shop: Shop) -> None:
    await shop.deploy("checkout", "add", "report", "add", Wait("paid"), "add")
    async with shop.working():
        tx = await shop.started(input={"n": 1})

        async def is_waiting() -> bool:
            return bool((await shop.look(tx)).json()["state"] == "waiting")

        await until(is_waiting)
    steps = [(await shop.http.get(f"/v1/transactions/{tx}/steps/{n}")).json() for n in range(4)]
    seen = [(each["input"]["n"], (each["output"] or {}).get("n"), each["is_done"]) for each in steps]
    assert seen == [(1, 2, True), (2, 2, True), (2, 3, True), (3, None, False)]
    for step in ("4", "x", "-1"):
        assert (await shop.http.get(f"/v1/transactions/{tx}/steps/{step}")).status_code == 400, step
    unknown = await shop.http.get(f"/v1/transactions/{tx[:-3]}fff/steps/0")
    assert code_of(unknown) == (404, "transaction-not-found")


@on_one_place
@pytest.mark.parametrize("kind", ["files", "lake"])
async def test_the_archive(tmp_path: Path, storage: dict[str, Any], kind: str) -> None:
    pytest.importorskip("pyarrow")
    from penstock.lake import Lake, archives
    from penstock.transactions.archive import Archiver

    folder = tmp_path / "archive"
    if kind == "lake":
        Lake.open(folder)
    async with open_shop(tmp_path, storage, transactions={"archiveDirectory": str(folder)}) as shop:
        await shop.deploy("checkout", "add")
        await shop.transactions.store.configure(archive_delay_ms=0)
        async with shop.working():
            tx = await shop.started(external_id="a-1", input={"n": 1})
            await shop.ended(tx)
        archiver = Archiver(shop.transactions.store, archives.open(folder), node="n1")
        running = asyncio.create_task(archiver.run())
        query = {"archived": "true", "status": "success"}

        async def is_archived() -> bool:
            found = (await shop.look(tx)).json()
            return bool(found.get("is_archived"))

        await until(is_archived)
        await archiver.stop()
        await running
        page = (await shop.http.get("/v1/transactions", params=query)).json()
        assert [each["id"] for each in page["transactions"]] == [tx]
        assert (await shop.http.get("/v1/transactions")).json()["transactions"] == []
        found = await shop.http.get("/v1/transactions/by-external-id/a-1")
        assert (found.json()["id"], found.json()["output"]) == (tx, {"n": 2})
        step = await shop.http.get(f"/v1/transactions/{tx}/steps/0")
        assert step.json() == {"step": 0, "input": {"n": 1}, "output": {"n": 2}, "is_done": True}
        refused = await shop.http.get("/v1/transactions", params={"archived": "true", "state": "queued"})
        assert code_of(refused) == (400, "invalid-parameter")
        # What is done to it brings it back.
        assert (await shop.control(tx, "replay", step=0)).json()["state"] == "queued"


@on_one_place
async def test_without_an_archive(shop: Shop) -> None:
    answer = await shop.http.get("/v1/transactions", params={"archived": "1"})
    assert code_of(answer) == (404, "archive-not-configured")


# ------------------------------------------------------------------------------ control


@on_every_place
async def test_cancelling(shop: Shop) -> None:
    await shop.deploy("checkout", "hold")
    queued = await shop.started()
    answer = await shop.control(queued, "cancel", reason="changed my mind")
    assert (answer.json()["state"], answer.json()["status"]) == ("ended", "cancelled")
    assert code_of(await shop.control(queued, "cancel")) == (409, "transaction-state")
    trail = (await shop.look(queued, trail="true")).json()["trail"]
    assert any(e["kind"] == "cancel" and "anonymous: changed my mind" in e["note"] for e in trail)
    async with shop.working():
        tx = await shop.started()

        async def is_running() -> bool:
            return bool((await shop.look(tx)).json()["state"] == "running")

        await until(is_running)
        assert (await shop.http.post(f"/v1/transactions/{tx}/cancel")).status_code == 200
        assert (await shop.ended(tx))["status"] == "cancelled"


@on_both_places
async def test_retry_and_replay(shop: Shop) -> None:
    await shop.deploy("checkout", "add", "fail")
    async with shop.working():
        tx = await shop.started(input={"n": 1})
        assert (await shop.ended(tx))["status"] == "failed"
    retried = await shop.control(tx, "retry")
    assert (retried.json()["state"], retried.json()["step"]) == ("queued", 1)
    assert code_of(await shop.control(tx, "retry")) == (409, "transaction-state")
    async with shop.working():
        assert (await shop.ended(tx))["status"] == "failed"
    replayed = await shop.control(tx, "replay", step=0, reason="again")
    assert (replayed.json().get("step", 0), replayed.json()["run"]) == (0, 2)
    await shop.control(tx, "cancel")
    assert code_of(await shop.control(tx, "replay", step=99)) == (400, "bad-request")


@on_one_place
async def test_priorities(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    tx = await shop.started()
    assert (await shop.control(tx, "priority", priority=9)).json()["priority"] == 9
    assert code_of(await shop.control(tx, "priority", priority=10)) == (400, "invalid-body")
    assert code_of(await shop.control(tx, "wake")) == (409, "transaction-state")


@on_every_place
async def test_switches(shop: Shop) -> None:
    await shop.deploy("checkout", Wait("paid", into="paid"))
    tx = await shop.started(input={})
    switch = f"/v1/transactions/{tx}/switches/paid"
    assert code_of(await shop.http.get(switch)) == (404, "switch-not-set")
    assert code_of(await shop.http.delete(switch)) == (404, "switch-not-set")
    assert (await shop.http.put(switch, json={"value": "no"})).json()["outcome"] == "updated"
    assert (await shop.http.put(switch, json={"value": "no"})).json()["outcome"] == "nochange"
    assert (await shop.http.get(switch)).json() == {"name": "paid", "value": "no"}
    assert (await shop.http.delete(switch)).status_code == 204
    async with shop.working():

        async def is_waiting() -> bool:
            return bool((await shop.look(tx)).json()["state"] == "waiting")

        await until(is_waiting)
        assert (await shop.http.put(switch, json={"value": True})).json()["outcome"] == "woken"
        assert (await shop.ended(tx))["output"] == {"paid": "true"}
    assert code_of(await shop.http.put(switch, json={"value": 1})) == (409, "transaction-state")
    for body in ({}, {"value": None}, {"value": [1]}, {"value": "x" * 2_000}):
        assert (await shop.http.put(switch, json=body)).status_code == 400, body


# ------------------------------------------------------------------------------ surroundings


@on_one_place
async def test_pages_of_other_sites_cannot_start(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    stranger = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert code_of(await shop.start(headers=stranger)) == (403, "origin-not-allowed")
    assert (await shop.start(headers={**stranger, **ADMIN})).status_code == 202


@on_one_place
async def test_streams_and_topics_keep_their_hands_off(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with open_shop(tmp_path, storage, pubsub={"enabled": True}) as shop:
        for name in ("tx.partitions", "{p0}.outboxL", "{tx}.schedulesH", "{pipelines}.names", "{tx.hooks}:x"):
            answer = await shop.http.post(f"/v1/streams/{name}", content=b"x", headers=ADMIN)
            assert code_of(answer) == (404, "stream-not-configured"), name
        assert (await shop.http.post("/v1/pubsub/tx.agenda", content=b"x")).status_code == 403


@on_one_place
async def test_transactions_can_be_switched_off(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with open_shop(tmp_path, storage, transactions={"enabled": False}) as shop:
        assert shop.gateway.services.transactions is None
        for path in ("/v1/transactions", "/v1/pipelines", "/v1/limits", f"/tx/status/tx-0-{'0' * 31}"):
            assert (await shop.http.get(path, headers=ADMIN)).status_code == 404
        assert (await shop.http.get("/metrics")).status_code == 200


@on_both_places
async def test_metrics_tell_of_transactions(shop: Shop) -> None:
    await shop.deploy("checkout", "add")
    async with shop.working():
        for _ in range(3):
            await shop.ended(await shop.started())
        await shop.started(delay_ms=600_000)
    for accept in ("text/plain", "application/openmetrics-text"):
        text = (await shop.http.get("/metrics", headers={"Accept": accept})).text
        assert 'penstock_transactions_last_day{event="queued",pipeline="checkout"} 4.0' in text
        assert 'penstock_transactions_ended_last_day{pipeline="checkout",status="success"} 3.0' in text
        assert 'penstock_transactions{state="sleeping"} 1.0' in text


@on_one_place
async def test_a_delay_sleeps_in_the_store(shop: Shop) -> None:
    await shop.deploy("checkout", Delay(600_000), "add")
    async with shop.working():
        tx = await shop.started(input={"n": 1})

        async def is_asleep() -> bool:
            return bool((await shop.look(tx)).json()["state"] == "sleeping")

        await until(is_asleep)
        assert json.loads((await shop.look(tx)).content)["wakes_ms"] > 0
        await shop.control(tx, "wake")
        assert (await shop.ended(tx))["output"] == {"n": 2}
