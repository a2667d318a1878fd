"""What ``penstock top`` shows, as values: of a store that it reads itself, or of a gateway that tells them.

Fields have the names of the HTTP API (``/v1/overview``, ``/v1/workers``, ``/v1/streams``, ``/v1/jobs``), so
that a gateway's answers are decoded into them as they are, and ``--json`` says the same of both.

Rules: values only. Nothing here reads anything, or knows a terminal.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["5s", "60s", "600s"]


class Durations(msgspec.Struct):
    """How long something took, in ms."""

    p50_ms: float | None = None
    p99_ms: float | None = None


class Slot(msgspec.Struct):
    """What happened in a stretch of time."""

    queued: int = 0
    started: int = 0
    retried: int = 0
    lost: int = 0
    ended: dict[str, int] = {}
    wait: Durations | None = None
    latency: Durations | None = None

    @property
    def ended_total(self) -> int:
        return sum(self.ended.values())


class Statistics(msgspec.Struct):
    """``slots`` are oldest first, and the last is not over yet; ``parts`` are by pipeline."""

    level: str
    seconds: float
    total: Slot
    slots: list[Slot]
    parts: dict[str, Slot] = {}


class Counts(msgspec.Struct):
    """How many transactions there are."""

    queued: int
    running: int
    sleeping: int
    dead: int
    to_archive: int
    webhooks: int
    outbox: int
    total: int
    #: of those that sleep
    waiting: int = 0


class NodeGroup(msgspec.Struct, kw_only=True):
    name: str
    admin: int = 0
    out: int = 0
    in_: int = msgspec.field(default=0, name="in")
    held: int = 0
    running: int = 0
    is_paused: bool = False
    oldest_ms: int | None = None
    workers: int = 0


class WorkerState(msgspec.Struct, kw_only=True):
    id: str
    node_groups: list[str] = []
    concurrency: int = 0
    running: int = 0
    ended: int = 0
    host: str = ""
    pid: int = 0
    state: str = ""


class StreamState(msgspec.Struct, kw_only=True):
    name: str
    messages: int = 0
    bytes: int = 0
    last: int = 0
    #: appends a second since the last look; None at the first
    rate: float | None = None
    groups: int = 0


class JobReport(msgspec.Struct):
    rows: int = 0
    lag: int = 0
    ended_ms: int = 0


class JobState(msgspec.Struct, kw_only=True):
    job: str
    node: str
    state: str
    passes: int = 0
    failures: int = 0
    report: JobReport | None = None
    error: str | None = None
    is_alive: bool = True


class Store(msgspec.Struct, kw_only=True):
    kind: str
    commands_per_s: float = 0.0
    clients: int = 0
    keys: int = 0
    used_bytes: int = 0
    disk_free_bytes: int | None = None
    memory_bytes: int = 0
    durability: str = ""


class Frame(msgspec.Struct, kw_only=True):
    """One look at everything."""

    where: str
    level: Level
    now_ms: int
    transactions: Counts | None = None
    statistics: Statistics | None = None
    node_groups: list[NodeGroup] = []
    workers: list[WorkerState] = []
    #: the busiest first
    streams: list[StreamState] = []
    jobs: list[JobState] = []
    store: Store | None = None


def busiest_first(streams: list[StreamState]) -> list[StreamState]:
    return sorted(streams, key=lambda stream: (-(stream.rate or 0.0), -stream.messages, stream.name))
