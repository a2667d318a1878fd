"""What the jobs of the data pipeline do, as their runners publish it in the store.

Runners keep a hash, ``spark.jobs``, of the state of each job as JSON, and a key that expires for each node.
One reader for everybody: scrapes (``job_figures``), routes, the overview.

Rules: what cannot be read is left out; what a newer runner adds is overlooked. Nothing here knows Spark, nor
HTTP.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.client.client import Client

KEY: Final = "spark.jobs"


class JobReport(msgspec.Struct, kw_only=True):
    """What the last pass that worked did. ``lag``: what it left behind, in the job's own unit."""

    started_ms: int = 0
    ended_ms: int
    batches: int = 0
    rows: int = 0
    lag: int = 0
    notes: dict[str, Any] = {}


class JobState(msgspec.Struct, kw_only=True):
    """One job of one runner; ``is_alive``: the runner is there."""

    job: str
    kind: str = ""
    node: str
    #: waiting, running, failed (the last pass did, and it waits for the next) or stopped
    state: str = ""
    #: when this was written
    at_ms: int = 0
    #: that worked, since the runner began; that did not; how many of those in a row
    passes: int = 0
    failed_passes: int = 0
    failures: int = 0
    report: JobReport | None = None
    #: of the last pass that did not work
    error: str | None = None
    error_ms: int | None = None
    #: of the pass that runs
    progress: dict[str, Any] = {}
    next_ms: int | None = None
    #: the directory that it writes to, on its machine
    lake: str | None = None
    is_alive: bool = False

    @property
    def is_failing(self) -> bool:
        return self.is_alive and self.failures > 0


async def read_jobs(client: Client) -> list[JobState]:
    """All that is known, by name and node; none where no runner ever was."""
    jobs = [job for value in await client.hvals(KEY) if (job := _decoded(value)) is not None]
    if not jobs:
        return []
    nodes = sorted({job.node for job in jobs})
    beats = await client.mget(*(f"{{{KEY}}}.node:{node}" for node in nodes))
    living = {node for node, beat in zip(nodes, beats, strict=True) if beat is not None}
    for job in jobs:
        job.is_alive = job.node in living
    return sorted(jobs, key=lambda job: (job.job, job.node))


def _decoded(value: bytes) -> JobState | None:
    try:
        return msgspec.json.decode(value, type=JobState)
    except msgspec.MsgspecError:
        return None
