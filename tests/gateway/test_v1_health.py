"""``/v1/health`` and metrics: what everybody learns, and what administrators learn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.version import __version__
from tests.gateway.harness import RawClient, on_both_places, on_one_place
from tests.gateway.whole import ADMIN, Whole, whole_worker
from tests.places import until


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage) as worker:
        yield worker


@on_both_places
async def test_everybody_learns_that_it_works_and_no_more(worker: Whole) -> None:
    for headers in ({}, {"Authorization": "Bearer guess"}):
        answer = await worker.http.get("/v1/health", headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@on_both_places
async def test_administrators_learn_more(worker: Whole) -> None:
    client = await RawClient.get(worker.port, "/v1/streams/orders?live=long-poll")
    await until(lambda: worker.services.waiting == 1)
    detail = (await worker.http.get("/v1/health", headers=ADMIN)).json()["detail"]
    client.vanish()
    assert detail["version"] == __version__
    assert detail["stores"] == {"default": "ok"}
    assert detail["waiting"] == 1
    assert detail["webhooks"]["waiting"] == 0
    (here,) = detail["workers"]
    assert here["version"] == __version__


@on_both_places
async def test_workers_of_one_store_hear_a_roll_call(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with whole_worker(tmp_path, storage) as one, whole_worker(tmp_path, storage) as two:

        async def both_answer() -> bool:
            answers = [await each.http.get("/v1/health", headers=ADMIN) for each in (one, two)]
            names = [{worker["id"] for worker in answer.json()["detail"]["workers"]} for answer in answers]
            return names[0] == names[1] and len(names[0]) == 2

        await until(both_answer)


@on_one_place
async def test_its_state_is_told(worker: Whole) -> None:
    worker.services.life.is_ready = False
    answer = await worker.http.get("/v1/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "starting"})
    worker.services.life.is_ready = True
    worker.services.life.is_stopping = True
    answer = await worker.http.get("/v1/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})


async def test_a_store_that_is_away_is_told(tmp_path: Path) -> None:
    storage = {"redis": {"singleNode": "127.0.0.1:1", "timeout": {"connect": "200ms", "read": "200ms"}}}
    async with whole_worker(tmp_path, storage) as worker:
        answer = await worker.http.get("/v1/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
        detail = (await worker.http.get("/v1/health", headers=ADMIN)).json()["detail"]
        assert detail["stores"]["default"] != "ok"
        assert detail["webhooks"] is None
        assert len(detail["workers"]) == 1


# ------------------------------------------------------------------------------ metrics


@on_one_place
async def test_metrics_are_there_for_administrators_networks(worker: Whole) -> None:
    await worker.http.get("/v1/health")
    plain = await worker.http.get("/metrics")
    assert plain.status_code == 200
    assert plain.headers["content-type"].startswith("text/plain")
    assert (
        'penstock_http_requests_total{class="2xx",code="200",method="GET",route="/v1/health"}' in plain.text
    )
    open_metrics = await worker.http.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")


@on_one_place
async def test_metrics_are_refused_elsewhere(tmp_path: Path, storage: dict[str, Any]) -> None:
    admin = {"auth": {"networks": ["10.9.8.0/24"]}}
    async with whole_worker(tmp_path, storage, admin=admin) as worker:
        answer = await worker.http.get("/metrics")
        assert (answer.status_code, answer.json()["code"]) == (403, "auth-forbidden")


@on_one_place
async def test_metrics_count_who_is_refused(tmp_path: Path, storage: dict[str, Any]) -> None:
    limits = {"limits": {"publishPerSecond": 0.001, "burst": 1}}
    async with whole_worker(tmp_path, storage, http=limits) as worker:
        for _ in range(3):
            await worker.http.post("/v1/channels/room/messages", content=b"1")
        nobody = {"Authorization": "Bearer of nothing"}
        assert (await worker.http.get("/v1/tokens", headers=nobody)).status_code in (401, 403)
        lines = (await worker.http.get("/metrics")).text.splitlines()
        assert 'penstock_rate_limited_total{limit="publishes"} 2.0' in lines
        assert [line[-3:] for line in lines if line.startswith("penstock_auth_rejections_total{")] == ["1.0"]


@on_one_place
async def test_metrics_move_and_go(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with whole_worker(tmp_path, storage, metrics={"path": "/inside/metrics"}) as worker:
        assert (await worker.http.get("/inside/metrics")).status_code == 200
        assert (await worker.http.get("/metrics")).status_code == 404
    async with whole_worker(tmp_path, storage, metrics={"enabled": False}) as worker:
        assert (await worker.http.get("/metrics")).status_code == 404
