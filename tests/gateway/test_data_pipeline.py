"""``/v1/jobs`` and ``/v1/lake``: what runners publish, which lake is shown, its tables and rows."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.main import main
from penstock.gateway.config import load
from penstock.lake import Lake
from penstock.spark import noticeboard
from penstock.spark.jobs.job import JobReport
from penstock.spark.noticeboard import JobStatus
from tests.gateway.harness import on_both_places, on_one_place
from tests.gateway.whole import ADMIN, Whole, code_of, whole_worker
from tests.lake.rows import messages, put

ROWS = "/v1/lake/messages/rows"


@pytest.fixture
async def worker(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Whole]:
    async with whole_worker(tmp_path, storage) as worker:
        worker.http.headers.update(ADMIN)
        yield worker


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two commits of messages, and a table without rows."""
    lake = Lake.open(tmp_path / "lake")
    lake.table("steps")
    table = lake.table("messages")
    for first, count in ((1, 40), (41, 10)):
        table.commit(
            put(table, messages(table, first, count), row_group_size=8), progress={"export": first + count}
        )
    return lake


async def publish(worker: Whole, *statuses: JobStatus, alive: tuple[str, ...] = ()) -> None:
    store = worker.services.store
    for status in statuses:
        await store.execute("HSET", noticeboard.KEY, status.field, msgspec.json.encode(status))
    for node in alive:
        await store.execute("SET", noticeboard.beat_key(node), 1)


def status_of(job: str, node: str, lake: Path | None = None, **facts: Any) -> JobStatus:
    known = {"kind": job, "state": "waiting", "at_ms": 1, **facts}
    return JobStatus(job=job, node=node, lake=None if lake is None else str(lake), **known)


@on_both_places
async def test_jobs_are_told_as_their_runners_publish_them(worker: Whole) -> None:
    assert (await worker.http.get("/v1/jobs")).json() == {"jobs": []}
    report = JobReport(job="export", started_ms=5, ended_ms=9, batches=2, rows=40, lag=3, notes={"a": 1})
    await publish(
        worker,
        status_of("export", "etl-2", state="running", report=report, passes=7, progress={"rows": 5}),
        status_of("archive", "etl-1", failures=2, failed_passes=4, error="no disk", error_ms=8, next_ms=9),
        alive=("etl-2",),
    )
    await worker.services.store.execute("HSET", noticeboard.KEY, "odd", "{}", "other", "no JSON")
    archive, export = (await worker.http.get("/v1/jobs")).json()["jobs"]
    assert archive == {
        "job": "archive", "kind": "archive", "node": "etl-1", "state": "waiting", "at_ms": 1, "passes": 0,
        "failed_passes": 4, "failures": 2, "report": None, "error": "no disk", "error_ms": 8, "progress": {},
        "next_ms": 9, "lake": None, "is_alive": False,
    }  # fmt: skip
    assert (export["is_alive"], export["progress"], export["passes"]) == (True, {"rows": 5}, 7)
    assert export["report"] == {
        "started_ms": 5, "ended_ms": 9, "batches": 2, "rows": 40, "lag": 3, "notes": {"a": 1},
    }  # fmt: skip
    jobs = (await worker.http.get("/v1/overview")).json()["jobs"]
    assert jobs == {"running": 1, "failing": 0, "alive_nodes": 1}


@on_one_place
async def test_the_lake_of_the_configuration(tmp_path: Path, storage: dict[str, Any], lake: Lake) -> None:
    async with whole_worker(tmp_path, storage, lake=str(lake.root)) as worker:
        worker.http.headers.update(ADMIN)
        found = (await worker.http.get("/v1/lake")).json()
        assert found["path"] == str(lake.root)
        assert [table["name"] for table in found["tables"]] == ["steps", "messages"]
        steps, table = found["tables"]
        assert (steps["rows"], steps["files"], steps["bytes"], steps["modified_ms"]) == (0, 0, 0, None)
        assert (table["rows"], table["files"], table["version"]) == (50, 2, 2)
        assert table["bytes"] == sum(file.size_bytes for file in lake.table("messages").files())
        assert table["modified_ms"] > 0
        assert {"name": "message", "type": "binary"} in table["columns"]

        sample = (await worker.http.get(ROWS)).json()
        assert sample["columns"] == ["offset", "time", "tag", "message", "stream", "day"]
        assert [row[0] for row in sample["rows"]] == [*range(50, 30, -1)]
        assert sample["is_cut"] is False
        assert sample["rows"][0] == [
            50, "2026-11-16T12:00:50Z", None, "message 50", "orders", "2026-11-16",
        ]  # fmt: skip
        assert base64.b64decode(sample["rows"][2][2]) == b"\xfftag"
        assert len((await worker.http.get(ROWS + "?limit=500")).json()["rows"]) == 50
        assert (await worker.http.get("/v1/lake/steps/rows")).json()["rows"] == []

        missing = await worker.http.get("/v1/lake/webhooks/rows")
        assert code_of(missing) == (404, "table-not-found")
        assert missing.json()["detail"] == "the lake has no table 'webhooks': it has steps, messages"
        assert not (lake.root / "webhooks").exists()
        assert code_of(await worker.http.get(ROWS + "?limit=x")) == (400, "invalid-parameter")

        newer = lake.table("messages")
        newer.commit(put(newer, messages(newer, 51, 1)), progress={"export": 52})
        assert (await worker.http.get(ROWS + "?limit=1")).json()["rows"][0][0] == 51
        del worker.http.headers["authorization"]
        assert {(await worker.http.get(path)).status_code for path in ("/v1/lake", ROWS)} == {401}


@on_both_places
async def test_the_lake_that_a_runner_has_published(worker: Whole, lake: Lake, tmp_path: Path) -> None:
    nothing = await worker.http.get("/v1/lake")
    assert code_of(nothing) == (404, "no-lake")
    assert "--lake DIR" in nothing.json()["detail"]
    await publish(worker, status_of("export", "elsewhere", tmp_path / "none", at_ms=9), alive=("elsewhere",))
    assert code_of(await worker.http.get(ROWS)) == (404, "no-lake")
    await publish(worker, status_of("export", "here", lake.root))
    assert (await worker.http.get("/v1/lake")).json()["path"] == str(lake.root)
    other = Lake.open(tmp_path / "other")
    await publish(worker, status_of("archive", "there", other.root), alive=("there",))
    assert (await worker.http.get("/v1/lake")).json() == {"path": str(other.root), "tables": []}
    assert code_of(await worker.http.get(ROWS)) == (404, "table-not-found")


@on_one_place
async def test_an_archive_that_is_a_lake_is_shown(
    tmp_path: Path, storage: dict[str, Any], lake: Lake
) -> None:
    archive = {"archiveDirectory": str(lake.root)}
    async with whole_worker(tmp_path, storage, transactions=archive) as worker:
        assert (await worker.http.get("/v1/lake", headers=ADMIN)).json()["path"] == str(lake.root)


@on_one_place
async def test_a_lake_that_cannot_be_read(tmp_path: Path, storage: dict[str, Any], lake: Lake) -> None:
    async with whole_worker(tmp_path, storage, lake=str(tmp_path / "later")) as worker:
        worker.http.headers.update(ADMIN)
        missing = await worker.http.get("/v1/lake")
        assert code_of(missing) == (404, "no-lake")
        assert "there is no lake at" in missing.json()["detail"]
        lake.root.rename(tmp_path / "later")
        assert (await worker.http.get("/v1/lake")).status_code == 200
        for path in (tmp_path / "later" / "messages").rglob("*.parquet"):
            path.write_bytes(b"")
        broken = await worker.http.get(ROWS)
        assert code_of(broken) == (503, "unavailable")
        assert "table messages" in broken.json()["detail"]


@on_one_place
async def test_a_gateway_without_what_a_lake_needs(
    worker: Whole, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.lake.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    await publish(worker, status_of("export", "here", lake.root))
    for path in ("/v1/lake", ROWS):
        answer = await worker.http.get(path)
        assert code_of(answer) == (404, "no-lake")
        assert "pip install 'penstock[lake]'" in answer.json()["detail"]


def test_where_a_lake_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert load(None, environment={"PENSTOCK__LAKE": "./lake"}).lake == "./lake"
    assert load(None, environment={}).lake is None
    assert main(["gateway", "--lake", "./here", "--dump-config"]) == 0
    assert "lake: ./here" in capsys.readouterr().out
    assert main(["serve", str(tmp_path / "x.pen"), "--lake", "./here"]) == 1
    assert "give --http-port as well" in capsys.readouterr().err
