"""What a task reads: offsets of one stream, from one to another.

A pure function cuts what a query reads into ranges. It goes by the offsets and the options alone, so that a
batch which is repeated is cut the same way, and a task that is repeated reads the same messages.

How many: at most about ``messagesPerPartition`` messages each; up to two a core, as long as each has 20,000
messages, below which a task costs more than it saves; and no fewer than ``minPartitions``. Spark does not
tell a source how many cores its executors have, so those of the driver's machine are taken for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from penstock.spark.options import Options

#: Below this many messages another task does not pay.
_WORTH_A_TASK: Final = 20_000
_TASKS_A_CORE: Final = 2
#: Messages of a node, where nobody has set it otherwise. A node that is cut is inflated twice.
_NODE: Final = 1_000


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Messages with ``first <= offset < end``."""

    stream: str
    first: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.first)


def split(ranges: Sequence[OffsetRange], options: Options) -> list[OffsetRange]:
    """The same messages in enough pieces, in the same order."""
    total = sum(map(len, ranges))
    if total == 0:
        return []
    count = _pieces(total, options)
    return [piece for whole in ranges for piece in _cut(whole, -(-len(whole) * count // total))]


def _pieces(total: int, options: Options) -> int:
    useful = min(_TASKS_A_CORE * (os.cpu_count() or 1), total // _WORTH_A_TASK)
    needed = -(-total // options.messages_per_partition)
    return min(max(useful, needed, options.min_partitions), total)


def _cut(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Pieces of the same size but for the bounds of nodes."""
    first = whole.first
    for number in range(1, count + 1):
        end = whole.first + len(whole) * number // count
        if number < count and len(whole) // count > 2 * _NODE:
            end -= (end - 1) % _NODE
        yield OffsetRange(whole.stream, first, end)
        first = end
