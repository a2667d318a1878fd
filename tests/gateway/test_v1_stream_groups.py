"""``/v1/streams/{stream}/groups``: readers that share a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.whole import ORDERS, Whole, append, code_of, data_of, on_every_place, whole_worker
from tests.places import until

GROUP = ORDERS + "/groups/billing"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage, heartbeat_ms=50) as worker:
        yield worker


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


@on_every_place
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
    metrics = (await worker.http.get("/metrics")).text
    assert "penstock_messages_published_total 4.0" in metrics
    assert "penstock_messages_delivered_total 4.0" in metrics
    assert "penstock_messages_acked_total 3.0" in metrics
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
