"""One transaction, in the hands of whoever started it or asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from penstock.transactions.model import Transaction

if TYPE_CHECKING:
    from penstock.transactions.facility import Transactions


class Handle:
    """Make one with ``ps.transactions.start(…)`` or ``ps.transactions.handle(id)``; it sends nothing by
    itself."""

    def __init__(
        self, transactions: Transactions, id: str, owner: str | None = None, *, is_new: bool = True
    ) -> None:
        self._transactions = transactions
        self.id: str = id
        self.owner: str | None = owner
        #: False: it had been started before, under the same external id
        self.is_new: bool = is_new

    async def get(self, *, trail: bool = False) -> Transaction:
        """As it is now."""
        return await self._transactions.get(self.id, owner=self.owner, trail=trail)

    async def wait(self, timeout_ms: int = 15_000, *, cancels_webhook: bool = True) -> Transaction:
        """As it is when it has ended, or when the time is over: ask ``has_ended``."""
        return await self._transactions.wait(
            self.id, timeout_ms=timeout_ms, owner=self.owner, cancels_webhook=cancels_webhook
        )

    def changes(self) -> AsyncIterator[Transaction]:
        """As it is now, and again whenever something happens, until it has ended."""
        return self._transactions.changes(self.id, owner=self.owner)

    async def cancel(self, reason: str = "") -> bool:
        """Whether it has ended by this; else it runs, and ends as soon as its step lets go and it is
        undone."""
        return await self._transactions.cancel(self.id, reason, owner=self.owner)

    async def retry(self, reason: str = "") -> None:
        """Go on at the step where it failed; from the first if its steps were undone."""
        await self._transactions.retry(self.id, reason, owner=self.owner)

    async def replay(self, step: int = 0, reason: str = "") -> None:
        """Run again from a step."""
        await self._transactions.replay(self.id, step, reason, owner=self.owner)

    async def set_switch(self, name: str, value: str | bool | int | float | None) -> str:
        """``nochange``, ``updated`` or ``woken``; None deletes it."""
        return await self._transactions.set_switch(self.id, name, value, owner=self.owner)

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"
