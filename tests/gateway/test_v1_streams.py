"""``/v1/streams``: append, read, look after, and who may; on a real port."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.whole import ADMIN, ORDERS, Whole, append, code_of, data_of, on_every_place, whole_worker

GROUP = ORDERS + "/groups/billing"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        yield worker


# ------------------------------------------------------------------------------ appending


@on_both_places
async def test_one_message_is_appended_byte_by_byte(worker: Whole) -> None:
    data = bytes(range(256))
    answer = await worker.http.post(ORDERS, content=data, headers={"Stream-Tag": "eu"})
    assert answer.status_code == 201
    assert answer.json() == {"first": 1, "last": 1}
    assert answer.headers["stream-next-offset"] == "2"
    assert answer.headers["location"] == ORDERS
    (message,) = (await worker.http.get(ORDERS)).json()["messages"]
    assert base64.b64decode(message["data_base64"]) == data
    assert message["tag"] == "eu"
    assert "data" not in message


@on_every_place
async def test_a_batch_is_appended_as_a_whole(worker: Whole) -> None:
    batch = [
        {"tag": "a", "data": "ü"},
        {
            "tag_base64": base64.b64encode(b"\xff").decode(),
            "data_base64": base64.b64encode(b"\x00\xfe").decode(),
        },
        {"data": ""},
    ]
    assert (await worker.http.post(ORDERS, json=batch)).json() == {"first": 1, "last": 3}
    lines = "\n".join(json.dumps(each) for each in batch) + "\n\n"
    answer = await worker.http.post(
        ORDERS, content=lines, headers={"Content-Type": "application/x-ndjson; x=y"}
    )
    assert answer.json() == {"first": 4, "last": 6}
    messages = (await worker.http.get(ORDERS)).json()["messages"]
    for at, message in enumerate(messages):
        expected = {"tag": "", **batch[at % 3]} if "tag_base64" not in batch[at % 3] else batch[at % 3]
        assert {name: value for name, value in message.items() if name not in ("offset", "time")} == expected
        assert message["offset"] == at + 1


@on_one_place
@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b"[]", "application/json", "invalid-body"),
        (b"{}", "application/json", "invalid-body"),
        (b"[{}]", "application/json", "invalid-body"),
        (b'[{"data":"a","data_base64":"YQ=="}]', "application/json", "invalid-body"),
        (b'[{"data":"a","tag":"a","tag_base64":"YQ=="}]', "application/json", "invalid-body"),
        (b'[{"data_base64":"%"}]', "application/json", "invalid-body"),
        (b'[{"data":1}]', "application/json", "invalid-body"),
        (b"[", "application/json", "content-malformed"),
        (b"\xff", "application/json", "content-malformed"),
        (b'{"data":"a"}\n{', "application/x-ndjson", "content-malformed"),
        (b"\n \n", "application/x-ndjson", "invalid-body"),
        (b'[{"data":null}]', "application/json", "invalid-parameter"),
        (b'[{"tag":"a","data":null},{"data":"a"}]', "application/json", "invalid-parameter"),
    ],
)
async def test_a_bad_batch_writes_nothing(worker: Whole, body: bytes, media: str, code: str) -> None:
    answer = await worker.http.post(ORDERS, content=body, headers={"Content-Type": media})
    assert code_of(answer) == (400, code)
    assert data_of(await worker.http.get(ORDERS)) == []


@on_one_place
async def test_a_batch_has_a_limit(worker: Whole) -> None:
    answer = await worker.http.post(ORDERS, json=[{"data": ""}] * 10_001)
    assert code_of(answer) == (413, "batch-too-large")
    assert (await worker.http.post(ORDERS, json=[{"data": ""}] * 10_000)).json()["last"] == 10_000


@on_both_places
async def test_a_tombstone_is_null(worker: Whole) -> None:
    assert (await worker.http.post(ORDERS, json=[{"tag": "a", "data": None}])).status_code == 201
    (message,) = (await worker.http.get(ORDERS)).json()["messages"]
    assert message["data"] is None


@on_both_places
async def test_an_expected_offset_that_is_another_one_is_refused(worker: Whole) -> None:
    await append(worker, 3)
    refused = await worker.http.post(ORDERS, content=b"x", headers={"Stream-Expected-Last": "2"})
    assert code_of(refused) == (409, "offset-mismatch")
    assert "the last offset is 3" in refused.json()["detail"]
    taken = await worker.http.post(ORDERS, content=b"x", headers={"Stream-Expected-Last": "3"})
    assert taken.json() == {"first": 4, "last": 4}


@on_every_place
async def test_a_producer_may_repeat_itself(worker: Whole) -> None:
    async def send(number: int, *data: str) -> httpx.Response:
        headers = {"Producer-Id": "host-1", "Producer-Seq": str(number)}
        return await worker.http.post(ORDERS, json=[{"data": each} for each in data], headers=headers)

    assert (await send(5, "a", "b")).json() == {"first": 1, "last": 2}
    assert (await send(5, "a", "b")).json() == {"first": 1, "last": 2}
    assert code_of(await send(6, "b", "c")) == (409, "producer-sequence")
    assert (await send(100, "c")).json() == {"first": 3, "last": 3}
    assert data_of(await worker.http.get(ORDERS)) == ["a", "b", "c"]


@on_one_place
@pytest.mark.parametrize(
    "headers",
    [
        {"Producer-Id": "p"},
        {"Producer-Seq": "1"},
        {"Producer-Id": "", "Producer-Seq": "1"},
        {"Producer-Id": "p", "Producer-Seq": "-1"},
        {"Producer-Id": "p", "Producer-Seq": "18446744073709551616"},
        {"Stream-Expected-Last": "now"},
    ],
)
async def test_headers_are_checked_before_anything_is_written(worker: Whole, headers: dict[str, str]) -> None:
    assert code_of(await worker.http.post(ORDERS, content=b"x", headers=headers)) == (
        400,
        "invalid-parameter",
    )
    assert data_of(await worker.http.get(ORDERS)) == []


@on_one_place
async def test_pages_of_other_sites_cannot_append(worker: Whole) -> None:
    answer = await worker.http.post(ORDERS, content=b"x", headers={"Origin": "https://elsewhere.example"})
    assert code_of(answer) == (403, "origin-not-allowed")


# ------------------------------------------------------------------------------ reading


@on_both_places
async def test_pages_lead_to_the_end(worker: Whole) -> None:
    await append(worker, 5)
    first = await worker.http.get(ORDERS, params={"limit": 2})
    assert data_of(first) == ["1", "2"]
    assert first.json()["next"] == 3
    assert first.headers["stream-next-offset"] == "3"
    assert "stream-up-to-date" not in first.headers
    rest = await worker.http.get(ORDERS, params={"offset": 3, "limit": 100})
    assert data_of(rest) == ["3", "4", "5"]
    assert rest.headers["stream-next-offset"] == "6"
    assert rest.headers["stream-up-to-date"] == "true"
    beyond = await worker.http.get(ORDERS, params={"offset": 6})
    assert (data_of(beyond), beyond.json()["next"]) == ([], 6)
    message = first.json()["messages"][0]
    assert message["time"] > 1_700_000_000_000


@on_both_places
async def test_offsets_have_names(worker: Whole) -> None:
    for offset, expected, following in (("earliest", [], 1), ("latest", [], 1), ("now", [], 1)):
        answer = await worker.http.get(ORDERS, params={"offset": offset})
        assert (data_of(answer), answer.json()["next"]) == (expected, following)
    await append(worker, 3)
    for offset, expected in (
        ("earliest", ["1", "2", "3"]),
        ("0", ["1", "2", "3"]),
        ("latest", ["3"]),
        ("now", []),
    ):
        answer = await worker.http.get(ORDERS, params={"offset": offset})
        assert (data_of(answer), answer.json()["next"]) == (expected, 4), offset


@on_both_places
async def test_what_was_evicted_is_gone(worker: Whole) -> None:
    await append(worker, 10)
    await worker.services.store.stream("orders").evict(upto=4)
    gone = await worker.http.get(ORDERS, params={"offset": 4})
    assert code_of(gone) == (410, "offset-gone")
    assert gone.headers["stream-first-offset"] == "5"
    for live in ("long-poll", "sse"):
        assert code_of(await worker.http.get(ORDERS, params={"offset": 1, "live": live})) == (
            410,
            "offset-gone",
        )
    assert data_of(await worker.http.get(ORDERS, params={"offset": 5}))[0] == "5"
    assert data_of(await worker.http.get(ORDERS))[0] == "5"


@on_both_places
async def test_a_tag_is_found_among_others(worker: Whole) -> None:
    for at in range(6):
        await append(worker, 1, tag="even" if at % 2 == 0 else "odd", start=at)
    page = await worker.http.get(ORDERS, params={"tag": "odd", "limit": 2})
    assert (data_of(page), page.json()["next"]) == (["1", "3"], 5)
    page = await worker.http.get(ORDERS, params={"tag": "odd", "limit": 2, "offset": 5})
    assert (data_of(page), page.headers["stream-up-to-date"]) == (["5"], "true")
    none = await worker.http.get(ORDERS, params={"tag": "none"})
    assert (data_of(none), none.json()["next"]) == ([], 7)


@on_one_place
async def test_the_search_for_a_tag_is_bounded(worker: Whole) -> None:
    await append(worker, 10_000)
    await append(worker, 2_000)
    await append(worker, 1, tag="rare", start=7)
    page = await worker.http.get(ORDERS, params={"tag": "rare"})
    assert (data_of(page), page.json()["next"]) == ([], 10_001)
    assert "stream-up-to-date" not in page.headers
    assert data_of(await worker.http.get(ORDERS, params={"tag": "rare", "offset": 10_001})) == ["7"]


@on_one_place
@pytest.mark.parametrize(
    "params",
    [
        {"offset": "-1"},
        {"offset": "first"},
        {"offset": "18446744073709551616"},
        {"limit": "0"},
        {"limit": "x"},
        {"live": "yes"},
        {"live": "long-poll", "wait": "soon"},
        {"live": "sse", "for": "0s"},
        {"live": "sse", "for": "x"},
    ],
)
async def test_bad_values_are_named(worker: Whole, params: dict[str, str]) -> None:
    answer = await worker.http.get(ORDERS, params=params)
    assert code_of(answer) == (400, "invalid-parameter")
    assert answer.json()["errors"][0]["name"] in params


# ------------------------------------------------------------------------------ looking after


@on_every_place
async def test_a_stream_is_made_and_changed(worker: Whole) -> None:
    made = await worker.http.put(ORDERS, headers=ADMIN)
    assert made.status_code == 201
    assert made.headers["location"] == ORDERS
    assert made.json()["policy"]["retain_ms"] == 0
    changed = await worker.http.put(ORDERS, headers=ADMIN, json={"retain_ms": 60_000, "compact": True})
    assert changed.status_code == 200
    assert changed.json()["policy"]["retain_ms"] == 60_000
    again = await worker.http.put(ORDERS, headers=ADMIN, json={"retain_acked": True})
    assert again.json()["policy"]["compact"] is True
    await append(worker, 2)
    info = await worker.http.get(ORDERS + "/info")
    assert info.json()["name"] == "orders"
    assert (info.json()["info"]["first"], info.json()["info"]["last"]) == (1, 2)
    assert info.json()["policy"] == again.json()["policy"]


@on_both_places
async def test_a_stream_is_deleted_once(worker: Whole) -> None:
    await append(worker, 2)
    assert (await worker.http.delete(ORDERS, headers=ADMIN)).status_code == 204
    assert code_of(await worker.http.delete(ORDERS, headers=ADMIN)) == (404, "stream-not-found")
    assert code_of(await worker.http.get(ORDERS + "/info")) == (404, "stream-not-found")
    assert await append(worker, 1) == 1


@on_both_places
async def test_what_is_no_stream_is_left_alone(worker: Whole) -> None:
    await worker.services.store.set("orders", "precious")
    answers = [
        await worker.http.delete(ORDERS, headers=ADMIN),
        await worker.http.put(ORDERS, headers=ADMIN, json={"retain_ms": 1}),
        await worker.http.post(ORDERS, content=b"x"),
        await worker.http.get(ORDERS),
        await worker.http.get(ORDERS + "/info"),
        await worker.http.put(GROUP),
        await worker.http.post(GROUP + "/read", json={"consumer": "c"}),
    ]
    assert {code_of(answer) for answer in answers} == {(409, "wrong-type")}
    assert await worker.services.store.get("orders") == b"precious"


@on_one_place
@pytest.mark.parametrize(
    "policy",
    [
        {"retain_ms": -1},
        {"dirty_ratio": 101},
        {"node_messages": 0},
        {"compact": "yes"},
        [],
        {"retain_ms": 1.5},
    ],
)
async def test_a_bad_policy_makes_no_stream(worker: Whole, policy: Any) -> None:
    answer = await worker.http.put(ORDERS, headers=ADMIN, json=policy)
    assert code_of(answer) == (400, "invalid-body")
    assert (await worker.http.get(ORDERS + "/info")).status_code == 404


@on_one_place
async def test_a_policy_that_the_store_refuses_is_the_callers_fault(worker: Whole) -> None:
    answer = await worker.http.put(ORDERS, headers=ADMIN, json={"node_bytes": 2**60})
    assert answer.status_code == 400
    assert "node" in answer.json()["detail"].lower()


@on_every_place
async def test_streams_are_listed_in_order_by_pages(worker: Whole) -> None:
    names = [f"s{number:02}" for number in range(7)] + ["a/b", "ünï"]
    for name in names:
        await append(worker, 1, path=f"/v1/streams/{quote(name, safe='')}")
    await worker.services.store.set("no-stream", "x")
    found: list[str] = []
    path: str | None = "/v1/streams?limit=4"
    while path:
        answer = await worker.http.get(path)
        found += answer.json()["streams"]
        link = answer.headers.get("link")
        path = None if link is None else link[1 : link.index(">")]
        assert (answer.json()["cursor"] is None) == (path is None)
    assert found == sorted(names)
    matched = await worker.http.get("/v1/streams", params={"match": "s0[12]"})
    assert matched.json() == {"streams": ["s01", "s02"], "cursor": None}


@on_both_places
async def test_names_are_percent_encoded(worker: Whole) -> None:
    path = "/v1/streams/" + quote("a/b ü%?", safe="")
    answer = await worker.http.post(path, content=b"x")
    assert answer.headers["location"] == path
    assert (await worker.services.store.stream("a/b ü%?").info()).last == 1
    assert data_of(await worker.http.get(path)) == ["x"]


# ------------------------------------------------------------------------------ permission


@on_one_place
async def test_rules_decide_what_is_there(tmp_path: Path, storage: dict[str, Any]) -> None:
    rules = [{"regex": "read-.+"}, {"regex": "write-.+", "readable": False, "writable": True}]
    async with whole_worker(tmp_path, storage, streams=rules) as worker:
        http = worker.http
        assert code_of(await http.get("/v1/streams/other")) == (404, "stream-not-configured")
        assert code_of(await http.post("/v1/streams/other", content=b"")) == (404, "stream-not-configured")
        assert code_of(await http.get(f"/v1/streams/read-{'x' * 300}")) == (404, "stream-not-configured")
        assert code_of(await http.get("/v1/streams/")) == (404, "stream-not-configured")
        assert (await http.get("/v1/streams/read-1")).status_code == 200
        assert code_of(await http.post("/v1/streams/read-1", content=b"")) == (403, "stream-not-writable")
        assert code_of(await http.delete("/v1/streams/read-1", headers=ADMIN)) == (403, "stream-not-writable")
        assert (await http.post("/v1/streams/write-1", content=b"")).status_code == 201
        for path in ("", "/info", "/groups", "/groups/g", "/groups/g/pending"):
            assert code_of(await http.get("/v1/streams/write-1" + path)) == (403, "stream-not-readable")
        assert (await http.get("/v1/streams")).json()["streams"] == []


@on_one_place
@pytest.mark.parametrize(
    "name",
    [
        "penstock.tokens",
        "c.{room}.clock",
        "jwt.{x}.revoke",
        "{webhooks}:deliveries",
        "webhooks.channels",
        "channels.secret",
        "{orders}:meta",
        "{shop}orders::groups",
    ],
)
async def test_keys_of_the_gateway_are_no_streams(worker: Whole, name: str) -> None:
    path = f"/v1/streams/{quote(name, safe='')}"
    assert code_of(await worker.http.post(path, content=b"x")) == (404, "stream-not-configured")
    assert code_of(await worker.http.put(path, headers=ADMIN)) == (404, "stream-not-configured")
    assert not await worker.services.store.exists(name)


@on_one_place
async def test_names_like_those_of_the_gateway_are_streams(worker: Whole) -> None:
    for name in ("penstock", "webhooks.channels2", "channels.orders", "orders:meta", "cc.{room}"):
        answer = await worker.http.post(f"/v1/streams/{quote(name, safe='')}", content=b"x")
        assert answer.status_code == 201, name


@on_one_place
async def test_tokens_decide_who_may(tmp_path: Path, storage: dict[str, Any]) -> None:
    tokens = [
        {"name": "w", "secret": "writers-secret-123", "scopes": ["publish"], "streams": ["or*"]},
        {"name": "r", "secret": "readers-secret-123", "scopes": ["subscribe", "read"], "streams": ["orders"]},
    ]
    async with whole_worker(tmp_path, storage, tokens=tokens, requireTokens=True) as worker:
        writer = {"Authorization": "Bearer writers-secret-123"}
        reader = {"Authorization": "Bearer readers-secret-123"}
        assert (await worker.http.get(ORDERS)).status_code == 401
        assert (await worker.http.get("/v1/streams")).status_code == 401
        assert (await worker.http.post(ORDERS, content=b"x", headers=writer)).status_code == 201
        assert (
            await worker.http.post("/v1/streams/orchids", content=b"x", headers=writer)
        ).status_code == 201
        assert (await worker.http.post("/v1/streams/bills", content=b"x", headers=writer)).status_code == 403
        assert (await worker.http.get(ORDERS, headers=writer)).status_code == 403
        assert data_of(await worker.http.get(ORDERS, headers=reader)) == ["x"]
        assert (await worker.http.post(ORDERS, content=b"x", headers=reader)).status_code == 403
        assert (await worker.http.put(ORDERS, headers=reader)).status_code == 403
        listed = await worker.http.get("/v1/streams", headers=reader)
        assert listed.json()["streams"] == ["orders"]


@on_one_place
async def test_dead_letters_go_only_where_the_caller_may_write(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    rules = [{"regex": "orders"}, {"regex": "dead", "writable": True}]
    async with whole_worker(tmp_path, storage, streams=rules) as worker:
        refused = await worker.http.put(GROUP, json={"dead_letter": "orders"})
        assert code_of(refused) == (403, "stream-not-writable")
        refused = await worker.http.put(GROUP, json={"dead_letter": "penstock.tokens"})
        assert code_of(refused) == (404, "stream-not-configured")
        assert (await worker.http.put(GROUP, json={"dead_letter": "dead"})).status_code == 201


# ------------------------------------------------------------------------------ faults


async def test_a_store_that_is_away_is_told(tmp_path: Path) -> None:
    storage = {"redis": {"singleNode": "127.0.0.1:1", "timeout": {"connect": "200ms", "read": "200ms"}}}
    async with whole_worker(tmp_path, storage) as worker:
        for answer in (
            await worker.http.get(ORDERS),
            await worker.http.post(ORDERS, content=b"x"),
            await worker.http.get("/v1/streams"),
            await worker.http.post(GROUP + "/read", json={"consumer": "c"}),
        ):
            assert code_of(answer) == (503, "unavailable")
            assert answer.json()["retryable"] is True
            assert int(answer.headers["retry-after"]) >= 1
