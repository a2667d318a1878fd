"""``export``: streams to the lake, each message once.

    jobs:
      export: {every: 5s, streams: [orders, "audit.*"]}

A query of Spark's reads the streams in micro-batches, which land in the table ``messages``
(``export_landing`` tells how). It begins where the lake is, by stream (``export_plan``), and its own
checkpoint is thrown away with it: the lake alone knows what was done. So there is nothing that could be lost
or disagree with the lake, be it restored from a backup or moved to another machine.

Run once it takes what is available now. Kept running (``run_until_stopped``) it looks for new messages every
``every_ms``, and for streams that are new under a pattern now and then.

Rules: any number of processes may run it; of those with the same ``streams`` one works, and another when
that one has died. Two jobs should not share a stream: nothing would be in the lake twice, but they would
refuse one another's batches. A stream that cannot be exported is an error, after the others were. The session
must be a classic one: over Connect Spark would call ``export_landing`` in another process.

Nothing here knows files, or what a message is.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from pyspark.errors import StreamingQueryException

from penstock.errors import ConfigError
from penstock.lake.alone import alone
from penstock.spark.jobs.export_landing import Landing
from penstock.spark.jobs.export_plan import Plan, make_plan
from penstock.spark.jobs.exported import TABLE, check_patterns, progress_app, streams_like
from penstock.spark.jobs.job import JobContext, JobReport
from penstock.spark.positions import NOTHING, find_bounds
from penstock.spark.stores import store_id

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_SCHEMA: Final = "stream STRING, offset BIGINT, time TIMESTAMP, tag BINARY, message BINARY"
#: How soon it is noticed that somebody wants it to end, …
_STOP_S: Final = 0.2
#: … and that there are other streams.
_LOOK_S: Final = 15.0


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which streams are exported, and how."""

    #: names and patterns: ``*``, ``?``, ``[a-z]``
    streams: tuple[str, ...] = ("*",)
    #: most messages of one commit, all streams together
    max_messages_per_batch: int = 500_000
    #: where a stream begins that the lake has nothing of
    starting: Literal["earliest", "latest"] = "earliest"
    #: the group whose cursor is where the lake is, so that ``evict(acked=True)`` and ``retain_acked`` spare
    #: what the lake has not got; none if empty
    group: str = "lake"
    #: whether messages that were evicted before they were exported are an error
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        if not self.streams:
            raise ConfigError("streams is empty: name some, or leave it out for all")
        check_patterns("streams", self.streams)
        if self.max_messages_per_batch < 1:
            raise ConfigError(f"max_messages_per_batch must be at least 1, not {self.max_messages_per_batch}")


class ExportJob:
    """Streams of a store, to the lake."""

    def __init__(self, options: ExportOptions | None = None) -> None:
        self.name = "export"
        self.options = options or ExportOptions()

    def run_once(self, context: JobContext) -> JobReport:
        work = _Export(self.options, context)
        with alone(context.lake, work.lock) as is_mine:
            if not is_mine:
                return work.report(self.name, busy=1)
            plan = work.take_available()
        plan.raise_refusal()
        return work.report(self.name, plan)

    def run_until_stopped(self, context: JobContext) -> JobReport:
        work = _Export(self.options, context)
        plan = None
        while not context.stopping.is_set():
            with alone(context.lake, work.lock) as is_mine:
                plan = work.follow() if is_mine else None
            if plan is None or not plan.spans:
                context.stopping.wait(_LOOK_S)
        return work.report(self.name, plan)

    def __repr__(self) -> str:
        return f"<ExportJob of {', '.join(self.options.streams)}>"


class _Export:
    """One call: query after query."""

    def __init__(self, options: ExportOptions, context: JobContext) -> None:
        self._options = options
        self._context = context
        self._store = store_id(context.store)
        #: one process at a time exports these streams
        self.lock = f"export-{self._store}-{_digest(sorted(options.streams))}"
        self._started_ms = context.clock.now_ms()
        #: of queries that have ended
        self._batches = 0
        self._rows = 0

    # ----------------------------------------------------------------------------- queries

    def take_available(self) -> Plan:
        """What there is now."""
        plan = make_plan(self._context, self._options, self._store)
        if plan.has_work:
            self._run(plan, {"availableNow": True}, lambda: False)
        else:
            self._landing(plan).publish(span.stream for span in plan.spans)
        return plan

    def follow(self) -> Plan:
        """Until it is stopped, or other streams are wanted."""
        plan = make_plan(self._context, self._options, self._store)
        if plan.refusals:
            # It is told at once, and the others are not kept back.
            self.take_available().raise_refusal()
        elif plan.spans:
            every = f"{max(self._context.every_ms, 1)} milliseconds"
            self._run(plan, {"processingTime": every}, lambda: self._is_outdated(plan))
        return plan

    def _is_outdated(self, plan: Plan) -> bool:
        """Whether other streams are wanted."""
        store = self._context.store
        return any(find_bounds(store.stream(name)) for name in plan.absent) or plan.names != streams_like(
            store, self._options.streams
        )

    def _landing(self, plan: Plan) -> Landing:
        return Landing(self._context, self._store, plan, group=self._options.group)

    def _run(self, plan: Plan, trigger: dict[str, Any], is_outdated: Callable[[], bool]) -> None:
        landing = self._landing(plan)
        # Before anything is read, so that nothing is evicted meanwhile.
        landing.publish(landing.next)
        try:
            with self._query(plan, landing, trigger) as query:
                has_all = self._is_finished(query, landing, is_outdated)
            if has_all:
                landing.pass_over({span.stream: span.end for span in plan.spans})
        except StreamingQueryException:
            if landing.failure is None:
                raise
            raise landing.failure from None
        finally:
            self._batches += landing.batches
            self._rows += landing.rows

    def _is_finished(self, query: StreamingQuery, landing: Landing, is_outdated: Callable[[], bool]) -> bool:
        """Wait until the query ends by itself, or has to (False)."""
        clock, stopping = self._context.clock, self._context.stopping
        looked_s = clock.monotonic_s()
        batches = 0
        while not query.awaitTermination(_STOP_S):  # type: ignore[arg-type]  # parts of a second work as well
            if landing.batches != batches:
                batches = landing.batches
                self._context.report(batches=self._batches + batches, rows=self._rows + landing.rows)
            if stopping.is_set():
                return False
            if clock.monotonic_s() - looked_s >= _LOOK_S:
                if is_outdated():
                    return False
                looked_s = clock.monotonic_s()
        return True

    @contextmanager
    def _query(self, plan: Plan, landing: Landing, trigger: dict[str, Any]) -> Iterator[StreamingQuery]:
        """Started, and stopped in the end, with a checkpoint of its own."""
        options = {
            "url": self._context.url,
            "streams": json.dumps([span.stream for span in plan.spans]),
            "startingOffset": json.dumps({span.stream: span.begin for span in plan.spans}),
            "maxMessagesPerBatch": str(self._options.max_messages_per_batch),
            "failOnDataLoss": str(self._options.fail_on_data_loss).lower(),
        }
        source = self._context.spark.readStream.format("penstock").schema(_SCHEMA).options(**options).load()
        with tempfile.TemporaryDirectory(prefix="penstock-export-", ignore_cleanup_errors=True) as place:
            writer = source.writeStream.foreachBatch(landing).option("checkpointLocation", f"file://{place}")
            query = writer.trigger(**trigger).start()
            try:
                yield query
            finally:
                landing.close()
                query.stop()

    # ----------------------------------------------------------------------------- telling

    def report(self, name: str, plan: Plan | None = None, *, busy: int = 0) -> JobReport:
        """``busy``: another process is at it."""
        notes = {"busy": busy}
        if plan is not None:
            notes |= {"absent": len(plan.absent), "lost": plan.lost}
        return JobReport(
            job=name,
            started_ms=self._started_ms,
            ended_ms=self._context.clock.now_ms(),
            batches=self._batches,
            rows=self._rows,
            lag=0 if plan is None else self._lag(plan),
            notes={word: count for word, count in notes.items() if count},
        )

    def _lag(self, plan: Plan) -> int:
        """Offsets that the lake has not got, of the streams of this plan."""
        table = self._context.lake.table(TABLE)
        lag = 0
        for span in plan.spans:
            bounds = find_bounds(self._context.store.stream(span.stream)) or NOTHING
            have = table.progress(progress_app(self._store, span.stream)) or span.begin
            lag += max(0, bounds.end - have)
        return lag


def _digest(names: list[str]) -> str:
    """Streams have names that no file can have."""
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
