"""Messages of the lake against those of the store.

Compared is what both must have: from where the export of a stream began, or from the first message that
either side still has, up to where the lake is. Spark makes of each 100,000 offsets, on both sides, the
number of messages, their bytes, and two sums of a hash of each (offset, time, tag, message) that do not
depend on the order. Only where these differ are messages compared one by one:

====================  =================  ==========================================================
in the lake           in the store       is
====================  =================  ==========================================================
once                  the same           right
twice or more         whatever           a difference: ``doubled``
–                     there              a difference: ``missing``
once                  another            a difference: ``changed``
once                  –                  ``only_in_lake``: compacted, dropped or evicted in the store
====================  =================  ==========================================================

Besides: a lake beyond its own progress, or beyond the end of the store, is a difference (``beyond``).
``not_in_lake`` counts offsets before the lake's first message: retention has removed them, or nobody knows.

Nothing here writes, and nothing here knows transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from penstock.spark.jobs.exported import TABLE, begin_app, progress_app, streams_like
from penstock.spark.jobs.findings import MOST_TOLD, Findings
from penstock.spark.lake_writing import read
from penstock.spark.positions import find_bounds
from penstock.spark.stores import store_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.snapshots import Snapshot
    from penstock.spark.jobs.job import JobContext

#: Offsets that are summed up together.
RANGE: Final = 100_000
#: Streams of one query.
_STREAMS_AT_ONCE: Final = 100
_COLUMNS: Final = ("stream STRING", "offset BIGINT", "time TIMESTAMP", "tag BINARY", "message BINARY")
_SPANS: Final = "stream STRING, first BIGINT, end BIGINT"

_SENTENCES: Final = {
    "missing": "stream {0}: offset {1} is missing in the lake",
    "doubled": "stream {0}: offset {1} is in the lake {2} times",
    "changed": "stream {0}: offset {1} is not the same in the lake and in the store",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a stream that both sides must have: ``first <= offset < end``."""

    stream: str
    first: int
    end: int


def compare_messages(context: JobContext, patterns: Sequence[str], findings: Findings) -> None:
    """Of streams by name or by pattern."""
    if not patterns or TABLE not in context.lake.names():
        return
    snapshot = context.lake.table(TABLE).snapshot()
    spans = list(_spans(context, snapshot, patterns, findings))
    for start in range(0, len(spans), _STREAMS_AT_ONCE):
        if context.stopping.is_set():
            return
        _Comparison(context, snapshot, spans[start : start + _STREAMS_AT_ONCE], findings).run()
        context.report(messages=findings.counts["messages"], differences=findings.differences)


# ------------------------------------------------------------------------- what both must have


def _spans(
    context: JobContext, snapshot: Snapshot, patterns: Sequence[str], findings: Findings
) -> Iterator[Span]:
    extents = _extents(snapshot)
    in_lake = {name for name in extents if any(fnmatchcase(name, pattern) for pattern in patterns)}
    store = store_id(context.store)
    for name in sorted(in_lake.union(streams_like(context.store, patterns))):
        progress = snapshot.progress(progress_app(store, name))
        bounds = find_bounds(context.store.stream(name))
        if progress is None or bounds is None:
            findings.count("not_exported" if progress is None else "not_in_store")
            continue
        findings.count("streams")
        begin = snapshot.progress(begin_app(store, name)) or 0
        smallest, largest = extents.get(name, (progress, progress - 1))
        for limit, owner in ((progress, "its own progress is"), (bounds.end, "the store ends at")):
            if max(largest + 1, progress) > limit:
                findings.differ(
                    "beyond",
                    1,
                    [f"stream {name}: the lake has offset {max(largest, progress - 1)}, {owner} {limit - 1}"],
                )
        first = max(begin, bounds.first)
        findings.count("not_in_lake", max(0, min(smallest, bounds.end) - first))
        if max(first, smallest) < min(progress, bounds.end):
            yield Span(name, max(first, smallest), min(progress, bounds.end))


def _extents(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """Smallest and largest offset that the lake has of each stream."""
    extents: dict[str, tuple[int, int]] = {}
    for file in snapshot.files:
        name, bounds = file.partition.get("stream"), file.bounds("offset")
        if name is not None and bounds is not None:
            before = extents.get(name, bounds)
            extents[name] = min(before[0], bounds[0]), max(before[1], bounds[1])
    return extents


# ----------------------------------------------------------------------------------- comparing


class _Comparison:
    """Of some streams."""

    def __init__(
        self, context: JobContext, snapshot: Snapshot, spans: Sequence[Span], findings: Findings
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._spans = spans
        self._findings = findings
        rows = [(span.stream, span.first, span.end) for span in spans]
        self._limits = F.broadcast(context.spark.createDataFrame(rows, _SPANS))
        self._lake, self._store = self._hashed(self._of_lake()), self._hashed(self._of_store())

    def run(self) -> None:
        # The lake first: what the store loses meanwhile is only in the lake then.
        lake, store = _sums(self._lake), _sums(self._store)
        self._findings.count("ranges", len(lake.keys() | store.keys()))
        self._findings.count("messages", sum(sums[0] for sums in lake.values()))
        suspects = [key for key in lake.keys() | store.keys() if lake.get(key) != store.get(key)]
        if suspects:
            self._compare_each(suspects)

    def _compare_each(self, suspects: Sequence[tuple[str, int]]) -> None:
        chosen = F.broadcast(self._context.spark.createDataFrame(suspects, "stream STRING, range BIGINT"))
        lake = self._lake.join(chosen, ["stream", "range"]).groupBy("stream", "offset")
        store = self._store.join(chosen, ["stream", "range"])
        pairs = lake.agg(F.count("*").alias("times"), F.min("hash").alias("hash")).join(
            store.select("stream", "offset", F.col("hash").alias("other")), ["stream", "offset"], "full"
        )
        kind = (
            F.when(F.col("times") > 1, "doubled")
            .when(F.col("times").isNull(), "missing")
            .when(F.col("other").isNull(), "only_in_lake")
            .when(F.col("hash") != F.col("other"), "changed")
        )
        odd = pairs.withColumn("kind", kind).where("kind IS NOT NULL")
        counts = {row[0]: row[1] for row in odd.groupBy("kind").count().collect()}
        self._findings.count("only_in_lake", counts.pop("only_in_lake", 0))
        if counts:
            bad = odd.where("kind != 'only_in_lake'").sort("stream", "offset").limit(MOST_TOLD)
            rows = bad.select("kind", "stream", "offset", "times").collect()
            for name, number in sorted(counts.items()):
                told = [_SENTENCES[name].format(*row[1:]) for row in rows if row[0] == name]
                self._findings.differ(name, number, told)

    def _of_lake(self) -> DataFrame:
        names = {span.stream for span in self._spans}
        paths = [file.path for file in self._snapshot.files if file.partition.get("stream") in names]
        return read(self._context.spark, self._context.lake.table(TABLE), paths)

    def _of_store(self) -> DataFrame:
        options = {
            "url": self._context.url,
            "streams": json.dumps([span.stream for span in self._spans]),
            "startingOffset": json.dumps({span.stream: span.first for span in self._spans}),
            "endingOffset": json.dumps({span.stream: span.end for span in self._spans}),
            # What is evicted now is in the lake, and no loss.
            "failOnDataLoss": "false",
        }
        source = self._context.spark.read.format("penstock").schema(", ".join(_COLUMNS)).options(**options)
        return source.load()

    def _hashed(self, messages: DataFrame) -> DataFrame:
        """Of what is compared: stream, offset, the number of its range, bytes, and a hash of everything."""
        within = (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("end"))
        return (
            messages.join(self._limits, "stream")
            .where(within)
            .select(
                "stream",
                "offset",
                F.expr(f"offset div {RANGE}").alias("range"),
                (F.length("tag") + F.coalesce(F.length("message"), F.lit(0))).cast("long").alias("bytes"),
                F.xxhash64("offset", "time", "tag", "message").alias("hash"),
            )
        )


def _sums(hashed: DataFrame) -> dict[tuple[str, int], tuple[Any, ...]]:
    """By stream and range."""
    sums = hashed.groupBy("stream", "range").agg(
        F.count("*"),
        F.sum("bytes"),
        F.bit_xor("hash"),
        # Half of the bits: sums of all of them would not fit.
        F.sum(F.col("hash").bitwiseAND(0xFFFFFFFF)),
    )
    return {(row[0], row[1]): tuple(row[2:]) for row in sums.collect()}
