"""``/v1/channels``: messages and subscriptions as resources, on a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.harness import (
    TOKENS,
    RawClient,
    V1Worker,
    on_both_places,
    on_every_place,
    on_one_place,
    v1_worker,
)
from tests.places import until

MESSAGES = "/v1/channels/room/messages"
ANN = "/v1/channels/room/subscriptions/ann"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[V1Worker]:
    async with v1_worker(tmp_path, storage) as worker:
        yield worker


# ------------------------------------------------------------------------------ publishing


@on_both_places
async def test_publishing_answers_201_then_200(worker: V1Worker) -> None:
    first = await worker.http.post(MESSAGES, params={"id": "m1"}, content=b' {"n": 1.50} ')
    assert first.status_code == 201
    assert first.json() == {"id": "m1", "duplicate": False}
    assert first.headers["location"] == "/v1/channels/room/messages/m1"
    again = await worker.http.post(MESSAGES, headers={"Message-Id": "m1"}, content=b"2")
    assert again.status_code == 200
    assert again.json() == {"id": "m1", "duplicate": True}
    read = await worker.http.get(first.headers["location"])
    assert read.content == b'{"id":"m1","content":{"n":1.50},"clock":1}'


@on_one_place
async def test_ids_come_from_the_query_then_headers_then_nowhere(worker: V1Worker) -> None:
    async def id_of(params: dict[str, str], headers: dict[str, str]) -> str:
        answer = await worker.http.post(MESSAGES, params=params, headers=headers, content=b"1")
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    both = {"Message-Id": "from-header", "Idempotency-Key": "from-key"}
    assert await id_of({"id": "from-query"}, both) == "from-query"
    assert await id_of({}, both) == "from-header"
    assert await id_of({}, {"Idempotency-Key": "from-key"}) == "from-key"
    assert await id_of({}, {"Idempotency-Key": '"from-key"'}) == "from-key"
    made = await id_of({}, {})
    assert made.startswith("msg-")
    assert made != await id_of({}, {})


@on_one_place
async def test_a_key_that_is_no_id_still_makes_repeating_safe(worker: V1Worker) -> None:
    headers = {"Idempotency-Key": "Order 17/A"}
    first = await worker.http.post(MESSAGES, headers=headers, content=b"1")
    again = await worker.http.post(MESSAGES, headers=headers, content=b"1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = await worker.http.post(MESSAGES, headers={"Idempotency-Key": "Order 17/B"}, content=b"1")
    assert other.json()["id"] != first.json()["id"]


@on_one_place
@pytest.mark.parametrize(
    ("path", "content", "status", "code"),
    [
        (f"{MESSAGES}?id=UPPER", b"1", 400, "invalid-parameter"),
        (f"{MESSAGES}?id=", b"1", 400, "invalid-parameter"),
        (MESSAGES, b"", 400, "content-malformed"),
        (MESSAGES, b"{", 400, "content-malformed"),
        ("/v1/channels/UPPER/messages", b"1", 400, "invalid-parameter"),
        (MESSAGES, b'"' + b"x" * 2_000_000 + b'"', 413, "body-too-large"),
        (f"{MESSAGES}?id=%FF", b"1", 400, "bad-encoding"),
    ],
)
async def test_what_cannot_be_published_is_a_problem(
    worker: V1Worker, path: str, content: bytes, status: int, code: str
) -> None:
    answer = await worker.http.post(path, content=content)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["code"], answer.json()["status"]) == (code, status)
    assert (await worker.http.get("/v1/channels/room")).status_code == 404


@on_every_place
async def test_a_batch_is_published_in_order_and_keeps_the_spelling(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish("old", 0)
    body = (
        b'{"messages":[{"id":"a","content":1.0},{"id":"old","content":2},'
        b'{"content":{"b":1,"a":2}},{"id":"a","content":3}]}'
    )
    answer = await worker.http.post("/v1/channels/room/batch", content=body)
    assert answer.status_code == 200
    results = answer.json()["messages"]
    assert [result["duplicate"] for result in results] == [False, True, False, True]
    assert results[2]["id"].startswith("msg-")
    fetched = await worker.http.get(f"{ANN}/messages")
    assert [message["id"] for message in fetched.json()["messages"]] == ["old", "a", results[2]["id"]]
    assert b'"content":1.0,' in fetched.content
    assert b'"content":{"b":1,"a":2},' in fetched.content


@on_one_place
async def test_a_bad_batch_names_every_fault_and_publishes_nothing(worker: V1Worker) -> None:
    messages = [{"id": "good", "content": 1}, {"id": "BAD", "content": 2}, {"id": "", "content": 3}]
    answer = await worker.http.post("/v1/channels/room/batch", json={"messages": messages})
    assert answer.status_code == 400
    assert [error["name"] for error in answer.json()["errors"]] == ["messages[1].id", "messages[2].id"]
    for body in ({"messages": []}, {"messages": [{"id": "x"}]}, {}, {"messages": [{"content": 1}] * 1_001}):
        assert (await worker.http.post("/v1/channels/room/batch", json=body)).status_code == 400
    assert (await worker.http.get("/v1/channels/room")).status_code == 404


@on_one_place
async def test_a_thousand_messages_are_one_batch(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(1_000)
    assert await worker.unread() == 1_000


@on_one_place
async def test_messages_that_are_not_there(worker: V1Worker) -> None:
    missing = await worker.http.get(f"{MESSAGES}/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "message-not-found")
    assert (await worker.http.get(f"{MESSAGES}/UPPER")).status_code == 400


# ----------------------------------------------------------------------------- subscriptions


@on_both_places
async def test_a_subscription_is_made_once_and_removed_once(worker: V1Worker) -> None:
    made = await worker.subscribe()
    assert (made.status_code, made.json()) == (201, {"subscriber": "ann", "unread": 0})
    assert made.headers["location"] == ANN
    await worker.publish("m1", 1)
    again = await worker.subscribe()
    assert (again.status_code, again.json()) == (200, {"subscriber": "ann", "unread": 1})
    assert (await worker.http.get(ANN)).json() == {"subscriber": "ann", "unread": 1}
    assert (await worker.http.delete(ANN)).status_code == 204
    gone = await worker.http.delete(ANN)
    assert (gone.status_code, gone.json()["code"]) == (404, "subscription-not-found")
    assert (await worker.http.get(ANN)).status_code == 404
    assert (await worker.http.get(f"{ANN}/messages")).status_code == 404


@on_every_place
async def test_fetch_then_ack_then_nothing(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(3)
    batch = (await worker.http.get(f"{ANN}/messages", params={"limit": 2})).json()
    assert [(message["id"], message["clock"]) for message in batch["messages"]] == [("m1", 1), ("m2", 2)]
    assert batch["more"] is True
    ahead = await worker.http.get(f"{ANN}/messages", params={"after": batch["receipt"]})
    assert [message["id"] for message in ahead.json()["messages"]] == ["m3"]
    assert await worker.unread() == 3
    acked = await worker.http.post(f"{ANN}/ack", json={"receipt": batch["receipt"]})
    assert acked.json() == {"moved": True}
    again = await worker.http.post(f"{ANN}/ack", json={"receipt": batch["receipt"]})
    assert (again.status_code, again.json()) == (200, {"moved": False})
    assert await worker.unread() == 1


@on_both_places
async def test_nack_brings_the_same_again_after_its_delay(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish("m1", 1)
    receipt = (await worker.http.get(f"{ANN}/messages")).json()["receipt"]
    returned = await worker.http.post(f"{ANN}/nack", json={"receipt": receipt, "delay_ms": 300})
    assert returned.json() == {"returned": True}
    held = (await worker.http.get(f"{ANN}/messages")).json()
    assert held == {"messages": [], "more": False, "receipt": None}
    waited = await worker.http.get(f"{ANN}/messages", params={"wait": "10s"})
    assert [message["id"] for message in waited.json()["messages"]] == ["m1"]
    for body in (
        {"receipt": receipt, "delay_ms": -1},
        {"delay_ms": 1},
        {"receipt": receipt, "delay_ms": 2**40},
    ):
        assert (await worker.http.post(f"{ANN}/nack", json=body)).status_code == 400


@on_both_places
@pytest.mark.parametrize("asked", [{"params": {"wait": "10s"}}, {"headers": {"Prefer": "wait=10"}}])
async def test_a_waiting_fetch_gets_what_is_published(worker: V1Worker, asked: dict[str, Any]) -> None:
    await worker.subscribe()
    waiting = asyncio.create_task(worker.http.get(f"{ANN}/messages", **asked))
    await until(lambda: worker.services.waiting == 1)
    await worker.publish("m1", {"late": True})
    answer = await waiting
    assert [message["content"] for message in answer.json()["messages"]] == [{"late": True}]
    assert worker.services.waiting == 0


@on_both_places
async def test_the_backlog_is_read_by_pages_and_stays(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.publish_many(5)
    found: list[str] = []
    path: str | None = f"{ANN}/backlog?limit=2"
    while path is not None:
        answer = await worker.http.get(path)
        assert answer.json()["unread"] == 5
        found += [message["id"] for message in answer.json()["messages"]]
        following = answer.links.get("next")
        assert (following is None) == (answer.json()["cursor"] is None)
        path = None if following is None else following["url"]
    assert found == ["m1", "m2", "m3", "m4", "m5"]
    behind = await worker.http.get(f"{ANN}/backlog", params={"after": 3})
    assert [message["id"] for message in behind.json()["messages"]] == ["m4", "m5"]
    assert await worker.unread() == 5


@on_one_place
@pytest.mark.parametrize(
    "query",
    [
        "messages?limit=0",
        "messages?limit=x",
        "messages?wait=20",
        "messages?after=nonsense",
        "backlog?cursor=!!",
        "backlog?after=x",
        "backlog?after=99999999999999999999",
        "events?for=soon",
        "events?window=0",
        "events?ack=maybe",
        "events?create=yes",
        "events?for=-1s",
    ],
)
async def test_bad_queries_are_refused(worker: V1Worker, query: str) -> None:
    await worker.subscribe()
    answer = await worker.http.get(f"{ANN}/{query}")
    assert answer.status_code == 400
    assert answer.json()["code"] in ("invalid-parameter", "receipt-malformed")


@on_one_place
async def test_a_receipt_of_somebody_else_is_refused(worker: V1Worker) -> None:
    await worker.subscribe()
    await worker.subscribe("bob")
    await worker.publish("m1", 1)
    receipt = (await worker.http.get(f"{ANN}/messages")).json()["receipt"]
    stolen = await worker.http.post("/v1/channels/room/subscriptions/bob/ack", json={"receipt": receipt})
    assert (stolen.status_code, stolen.json()["code"]) == (400, "receipt-malformed")
    assert await worker.unread("bob") == 1


# ---------------------------------------------------------------------------------- looking


@on_every_place
async def test_channels_are_listed_by_pages_and_globs(worker: V1Worker) -> None:
    for name in ("a-2", "a-1", "b-1", "a-3"):
        await worker.publish("m", 1, channel=name)
    first = await worker.http.get("/v1/channels", params={"limit": 2, "match": "a-*"})
    assert first.json()["channels"] == ["a-1", "a-2"]
    rest = await worker.http.get(first.links["next"]["url"])
    assert rest.json() == {"channels": ["a-3"], "cursor": None}
    assert "link" not in rest.headers
    everything = await worker.http.get("/v1/channels")
    assert everything.json()["channels"] == ["a-1", "a-2", "a-3", "b-1"]


@on_both_places
async def test_a_channel_tells_its_clock_and_subscribers(worker: V1Worker) -> None:
    for name in ("bob", "ann", "cid"):
        await worker.subscribe(name)
    await worker.publish_many(2)
    info = (await worker.http.get("/v1/channels/room")).json()
    assert (info["name"], info["clock"]) == ("room", 2)
    assert 1_700_000 < info["ttl_ms"] <= 1_815_000
    assert info["subscriptions"][0] == {"subscriber": "ann", "unread": 2}
    first = await worker.http.get("/v1/channels/room/subscriptions", params={"limit": 2})
    assert [each["subscriber"] for each in first.json()["subscriptions"]] == ["ann", "bob"]
    rest = await worker.http.get(first.links["next"]["url"])
    assert [each["subscriber"] for each in rest.json()["subscriptions"]] == ["cid"]
    assert (await worker.http.get("/v1/channels/hall/subscriptions")).json()["subscriptions"] == []


# ----------------------------------------------------------------------------- rules and rights


@on_one_place
async def test_channels_without_a_rule_do_not_exist(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, channels=[{"regex": "room.*"}]) as worker:
        answer = await worker.http.post("/v1/channels/hall/messages", content=b"1")
        assert (answer.status_code, answer.json()["code"]) == (404, "channel-not-configured")
        await worker.publish("m", 1)
        await worker.services.channels.publish("hall", [("m", b"1")], expire_ms=60_000)
        assert (await worker.http.get("/v1/channels")).json()["channels"] == ["room"]


@on_one_place
async def test_tokens_open_what_they_grant(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, requireTokens=True, tokens=TOKENS) as worker:
        everything = {"Authorization": "Bearer all-rights-secret"}
        reader = {"Authorization": "Bearer reader-secret-123"}
        for name in ("room", "room-2", "hall"):
            path = f"/v1/channels/{name}/messages?id=m"
            assert (await worker.http.post(path, content=b"1", headers=everything)).status_code == 201
        assert (await worker.http.get("/v1/channels")).status_code == 401
        listed = await worker.http.get("/v1/channels", headers=reader)
        assert listed.json()["channels"] == ["room", "room-2"]
        refused = await worker.http.post(f"{MESSAGES}?id=n", content=b"1", headers=reader)
        assert (refused.status_code, refused.json()["code"]) == (403, "auth-forbidden")
        assert (await worker.http.get(f"{MESSAGES}/m", headers=reader)).status_code == 200
        assert (await worker.http.get("/v1/channels/hall/messages/m", headers=reader)).status_code == 403
        nobody = await worker.http.get(f"{MESSAGES}/m")
        assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")


@on_one_place
async def test_pages_of_other_sites_cannot_publish(tmp_path: Path, storage: dict[str, Any]) -> None:
    cors = {"cors": {"origins": ["https://friend.example"]}}
    async with v1_worker(tmp_path, storage, http=cors) as worker:

        async def status(**headers: str) -> int:
            spelt = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await worker.http.post(MESSAGES, content=b"1", headers=spelt)).status_code

        assert await status(Origin="https://evil.example") == 403
        assert await status(Origin="null") == 403
        assert await status(Origin="https://evil.example", Sec_Fetch_Site="cross-site") == 403
        assert await status(Origin="https://friend.example") == 201
        assert await status(Origin=f"http://127.0.0.1:{worker.port}") == 201
        assert await status(Origin="https://behind.proxy", Sec_Fetch_Site="same-origin") == 201
        assert await status() == 201


@on_one_place
async def test_publishing_too_fast_is_told_when_to_come_again(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    limits = {"limits": {"publishPerSecond": 0.5, "burst": 10}}
    async with v1_worker(tmp_path, storage, http=limits) as worker:
        await worker.publish_many(10)
        answer = await worker.http.post(MESSAGES, content=b"1")
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["retryable"] is True


@on_one_place
async def test_a_prefix_stands_before_every_link(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, http={"pathPrefix": "/gate/way"}) as worker:
        made = await worker.http.post(MESSAGES, params={"id": "m1"}, content=b"1")
        assert made.headers["location"] == "/gate/way/v1/channels/room/messages/m1"
        await worker.publish("m", 1, channel="room-2")
        listed = await worker.http.get("/v1/channels", params={"limit": 1})
        assert listed.links["next"]["url"].startswith("/gate/way/v1/channels?")


# ------------------------------------------------------------------------------------ faults


@on_both_places
async def test_a_client_that_vanishes_frees_its_place(worker: V1Worker) -> None:
    await worker.subscribe()
    clients = [await RawClient.get(worker.port, f"{ANN}/messages?wait=30s") for _ in range(20)]
    await until(lambda: worker.services.waiting == 20 and worker.services.channels.waiting == 20)
    for client in clients:
        client.vanish()
    await until(lambda: worker.services.waiting == 0 and worker.services.channels.waiting == 0)


@on_one_place
async def test_more_waiters_than_allowed_are_sent_away(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with v1_worker(tmp_path, storage, http={"limits": {"idlePolls": 1}}) as worker:
        await worker.subscribe()
        waiting = await RawClient.get(worker.port, f"{ANN}/messages?wait=30s")
        await until(lambda: worker.services.waiting == 1)
        for path in (f"{ANN}/messages?wait=1s", f"{ANN}/events"):
            refused = await worker.http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        waiting.vanish()
        await until(lambda: worker.services.waiting == 0)


async def test_a_store_that_is_down_is_503_with_a_time(tmp_path: Path) -> None:
    storage = {"redis": {"singleNode": "127.0.0.1:1", "timeout": {"connect": "200ms", "read": "300ms"}}}
    async with v1_worker(tmp_path, storage) as worker:
        asked = [
            worker.http.post(MESSAGES, content=b"1"),
            worker.http.put(ANN),
            worker.http.get(f"{ANN}/messages"),
            worker.http.get(f"{ANN}/events"),
            worker.http.get("/v1/channels"),
        ]
        for answer in await asyncio.gather(*asked):
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) >= 1
            problem = json.loads(answer.content)
            assert (problem["code"], problem["retryable"]) == ("unavailable", True)


@on_one_place
async def test_a_site_that_is_listed_may_ask_and_every_header_comes_once(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    site = "https://app.example"
    async with v1_worker(tmp_path, storage, http={"cors": {"origins": [site]}}) as worker:
        asked = {"Origin": site, "Access-Control-Request-Method": "PUT"}
        preflight = await worker.http.options(ANN, headers=asked)
        made = await worker.http.put(ANN, headers={"Origin": site})
        assert (preflight.status_code, made.status_code) == (204, 201)
        for answer in (preflight, made):
            assert answer.headers.get_list("access-control-allow-origin") == [site]
        stranger = await worker.http.options(ANN, headers={**asked, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in stranger.headers
