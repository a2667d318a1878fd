"""``/metrics`` tells what the jobs of the data pipeline do, as their runners publish it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.spark import noticeboard
from penstock.spark.jobs.job import JobReport
from penstock.spark.noticeboard import JobStatus
from tests.gateway.harness import on_both_places
from tests.gateway.shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path, storage: dict[str, Any]) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, storage) as shop:
        yield shop


@on_both_places
async def test_metrics_tell_of_the_jobs_of_the_data_pipeline(shop: Shop) -> None:
    store = shop.gateway.services.store
    report = JobReport(job="export", started_ms=1, ended_ms=1_700_000_000_500, rows=40, lag=2)
    jobs = [
        JobStatus(job="export", kind="export", node="etl-1", state="waiting", at_ms=1, report=report),
        JobStatus(job="archive", kind="archive", node="etl-2", state="failed", at_ms=1, failures=3),
    ]
    for status in jobs:
        await store.execute("HSET", noticeboard.KEY, status.field, msgspec.json.encode(status))
    await store.execute("HSET", noticeboard.KEY, "odd", "{}")
    await store.execute("SET", noticeboard.beat_key("etl-1"), 1)
    for accept in ("text/plain", "application/openmetrics-text"):
        text = (await shop.http.get("/metrics", headers={"Accept": accept})).text
        export, archive = '{job="export",node="etl-1"}', '{job="archive",node="etl-2"}'
        assert f"penstock_spark_job_up{export} 1.0" in text
        assert f"penstock_spark_job_up{archive} 0.0" in text
        assert f"penstock_spark_job_failures{archive} 3.0" in text
        assert f"penstock_spark_job_rows{export} 40.0" in text
        assert f"penstock_spark_job_lag{export} 2.0" in text
        assert re.search(rf"penstock_spark_job_last_success_timestamp_seconds{export} 1.7000000005e", text)
