"""What people who run a store look at: lists, groups, what runs, what was given up, limits, numbers.

    looking = Looking(store)
    page = await looking.list(Query(state="waiting"), limit=50)
    for group in await looking.groups():
        print(group.name, group.in_, group.running)

Rules: nothing is written and no keyspace is scanned. Everything costs a bounded number of reads: where a
number would need more, it is what was counted so far (its field says so). Partitions are read in turn, so
sums are of moments that lie close together, not of one. What this module must not know: HTTP, the archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.errors import UsageError
from penstock.transactions import keys, listing
from penstock.transactions.listing import MAX_PAGE, Listing, Page, Query
from penstock.transactions.model import Limit, Queue, Record, State, Transaction, transaction_from
from penstock.transactions.pipelines.registry import NAMES_KEY, head_key, home_key
from penstock.transactions.statistics import Statistics
from penstock.transactions.store import TransactionStore, not_found
from penstock.transactions.workers_registry import WorkerRegistry

__all__ = ["Dead", "GroupInfo", "Looking", "Overview", "Page", "Query", "Running"]

#: Rows that are read to tell which group they belong to.
MAX_COUNTED: Final = 10_000
#: Sleepers whose records are read to tell who of them waits for a switch.
MAX_SLEEPERS: Final = 1_000
#: Places beyond the last known child where another one is looked for.
_PROBE: Final = 8
_QUEUES: Final = tuple(queue.value for queue in Queue)


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who waits for the workers of a node group, and who is with them."""

    name: str
    #: what people asked for
    admin: int = 0
    #: who goes on
    out: int = 0
    #: who begins
    in_: int = msgspec.field(default=0, name="in")
    #: whom a limit holds back; counted up to ``MAX_COUNTED`` of all groups
    held: int = 0
    is_paused: bool = False
    #: counted up to ``MAX_COUNTED`` of all groups
    running: int = 0
    #: since when the one waits who has waited for longest among those that are next
    oldest_ms: int | None = None


class Overview(NamedTuple):
    """How much there is."""

    #: in queues, and held back by limits
    queued: int
    running: int
    #: asleep, waiting for a switch, or joining before a deadline
    sleeping: int
    dead: int
    to_archive: int
    #: webhooks that were not delivered yet
    webhooks: int
    #: messages on their way to streams and channels
    outbox: int
    #: all that are not archived
    total: int
    #: of those that sleep: waiting for a switch; with a time limit they are counted among the
    #: ``MAX_SLEEPERS`` that wake first
    waiting: int = 0


class Running(NamedTuple):
    transaction: Transaction
    #: since when a worker has it
    since_ms: int
    #: when that worker counts as dead
    lease_ms: int | None


class Dead(NamedTuple):
    id: str
    #: when it was given up
    dead_ms: int
    reason: str
    #: None if nobody can read its record
    transaction: Transaction | None


# The method ``list`` hides the type of that name from the annotations of its class.
Transactions: TypeAlias = list[Transaction]
Groups: TypeAlias = list[GroupInfo]
Runners: TypeAlias = list[Running]
DeadOnes: TypeAlias = list[Dead]
Names: TypeAlias = list[str]
#: Members after their scores.
Scored: TypeAlias = list[tuple[int, str]]


class Looking:
    """Looks at the transactions of one store."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store
        self._client = store.client
        self._listing = Listing(store)

    async def list(self, query: Query | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Newest first. A page may be short and still have a cursor: its reads were used up."""
        return await self._listing.page(query or Query(), limit=limit, cursor=cursor)

    # --------------------------------------------------------------------------------------- what is on

    async def running(self, limit: int = 100) -> Runners:
        """Who is with a worker, the longest first."""
        scored = await self._ends("processingZ", _checked(limit), is_newest=False)
        names = [tx for _, tx in scored]
        pipe = self._client.pipeline()
        for tx in names:
            pipe.zscore(f"{keys.prefix_of(keys.partition_of(tx))}leasesZ", tx)
        leases = await pipe.all()
        records = await listing.rows(self._store, names, listing.SHOWN)
        return [
            Running(transaction_from(record), since_ms, None if lease is None else int(lease))
            for (since_ms, _), lease, record in zip(scored, leases, records, strict=True)
            if record is not None
        ]

    async def dead(self, limit: int = 100) -> DeadOnes:
        """Who was given up and why, the latest first; also what nobody can read."""
        scored = await self._ends("deadZ", _checked(limit), is_newest=True)
        names = [tx for _, tx in scored]
        pipe = self._client.pipeline()
        for tx in names:
            pipe.hget(f"{keys.prefix_of(keys.partition_of(tx))}brokenH", tx)
        reasons = await pipe.all()
        records = await listing.rows(self._store, names, listing.SHOWN)
        return [
            _dead_of(tx, dead_ms, reason, record)
            for (dead_ms, tx), reason, record in zip(scored, reasons, records, strict=True)
        ]

    async def children(self, tx: str, *, limit: int = MAX_PAGE) -> Transactions:
        """Of one transaction, by join and place; those that were archived already are not among them."""
        found = await self._store.get(tx)
        if found is None:
            raise not_found(tx)
        slots = _slots_of(found[0])
        children: list[Transaction] = []
        while slots and len(children) < limit:
            names = [
                f"{tx}.{join}.{slot}" for join, (start, stop) in slots.items() for slot in range(start, stop)
            ]
            alive: dict[int, int] = {}
            for record in await listing.rows(self._store, names[:MAX_COUNTED], listing.SHOWN):
                if record is not None:
                    join, slot = map(int, record.id.rsplit(".", 2)[1:])
                    alive[join] = slot
                    children.append(transaction_from(record))
            # Children of a join that somebody cut short have not come back: nobody noted how many they were.
            slots = {
                join: (stop, 2 * stop)
                for join, (_, stop) in slots.items()
                if alive.get(join, -1) >= stop - _PROBE
            }
        children.sort(key=lambda child: tuple(map(int, child.id.rsplit(".", 2)[1:])))
        return children[: _checked(limit)]

    async def _ends(self, name: str, limit: int, *, is_newest: bool) -> Scored:
        """The members of a sorted set with the highest or lowest scores, over all partitions."""
        pipe = self._client.pipeline()
        for prefix in await self._prefixes():
            pipe.zrange(f"{prefix}{name}", 0, limit - 1, rev=is_newest, withscores=True)
        scored = [
            (int(score), member.decode("utf-8", "replace"))
            for reply in await pipe.all()
            for member, score in reply
        ]
        return sorted((pair for pair in scored if _is_id(pair[1])), reverse=is_newest)[:limit]

    # ------------------------------------------------------------------------------------------ groups

    async def group_names(self) -> set[str]:
        """Every node group that a pipeline or a worker names, that has a limit, or that was busy today.

        Worth hundreds of reads: who looks again and again keeps them for a while.
        """
        return await self._group_names(await self.limits())

    async def groups(self, names: Iterable[str] | None = None) -> Groups:
        """All of them in order; or those of whom the names are known."""
        limits = await self.limits()
        names = sorted(await self._group_names(limits) if names is None else names)
        prefixes = await self._prefixes()
        lengths: Counter[tuple[str, str]] = Counter()
        oldest: dict[str, int] = {}
        for name in names:
            pipe = self._client.pipeline()
            for queue in _QUEUES:
                for prefix in prefixes:
                    pipe.zcard(f"{prefix}q{queue}Z:{name}")
                    pipe.zrange(f"{prefix}q{queue}Z:{name}", 0, 0)
            replies = await pipe.all()
            for at in range(0, len(replies), 2):
                lengths[name, _QUEUES[at // 2 // len(prefixes)]] += replies[at]
            since = await self._since([head[0].decode() for head in replies[1::2] if head])
            if since is not None:
                oldest[name] = since
        running = await self._count_groups([f"{prefix}processingZ" for prefix in prefixes])
        held = await self._count_groups(await self._held_keys())
        return [
            GroupInfo(
                name=name,
                admin=lengths[name, Queue.ADMIN],
                out=lengths[name, Queue.OUT],
                in_=lengths[name, Queue.IN],
                held=held[name],
                is_paused=f"g:{name}" in limits and limits[f"g:{name}"].is_paused,
                running=running[name],
                oldest_ms=oldest.get(name),
            )
            for name in names
        ]

    async def _group_names(self, limits: Iterable[str]) -> set[str]:
        registry = WorkerRegistry(self._client)
        busy = await Statistics(self._store).read("600s", by="node_group")
        return {
            *(name[2:] for name in limits if name[:2] == "g:"),
            *(await registry.wishes()),
            *(group for worker in await registry.list() for group in worker.node_groups),
            *busy.parts,
            *(await self._groups_of_pipelines()),
        }

    async def _groups_of_pipelines(self) -> set[str]:
        """Of the lines in heads, and of the steps of active versions."""
        reply: Any = await self._client.smembers(NAMES_KEY)
        names = sorted(name.decode() for name in reply)
        groups: set[str] = set()
        for start in range(0, len(names), listing.BATCH):
            batch = names[start : start + listing.BATCH]
            pipe = self._client.pipeline()
            for name in batch:
                pipe.hgetall(head_key(0, name))
                pipe.hget(home_key(name), "active")
            replies = await pipe.all()
            for head in replies[::2]:
                groups.update(_groups_of_head(head))
            active = [
                (name, version.decode())
                for name, version in zip(batch, replies[1::2], strict=True)
                if version
            ]
            pipe = self._client.pipeline()
            for name, version in active:
                pipe.hget(home_key(name), f"v:{version}")
            for text in await pipe.all():
                groups.update(_groups_in(text))
        return groups

    async def _since(self, names: Names) -> int | None:
        records = await listing.rows(self._store, names, ("queued_ms",))
        return min((record.number(b"queued_ms") for record in records if record is not None), default=None)

    async def _held_keys(self) -> Names:
        places = range(await self._store.partitions())
        held = await listing.held_names(self._store, places)
        return [f"{keys.prefix_of(place)}heldZ:{name}" for place in places for name in sorted(held[place])]

    async def _count_groups(self, set_keys: Names) -> Counter[str]:
        """How many members of these sets belong to which group."""
        counts: Counter[str] = Counter()
        left = MAX_COUNTED
        for key in set_keys:
            reply: Any = await self._client.zrange(key, 0, left - 1) if left else []
            left -= len(reply)
            records = await listing.rows(self._store, [member.decode() for member in reply], ("group",))
            counts.update(record.text(b"group") for record in records if record is not None)
        return counts

    # ----------------------------------------------------------------------------------------- numbers

    async def overview(self, names: Iterable[str] | None = None) -> Overview:
        """``names``: the node groups, if they are known."""
        sets = ("processingZ", "sleepingZ", "deadZ", "toArchiveZ", "webhooksZ", "indexZ")
        pipe = self._client.pipeline()
        prefixes = await self._prefixes()
        for prefix in prefixes:
            for name in sets:
                pipe.zcard(f"{prefix}{name}")
            pipe.llen(f"{prefix}outboxL")
        replies = await pipe.all()
        width = len(sets) + 1
        running, sleeping, dead, to_archive, webhooks, total, words = (
            sum(replies[at::width]) for at in range(width)
        )
        # A message is three words: number, destination, payload.
        queued = await self._queued(await self.group_names() if names is None else names)
        waiting = await self._waiting(prefixes) if sleeping else 0
        return Overview(
            queued, running, sleeping, dead, to_archive, webhooks, words // 3, total, waiting=waiting
        )

    async def _waiting(self, prefixes: Names) -> int:
        """Who has no time limit scores infinity; of the others only their records know."""
        pipe = self._client.pipeline()
        each = max(1, MAX_SLEEPERS // len(prefixes))
        for prefix in prefixes:
            pipe.zcount(f"{prefix}sleepingZ", "inf", "inf")
            pipe.zrange(f"{prefix}sleepingZ", "-inf", "(inf", byscore=True, limit=(0, each))
        replies = await pipe.all()
        names = [member.decode() for reply in replies[1::2] for member in reply]
        records = await listing.rows(self._store, names, ("state",))
        waiting = sum(record is not None and record.state == State.WAITING for record in records)
        return int(sum(replies[::2])) + waiting

    async def _queued(self, names: Iterable[str]) -> int:
        pipe = self._client.pipeline()
        for name in names:
            for prefix in await self._prefixes():
                for queue in _QUEUES:
                    pipe.zcard(f"{prefix}q{queue}Z:{name}")
        for key in await self._held_keys():
            pipe.zcard(key)
        return sum(await pipe.all())

    async def limits(self) -> dict[str, Limit]:
        """By ``p:<pipeline>``, ``o:<owner>``, ``g:<group>``.

        Partitions have shares of at least one, so a small limit on many partitions lets more pass than it
        says.
        """
        return await self._store.limits()

    async def _prefixes(self) -> Names:
        return [keys.prefix_of(place) for place in range(await self._store.partitions())]

    def __repr__(self) -> str:
        return f"<Looking at {self._store!r}>"


def _checked(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise UsageError(f"limit must be 1 to {MAX_PAGE}, not {limit}")
    return limit


def _is_id(text: str) -> bool:
    try:
        keys.partition_of(text)
    except UsageError:
        return False
    return True


def _dead_of(tx: str, dead_ms: int, reason: bytes | None, record: Record | None) -> Dead:
    transaction = None if record is None else transaction_from(record)
    if reason is not None:
        return Dead(tx, dead_ms, reason.decode("utf-8", "replace"), transaction)
    return Dead(tx, dead_ms, transaction.note if transaction else "its record is gone", transaction)


def _slots_of(record: Record) -> dict[int, tuple[int, int]]:
    """By join: at which places children may be."""
    last = record.number(b"join_last")
    ends = dict.fromkeys(range(1, last + 1), 0)
    back: Counter[int] = Counter()
    for name in record.with_prefix(b"c:"):
        join, _, slot = name.partition(".")
        if join.isdigit() and slot.isdigit() and int(join) in ends:
            ends[int(join)] = max(ends[int(join)], int(slot) + 1)
            back[int(join)] += 1
    if last:
        ends[last] = max(ends[last], back[last] + max(0, record.number(b"pending")))
    return {join: (0, end + _PROBE) for join, end in ends.items()}


def _groups_of_head(head: dict[bytes, bytes]) -> Iterator[str]:
    for field, value in head.items():
        words = value.decode("utf-8", "replace").split()
        if field.startswith(b"v:") and words:
            yield words[0]
        elif field == b"active" and len(words) > 1:
            yield words[1]


def _groups_in(text: bytes | None) -> Iterator[str]:
    """Every ``node_group`` in a definition, however deep."""
    try:
        waiting: list[Any] = [msgspec.json.decode(text)] if text else []
    except msgspec.MsgspecError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            group = value.get("node_group")
            if isinstance(group, str):
                yield group
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
