"""What a keeper of channels can do: one store (``store``) or several at once (``stores``).

Names are checked by the caller (``keys.check_id``). ``expire_ms`` is how long the channel keeps messages;
every call may bring another one, the newest decides about what it touches. Errors that everybody
may raise: those of the client (connection, store) and ``UnavailableError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.channels.model import Backlog, Batch, ChannelInfo, Message


class Channels(Protocol):
    """Channels somewhere."""

    async def create(self, channel: str, subscriber: str, *, expire_ms: int) -> bool:
        """A subscriber that starts with the next message. False: it existed, and stays where it is."""

    async def remove(self, channel: str, subscriber: str) -> bool:
        """End a subscriber, and its waiting fetches. False: there was none."""

    async def publish(
        self, channel: str, messages: Sequence[tuple[str, bytes]], *, expire_ms: int, outbox: bool = False
    ) -> list[bool]:
        """Append messages (id, JSON text) in this order, all or none; for each whether it is new.

        The text must be compact JSON already (:func:`penstock.channels.model.compact`). With ``outbox``
        the new ones are also kept for :meth:`read_outbox`, in the same step.
        """

    async def fetch(
        self,
        channel: str,
        subscriber: str,
        *,
        limit: int,
        timeout_ms: int,
        expire_ms: int,
        after: str | None = None,
    ) -> Batch:
        """What the subscriber has not acknowledged; waits for the first message if there is none.

        ``after`` a receipt: only what lies behind it, which is not acknowledged by that (reading ahead).
        SubscriptionNotFoundError at once, also while it waits.
        """

    async def ack(self, channel: str, subscriber: str, receipt: str, *, expire_ms: int) -> bool:
        """Done with everything up to this receipt. False: it was already (or the channel is another)."""

    async def nack(self, channel: str, subscriber: str, receipt: str, *, delay_ms: int) -> bool:
        """Not done: the subscriber gets the same again, after the delay. False: stale."""

    async def backlog(
        self, channel: str, subscriber: str, *, after: int | None = None, limit: int
    ) -> Backlog:
        """Look at what is unread, from anywhere, and change nothing."""

    async def find(self, channel: str, message_id: str) -> Message | None:
        """A message by its id, while the channel keeps it."""

    async def are_old(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[bool]:
        """For each id whether the subscriber will not get it (again): acknowledged, or before its time."""

    async def info(self, channel: str) -> ChannelInfo | None:
        """The channel and its subscribers; None if nobody uses it."""

    async def names(self) -> list[str]:
        """All channels, sorted. Reads the whole keyspace: for people, not for programs."""

    async def read_outbox(self, channel: str, limit: int) -> list[bytes]:
        """What webhooks wait for, oldest first: clock, a space, and the stored body."""

    async def forwarded(self, channel: str, entries: Sequence[bytes]) -> int:
        """Drop what was handed on; how many are left."""

    async def outboxes(self) -> list[str]:
        """Channels that may have something in their outbox."""

    async def forget_outbox(self, channel: str) -> None:
        """Of an empty outbox; it stays known while its channel may publish without saying so again."""

    async def probe(self) -> dict[str, Any]:
        """Answers when it can work, with a word for each store; raises why not."""

    def release(self) -> None:
        """Answer every waiting fetch with what there is: somebody wants to stop."""

    async def close(self) -> None:
        """Stop listening. Clients stay open: they belong to the caller."""

    @property
    def waiting(self) -> int:
        """How many fetches wait."""
