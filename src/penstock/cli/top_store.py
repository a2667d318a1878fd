"""``penstock top`` of a store: reads what it shows through the facilities, without a gateway.

Rules: nothing is written. Rates are differences between looks. What costs many reads (which streams and
node groups there are) is read every :data:`_NAMES_S` only, and no more than :data:`_MOST_STREAMS` are looked
at. What a server does not tell is left out.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

import penstock
from penstock.cli.top_figures import (
    Counts,
    Durations,
    Frame,
    JobState,
    Level,
    NodeGroup,
    Slot,
    Statistics,
    Store,
    StreamState,
    WorkerState,
    busiest_first,
)
from penstock.client.commands import server_conversions
from penstock.client.routes import ToAll
from penstock.clock import Clock, SystemClock
from penstock.errors import CommandError
from penstock.transactions import statistics as counted

_NAMES_S: Final = 10.0
_MOST_STREAMS: Final = 200


class StoreSource:
    """Looks at one store again and again."""

    def __init__(self, ps: penstock.Penstock, where: str, clock: Clock | None = None) -> None:
        self._ps = ps
        self._where = where
        self._clock = clock or SystemClock()
        #: counters of the last look, by name, and when it was
        self._totals: dict[str, tuple[float, float]] = {}
        self._stream_names: list[bytes] = []
        self._group_names: set[str] = set()
        self._named_s: float | None = None

    async def look(self, level: Level) -> Frame:
        transactions = self._ps.transactions
        if self._is_time():
            self._group_names = await transactions.looking.group_names()
            found = {key async for key in self._ps.scan_iter(type="stream", count=1_000)}
            self._stream_names = sorted(found)[:_MOST_STREAMS]
        overview, series, groups, workers = await asyncio.gather(
            transactions.looking.overview(self._group_names),
            transactions.statistics.read(level, by="pipeline"),
            transactions.looking.groups(self._group_names),
            transactions.workers.list(),
        )
        streams, jobs, store = await asyncio.gather(self._streams(), self._jobs(), self._store())
        working = Counter(group for worker in workers for group in worker.node_groups)
        return Frame(
            where=self._where,
            level=level,
            now_ms=series.now_ms,
            transactions=msgspec.convert(overview._asdict(), Counts),
            statistics=_statistics(series),
            node_groups=[
                msgspec.convert({**msgspec.to_builtins(group), "workers": working[group.name]}, NodeGroup)
                for group in groups
            ],
            workers=[msgspec.convert(msgspec.to_builtins(worker), WorkerState) for worker in workers],
            streams=busiest_first(streams),
            jobs=jobs,
            store=store,
        )

    def _is_time(self) -> bool:
        """Whether names are to be read again."""
        now_s = self._clock.monotonic_s()
        if self._named_s is not None and now_s - self._named_s < _NAMES_S:
            return False
        self._named_s = now_s
        return True

    def _rate(self, name: str, total: float) -> float | None:
        """How fast a counter has grown since the last look."""
        now_s = self._clock.monotonic_s()
        before, self._totals[name] = self._totals.get(name), (now_s, total)
        if before is None or total < before[1] or now_s <= before[0]:
            return None
        return (total - before[1]) / (now_s - before[0])

    # -------------------------------------------------------------------------------- streams

    async def _streams(self) -> list[StreamState]:
        found = await asyncio.gather(*map(self._stream, self._stream_names))
        return [state for state in found if state is not None]

    async def _stream(self, key: bytes) -> StreamState | None:
        try:
            info = await self._ps.stream(key).info()
        except CommandError:  # it has gone, or is a Redis stream of somebody else
            return None
        name = key.decode("utf-8", "backslashreplace")
        return StreamState(
            name=name,
            messages=info.length,
            bytes=info.bytes,
            last=info.last,
            rate=self._rate(f"stream {name}", info.last),
            groups=info.groups,
        )

    # ----------------------------------------------------------------------------------- jobs

    async def _jobs(self) -> list[JobState]:
        from penstock.spark.noticeboard import KEY, beat_key

        jobs = [job for value in await self._ps.hvals(KEY) if (job := _job(value)) is not None]
        nodes = sorted({job.node for job in jobs})
        beats = await self._ps.mget(*map(beat_key, nodes)) if nodes else []
        alive = {node for node, beat in zip(nodes, beats, strict=True) if beat is not None}
        for job in jobs:
            job.is_alive = job.node in alive
        return sorted(jobs, key=lambda job: (job.job, job.node))

    # ---------------------------------------------------------------------------------- store

    async def _store(self) -> Store:
        reports: Any = await self._ps.execute("INFO", route=ToAll())
        nodes = {node: server_conversions.info(report) for node, report in reports.items()}
        facts = next(iter(nodes.values()))
        path = facts.get("store_path")
        return Store(
            kind="embedded" if self._ps.is_embedded else "cluster" if self._ps.is_cluster else "redis",
            commands_per_s=round(sum(self._commands_per_s(node, facts) for node, facts in nodes.items()), 1),
            clients=_sum(nodes, "connected_clients"),
            keys=await self._ps.dbsize(),
            used_bytes=_sum(nodes, "store_used_bytes" if path else "used_memory"),
            disk_free_bytes=_free_bytes(path) if path else None,
            memory_bytes=_sum(nodes, "used_memory_rss"),
            durability=str(facts.get("durability") or ("aof" if facts.get("aof_enabled") else "snapshots")),
        )

    def _commands_per_s(self, node: str, facts: dict[str, Any]) -> float:
        rate = self._rate(f"node {node}", facts.get("total_commands_processed", 0))
        return float(facts.get("instantaneous_ops_per_sec", 0)) if rate is None else rate


def _free_bytes(path: str) -> int | None:
    try:
        return shutil.disk_usage(Path(path)).free
    except OSError:  # somebody moved it
        return None


def _sum(nodes: dict[str, dict[str, Any]], name: str) -> int:
    return sum(int(facts.get(name, 0)) for facts in nodes.values())


def _job(value: bytes) -> JobState | None:
    try:
        return msgspec.json.decode(value, type=JobState)
    except msgspec.MsgspecError:
        return None  # of another version


def _statistics(series: counted.Series) -> Statistics:
    return Statistics(
        level=series.level,
        seconds=series.seconds,
        total=_slot(series.total),
        slots=[_slot(slot) for slot in series.slots],
        parts={name: _slot(part.total) for name, part in sorted(series.parts.items())},
    )


def _slot(slot: counted.Slot) -> Slot:
    return Slot(
        slot.queued,
        slot.started,
        slot.retried,
        slot.lost,
        dict(slot.ended),
        _durations(slot.wait),
        _durations(slot.latency),
    )


def _durations(histogram: counted.Histogram) -> Durations | None:
    if not histogram.count:
        return None
    return Durations(histogram.quantile(0.5), histogram.quantile(0.99))
