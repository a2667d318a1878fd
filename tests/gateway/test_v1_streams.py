"""``/v1/streams``: append, read, follow, look after, and groups; on a real port."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from penstock.gateway.v1.stream_reading import Page, StreamReader
from tests.gateway.conftest import until
from tests.gateway.harness import RawClient, on_both_places, on_one_place
from tests.gateway.whole import ADMIN, Whole, whole_worker

ORDERS = "/v1/streams/orders"
GROUP = ORDERS + "/groups/billing"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        yield worker


async def append(worker: Whole, count: int, tag: str = "", start: int = 1, path: str = ORDERS) -> int:
    """Messages whose data is their number; the last offset."""
    batch = [{"tag": tag, "data": str(number)} for number in range(start, start + count)]
    answer = await worker.http.post(path, json=batch)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["last"])


def data_of(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [message["data"] for message in answer.json()["messages"]]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    return answer.status_code, problem["code"]


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


@on_both_places
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


@on_both_places
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


# ------------------------------------------------------------------------------ waiting


@on_both_places
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


@on_both_places
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


# ------------------------------------------------------------------------------ looking after


@on_both_places
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


@on_both_places
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


# ------------------------------------------------------------------------------ groups


@on_both_places
async def test_a_group_is_made_changed_looked_at_and_removed(worker: Whole) -> None:
    await append(worker, 3)
    made = await worker.http.put(GROUP, json={"at": "now", "max_pending": 7, "backoff_ms": [10, 20]})
    assert made.status_code == 201
    assert made.headers["location"] == GROUP
    assert made.json()["group"]["cursor"] == 4
    assert made.json()["group"]["backoff_ms"] == [10, 20]
    changed = await worker.http.put(GROUP, json={"at": 1, "ordered": True})
    assert changed.status_code == 200
    group = changed.json()["group"]
    assert (group["cursor"], group["max_pending"], group["ordered"]) == (4, 7, True)
    assert (await worker.http.get(GROUP)).json()["group"]["name"] == "billing"
    assert [each["name"] for each in (await worker.http.get(ORDERS + "/groups")).json()["groups"]] == [
        "billing"
    ]
    assert (await worker.http.delete(GROUP)).status_code == 204
    assert code_of(await worker.http.delete(GROUP)) == (404, "group-not-found")
    assert code_of(await worker.http.get(GROUP)) == (404, "group-not-found")


@on_both_places
async def test_readers_of_a_group_share_messages(worker: Whole) -> None:
    await append(worker, 4)

    async def read(consumer: str, limit: int) -> list[dict[str, Any]]:
        answer = await worker.http.post(GROUP + "/read", json={"consumer": consumer, "limit": limit})
        assert answer.status_code == 200, answer.text
        assert answer.json()["gone"] == []
        return answer.json()["messages"]

    ann, bob = await read("ann", 3), await read("bob", 3)
    assert [message["offset"] for message in ann] == [1, 2, 3]
    assert [(message["offset"], message["deliveries"]) for message in bob] == [(4, 1)]
    assert await read("ann", 3) == []
    pending = (await worker.http.get(GROUP + "/pending", params={"limit": 3})).json()
    assert pending["count"] == 4
    assert [(each["offset"], each["consumer"]) for each in pending["messages"]] == [
        (1, "ann"),
        (2, "ann"),
        (3, "ann"),
    ]
    rest = await worker.http.get(GROUP + "/pending", params={"cursor": pending["cursor"]})
    assert [each["offset"] for each in rest.json()["messages"]] == [4]
    assert rest.json()["cursor"] is None
    bobs = await worker.http.get(GROUP + "/pending", params={"consumer": "bob"})
    assert [each["offset"] for each in bobs.json()["messages"]] == [4]
    assert {each["name"] for each in (await worker.http.get(GROUP)).json()["consumers"]} == {"ann", "bob"}

    assert (await worker.http.post(GROUP + "/ack", json={"offsets": [1, [2, 3], 99]})).json() == {"found": 3}
    assert (await worker.http.post(GROUP + "/ack", json={"offsets": [1]})).json() == {"found": 0}
    assert (await worker.http.post(GROUP + "/renew", json={"offsets": [4], "retry_ms": 9_000})).json() == {
        "found": 1
    }
    assert (await worker.http.post(GROUP + "/nack", json={"offsets": [4]})).json() == {"found": 1}
    again = await read("ann", 3)
    assert [(message["offset"], message["deliveries"]) for message in again] == [(4, 2)]
    rejected = await worker.http.post(GROUP + "/reject", json={"offsets": [4], "reason": "no good"})
    assert rejected.json() == {"found": 1}
    assert (await worker.http.get(GROUP)).json()["group"]["pending"] == 0


@on_both_places
async def test_a_reader_of_a_group_waits(worker: Whole) -> None:
    wish = {"consumer": "ann", "wait": "20s"}
    reading = asyncio.create_task(worker.http.post(GROUP + "/read", json=wish))
    await until(lambda: worker.services.waiting == 1)
    await append(worker, 1)
    assert data_of(await reading) == ["1"]
    empty = await worker.http.post(GROUP + "/read", json={"consumer": "ann", "wait": "10ms"})
    assert (empty.status_code, empty.json()) == (200, {"messages": [], "gone": []})


@on_both_places
async def test_at_most_once_leaves_nothing_pending(worker: Whole) -> None:
    await append(worker, 2)
    read = await worker.http.post(GROUP + "/read", json={"consumer": "ann", "retry_ms": None})
    assert data_of(read) == ["1", "2"]
    pending = (await worker.http.get(GROUP + "/pending")).json()
    assert pending == {"count": 0, "next_ms": None, "messages": [], "cursor": None}


@on_both_places
async def test_dead_letters_are_written(worker: Whole) -> None:
    dead = "{orders}dead"
    if "redis" in str(worker.services.config.storages["default"]):
        dead = "dead"
    assert (await worker.http.put(GROUP, json={"dead_letter": dead})).status_code == 201
    await append(worker, 1)
    await worker.http.post(GROUP + "/read", json={"consumer": "ann"})
    await worker.http.post(GROUP + "/reject", json={"offsets": [1], "reason": "no good"})
    (letter,) = (await worker.http.get(f"/v1/streams/{quote(dead)}")).json()["messages"]
    assert "reason: no good" in letter["data"]


@on_one_place
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/read", {}),
        ("/read", {"consumer": ""}),
        ("/read", {"consumer": "c", "limit": 0}),
        ("/read", {"consumer": "c", "limit": 1_001}),
        ("/read", {"consumer": "c", "wait": "soon"}),
        ("/read", {"consumer": "c", "retry_ms": 0}),
        ("/ack", {"offsets": []}),
        ("/ack", {"offsets": [-1]}),
        ("/ack", {"offsets": [[3, 2]]}),
        ("/ack", {"offsets": [2**64]}),
        ("/ack", {"offsets": ["1"]}),
        ("/nack", {"offsets": [1], "delay_ms": -1}),
        ("/renew", {"offsets": [1], "retry_ms": 0}),
        ("/reject", {"offsets": [1], "reason": "two\nlines"}),
        ("/reject", {"offsets": [1]}),
    ],
)
async def test_bad_wishes_of_groups_are_refused(worker: Whole, path: str, body: Any) -> None:
    assert (await worker.http.post(GROUP + path, json=body)).status_code == 400


@on_one_place
@pytest.mark.parametrize(
    "options", [{"at": "later"}, {"at": -1}, {"at": 2**64}, {"max_pending": 0}, {"backoff_ms": [-1]}]
)
async def test_bad_options_make_no_group(worker: Whole, options: dict[str, Any]) -> None:
    assert (await worker.http.put(GROUP, json=options)).status_code == 400
    assert (await worker.http.get(GROUP)).status_code == 404


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
