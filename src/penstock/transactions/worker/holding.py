"""One transaction in the hands of a worker: its record, its token, and the way to write about it.

Rules: writes are numbered (``seq``) and wait for one another. After an answer of ``lost`` nothing is written
any more. A write is never interrupted, only a step is: else nobody would know what became of it. The time of
the store is estimated from its last word and our own steady clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from penstock.client.resending import is_outage, persistently
from penstock.errors import PenstockError, TransactionError
from penstock.transactions.model import Record, Settlement
from penstock.transactions.store import TransactionStore
from penstock.transactions.worker.settling import Settler

T = TypeVar("T")


class LeaseLostError(TransactionError):
    """Somebody else has the transaction: what this worker still does about it has no effect."""


class NotWrittenError(TransactionError):
    """The store refuses what a worker has to say, and would refuse it again."""


class Held:
    """A record under a lease."""

    __slots__ = (
        "_now_ms",
        "_on_leaving",
        "_seq",
        "_time_s",
        "began_s",
        "born_s",
        "cancel_reason",
        "has_ended",
        "has_outbox",
        "is_interrupted",
        "is_leaving",
        "is_lost",
        "is_performing",
        "leased_until_s",
        "partition",
        "record",
        "settler",
        "store",
        "task",
    )

    def __init__(
        self,
        store: TransactionStore,
        settler: Settler,
        record: Record,
        now_ms: int,
        on_leaving: Callable[[Held], None],
    ) -> None:
        self.store = store
        self.settler = settler
        self.record = record
        self.partition = settler.partition
        self._now_ms = now_ms
        # Threads ask for the time, too, and have no running loop.
        self._time_s = asyncio.get_running_loop().time
        self.born_s = self._time_s()
        #: loop time until which nobody else can have it, whatever happens
        self.leased_until_s = math.inf
        #: loop time when it got its place; 0: it waits for one
        self.began_s = 0.0
        self._on_leaving = on_leaving
        self._seq = 0
        #: what is being written is the last that this worker has to say
        self.is_leaving = False
        self.is_lost = False
        #: a step is under way, not a write
        self.is_performing = False
        self.is_interrupted = False
        #: why somebody wants it to end
        self.cancel_reason = record.text(b"cancel")
        #: something was written that must be forwarded
        self.has_outbox = False
        self.has_ended = False
        self.task: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        """The time of the store, about; never later than it is there."""
        return self._now_ms + int((self._time_s() - self.born_s) * 1_000)

    def interrupt(self) -> None:
        """Stop the step that is under way; a write goes on, and whoever waits for it looks again then."""
        self.is_interrupted = True
        if self.is_performing and self.task is not None:
            self.task.cancel()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """What may be asked twice; while the store is away it is asked again, as writes are written again."""
        try:
            return await persistently(
                self.record.id, question, limit_ms=round(self.settler.patience_s * 1_000), is_cause=is_outage
            )
        except PenstockError as error:
            if not is_outage(error):
                raise
            # By now the lease is gone: that the store was away is not the step's failure.
            raise LeaseLostError(f"{self.record.id}: {error}") from error

    async def assure(self) -> None:
        """Before something that cannot be undone: whether it is still ours. Asks only if the lease is over by
        our own clock, as it is after this process was stopped for a while."""
        if self.is_lost or self._time_s() >= self.leased_until_s:
            await self.keep()

    async def keep(
        self, fields: Sequence[Any] = (), trail: Sequence[bytes] = (), outbox: Sequence[Any] = ()
    ) -> None:
        """Write, and go on holding it."""
        await self.settle("keep", "", fields, trail, outbox)

    async def settle(
        self,
        kind: str,
        note: str = "",
        fields: Sequence[Any] = (),
        trail: Sequence[bytes] = (),
        outbox: Sequence[Any] = (),
        arguments: Sequence[Any] = (),
    ) -> None:
        """Write down what became of it; raises ``LeaseLostError`` if that is no longer ours to say."""
        if self.is_lost:
            raise LeaseLostError(f"{self.record.id} is held by somebody else now")
        self._seq += 1
        if kind != "keep" and not self.is_leaving:
            self.is_leaving = True
            self._on_leaving(self)
        answer = await self.settler.put(
            Settlement(
                kind, self.record.id, self.record.token, self._seq, note, fields, trail, outbox, arguments
            )
        )
        if outbox:
            self.has_outbox = True
        if answer == "ok":
            self.has_ended = kind == "end"
            return
        if answer == "cancel":
            self.cancel_reason = self.cancel_reason or "cancelled"
            if kind in ("sleep", "wait", "join") and not self.record.fields.get(b"fate"):
                await self._end_sleeper()
            return
        if answer.startswith("error"):
            raise NotWrittenError(f"{self.record.id}: {answer}")
        self.is_lost = True
        raise LeaseLostError(f"{self.record.id}: {answer}")

    async def reason(self) -> str:
        """Why somebody wants it to end, in their words; topics and answers only say that it is so."""
        found = await self.ask(lambda: self.store.get(self.record.id))
        return (found[0].text(b"cancel") if found else "") or self.cancel_reason

    async def _end_sleeper(self) -> None:
        """Somebody wanted it to end just before it went to sleep: nobody would wake it for that."""
        try:
            reason = await self.reason()
            await self.ask(lambda: self.store.control("cancel", self.record.id, reason))
        except PenstockError:
            pass  # it has ended, or ends when it wakes

    def __repr__(self) -> str:
        return f"<Held {self.record.id} step {self.record.text(b'step')}{' lost' if self.is_lost else ''}>"
