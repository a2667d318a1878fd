"""Archived transactions as Arrow tables and back. The table of columns is the layout of the archive.

One row is one run of a transaction. Two columns are the truth, and alone are read back: ``fields`` has
every field of the record as it was stored, and ``trail[].raw`` every entry of its trail. All others are
made from those two, for people and programs that search; what does not fit its type is null there.

==================  =======================  ==============================================================
column              type                     what
==================  =======================  ==============================================================
id, root, parent    string                   its own, of what somebody started, of what it is a part of
run                 int64                    how often it was replayed; the highest counts
batch, partition    int64, int32             with which batch of which partition it came
owner, external_id, pipeline, version,
node_group, worker, path                     string
status, note        string                   how it ended, and what was said about it
priority            int32
created, queued, taken, ended, deadline,
notified                                     timestamp (ms, UTC)
step, steps         int64                    the step it ended at; how many steps its trail has
input, output, metadata, progress            string: JSON
webhook, webhook_status, webhook_comment     string
trail               list of struct           kind, at, step, name, status, attempt, started, worker, group,
                                             note, logs (list of at, level, text), raw (binary)
fields              map string -> binary     a name that is no UTF-8 is written as NUL and its hex
==================  =======================  ==============================================================

Nothing here knows files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.transactions import keys
from penstock.transactions.archive.sink import ArchivedRecord
from penstock.transactions.model import MAX_NOTE, Ending, Record, TrailEntry, entry_from

_MOMENT: Final = pa.timestamp("ms", tz="UTC")
#: Years beyond 9999 are no times: many readers stop at them.
_END_OF_TIME_MS: Final = 253_402_300_800_000
_LARGEST: Final = 2**63
_LARGEST_SMALL: Final = 2**31
#: Most records have the same few names of fields.
_MAX_NAMES: Final = 1_024

_Entry = tuple[TrailEntry, bytes]
_Fields = dict[bytes, bytes]
#: Makes a column of many records; fails if one holds what only the maker of single values understands.
_Bulk = Callable[[Sequence[_Fields]], Any]


class _Column(NamedTuple):
    name: str
    kind: Any
    #: one value, of whatever a record holds
    make: Callable[[Record], Any]
    #: many at once: most of the time that archiving takes goes here
    bulk: _Bulk | None = None

    def array(self, records: Sequence[ArchivedRecord]) -> Any:
        if self.bulk is not None:
            try:
                return self.bulk([record.fields for record in records])
            except (ValueError, OverflowError):
                pass
        return pa.array([self.make(record.record) for record in records], self.kind)


def _text(name: str, field: bytes) -> _Column:
    def bulk(all_fields: Sequence[_Fields]) -> Any:
        # The cast refuses what is no UTF-8.
        return pa.array([fields.get(field) or None for fields in all_fields], pa.binary()).cast(pa.string())

    return _Column(name, pa.string(), lambda record: record.text(field) or None, bulk)


def _whole(value: int, largest: int = _LARGEST) -> int | None:
    return value if -largest <= value < largest else None


def _number(name: str, field: bytes, kind: Any, largest: int) -> _Column:
    def bulk(all_fields: Sequence[_Fields]) -> Any:
        return pa.array([int(fields.get(field) or 0) for fields in all_fields], kind)

    return _Column(name, kind, lambda record: _whole(record.number(field), largest), bulk)


def _instant(value: int) -> int | None:
    return value if 0 < value < _END_OF_TIME_MS else None


def _moment(name: str, field: bytes) -> _Column:
    def bulk(all_fields: Sequence[_Fields]) -> Any:
        return pa.array([_instant(int(fields.get(field) or 0)) for fields in all_fields], _MOMENT)

    return _Column(name, _MOMENT, lambda record: _instant(record.number(field)), bulk)


def _output(record: Record) -> str | None:
    if record.text(b"status") != Ending.SUCCESS and not record.number(b"has_output"):
        return None
    return record.data.decode("utf-8", "replace")


_COLUMNS: Final[Sequence[_Column]] = (
    _Column("id", pa.string(), lambda record: record.id),
    _Column("root", pa.string(), lambda record: keys.root_of(record.id)),
    _text("parent", b"parent"),
    _number("run", b"run", pa.int64(), _LARGEST),
    _number("batch", b"archive_batch", pa.int64(), _LARGEST),
    _Column("partition", pa.int32(), lambda record: keys.partition_of(record.id)),
    _text("owner", b"owner"),
    _text("external_id", b"external_id"),
    _text("pipeline", b"pipeline"),
    _text("version", b"version"),
    _text("node_group", b"group"),
    _text("worker", b"worker"),
    _text("path", b"path"),
    _text("status", b"status"),
    _text("note", b"note"),
    _number("priority", b"priority", pa.int32(), _LARGEST_SMALL),
    _moment("created", b"created_ms"),
    _moment("queued", b"queued_ms"),
    _moment("taken", b"taken_ms"),
    _moment("ended", b"ended_ms"),
    _moment("deadline", b"deadline_ms"),
    _moment("notified", b"notified_ms"),
    _number("step", b"step", pa.int64(), _LARGEST),
    _text("input", b"d:0"),
    _Column("output", pa.string(), _output),
    _text("metadata", b"metadata"),
    _text("progress", b"progress"),
    _text("webhook", b"webhook"),
    _text("webhook_status", b"webhook_status"),
    _text("webhook_comment", b"webhook_comment"),
)

_LOG: Final = pa.struct([("at", _MOMENT), ("level", pa.string()), ("text", pa.string())])

#: name, type, how it is made from an entry and its text
_TRAIL: Final[Sequence[tuple[str, Any, Callable[[_Entry], Any]]]] = (
    ("kind", pa.string(), lambda pair: pair[0].kind),
    ("at", _MOMENT, lambda pair: _instant(pair[0].at_ms)),
    ("step", pa.int64(), lambda pair: None if pair[0].step is None else _whole(pair[0].step)),
    ("name", pa.string(), lambda pair: pair[0].name),
    ("status", pa.string(), lambda pair: pair[0].status),
    ("attempt", pa.int64(), lambda pair: _whole(pair[0].attempt)),
    ("started", _MOMENT, lambda pair: _instant(pair[0].started_ms)),
    ("worker", pa.string(), lambda pair: pair[0].worker),
    ("group", pa.string(), lambda pair: pair[0].group),
    ("note", pa.string(), lambda pair: pair[0].note),
    (
        "logs",
        pa.list_(_LOG),
        lambda pair: [(_instant(at_ms), level, text) for at_ms, level, text in pair[0].logs],
    ),
    ("raw", pa.binary(), lambda pair: pair[1]),
)

SCHEMA: Final = pa.schema(
    [
        *(pa.field(column.name, column.kind, nullable=column.name != "id") for column in _COLUMNS),
        ("steps", pa.int64()),
        ("trail", pa.list_(pa.struct([(name, kind) for name, kind, _ in _TRAIL]))),
        ("fields", pa.map_(pa.string(), pa.binary())),
    ]
)
#: What ``records_of`` needs.
TRUTH: Final = ("id", "fields", "trail.list.element.raw")


def table_of(records: Sequence[ArchivedRecord]) -> Any:
    """Rows in the order of the records."""
    trails = [[(_entry(text), text) for text in record.trail] for record in records]
    columns = [column.array(records) for column in _COLUMNS]
    steps = [sum(entry.kind == "step" for entry, _ in trail) for trail in trails]
    return pa.table(
        [*columns, pa.array(steps, pa.int64()), _trail_column(trails), _fields_column(records)], schema=SCHEMA
    )


def _trail_column(trails: Sequence[Sequence[_Entry]]) -> Any:
    flat = [pair for trail in trails for pair in trail]
    parts = [pa.array([make(pair) for pair in flat], kind) for _, kind, make in _TRAIL]
    entries = pa.StructArray.from_arrays(parts, names=[name for name, _, _ in _TRAIL])
    return pa.ListArray.from_arrays(_offsets(map(len, trails)), entries)


def _fields_column(records: Sequence[ArchivedRecord]) -> Any:
    names = pa.array([_name_to(name) for record in records for name in record.fields], pa.string())
    values = pa.array([value for record in records for value in record.fields.values()], pa.binary())
    return pa.MapArray.from_arrays(_offsets(len(record.fields) for record in records), names, values)


def _offsets(lengths: Iterable[int]) -> Any:
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())


def _entry(text: bytes) -> TrailEntry:
    """An entry that nobody can read must not keep the rest from the archive."""
    try:
        return entry_from(text)
    except (UnicodeDecodeError, RecursionError):
        return TrailEntry("note", note=text[:MAX_NOTE].decode("utf-8", "replace"))


def records_of(table: Any) -> list[ArchivedRecord]:
    """Of a table with the columns ``TRUTH``."""
    return [
        ArchivedRecord(
            tx, {_name_from(name): value for name, value in fields}, [part["raw"] for part in trail]
        )
        for tx, fields, trail in zip(
            table.column("id").to_pylist(),
            table.column("fields").to_pylist(),
            table.column("trail").to_pylist(),
            strict=True,
        )
    ]


@lru_cache(maxsize=_MAX_NAMES)
def _name_to(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return f"\0{name.hex()}"
    return f"\0{name.hex()}" if text.startswith("\0") else text


@lru_cache(maxsize=_MAX_NAMES)
def _name_from(text: str) -> bytes:
    return bytes.fromhex(text[1:]) if text.startswith("\0") else text.encode()


def digest_of(records: Iterable[ArchivedRecord]) -> str:
    """Of all that ``records_of`` gives back, in hex; the order of fields does not matter."""
    digest = hashlib.sha256()
    for record in records:
        # With its length before each word, no two records give the same bytes.
        digest.update(b"".join([b"%d:%b" % (len(word), word) for word in _words(record)]))
    return digest.hexdigest()


def _words(record: ArchivedRecord) -> Iterator[bytes]:
    yield record.id.encode()
    yield b"%d %d" % (len(record.fields), len(record.trail))
    for name in sorted(record.fields):
        yield name
        yield record.fields[name]
    yield from record.trail
