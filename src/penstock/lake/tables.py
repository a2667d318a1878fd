"""The table of tables: which there are, their columns, and what they are made from.

==================  ==============================================  ============  ==================
table               a row is                                        partitions    made from
==================  ==============================================  ============  ==================
transactions        a run of a transaction that has ended                         the store
steps               an entry of its trail that is a step                          transactions
webhooks            a run that has a webhook                                      transactions
stats_5s, _60s,     partial sums of a window; add up the rows of                  transactions
_600s               one key
messages            a message of a stream                           stream, day   the store
stream_stats_5s     a closed window of a live stream                              the store
stream_stats_60s,   partial sums of a window of a live stream                     stream_stats_5s
_600s
==================  ==============================================  ============  ==================

Rules: every moment is in microseconds, UTC. Every column may be null, as Spark writes them. A column by
which a table is partitioned is in its Parquet files as well, so that whoever reads files alone has whole
rows.

Nothing here opens anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.transactions.archive.schema import SCHEMA
from penstock.transactions.model import Ending

_MOMENT: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What is fixed about a table."""

    name: str
    #: pyarrow.Schema
    schema: Any
    partition_by: tuple[str, ...] = ()
    #: columns whose smallest and largest value of each file are in Delta's log
    stats: tuple[str, ...] = ()
    #: the table whose changes it takes in
    source: str | None = None

    @property
    def app(self) -> str:
        """By which Delta knows how far it has taken in its source."""
        return f"{self.name}:from-{self.source}"


def in_lake(kind: Any) -> Any:
    """A type as Delta has it: moments in microseconds, whatever is in them."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, in_lake(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_lake(kind.key_type), in_lake(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", in_lake(kind.value_type)))
    return kind


def _schema(columns: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> Any:
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    return pa.schema([pa.field(name, in_lake(kind)) for name, kind in pairs])


def _texts(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, pa.string())


def _numbers(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, pa.int64())


def _column(name: str) -> Any:
    """The type that a column of an entry of a trail has."""
    return SCHEMA.field("trail").type.value_type.field(name).type


#: A name of a column for each way to end.
ENDINGS: Final = tuple(ending.value.replace("-", "_") for ending in Ending)

_STEPS: Final = _schema(
    {
        **_texts("tx"),
        **_numbers("run"),
        **_texts("root", "owner", "pipeline", "node_group"),
        # its place in the trail
        **_numbers("position"),
        "at": _MOMENT,
        **_numbers("step"),
        **_texts("name", "status"),
        **_numbers("attempt"),
        "started": _MOMENT,
        **_numbers("duration_ms"),
        **_texts("worker", "group", "note"),
        "logs": _column("logs"),
        **_texts("tx_status"),
        "tx_ended": _MOMENT,
    }
)
_WEBHOOKS: Final = _schema(
    {
        **_texts("tx"),
        **_numbers("run"),
        **_texts("owner", "pipeline", "webhook", "status", "comment"),
        "ended": _MOMENT,
        "notified": _MOMENT,
    }
)
_STATS: Final = _schema(
    {
        "window": _MOMENT,
        # kind: pipeline, node_group, owner or all; name: of the one
        **_texts("kind", "name"),
        **_numbers("queued", "started", "retries", *ENDINGS, "latency_sum_ms", "latency_max_ms"),
        # counts by bucket, as penstock.transactions.statistics has them
        "latency": pa.list_(pa.int64()),
        # how many came after their window was thought to be over
        **_numbers("late"),
    }
)
_MESSAGES: Final = _schema(
    {
        **_numbers("offset"),
        "time": _MOMENT,
        "tag": pa.binary(),
        "message": pa.binary(),
        **_texts("stream"),
        "day": pa.date32(),
    }
)
_STREAM_STATS: Final = _schema(
    {"window": _MOMENT, **_texts("stream", "tag"), **_numbers("messages", "bytes")}
)
_LEVELS: Final = ("5s", "60s", "600s")

TABLES: Final[Mapping[str, TableSpec]] = {
    spec.name: spec
    for spec in (
        TableSpec(
            "transactions",
            _schema([(field.name, field.type) for field in SCHEMA]),
            stats=("id", "run", "batch", "partition", "created", "ended"),
        ),
        TableSpec("steps", _STEPS, stats=("tx", "at", "tx_ended"), source="transactions"),
        TableSpec("webhooks", _WEBHOOKS, stats=("tx", "ended"), source="transactions"),
        TableSpec("messages", _MESSAGES, ("stream", "day"), stats=("offset", "time")),
        *(TableSpec(f"stats_{level}", _STATS, stats=("window",), source="transactions") for level in _LEVELS),
        TableSpec("stream_stats_5s", _STREAM_STATS, stats=("window", "stream")),
        *(
            TableSpec(
                f"stream_stats_{level}", _STREAM_STATS, stats=("window", "stream"), source="stream_stats_5s"
            )
            for level in _LEVELS[1:]
        ),
    )
}


def derived_from(name: str) -> list[TableSpec]:
    """Tables that take in the changes of this one."""
    return [spec for spec in TABLES.values() if spec.source == name]
