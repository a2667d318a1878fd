"""Writing what workers have to say, in batches: what comes while one write is under way leaves with the next.

Rules: settlements of one transaction are written in their order, since its holder waits for each. A write
whose outcome is unknown is repeated: it carries a number, so that it is done once. When the store stays away
for longer than ``patience_s`` the answer is ``lost``: the lease is gone by then, and somebody else will go
on. What cannot be written at all is answered with ``error``, and stops nothing that came along with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, TypeVar

from penstock.client.resending import is_outage
from penstock.errors import ClosedError, PenstockError
from penstock.transactions.model import Settlement
from penstock.transactions.store import TransactionStore

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Settlements in one call of the script.
_BATCH: Final = 128
_ROUNDS: Final = 4
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Settler:
    """The writes of one worker to one partition."""

    def __init__(self, store: TransactionStore, partition: int, *, patience_s: float) -> None:
        self._store = store
        self.partition = partition
        self.patience_s = patience_s
        self._waiting: deque[tuple[Settlement, asyncio.Future[str]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    def put(self, settlement: Settlement) -> asyncio.Future[str]:
        """Its answer (``TransactionStore.settle``)."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        self._waiting.append((settlement, answer))
        if self._writer is None:
            # A task begins with the next round of the loop: whoever else settles in this one comes along.
            self._writer = loop.create_task(self._write_all())
        return answer

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                answers = await self._write([settlement for settlement, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._writer = None

    async def _gather(self) -> None:
        """Whoever settles in the next rounds of the loop comes along, as long as each round brings
        somebody."""
        for _ in range(_ROUNDS):
            before = len(self._waiting)
            await asyncio.sleep(0)
            if len(self._waiting) in (before, _BATCH):
                return

    async def _write(self, settlements: list[Settlement]) -> list[str]:
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + self.patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._store.settle(self.partition, settlements)
            except ClosedError:
                break
            except Exception as error:  # noqa: BLE001 - words that cannot be sent raise what they like
                if not isinstance(error, PenstockError) or not is_outage(error):
                    if len(settlements) > 1:
                        return [answer for one in settlements for answer in await self._write([one])]
                    _LOG.error("could not settle %s: %s", settlements[0].tx, error)
                    return [f"error {type(error).__name__}: {error}"]
                if now_s() + pause_s > end_s:
                    _LOG.error("could not write %d settlements: %s", len(settlements), error)
                    break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return ["lost"] * len(settlements)

    async def close(self) -> None:
        """When everything is written."""
        while self._writer is not None:
            await asyncio.wait([self._writer])
