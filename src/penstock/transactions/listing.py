"""Lists of transactions: a question, a page of answers, and a cursor that goes on where the page ended.

    page = await Listing(store).page(Query(owner="acme", status="failed"), limit=50)
    page = await Listing(store).page(query, limit=50, cursor=page.cursor)

Order: newest first, by the time of creation and then by id; the same in every way of reading, so a cursor is
a place in that order and stays good while transactions come, move and go.

Where candidates come from, and then each is read and compared with the question:

==================  ==================================================================================
sets of a state     when they are small: read whole, and put in order
``ownerZ:<owner>``  the index of one owner, merged over all partitions
``indexZ``          the index of all, likewise
==================  ==================================================================================

Rules: a page costs a bounded number of reads; when they are used up it is short, and its cursor says that
there is more. Nothing is written, nothing is scanned. It knows nothing of workers, HTTP or the archive.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from penstock.errors import CommandError, UsageError
from penstock.transactions import keys
from penstock.transactions.model import Ending, Record, State, Transaction, transaction_from
from penstock.transactions.store import TransactionStore

MAX_PAGE: Final = 1_000
#: Rows that one page reads at most, matching or not.
MAX_ROWS: Final = 5_000
#: Rows that are asked for at once.
BATCH: Final = 256
#: Sets of a state with more members than this are left alone: the index gives their order for nothing.
MAX_SET: Final = 2_000
DEAD: Final = "dead"
STATES: Final = (*(state.value for state in State), DEAD)
STATUSES: Final = ("running", *(ending.value for ending in Ending))

#: When it was created (ms), and its id: larger is newer.
Place = tuple[int, str]
_NEWEST_MS: Final = 2**53

_FILTERED: Final = ("state", "status", "owner", "pipeline", "group", "external_id", "created_ms")
#: What a row of a page shows; inputs, outputs and switches may be large and are left to ``store.get``.
SHOWN: Final = (
    *_FILTERED, "version", "priority", "note", "metadata", "progress", "step", "attempt", "run", "queued_ms",
    "taken_ms", "wakes_ms", "ended_ms", "deadline_ms", "notified_ms", "worker", "awaits", "held", "parent",
    "path", "webhook", "webhook_status", "webhook_comment",
)  # fmt: skip
_SETS: Final = {
    State.RUNNING: ("processingZ",),
    State.SLEEPING: ("sleepingZ",),
    State.WAITING: ("sleepingZ",),
    State.ENDED: ("toArchiveZ", "webhooksZ"),
    DEAD: ("deadZ",),
}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which transactions; what is None does not matter."""

    owner: str | None = None
    #: queued, running, sleeping, waiting, joining, ended; dead: given up, to be looked at by somebody
    state: str | None = None
    #: running, or how it ended
    status: str | None = None
    pipeline: str | None = None
    node_group: str | None = None
    external_id: str | None = None
    #: created then or later
    since_ms: int | None = None
    #: created before
    until_ms: int | None = None
    #: without children
    roots_only: bool = False

    def __post_init__(self) -> None:
        for name in ("owner", "pipeline", "node_group"):
            if getattr(self, name) is not None:
                keys.check_name(name, getattr(self, name))
        if self.external_id is not None:
            keys.check_external_id(self.external_id)
        if self.state is not None and self.state not in STATES:
            raise UsageError(f"state must be one of {', '.join(STATES)}, not {self.state!r}")
        if self.status is not None and self.status not in STATUSES:
            raise UsageError(f"status must be one of {', '.join(STATUSES)}, not {self.status!r}")

    @property
    def is_plain(self) -> bool:
        """Whether every transaction of its index and time is an answer."""
        asked = (self.state, self.status, self.pipeline, self.node_group, self.external_id)
        return not self.roots_only and all(value is None for value in asked)

    def matches(self, record: Record) -> bool:
        """Whether a record is an answer, but for being dead, which records do not say."""
        return (
            (self.owner is None or record.text(b"owner") == self.owner)
            and (self.state is None or self.state == DEAD or record.state == self.state)
            and (self.status is None or record.text(b"status") == self.status)
            and (self.pipeline is None or record.text(b"pipeline") == self.pipeline)
            and (self.node_group is None or record.text(b"group") == self.node_group)
            and (self.external_id is None or record.text(b"external_id") == self.external_id)
        )


class Page(NamedTuple):
    #: without trail, input, output and switches
    items: list[Transaction]
    #: where to go on; None: that was all
    cursor: str | None


class _Walk(Protocol):
    """Candidates in order."""

    async def take(self, count: int) -> list[Place]:
        """Up to so many; none if there are no more."""


class Listing:
    """Pages of the transactions of one store."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store

    async def page(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> Page:
        if not 1 <= limit <= MAX_PAGE:
            raise UsageError(f"limit must be 1 to {MAX_PAGE}, not {limit}")
        until_ms = _NEWEST_MS if query.until_ms is None else query.until_ms
        place = (until_ms, "") if cursor is None else _place_from(cursor, query)
        walk = await self._walk(query, place)
        found: list[str] = []
        read = 0
        is_more = True
        while len(found) < limit and read < MAX_ROWS:
            wanted = limit - len(found) if query.is_plain else BATCH
            candidates = await walk.take(min(wanted, BATCH))
            if not candidates:
                is_more = False
                break
            read += len(candidates)
            place = await self._sift(query, candidates, found, limit)
            if len(found) == limit and place == candidates[-1]:
                is_more = bool(await walk.take(1))
        items = [
            transaction_from(record)
            for record in await rows(self._store, found, SHOWN)
            if record is not None and query.matches(record)
        ]
        return Page(items, _cursor_of(place, query) if is_more else None)

    async def _sift(self, query: Query, candidates: list[Place], found: list[str], limit: int) -> Place:
        """Add those that match, up to the limit; the last place that was looked at."""
        names = [tx for _, tx in candidates]
        records = await rows(self._store, names, _FILTERED)
        known = [record.id for record in records if record is not None]
        dead = await self._dead_of(known) if query.state == DEAD else None
        for candidate, record in zip(candidates, records, strict=True):
            tx = candidate[1]
            if record is None or (query.roots_only and "." in tx) or not query.matches(record):
                continue
            if dead is not None and tx not in dead:
                continue
            found.append(tx)
            if len(found) == limit:
                return candidate
        return candidates[-1]

    async def _dead_of(self, names: list[str]) -> set[str]:
        """Those of them that have records and were given up."""
        pipe = self._store.client.pipeline()
        for tx in names:
            pipe.zscore(f"{keys.prefix_of(keys.partition_of(tx))}deadZ", tx)
        return {tx for tx, score in zip(names, await pipe.all(), strict=True) if score is not None}

    # ------------------------------------------------------------------------------------- candidates

    async def _walk(self, query: Query, place: Place) -> _Walk:
        partitions: Sequence[int] = range(await self._store.partitions())
        if query.owner is not None and query.external_id is not None:
            partitions = [keys.home_of(query.owner, query.external_id, len(partitions))]
            place = await self._jump(query.owner, query.external_id, place)
        index = "indexZ" if query.owner is None else f"ownerZ:{query.owner}"
        index_keys = [f"{keys.prefix_of(partition)}{index}" for partition in partitions]
        set_keys = await self._set_keys(query, partitions)
        if set_keys:
            in_sets, in_index = await self._size(set_keys), await self._size(index_keys)
            if in_sets <= MAX_SET and in_sets < in_index:
                return await self._set_walk(set_keys, query, place)
        return _IndexWalk(self._store, index_keys, query.since_ms, place)

    async def _jump(self, owner: str, external_id: str, place: Place) -> Place:
        """Whoever has an external id now is the newest that ever had it: nothing before it needs a look."""
        tx = await self._store.find_external(owner, external_id)
        record = (await rows(self._store, [tx], ("created_ms",)))[0] if tx is not None else None
        if tx is None or record is None:
            return place
        return min(place, (record.number(b"created_ms"), tx + "\0"))

    async def _set_keys(self, query: Query, partitions: Sequence[int]) -> list[str]:
        if query.state == State.QUEUED:
            return await self._queue_keys(query.node_group, partitions) if query.node_group else []
        names = _SETS.get(query.state, ()) if query.state is not None else ()
        return [f"{keys.prefix_of(partition)}{name}" for partition in partitions for name in names]

    async def _queue_keys(self, group: str, partitions: Sequence[int]) -> list[str]:
        """The queues of a group, and where limits hold whoever may not run yet."""
        found: list[str] = []
        for partition, names in (await held_names(self._store, partitions)).items():
            prefix = keys.prefix_of(partition)
            found += [f"{prefix}q{queue}Z:{group}" for queue in ("Admin", "Out", "In")]
            found += [f"{prefix}heldZ:{name}" for name in names]
        return found

    async def _size(self, names: Iterable[str]) -> int:
        pipe = self._store.client.pipeline()
        for name in names:
            pipe.zcard(name)
        return sum(await pipe.all())

    async def _set_walk(self, set_keys: list[str], query: Query, place: Place) -> _SetWalk:
        pipe = self._store.client.pipeline()
        for key in set_keys:
            pipe.zrange(key, 0, MAX_SET)
        # A member of webhooksZ is an id and an event.
        members = (member.partition(b" ")[0].decode() for reply in await pipe.all() for member in reply)
        names = list(dict.fromkeys(members))
        records = await rows(self._store, names, ("created_ms",))
        places = [(record.number(b"created_ms"), record.id) for record in records if record is not None]
        return _SetWalk(
            sorted((p for p in places if (query.since_ms or 0) <= p[0] and p < place), reverse=True)
        )


class _SetWalk:
    """What was read whole."""

    def __init__(self, places: list[Place]) -> None:
        self._places = deque(places)

    async def take(self, count: int) -> list[Place]:
        return [self._places.popleft() for _ in range(min(count, len(self._places)))]


class _Source:
    """The index of one partition."""

    __slots__ = ("ahead", "is_finished", "key", "place", "size")

    def __init__(self, key: str, place: Place, size: int) -> None:
        self.key = key
        #: all that is read next is before this
        self.place = place
        self.ahead: deque[Place] = deque()
        self.is_finished = False
        #: how many are read at once
        self.size = size

    def feed(self, members: list[tuple[bytes, float]]) -> None:
        places = [(int(score), member.decode("utf-8", "replace")) for member, score in members]
        self.is_finished = len(places) < self.size
        self.ahead.extend(place for place in places if place < self.place)
        if self.ahead:
            self.place = self.ahead[-1]
        else:
            # All of them were created in the same millisecond as the last one that was seen: look further.
            self.size *= 2


class _IndexWalk:
    """Indexes of several partitions, merged."""

    def __init__(
        self, store: TransactionStore, index_keys: Iterable[str], since_ms: int | None, place: Place
    ) -> None:
        self._store = store
        self._since = "-inf" if since_ms is None else str(since_ms)
        names = list(index_keys)
        size = max(16, min(BATCH, 2 * BATCH // len(names)))
        self._sources = [_Source(key, place, size) for key in names]

    async def take(self, count: int) -> list[Place]:
        taken: list[Place] = []
        while len(taken) < count:
            await self._fill()
            self._sources = [source for source in self._sources if source.ahead]
            if not self._sources:
                break
            taken.append(max(self._sources, key=lambda source: source.ahead[0]).ahead.popleft())
        return taken

    async def _fill(self) -> None:
        """Until every source has something ahead, or nothing any more."""
        while hungry := [source for source in self._sources if not source.ahead and not source.is_finished]:
            pipe = self._store.client.pipeline()
            for source in hungry:
                pipe.zrange(
                    source.key, source.place[0], self._since,
                    byscore=True, rev=True, limit=(0, source.size), withscores=True,
                )  # fmt: skip
            for source, members in zip(hungry, await pipe.all(), strict=True):
                source.feed(members)


# ------------------------------------------------------------------------------------------- reading


async def rows(store: TransactionStore, names: Sequence[str], fields: Sequence[str]) -> list[Record | None]:
    """Some fields of these transactions; None for one that is gone, or is no record at all."""
    found: list[Record | None] = []
    labels = [field.encode() for field in fields]
    for start in range(0, len(names), BATCH):
        batch = names[start : start + BATCH]
        pipe = store.client.pipeline()
        for tx in batch:
            pipe.hmget(_state_key(tx), *fields)
        for tx, reply in zip(batch, await pipe.try_all(), strict=True):
            found.append(_record_of(tx, labels, reply))
    return found


def _state_key(tx: str) -> str:
    """Also for what is no id: an index may be broken, and its other entries must be shown."""
    try:
        return f"{keys.prefix_of(keys.partition_of(tx))}stateH:{tx}"
    except UsageError:
        return f"{keys.prefix_of(0)}stateH:"


def _record_of(tx: str, labels: list[bytes], reply: Any) -> Record | None:
    if isinstance(reply, Exception):
        if isinstance(reply, CommandError) and reply.code == "WRONGTYPE":
            return None
        raise reply
    known = {label: value for label, value in zip(labels, reply, strict=True) if value is not None}
    return Record(tx, known) if known else None


async def held_names(store: TransactionStore, partitions: Iterable[int]) -> dict[int, set[str]]:
    """By partition: which limits may hold somebody back."""
    places = list(partitions)
    pipe = store.client.pipeline()
    for partition in places:
        pipe.hkeys(f"{keys.prefix_of(partition)}limitsH")
        # A limit that was taken away holds on to its own until somebody looks.
        pipe.zrange(f"{keys.prefix_of(partition)}releaseZ", 0, -1)
    replies = await pipe.all()
    return {
        partition: {name.decode() for name in (*replies[2 * at], *replies[2 * at + 1]) if name[:2] != b"g:"}
        for at, partition in enumerate(places)
    }


# ------------------------------------------------------------------------------------------- cursors


def _seal(place: Place, query: Query) -> bytes:
    text = msgspec.json.encode([1, place, query])
    return hashlib.sha256(text).digest()[:8]


def _cursor_of(place: Place, query: Query) -> str:
    data = msgspec.msgpack.encode((*place, _seal(place, query)))
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _place_from(cursor: str, query: Query) -> Place:
    """Where it points; only for the question that it was made for."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        at_ms, tx, seal = msgspec.msgpack.decode(data, type=tuple[int, str, bytes])
        if seal == _seal((at_ms, tx), query):
            return at_ms, tx
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        pass
    raise UsageError(
        "cursor is not one that this query gave: ask the same as before, or begin without a cursor"
    )
