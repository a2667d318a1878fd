"""Messages as readers see them, and how they come out of a reply.

===================  ==================================================================
``Message``          a value: what was written, where, and when
``GroupMessage``     one that a group has delivered; to be acknowledged, or given back
===================  ==================================================================

A reply of TREAD with WITHTIME (and WITHCOUNT) has ``[offset, tag, entry, time_ms, deliveries?]``
for each message; a null in place of one, or of its tag, is a message that is gone.

Rules: this module sends nothing. What settles a message is the business of its ``Keeper``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.errors import UsageError
from penstock.streams.arguments import Name, line, optional, whole


class Message:
    """One message of a stream. ``entry`` is None for a tombstone: its tag is over."""

    __slots__ = ("deliveries", "entry", "offset", "stream", "tag", "time_ms")

    def __init__(
        self, stream: Name, offset: int, tag: bytes, entry: bytes | None, time_ms: int, deliveries: int = 0
    ) -> None:
        #: the name of the stream, as it was given
        self.stream = stream
        self.offset = offset
        self.tag = tag
        self.entry = entry
        #: when it was written, in ms since 1970
        self.time_ms = time_ms
        #: how often a group has delivered it, this time included; 0 without a group
        self.deliveries = deliveries

    @property
    def is_tombstone(self) -> bool:
        return self.entry is None

    def _value(self) -> tuple[object, ...]:
        return self.stream, self.offset, self.tag, self.entry, self.time_ms, self.deliveries

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Message)
        return self._value() == other._value()

    def __hash__(self) -> int:
        return hash((self.stream, self.offset))

    def __repr__(self) -> str:
        what = "tombstone" if self.is_tombstone else f"{self.entry!r:.40}"
        return f"<{type(self).__name__} {self.stream!s} {self.offset} tag={self.tag!r:.40} {what}>"


class Keeper(Protocol):
    """Whoever handed a message out, and settles it."""

    async def settle(self, message: GroupMessage, command: str, *parameters: int | str) -> None:
        """The message is done with here."""

    async def renew(self, message: GroupMessage, retry_ms: int | None) -> None:
        """The message stays here for longer."""


class GroupMessage(Message):
    """A message that belongs to its reader until it is settled, or its time is up."""

    __slots__ = ("_keeper", "_settled")

    def __init__(
        self,
        stream: Name,
        offset: int,
        tag: bytes,
        entry: bytes | None,
        time_ms: int,
        deliveries: int,
        keeper: Keeper,
    ) -> None:
        super().__init__(stream, offset, tag, entry, time_ms, deliveries)
        self._keeper = keeper
        #: what was done with it; empty: nothing yet
        self._settled = ""

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, given back or rejected here."""
        return bool(self._settled)

    async def ack(self) -> None:
        """It is done. When this returns, the group will never deliver it again."""
        await self._settle("acknowledged", "TACK")

    async def nack(self, delay_ms: int | None = 0) -> None:
        """Deliver it again, to anybody, not before ``delay_ms``; None: as the group's backoff says."""
        delay = optional("delay_ms", delay_ms)
        await self._settle("given back", "TNACK", "*" if delay is None else delay)

    async def reject(self, reason: str) -> None:
        """Give it up; the group's dead letters, if it has them, get it with the reason."""
        await self._settle("rejected", "TDEAD", line("reason", reason))

    async def renew(self, retry_ms: int | None = None) -> None:
        """Still at work: it stays here for ``retry_ms`` from now (None: as long as when it came)."""
        wished_ms = None if retry_ms is None else whole("retry_ms", retry_ms, 1)
        if self._settled:
            raise UsageError(f"message {self.offset} was {self._settled} already; it cannot be renewed")
        await self._keeper.renew(self, wished_ms)

    async def _settle(self, how: str, command: str, *parameters: int | str) -> None:
        """Repeating the same is harmless; something else than before is a mistake."""
        before = self._settled
        if before not in ("", how):
            raise UsageError(f"message {self.offset} was {before} already; it cannot be {how}")
        self._settled = how
        try:
            await self._keeper.settle(self, command, *parameters)
        except BaseException:
            self._settled = before
            raise


def parse_messages(stream: Name, rows: Iterable[Any]) -> Iterator[Message]:
    """The messages of a plain read; what is gone is left out."""
    for row in rows:
        if row is not None and row[1] is not None:
            yield Message(stream, row[0], row[1], row[2], row[3])


def parse_group_messages(
    stream: Name, rows: Iterable[Any], keeper: Keeper
) -> tuple[list[GroupMessage], list[int]]:
    """The messages of a group's read, and the offsets of those that were gone before they were done."""
    messages: list[GroupMessage] = []
    gone: list[int] = []
    for row in rows:
        if row[1] is None:
            gone.append(row[0])
        else:
            messages.append(GroupMessage(stream, row[0], row[1], row[2], row[3], row[4], keeper))
    return messages, gone
