"""One transaction in the hands of a worker: its record, its token, and the way to write about it.

Rules: writes are numbered (``seq``) and wait for one another. After an answer of ``lost`` nothing is written
any more. The time of the store is estimated from its last word and our own steady clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import TransactionError
from penstock.transactions.keys import partition_of
from penstock.transactions.model import Record, Settlement
from penstock.transactions.store import TransactionStore
from penstock.transactions.worker.settling import Settler


class LeaseLostError(TransactionError):
    """Somebody else has the transaction: what this worker still does about it has no effect."""


class Held:
    """A record under a lease."""

    __slots__ = (
        "_born_s",
        "_now_ms",
        "_on_leaving",
        "_seq",
        "cancel_reason",
        "has_ended",
        "has_outbox",
        "is_leaving",
        "is_lost",
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
        on_leaving: Callable[[], None],
    ) -> None:
        self.store = store
        self.settler = settler
        self.record = record
        self.partition = partition_of(record.id)
        self._now_ms = now_ms
        self._born_s = asyncio.get_running_loop().time()
        self._on_leaving = on_leaving
        self._seq = 0
        #: what is being written is the last that this worker has to say
        self.is_leaving = False
        self.is_lost = False
        #: why somebody wants it to end
        self.cancel_reason = record.text(b"cancel")
        #: something was written that must be forwarded
        self.has_outbox = False
        self.has_ended = False
        self.task: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        """The time of the store, about."""
        return self._now_ms + round((asyncio.get_running_loop().time() - self._born_s) * 1_000)

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
            self._on_leaving()
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
            return
        self.is_lost = True
        raise LeaseLostError(f"{self.record.id}: {answer}")

    def __repr__(self) -> str:
        return f"<Held {self.record.id} step {self.record.text(b'step')}{' lost' if self.is_lost else ''}>"
