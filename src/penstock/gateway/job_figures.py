"""Numbers of the data pipeline's jobs for a scrape, out of what their runners publish (``job_states``).

Nothing here knows Spark, nor HTTP.
"""

from __future__ import annotations

from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from penstock.client.client import Client
from penstock.gateway.job_states import read_jobs

_LABELS: Final = ("job", "node")


async def job_families(client: Client) -> list[Metric]:
    """None of them where no runner ever was."""
    jobs = await read_jobs(client)
    if not jobs:
        return []
    up = _family("up", "Whether the runner of the job is there.")
    failures = _family("failures", "Passes that failed since the last one that worked.")
    ended = _family("last_success_timestamp_seconds", "When the last pass that worked ended.")
    rows = _family("rows", "Rows of the last pass that worked.")
    lag = _family("lag", "What the last pass that worked left behind.")
    for job in jobs:
        labels = [job.job, job.node]
        up.add_metric(labels, job.is_alive)
        failures.add_metric(labels, job.failures)
        if job.report is not None:
            ended.add_metric(labels, job.report.ended_ms / 1_000)
            rows.add_metric(labels, job.report.rows)
            lag.add_metric(labels, job.report.lag)
    return [up, failures, ended, rows, lag]


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_spark_job_{name}", text, labels=_LABELS)
