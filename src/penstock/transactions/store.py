"""Transactions in one store: a directory, a server or a cluster. The scripts of ``lua/`` decide everything.

    store = TransactionStore(client)
    started = await store.start("checkout", b'{"cart": 42}', owner="acme")
    taken = await store.dequeue(0, "worker-1", ["shop"], limit=10, lease_ms=30_000)

Rules: a call is one script on one partition, or the sum of calls on all. Time is the store's. A call whose
reply was lost (``OutcomeUnknownError``) may be repeated: settling counts its writes, a start is recognised by
its external id or its own id, and what a lost dequeue took comes back after its lease.

Nothing here knows pipelines' steps, workers, or HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.client.facts import to_bytes
from penstock.client.scripts import ScriptLibrary
from penstock.clock import Clock, SystemClock
from penstock.errors import (
    BackpressureError,
    ConfigError,
    DuplicateError,
    OutcomeUnknownError,
    TransactionEndedError,
    TransactionNotFoundError,
    UnknownPipelineError,
    UsageError,
)
from penstock.transactions import keys
from penstock.transactions.model import (
    EXTERNAL_ID_MS,
    MAX_SWITCH_VALUE,
    MAX_SWITCHES,
    PRIORITIES,
    Limit,
    Record,
    Renewal,
    Settlement,
    Started,
    Taken,
    record_from,
)

#: Partitions of a new store; a cluster spreads them over its nodes.
_PARTITIONS: Final = 1
_PARTITIONS_IN_CLUSTER: Final = 16
MAX_TAKE: Final = 1_000


class TransactionStore:
    """The transactions of one client."""

    def __init__(self, client: Client, *, clock: Clock | None = None, partitions: int | None = None) -> None:
        if client.settings.decode_responses:
            raise ConfigError("transactions keep bytes: open their client without decode_responses")
        if partitions is not None and not 1 <= partitions <= keys.MAX_PARTITIONS:
            raise ConfigError(f"partitions must be 1 to {keys.MAX_PARTITIONS}, not {partitions}")
        self.client = client
        self._clock = clock or SystemClock()
        self._scripts = ScriptLibrary(client, "penstock.transactions")
        self._wanted = partitions
        self._partitions = 0
        self._turn = 0

    async def run(self, name: str, partition: int, *arguments: Any, readonly: bool = False) -> Any:
        """Call a script of ``lua/``; what its reply is, its header says."""
        return await self._scripts[name]((keys.prefix_of(partition),), arguments, readonly=readonly)

    async def partitions(self) -> int:
        """How many there are; decided once, by the first who asks."""
        if not self._partitions:
            wanted = self._wanted or (_PARTITIONS_IN_CLUSTER if self.client.is_cluster else _PARTITIONS)
            await self.client.execute("SET", keys.PARTITIONS, wanted, "NX")
            reply: Any = await self.client.execute("GET", keys.PARTITIONS)
            self._partitions = int(reply)
        return self._partitions

    # ------------------------------------------------------------------------------------- starting

    async def start(
        self,
        pipeline: str,
        data: bytes,
        *,
        owner: str,
        external_id: str | None = None,
        external_id_ms: int = EXTERNAL_ID_MS,
        version: str = "",
        priority: int | None = None,
        delay_ms: int = 0,
        deadline_ms: int | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Started:
        """Save a transaction and queue it. ``data`` is JSON; ``fields`` are further ones of its record."""
        partitions = self._partitions or await self.partitions()
        if external_id is None:
            self._turn = (self._turn + 1) % partitions
            partition = self._turn
        else:
            partition = keys.home_of(owner, external_id, partitions)
        tx = keys.new_id(partition, self._clock.now_ms())
        extra = [word for pair in (fields or {}).items() for word in pair]
        arguments = (
            tx, owner, external_id or "", external_id_ms, _fingerprint(pipeline, data), pipeline, version,
            "" if priority is None else priority, delay_ms, "" if deadline_ms is None else deadline_ms,
            "d:0", data, *extra,
        )  # fmt: skip
        try:
            reply = await self.run("enqueue", partition, *arguments)
        except OutcomeUnknownError:
            # Under the same id it is begun once, whatever became of the first try.
            reply = await self.run("enqueue", partition, *arguments)
        return _started(reply, external_id)

    async def find_external(self, owner: str, external_id: str) -> str | None:
        """The transaction that has an external id, while it is unique."""
        partition = keys.home_of(owner, external_id, await self.partitions())
        key = f"{keys.prefix_of(partition)}externalId:{owner} {external_id}"
        found: Any = await self.client.execute("GET", key)
        return None if found is None else to_bytes(found).split(b" ", 1)[0].decode()

    # -------------------------------------------------------------------------------------- working

    async def dequeue(
        self, partition: int, worker: str, groups: Sequence[str], *, limit: int, lease_ms: int
    ) -> Taken:
        """Up to ``limit`` transactions for a worker, under leases; and what is due is seen to."""
        reply = await self.run("dequeue", partition, worker, lease_ms, min(limit, MAX_TAKE), *groups)
        now_ms, next_ms, is_more, *items = reply
        return Taken(
            now_ms,
            None if next_ms < 0 else next_ms,
            is_more == 1,
            [record_from(tx.decode(), flat, token) for tx, token, flat in items if tx.isascii()],
        )

    async def settle(self, partition: int, settlements: Iterable[Settlement]) -> list[str]:
        """For each ``ok``, ``cancel``, ``lost`` or ``error …``."""
        words = [word for settlement in settlements for word in settlement.words()]
        reply = await self.run("settle", partition, *words)
        return [to_bytes(word).decode("utf-8", "replace") for word in reply]

    async def renew(self, partition: int, held: Iterable[tuple[str, int]], lease_ms: int) -> Renewal:
        words = [word for pair in held for word in pair]
        now_ms, next_ms, outbox, lost, unwanted = await self.run("renew", partition, lease_ms, *words)
        return Renewal(
            now_ms,
            None if next_ms < 0 else next_ms,
            outbox,
            [tx.decode() for tx in lost],
            [tx.decode() for tx in unwanted],
        )

    # -------------------------------------------------------------------------------------- looking

    async def get(
        self,
        tx: str,
        *,
        owner: str = "",
        watch_ms: int = 0,
        is_reply: bool = False,
        cancels_webhook: bool = False,
        with_trail: bool = False,
    ) -> tuple[Record, list[bytes]] | None:
        """The record and its trail; None if the store has none (of this owner)."""
        reply = await self.run(
            "get_state", keys.partition_of(tx),
            tx, owner, watch_ms, int(is_reply), int(cancels_webhook), int(with_trail),
        )  # fmt: skip
        return None if len(reply) < 2 else (record_from(tx, reply[1]), reply[2])

    # -------------------------------------------------------------------------------------- control

    async def control(
        self, verb: str, tx: str, who: str, *, owner: str = "", argument: Any = ""
    ) -> list[str]:
        """``lua/control.lua``; the words after ``ok``."""
        reply = [
            to_bytes(word).decode("utf-8", "replace")
            for word in await self.run("control", keys.partition_of(tx), verb, tx, owner, who, argument)
        ]
        if reply[0] == "unknown":
            raise not_found(tx)
        if reply[0] == "refused":
            raise TransactionEndedError(f"{tx} cannot do that ({verb}): {reply[2]}")
        return reply[1:]

    async def set_switch(
        self, tx: str, name: str, value: str | None, *, owner: str = "", who: str = ""
    ) -> str:
        """``nochange``, ``updated`` or ``woken``; None deletes it."""
        keys.check_name("name", name)
        if value is not None and len(value) > MAX_SWITCH_VALUE:
            raise UsageError(f"value must have at most {MAX_SWITCH_VALUE} characters, not {len(value)}")
        verb = "delete" if value is None else "set"
        reply = await self.run(
            "switch", keys.partition_of(tx), verb, tx, owner, name, value or "", MAX_SWITCHES, who
        )
        answer = to_bytes(reply[0]).decode()
        if answer == "unknown":
            raise not_found(tx)
        if answer == "ended":
            raise TransactionEndedError(f"{tx} has ended: its switches are what they are")
        if answer == "full":
            raise UsageError(f"{tx} has {MAX_SWITCHES} switches already: use one of them, or delete one")
        return answer

    async def get_switch(
        self, tx: str, name: str, *, owner: str = "", acknowledge: bool = False
    ) -> tuple[str | None, bool]:
        """Its value, and whether that is new since it was last acknowledged."""
        keys.check_name("name", name)
        verb = "get" if acknowledge else "peek"
        reply = await self.run("switch", keys.partition_of(tx), verb, tx, owner, name, "", MAX_SWITCHES, "")
        if to_bytes(reply[0]) == b"unknown":
            raise not_found(tx)
        return (
            (to_bytes(reply[2]).decode("utf-8", "replace"), reply[1] == 1)
            if len(reply) > 2
            else (None, False)
        )

    async def set_limit(self, name: str, limit: Limit | None) -> bool:
        """Of ``p:<pipeline>``, ``o:<owner>`` or ``g:<group>``; each partition gets its share."""
        partitions = await self.partitions()
        text = "" if limit is None else limit_text(limit, partitions)
        # What was asked for, since shares are rounded up; what holds is what partitions have.
        if limit is None:
            await self.client.execute("HDEL", keys.LIMITS, name)
        else:
            await self.client.execute("HSET", keys.LIMITS, name, msgspec.json.encode(limit))
        changed = [await self.run("set_limit", place, name, text) for place in range(partitions)]
        return any(changed)

    async def limits(self) -> dict[str, Limit]:
        """What was asked for, by the names of ``set_limit``."""
        reply: Any = await self.client.execute("HGETALL", keys.LIMITS)
        flat = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
        return {
            to_bytes(name).decode(): msgspec.json.decode(to_bytes(text), type=Limit)
            for name, text in sorted(flat)
        }

    async def configure(self, **settings: int) -> None:
        """``archive_delay_ms``, ``dead_keep_ms``, ``max_losses``, for every process of this store."""
        for name, value in settings.items():
            if name not in ("archive_delay_ms", "dead_keep_ms", "max_losses"):
                raise UsageError(f"there is no setting {name!r}: archive_delay_ms, dead_keep_ms, max_losses")
            if value < 0:
                raise UsageError(f"{name} must be at least 0, not {value}")
            for place in range(await self.partitions()):
                await self.client.execute("HSET", f"{keys.prefix_of(place)}settingsH", name, value)

    def __repr__(self) -> str:
        return f"<TransactionStore on {self.client!r}, {self._partitions or 'unknown'} partitions>"


def not_found(tx: str) -> TransactionNotFoundError:
    return TransactionNotFoundError(f"there is no transaction {tx}")


def check_priority(priority: int) -> int:
    if priority not in PRIORITIES:
        raise UsageError(f"priority must be 0 to 9 (9 is the most urgent), not {priority}")
    return priority


def limit_text(limit: Limit, partitions: int) -> str:
    """A partition's share of a limit: at least one, so that nothing stands still."""

    def share(number: int) -> int:
        return -(-number // partitions)

    numbers = (
        int(limit.is_paused),
        share(limit.concurrency),
        f"{limit.rate / partitions:g}",
        share(limit.burst),
        share(limit.max_queued),
    )
    return " ".join(map(str, numbers))


def _fingerprint(pipeline: str, data: bytes) -> str:
    return hashlib.sha256(pipeline.encode() + b" " + data).hexdigest()[:32]


def _started(reply: Sequence[Any], external_id: str | None) -> Started:
    answer, *words = (to_bytes(word).decode() if isinstance(word, bytes) else str(word) for word in reply)
    match answer:
        case "ok":
            return Started(words[0], True)
        case "same" | "exists":
            return Started(words[0], answer == "exists")
        case "duplicate":
            raise DuplicateError(
                f"external_id {external_id!r} belongs to {words[0]}, which was started with another body",
                words[0],
            )
        case "unknown":
            raise UnknownPipelineError(
                f"there is no pipeline {words[0]!r}: commit and activate it, or start a worker that has it"
            )
        case "unknown-version":
            raise UnknownPipelineError(f"the pipeline has no version {words[0]!r}: commit it first")
        case "not-startable":
            raise UnknownPipelineError(
                f"pipeline {words[0]!r} is a part of others: it cannot be started by itself"
            )
        case _:
            group, waiting, limit = words
            raise BackpressureError(
                f"{waiting} transactions wait for node group {group!r} (max_queued is {limit}): try later"
            )
