"""Streams for whoever looks after them: figures in a list, reading by time, eviction and compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway import rates
from tests.gateway.harness import on_both_places, on_every_place, on_one_place
from tests.gateway.whole import ADMIN, ORDERS, Whole, append, code_of, data_of, whole_worker
from tests.places import until


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        yield worker


@on_every_place
async def test_a_list_with_figures(worker: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "LEAST_S", 0.0)
    await append(worker, 10)
    await append(worker, 3, path="/v1/streams/bills")
    await worker.http.put(ORDERS + "/groups/billing")
    await worker.services.store.set("no-stream", "x")
    bills, orders = (await worker.http.get("/v1/streams?details=true")).json()["streams"]
    info = (await worker.http.get(ORDERS + "/info")).json()["info"]
    assert orders == {
        "name": "orders", "messages": 10, "bytes": info["bytes"], "first": 1, "last": 10, "rate": None,
        "groups": 1, "last_ms": info["last_ms"],
    }  # fmt: skip
    assert (bills["name"], bills["last"], bills["groups"]) == ("bills", 3, 0)
    await append(worker, 5)
    page = (await worker.http.get("/v1/streams?details=true&limit=1")).json()
    assert ([each["name"] for each in page["streams"]], page["streams"][0]["rate"]) == (["bills"], 0.0)
    (orders,) = (await worker.http.get(f"/v1/streams?details=true&cursor={page['cursor']}")).json()["streams"]
    assert orders["rate"] > 0
    assert (await worker.http.get("/v1/streams?details=false")).json()["streams"] == ["bills", "orders"]
    assert code_of(await worker.http.get("/v1/streams?details=maybe")) == (400, "invalid-parameter")


@on_every_place
async def test_reading_from_a_moment_on(worker: Whole) -> None:
    async def time_ms() -> int:
        seconds, micros = await worker.services.store.time()
        return seconds * 1_000 + micros // 1_000

    moments = []
    for number in range(5):
        await append(worker, 3, start=3 * number + 1)
        last_ms = (await worker.http.get(ORDERS + "/info")).json()["info"]["last_ms"]

        async def has_passed(last_ms: int = last_ms) -> bool:
            return await time_ms() > last_ms

        await until(has_passed)
        moments.append(last_ms + 1)
    for number, moment in enumerate(moments):
        expected = [str(data) for data in range(3 * number + 4, 16)]
        assert data_of(await worker.http.get(ORDERS, params={"at": moment})) == expected
    text = datetime.fromtimestamp(moments[1] / 1_000, UTC).isoformat()
    assert data_of(await worker.http.get(ORDERS, params={"at": text, "limit": 1})) == ["7"]
    assert data_of(await worker.http.get(ORDERS, params={"at": 0, "limit": 1})) == ["1"]
    nothing = await worker.http.get(ORDERS, params={"at": moments[-1] + 3_600_000})
    assert (nothing.json(), nothing.headers["stream-up-to-date"]) == ({"messages": [], "next": 16}, "true")
    async with worker.follow(f"{ORDERS}?live=sse&at={moments[3]}") as stream:
        assert [event.json["data"] for event in await stream.take(3)] == ["13", "14", "15"]


@on_one_place
async def test_a_moment_where_messages_are_gone(worker: Whole) -> None:
    await append(worker, 6)
    at_ms = (await worker.http.get(ORDERS)).json()["messages"][0]["time"]
    await worker.services.store.stream("orders").drop((1, 2), 4)
    assert data_of(await worker.http.get(ORDERS, params={"at": at_ms})) == ["3", "5", "6"]
    await worker.services.store.stream("orders").drop((1, 6))
    assert data_of(await worker.http.get(ORDERS, params={"at": at_ms})) == []
    assert data_of(await worker.http.get("/v1/streams/none", params={"at": at_ms})) == []
    for query in ({"at": "yesterday"}, {"at": "-1"}, {"at": 1, "offset": 1}):
        assert code_of(await worker.http.get(ORDERS, params=query)) == (400, "invalid-parameter")


@on_every_place
async def test_evicting(worker: Whole) -> None:
    await append(worker, 20)
    worker.http.headers.update(ADMIN)

    async def evict(**wish: Any) -> int:
        answer = await worker.http.post(ORDERS + "/evict", json=wish)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["evicted"])

    assert await evict(before=1) == 0
    assert await evict(before=5) == 4
    assert data_of(await worker.http.get(ORDERS))[0] == "5"
    assert await evict(keep=10) == 6
    assert await evict(age_ms=3_600_000) == 0
    await worker.http.post(ORDERS + "/groups/billing/read", json={"consumer": "c", "limit": 4})
    await worker.http.post(ORDERS + "/groups/billing/ack", json={"offsets": [[11, 13]]})
    assert await evict(before=20, acked=True) == 3
    await worker.http.post(ORDERS + "/groups/billing/ack", json={"offsets": [14]})
    assert await evict(acked=True) == 1
    assert data_of(await worker.http.get(ORDERS)) == [str(number) for number in range(15, 21)]
    assert await evict(before=2**64) == 6
    info = (await worker.http.get(ORDERS + "/info")).json()["info"]
    assert (info["first"], info["last"]) == (21, 20)


@on_both_places
async def test_compacting(worker: Whole) -> None:
    await worker.http.put(ORDERS, json={"node_messages": 5}, headers=ADMIN)
    for number in range(4):
        await append(worker, 5, tag="a", start=5 * number + 1)
    answer = await worker.http.post(ORDERS + "/compact", headers=ADMIN)
    removed = answer.json()["removed"]
    assert removed > 0
    left = data_of(await worker.http.get(ORDERS))
    assert (len(left), left[-1]) == (20 - removed, "20")


@on_one_place
async def test_what_cannot_be_evicted_or_compacted(worker: Whole) -> None:
    await append(worker, 3)
    evict, compact = ORDERS + "/evict", ORDERS + "/compact"
    for path in (evict, compact):
        assert (await worker.http.post(path, json={"acked": True})).status_code == 401
    worker.http.headers.update(ADMIN)
    bad_wishes: list[Any] = [
        {}, {"acked": False}, {"before": 1, "keep": 1}, {"before": 0}, {"keep": 0}, {"age_ms": -1},
        {"before": "x"}, {"upto": 3}, [],
    ]  # fmt: skip
    for wish in bad_wishes:
        assert code_of(await worker.http.post(evict, json=wish)) == (400, "invalid-body"), wish
    assert code_of(await worker.http.post(evict, content=b"{")) == (400, "content-malformed")
    missing = "/v1/streams/none"
    assert code_of(await worker.http.post(f"{missing}/evict", json={"keep": 1})) == (404, "stream-not-found")
    assert code_of(await worker.http.post(f"{missing}/compact")) == (404, "stream-not-found")
    assert data_of(await worker.http.get(ORDERS)) == ["1", "2", "3"]
