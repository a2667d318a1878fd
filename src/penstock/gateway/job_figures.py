"""Numbers of the data pipeline's jobs for a scrape, as their runners publish them in the store.

Runners keep a hash, ``spark.jobs``, of the state of each job as JSON, and a key that expires for each node;
this reads the fields it needs and no more.

Rules: what cannot be read is left out. Nothing here knows Spark, nor HTTP.
"""

from __future__ import annotations

from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from penstock.client.client import Client

_KEY: Final = "spark.jobs"
_LABELS: Final = ("job", "node")


class _Report(msgspec.Struct):
    ended_ms: int
    rows: int = 0
    lag: int = 0


class _Job(msgspec.Struct):
    job: str
    node: str
    failures: int = 0
    report: _Report | None = None


async def job_families(client: Client) -> list[Metric]:
    """None of them where no runner ever was."""
    jobs = [job for value in await client.hvals(_KEY) if (job := _decoded(value)) is not None]
    if not jobs:
        return []
    nodes = sorted({job.node for job in jobs})
    beats = await client.mget(*(f"{{{_KEY}}}.node:{node}" for node in nodes))
    living = {node for node, beat in zip(nodes, beats, strict=True) if beat is not None}
    up = _family("up", "Whether the runner of the job is there.")
    failures = _family("failures", "Passes that failed since the last one that worked.")
    ended = _family("last_success_timestamp_seconds", "When the last pass that worked ended.")
    rows = _family("rows", "Rows of the last pass that worked.")
    lag = _family("lag", "What the last pass that worked left behind.")
    for job in jobs:
        labels = [job.job, job.node]
        up.add_metric(labels, job.node in living)
        failures.add_metric(labels, job.failures)
        if job.report is not None:
            ended.add_metric(labels, job.report.ended_ms / 1_000)
            rows.add_metric(labels, job.report.rows)
            lag.add_metric(labels, job.report.lag)
    return [up, failures, ended, rows, lag]


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_spark_job_{name}", text, labels=_LABELS)


def _decoded(value: bytes) -> _Job | None:
    try:
        return msgspec.json.decode(value, type=_Job)
    except msgspec.MsgspecError:
        return None
