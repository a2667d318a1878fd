"""What the jobs of all runners are doing, published in the store for whoever asks.

=============================  ======================================================================
key                            what it is
=============================  ======================================================================
``spark.jobs``                 hash: ``<job>@<node>`` to :class:`JobStatus` as JSON
``{spark.jobs}.node:<node>``   when the runner of a node began; expires, so that it is there while the
                               runner is
=============================  ======================================================================

    board = Noticeboard(client, "etl-1")
    board.publish([status, …])            # and beat() now and then
    for status, is_alive in read(client): …

Rules: a runner writes its own fields alone. What it wrote is left when it ends, so that people see what was
last; what nobody has touched for :data:`KEPT_MS` goes when somebody publishes. Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from penstock.blocking import Client
from penstock.spark.jobs.job import JobReport

KEY: Final = "spark.jobs"
BEAT_MS: Final = 30_000
KEPT_MS: Final = 7 * 24 * 3_600_000

State = Literal["waiting", "running", "failed", "stopped"]


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job of one runner. ``failed``: the last pass did, and it waits for the next."""

    job: str
    kind: str
    node: str
    state: State
    #: when this was written
    at_ms: int
    #: passes that worked, and those that did not, since the runner began; how many of those in a row
    passes: int = 0
    failed_passes: int = 0
    failures: int = 0
    #: of the last pass that worked
    report: JobReport | None = None
    #: of the last one that did not
    error: str | None = None
    error_ms: int | None = None
    #: of the pass that runs
    progress: dict[str, int | str] = {}
    next_ms: int | None = None
    #: the directory of the lake, on the machine of the runner
    lake: str | None = None

    @property
    def field(self) -> str:
        return f"{self.job}@{self.node}"


class Notice(NamedTuple):
    """A status, and whether the runner that wrote it is there."""

    status: JobStatus
    is_alive: bool


class Noticeboard:
    """The place of one runner."""

    def __init__(self, client: Client, node: str, *, began_ms: int) -> None:
        self._client = client
        self._node = node
        self._began_ms = began_ms

    def publish(self, statuses: Iterable[JobStatus]) -> None:
        written = {status.field: msgspec.json.encode(status) for status in statuses}
        if written:
            self._client.execute("HSET", KEY, *(word for pair in written.items() for word in pair))

    def beat(self) -> None:
        """To be called more often than every :data:`BEAT_MS`."""
        self._client.execute("SET", beat_key(self._node), self._began_ms, "PX", BEAT_MS)

    def leave(self) -> None:
        """The runner ends."""
        self._client.execute("DEL", beat_key(self._node))

    def tidy(self, now_ms: int) -> None:
        """What is so old that nobody wants to know it any more."""
        old = [each.status.field for each in read(self._client) if each.status.at_ms < now_ms - KEPT_MS]
        if old:
            self._client.execute("HDEL", KEY, *old)


def read(client: Client) -> list[Notice]:
    """All that is known, by name and node. What another version wrote and cannot be read is left out."""
    statuses = [status for value in client.hvals(KEY) if (status := _decoded(value)) is not None]
    nodes = sorted({status.node for status in statuses})
    beats = client.mget(*map(beat_key, nodes)) if nodes else []
    alive = {node for node, beat in zip(nodes, beats, strict=True) if beat is not None}
    statuses.sort(key=lambda status: (status.job, status.node))
    return [Notice(status, status.node in alive) for status in statuses]


def _decoded(value: bytes) -> JobStatus | None:
    try:
        return msgspec.json.decode(value, type=JobStatus)
    except msgspec.MsgspecError:
        return None


def beat_key(node: str) -> str:
    return f"{{{KEY}}}.node:{node}"
