"""``spark.readStream.format("penstock")``: micro-batches of the messages of streams.

An offset of Spark's is ``{"<stream>": n}``: of each stream everything below n was taken. Spark writes it
down before a batch is read, so that a batch which is repeated has the same messages.

=========================  =======================================================================
a stream that …
=========================  =======================================================================
is not there yet           is an empty one that begins at offset 1
was added to ``streams``   begins at the first message it has, whatever ``startingOffset`` says
was taken from it          keeps its place in the offset, should it come back
was deleted and made anew  is an error by ``failOnDataLoss``, or else is read from its beginning:
                           such a batch has an end below its start
=========================  =======================================================================

Limits: ``maxMessagesPerBatch`` counts offsets, so that holes count, too. It is shared so that each stream
gets what it has or the same as others; what does not divide goes round.

``commit`` comes late, after the next batch was planned, and never early. So the group's cursor lags one
batch behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.blocking import Group, Stream
from penstock.spark.columns import BatchMaker
from penstock.spark.data_loss import check_end, check_range
from penstock.spark.options import Options
from penstock.spark.positions import NOTHING, Bounds, find_bounds, find_offset
from penstock.spark.range_reading import read_range
from penstock.spark.ranges import OffsetRange, split
from penstock.spark.schemas import check_schema
from penstock.spark.stores import store


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process for as long as the query runs; reads in executors, which know only the options."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        #: where a query that takes what is available now has to stop
        self._targets: dict[str, int] | None = None
        #: the ends of the streams when they were last looked at
        self._ends: dict[str, int] = {}
        self._has_groups = False

    # ----------------------------------------------------------------------- planning

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        found = {}
        for name in sorted(self._options.streams):
            stream = self._stream(name)
            bounds = find_bounds(stream) or NOTHING
            found[name] = find_offset("startingOffset", self._options.starting.of(name), stream, bounds)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_messages_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._targets = {name: bounds.end for name, bounds in self._look().items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Where the batch that begins at ``start`` ends."""
        self._make_groups(start)
        waiting = {
            name: self._waiting(name, start.get(name), bounds) for name, bounds in self._look().items()
        }
        if isinstance(limit, ReadMaxRows):
            waiting = share(waiting, limit.max_rows, turn=sum(start.values()))
        return dict(sorted({**start, **{name: range_.end for name, range_ in waiting.items()}}.items()))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        return dict(sorted(self._ends.items())) or None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[OffsetRange]:
        wholes = [
            OffsetRange(name, self._begin(name, start.get(name), end[name]), end[name])
            for name in self._options.streams
            if name in end
        ]
        return split(wholes, self._options)

    def _look(self) -> dict[str, Bounds]:
        found = {name: self._bounds(name) for name in self._options.streams}
        self._ends = {name: bounds.end for name, bounds in found.items()}
        return found

    def _waiting(self, name: str, begun: int | None, bounds: Bounds) -> OffsetRange:
        """What a stream has for the next batch."""
        fails = self._options.fails_on_data_loss
        target = bounds.end if self._targets is None else self._targets.get(name, bounds.end)
        end = min(bounds.end, target)
        if begun is None or not check_end(name, begun, bounds, fails=fails):
            return OffsetRange(name, min(bounds.first, end), end)
        end = max(begun, end)
        if fails:  # early; what is left out by consent is told by the task that misses it
            check_range(name, begun, end, bounds, fails=True)
        return OffsetRange(name, min(max(begun, bounds.first), end), end)

    def _begin(self, name: str, begun: int | None, end: int) -> int:
        """Where a batch begins that ends there; what a stream has, if it is new."""
        if begun is None or end < begun:
            return min(self._bounds(name).first, end)
        return begun

    def _bounds(self, name: str) -> Bounds:
        return find_bounds(self._stream(name)) or NOTHING

    def _stream(self, name: str) -> Stream:
        return store(self._options.url, create=False).stream(name)

    # ------------------------------------------------------------------ reading, in tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, OffsetRange)
        maker = BatchMaker(self._schema, partition.stream, self._options.tags)
        return read_range(partition, maker, self._options)

    # -------------------------------------------------------------------- the group's cursor

    def commit(self, end: dict[str, int]) -> None:
        """Spark will never ask again for what lies below."""
        if self._options.group:
            for name, group in self._groups():
                if name in end and not group.configure(at=end[name]):
                    group.create(at=end[name])  # somebody has destroyed it

    def _make_groups(self, start: Mapping[str, int]) -> None:
        """Before anything is read, so that nothing is evicted between."""
        if self._options.group and not self._has_groups:
            for name, group in self._groups():
                group.create(at=start.get(name, 0))
            self._has_groups = True

    def _groups(self) -> Iterator[tuple[str, Group]]:
        for name in self._options.streams:
            yield name, self._stream(name).group(self._options.group)


def share(waiting: Mapping[str, OffsetRange], most: int, *, turn: int) -> dict[str, OffsetRange]:
    """At most so many messages: each stream gets all it has, or as many as the others.

    If there are fewer messages than streams, ``turn`` tells with which one to begin.
    """
    busy = [name for name in waiting if len(waiting[name])]
    if most < len(busy):
        begin = turn % len(busy)
        grants = dict.fromkeys((busy[begin:] + busy[:begin])[:most], 1)
    else:
        grants = {}
        for place, name in enumerate(sorted(busy, key=lambda name: len(waiting[name]))):
            grants[name] = min(len(waiting[name]), most // (len(busy) - place))
            most -= grants[name]
    return {
        name: OffsetRange(name, whole.first, whole.first + grants.get(name, 0))
        for name, whole in waiting.items()
    }
