"""What a transaction is: states and endings as data, its record in the store, and what users see of it.

State machine. Each arrow is a script (``lua/``), and happens whole or not at all:

==========  ==========================  =====================================================
from        to                          by
==========  ==========================  =====================================================
(nothing)   queued, sleeping            enqueue: a start, now or later
queued      running                     dequeue: a worker takes it under a lease
queued      ended                       control cancel; dequeue, if its parent is gone
running     running                     settle keep: a step is done, the next begins
running     queued                      settle queue: another group, or handed back;
                                        dequeue, renew: its worker fell silent
running     sleeping, waiting, joining  settle sleep, wait, join
running     ended                       settle end; dequeue, renew: too many workers fell silent
sleeping    queued                      dequeue, renew: its time has come; control wake
waiting     queued                      switch set; its time has come; control wake
joining     queued                      settle end of the last child (or a failed one, if hurried); deadline
sleeping,
waiting,
joining     ended, queued               control cancel; queued if something must be undone
ended       queued                      control replay
==========  ==========================  =====================================================

Invariants:

1. A transaction that is running has a lease, and its record the token of whoever holds it. Writes with
   another token change nothing.
2. One that is queued is in exactly one queue, or held by one limit.
3. One that has ended is written again only by replay; it waits for its webhook, then for its archive.
4. What a step was given (``d:<n>``) is never overwritten while later steps may be replayed from it.

Nothing here sends anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import UsageError


class State(StrEnum):
    """Where a transaction is."""

    QUEUED = "queued"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    JOINING = "joining"
    ENDED = "ended"


class Ending(StrEnum):
    """How one ended."""

    SUCCESS = "success"
    FAILED = "failed"
    ABORTED = "aborted"
    TIMEOUT = "timeout"
    INTERNAL_ERROR = "internal-error"
    CANCELLED = "cancelled"


class Queue(StrEnum):
    """What a group serves, in this order."""

    ADMIN = "Admin"
    OUT = "Out"
    IN = "In"


PRIORITIES: Final = range(10)
DEFAULT_PRIORITY: Final = 5
DEFAULT_OWNER: Final = "default"
#: JSON of what a step gets or gives.
MAX_DATA_BYTES: Final = 1_048_576
MAX_SWITCHES: Final = 100
MAX_SWITCH_VALUE: Final = 1_024
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
#: How long nobody else of the owner can take an external id.
EXTERNAL_ID_MS: Final = 6 * HOUR_MS
MAX_DELAY_MS: Final = 366 * DAY_MS
MAX_NOTE: Final = 2_000

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def to_json(what: str, value: Any, limit_bytes: int = MAX_DATA_BYTES) -> bytes:
    """JSON of what a user gave; ``UsageError`` names it if there is none, or too much."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise UsageError(f"{what} must be JSON: {error}") from None
    if len(text) > limit_bytes:
        raise UsageError(f"{what} must have at most {limit_bytes} bytes as JSON, not {len(text)}")
    return text


def from_json(text: bytes) -> Any:
    """A stored value. What does not decode is given as text: it must not hide the rest of a record."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")


class Record:
    """The fields of one transaction as they are stored."""

    __slots__ = ("fields", "id", "token")

    def __init__(self, id: str, fields: dict[bytes, bytes], token: int = 0) -> None:
        self.id = id
        self.fields = fields
        #: of whoever took it
        self.token = token

    def text(self, name: bytes, default: str = "") -> str:
        value = self.fields.get(name)
        return default if value is None else value.decode("utf-8", "replace")

    def number(self, name: bytes, default: int = 0) -> int:
        try:
            return int(self.fields.get(name) or default)
        except ValueError:
            return default

    @property
    def state(self) -> str:
        return self.text(b"state")

    @property
    def data(self) -> bytes:
        """JSON of what the current step gets, or of the result."""
        return self.fields.get(b"d:" + self.fields.get(b"data", b"0"), b"null")

    def with_prefix(self, prefix: bytes) -> dict[str, bytes]:
        """Fields whose names begin so, without that."""
        return {
            name[len(prefix) :].decode("utf-8", "replace"): value
            for name, value in self.fields.items()
            if name.startswith(prefix)
        }

    def __repr__(self) -> str:
        return f"<Record {self.id} {self.state} token={self.token}>"


def record_from(tx: str, flat: Sequence[Any], token: int = 0) -> Record:
    """Of a flat reply of HGETALL."""
    return Record(tx, dict(zip(flat[::2], flat[1::2], strict=True)), token)


class Settlement(NamedTuple):
    """What a worker has to say about one that it holds; ``lua/settle.lua`` tells what kinds there are."""

    kind: str
    tx: str
    token: int
    #: counts the writes of one holder
    seq: int
    note: str = ""
    fields: Sequence[Any] = ()
    trail: Sequence[bytes] = ()
    outbox: Sequence[Any] = ()
    arguments: Sequence[Any] = ()

    def words(self) -> Iterable[Any]:
        yield from (self.kind, self.tx, self.token, self.seq, self.note)
        for part in (self.fields, self.trail, self.outbox, self.arguments):
            yield len(part)
            yield from part


class Taken(NamedTuple):
    """What a worker got."""

    now_ms: int
    #: until something becomes due; None for never
    next_ms: int | None
    #: more may be waiting although less was given than asked for
    is_more: bool
    records: list[Record]


class Renewal(NamedTuple):
    now_ms: int
    next_ms: int | None
    outbox: int
    lost: list[str]
    unwanted: list[str]


class Started(NamedTuple):
    id: str
    #: False: the same was started before, under the same external id
    is_new: bool


class TrailEntry(msgspec.Struct, omit_defaults=True):
    """One thing that happened."""

    #: step, undo (a step), retry, lost, cancel, wake, priority, replay, switch, webhook, note
    kind: str
    at_ms: int = 0
    #: number and id of the step
    step: int | None = None
    name: str = ""
    #: how a step ended: success, failed, …; or sleep, wait, join
    status: str = ""
    attempt: int = 0
    started_ms: int = 0
    worker: str = ""
    group: str = ""
    note: str = ""
    #: (ms, level, text)
    logs: list[tuple[int, str, str]] = []


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a pipeline, an owner or a group may run. 0: no limit."""

    is_paused: bool = False
    #: steps at a time
    concurrency: int = 0
    #: taken up by workers in a second
    rate: float = 0.0
    #: … and how many at once after a quiet time
    burst: int = 1
    #: of a group: starts are refused while so many wait
    max_queued: int = 0

    def __post_init__(self) -> None:
        for name in ("concurrency", "rate", "max_queued"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0 (0 for no limit), not {getattr(self, name)}")
        if self.burst < 1:
            raise UsageError(f"burst must be at least 1, not {self.burst}")


class Transaction(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What users see of a transaction."""

    id: str
    owner: str
    pipeline: str
    version: str
    node_group: str
    #: queued, running, sleeping, waiting, joining, ended
    state: str
    #: running, or how it ended
    status: str
    created_ms: int
    external_id: str | None = None
    priority: int = DEFAULT_PRIORITY
    input: Any = None
    #: of one that succeeded, or that was ended with one
    output: Any = None
    note: str = ""
    metadata: Any = None
    progress: Any = None
    #: number of the step it is at, and how often that was tried
    step: int = 0
    attempt: int = 0
    run: int = 0
    queued_ms: int | None = None
    taken_ms: int | None = None
    wakes_ms: int | None = None
    ended_ms: int | None = None
    deadline_ms: int | None = None
    notified_ms: int | None = None
    worker: str | None = None
    #: the switch it waits for
    awaits: str | None = None
    #: the limit that holds it back
    held: str | None = None
    switches: dict[str, str] = {}
    parent: str | None = None
    path: str = ""
    webhook: str | None = None
    webhook_status: str | None = None
    webhook_comment: str | None = None
    trail: list[TrailEntry] = []
    is_archived: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state == State.ENDED

    @property
    def is_success(self) -> bool:
        return self.status == Ending.SUCCESS


def transaction_from(
    record: Record, trail: Sequence[bytes] = (), *, is_archived: bool = False
) -> Transaction:
    """What a record says. Fields that are missing or broken become what they are without."""
    text, number = record.text, record.number

    def moment(name: bytes) -> int | None:
        return number(name) or None

    return Transaction(
        id=record.id,
        owner=text(b"owner"),
        pipeline=text(b"pipeline"),
        version=text(b"version"),
        node_group=text(b"group"),
        state=text(b"state"),
        status=text(b"status"),
        created_ms=number(b"created_ms"),
        external_id=text(b"external_id") or None,
        priority=number(b"priority", DEFAULT_PRIORITY),
        input=from_json(record.fields.get(b"d:0", b"null")),
        output=from_json(record.data) if text(b"status") == Ending.SUCCESS or number(b"has_output") else None,
        note=text(b"note"),
        metadata=_optional_json(record, b"metadata"),
        progress=_optional_json(record, b"progress"),
        step=number(b"step"),
        attempt=number(b"attempt"),
        run=number(b"run"),
        queued_ms=moment(b"queued_ms"),
        taken_ms=moment(b"taken_ms"),
        wakes_ms=moment(b"wakes_ms"),
        ended_ms=moment(b"ended_ms"),
        deadline_ms=moment(b"deadline_ms"),
        notified_ms=moment(b"notified_ms"),
        worker=text(b"worker") or None,
        awaits=text(b"awaits") or None,
        held=text(b"held") or None,
        switches={
            name: value[1:].decode("utf-8", "replace") for name, value in record.with_prefix(b"s:").items()
        },
        parent=text(b"parent") or None,
        path=text(b"path"),
        webhook=text(b"webhook") or None,
        webhook_status=text(b"webhook_status") or None,
        webhook_comment=text(b"webhook_comment") or None,
        trail=[entry_from(entry) for entry in trail],
        is_archived=is_archived,
    )


class StepData(msgspec.Struct):
    """What went into a step and what came out of it."""

    step: int
    input: Any
    #: of one that is not done: null
    output: Any
    is_done: bool


def step_data_from(record: Record, step: int) -> StepData:
    """Of a step that was reached; what a step did not change is not stored again."""

    def data_at(number: int) -> Any:
        found = next((k for k in range(number, 0, -1) if b"d:%d" % k in record.fields), 0)
        return from_json(record.fields.get(b"d:%d" % found, b"null"))

    is_done = step < record.number(b"step") or b"d:%d" % (step + 1) in record.fields
    return StepData(step, data_at(step), data_at(step + 1) if is_done else None, is_done)


def _optional_json(record: Record, name: bytes) -> Any:
    value = record.fields.get(name)
    return from_json(value) if value else None


_decode_entry: Final = msgspec.json.Decoder(TrailEntry).decode


def entry_from(text: bytes) -> TrailEntry:
    try:
        return _decode_entry(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TrailEntry("note", note=text[:MAX_NOTE].decode("utf-8", "replace"))


def entry_to(entry: TrailEntry) -> bytes:
    return _encode(entry)
