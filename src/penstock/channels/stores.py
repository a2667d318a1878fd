"""Channels in several stores at once: what one loses, the others have.

Every call goes to all stores that their breakers let, in parallel. What is decided from the answers:

===============  ===========================================================================================
call             outcome
===============  ===========================================================================================
create, remove   done when a quorum confirmed; *made* if it was new to all of them, *removed* if any had it
publish          done when a quorum confirmed; a message is new if it was new to all of them
ack, nack        counted among the stores that the receipt has a part of (needed: the quorum, or all of them
                 if they are fewer). A store that refuses (it has no such subscriber, or another secret since
                 it was replaced) has nothing to move. So: done when one confirmed and enough confirmed
                 or refused; the refusal when nobody confirmed and enough refused
                 (SubscriptionNotFoundError before ReceiptError). *Stale* if no store moved
fetch            answered when a quorum answered; ``fetching`` tells how. A subscriber that some stores lack
                 exists if a quorum has it, or if no quorum lacks it
find, are_old,   what anybody who answers knows; one is enough. ``backlog`` pages through the first store
info, names,     that answers, without what others know to be acknowledged
backlog
too few answers  UnavailableError: how many of how many, and why. What was written stays written where it
                 was: repeat it, ids make that harmless
===============  ===========================================================================================

Too few stores that may be called is found out before anything is written.

Promises
--------
1. A message whose publishing was confirmed is given to every subscriber while one store that has it lives.
2. An acknowledged message is not given again while one store that recorded the acknowledgement answers. With
   a quorum of more than half of the stores, this holds whenever a fetch succeeds at all, for messages
   that a quorum of stores gave when it was fetched.
3. A write waits for the quorum and a short grace, not for the slowest. The rest goes on by itself and
   is awaited by ``close``.
4. Exactly one store keeps a message for webhooks: the first, in the order in which they are named, that may
   be called. It is written before the others, so no store has a message that nobody keeps for webhooks.
   If it fails, the next one becomes the keeper; if it had written after all, webhooks get the message
   twice, never not at all. What it keeps waits in it while it is down.

Nothing here knows keys, scripts or clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from penstock.channels.fetching import START_SUFFIX, Fetch, Request, acknowledged, join, start_of
from penstock.channels.members import Answer, Call, Members, Store
from penstock.channels.merging import merge_infos
from penstock.channels.model import Backlog, Batch, ChannelInfo, Message
from penstock.channels.receipts import unwrap
from penstock.clock import Clock, SystemClock
from penstock.errors import ClosedError, ConfigError, PenstockError, ReceiptError, SubscriptionNotFoundError
from penstock.webhooks.breaker import BreakerPolicy

T = TypeVar("T")

#: One silence is enough: it has cost a caller the whole time limit.
STORE_BREAKER: Final = BreakerPolicy(failures=1, open_ms=1_000, max_open_ms=30_000)
#: How long one store may take to answer.
TIMEOUT_MS: Final = 2_000
#: What slower stores get when a write has its quorum.
GRACE_MS: Final = 20
#: What other stores get when a waiting fetch has found something in one.
WINDOW_MS: Final = 300
#: Calls under way to one store.
MAX_PENDING: Final = 1_000


class ChannelStores:
    """The channels of several stores, by their names, in order of preference."""

    def __init__(
        self,
        children: Mapping[str, Store],
        quorum: int = 1,
        *,
        breaker: BreakerPolicy = STORE_BREAKER,
        clock: Clock | None = None,
        timeout_ms: int = TIMEOUT_MS,
        grace_ms: int = GRACE_MS,
        window_ms: int = WINDOW_MS,
        max_pending: int = MAX_PENDING,
    ) -> None:
        _check(children, quorum)
        self._quorum = quorum
        self._timeout_ms = timeout_ms
        self._window_ms = window_ms
        self._waiting = 0
        self._is_released = False
        self._is_closed = False
        #: the stores, with the state of their breakers
        self.members: Members = Members(
            children.values(),
            breaker,
            clock or SystemClock(),
            timeout_ms=timeout_ms,
            grace_ms=grace_ms,
            max_pending=max_pending,
        )

    # ----------------------------------------------------------------------- subscribers

    async def create(self, channel: str, subscriber: str, *, expire_ms: int) -> bool:
        return all(await self._write(lambda store: join(store, channel, subscriber, expire_ms)))

    async def remove(self, channel: str, subscriber: str) -> bool:
        async def leave(store: Store) -> bool:
            removed, _ = await asyncio.gather(
                store.remove(channel, subscriber), store.remove(channel, start_of(subscriber))
            )
            return removed

        return any(await self._write(leave))

    # ------------------------------------------------------------------------- messages

    async def publish(
        self, channel: str, messages: Sequence[tuple[str, bytes]], *, expire_ms: int, outbox: bool = False
    ) -> list[bool]:
        if not messages:
            return []

        async def keep(store: Store) -> list[bool]:
            return await store.publish(channel, messages, expire_ms=expire_ms, outbox=True)

        async def append(store: Store) -> list[bool]:
            return await store.publish(channel, messages, expire_ms=expire_ms)

        replies = await (self._write_kept(keep, append) if outbox else self._write(append))
        return [all(news) for news in zip(*replies, strict=True)]

    async def _write(self, call: Call[T]) -> list[T]:
        """What those say who confirmed; at least a quorum."""
        self._check_reachable(self.members.names, self._quorum)
        return self._confirmed(await self.members.ask(call, enough=self._quorum))

    async def _write_kept(self, keep: Call[T], append: Call[T]) -> list[T]:
        """The same, with a store that takes ``keep`` before any other takes ``append``."""
        names = self.members.names
        self._check_reachable(names, self._quorum)
        answers: list[Answer[T]] = []
        while names and not (answers and answers[-1].is_confirmed):
            answers += await self.members.ask(keep, [names.pop(0)])
        if answers[-1].is_confirmed:
            answers += await self.members.ask(append, names, enough=self._quorum - 1)
        return self._confirmed(answers)

    def _check_reachable(self, names: Sequence[str], needed: int) -> None:
        if self._is_closed:
            raise ClosedError("these stores were closed")
        if sum(not self.members[name].is_out for name in names) < needed:
            refused: list[Answer[Any]] = [
                self.members[name].refusal() for name in names if self.members[name].is_out
            ]
            raise self.members.unavailable(refused, needed)

    def _confirmed(self, answers: Sequence[Answer[T]]) -> list[T]:
        replies = _values(answers)
        if len(replies) < self._quorum:
            raise self.members.unavailable(answers, self._quorum)
        return replies

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
        parts = None if after is None else self._own_parts(after)
        self._check_reachable(self.members.names, self._quorum)
        fetch = Fetch(
            self.members,
            Request(channel, subscriber, limit, expire_ms),
            parts,
            quorum=self._quorum,
            timeout_ms=self._timeout_ms,
            window_ms=self._window_ms,
            is_released=lambda: self._is_released,
        )
        self._waiting += 1
        try:
            return await fetch.run(timeout_ms)
        finally:
            self._waiting -= 1

    async def ack(self, channel: str, subscriber: str, receipt: str, *, expire_ms: int) -> bool:
        return await self._settle(
            receipt, lambda store: store.ack(channel, subscriber, receipt, expire_ms=expire_ms)
        )

    async def nack(self, channel: str, subscriber: str, receipt: str, *, delay_ms: int) -> bool:
        return await self._settle(
            receipt, lambda store: store.nack(channel, subscriber, receipt, delay_ms=delay_ms)
        )

    async def _settle(self, receipt: str, call: Call[bool]) -> bool:
        """Ask the stores that the receipt has a part of; the table above says what follows."""
        names = list(self._own_parts(receipt))
        needed = min(self._quorum, len(names))
        self._check_reachable(names, needed)
        answers = await self.members.ask(call, names, enough=needed)
        moves = _values(answers)
        refusals = [answer.error for answer in answers if answer.is_refusal]
        if len(moves) + len(refusals) < needed:
            raise self.members.unavailable(answers, needed)
        if not moves:
            raise _most_telling(refusals)
        return any(moves)

    def _own_parts(self, receipt: str) -> dict[str, str]:
        """Of stores that are here; others may have gone since."""
        parts = unwrap(receipt)
        own = {name: parts[name] for name in self.members.names if name in parts}
        if not own:
            raise ReceiptError(f"the receipt has nothing of the stores {', '.join(self.members.names)}")
        return own

    # -------------------------------------------------------------------------- looking

    async def _ask_any(self, call: Call[T]) -> list[T]:
        """What those say who answer; at least one."""
        answers = await self.members.ask(call)
        replies = _values(answers)
        if not replies:
            refusals = [answer.error for answer in answers if answer.is_refusal]
            raise _most_telling(refusals) if refusals else self.members.unavailable(answers, 1)
        return replies

    async def backlog(
        self, channel: str, subscriber: str, *, after: int | None = None, limit: int
    ) -> Backlog:
        answers: list[Answer[Backlog]] = []
        for name in self.members.names:
            answers += await self.members.ask(
                lambda store: store.backlog(channel, subscriber, after=after, limit=limit), [name]
            )
            page = answers[-1].value
            if page is not None:
                return await self._without_old(channel, subscriber, page, name)
        refusals = [answer.error for answer in answers if answer.is_refusal]
        raise _most_telling(refusals) if refusals else self.members.unavailable(answers, 1)

    async def _without_old(self, channel: str, subscriber: str, page: Backlog, owner: str) -> Backlog:
        ids = [message.id for message in page.messages]
        others = [name for name in self.members.names if name != owner]
        answers = await self.members.ask(lambda store: acknowledged(store, channel, subscriber, ids), others)
        old = set[str]().union(*_values(answers))
        left = tuple(message for message in page.messages if message.id not in old)
        return Backlog(left, page.after, page.unread - len(page.messages) + len(left))

    async def find(self, channel: str, message_id: str) -> Message | None:
        found = await self._ask_any(lambda store: _listed(store.find(channel, message_id)))
        return next((message for (message,) in found if message is not None), None)

    async def are_old(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[bool]:
        async def judge(store: Store) -> tuple[list[bool], set[str]]:
            old = await store.are_old(channel, subscriber, message_ids)
            return old, await acknowledged(store, channel, subscriber, list(message_ids))

        judgements = await self._ask_any(judge)
        gone = set[str]().union(*(each for _, each in judgements))
        before = [all(old) for old in zip(*(old for old, _ in judgements), strict=True)]
        return [is_old or each in gone for is_old, each in zip(before, message_ids, strict=True)]

    async def info(self, channel: str) -> ChannelInfo | None:
        found = await self._ask_any(lambda store: _listed(store.info(channel)))
        merged = merge_infos([info for (info,) in found if info is not None])
        if merged is None:
            return None
        unread = {name: count for name, count in merged.unread.items() if not name.endswith(START_SUFFIX)}
        return ChannelInfo(merged.name, merged.clock, merged.ttl_ms, unread)

    async def names(self) -> list[str]:
        found = await self._ask_any(lambda store: store.names())
        return sorted(set[str]().union(*found))

    # -------------------------------------------------------------------------- outboxes

    async def read_outbox(self, channel: str, limit: int) -> list[bytes]:
        """Of the first store that has any: what comes back through :meth:`forwarded` is the head of one."""
        found = await self._ask_any(lambda store: store.read_outbox(channel, limit))
        return next((entries for entries in found if entries), [])

    async def forwarded(self, channel: str, entries: Sequence[bytes]) -> int:
        return sum(await self._ask_any(lambda store: store.forwarded(channel, entries)))

    async def outboxes(self) -> list[str]:
        found = await self._ask_any(lambda store: store.outboxes())
        return sorted(set[str]().union(*found))

    async def forget_outbox(self, channel: str) -> None:
        await self.members.ask(lambda store: store.forget_outbox(channel))

    # -------------------------------------------------------------------------- the rest

    async def probe(self) -> dict[str, Any]:
        answers = await self.members.ask(lambda store: store.probe())
        if len(_values(answers)) < self._quorum:
            raise self.members.unavailable(answers, self._quorum)
        states: dict[str, Any] = {}
        for answer in answers:
            states |= answer.value or {answer.name: f"{type(answer.error).__name__}: {answer.error}"}
        return states

    def release(self) -> None:
        self._is_released = True
        for member in self.members:
            member.store.release()

    async def close(self) -> None:
        self.release()
        self._is_closed = True
        await self.members.drain()
        await asyncio.gather(*(member.store.close() for member in self.members))

    @property
    def waiting(self) -> int:
        return self._waiting

    def __repr__(self) -> str:
        states = ", ".join(f"{member.name} {member.breaker.state}" for member in self.members)
        return f"<ChannelStores {states}; quorum {self._quorum}, {self.waiting} waiting>"


async def _listed(call: Any) -> tuple[Any]:
    """An answer that may be None, told from no answer."""
    return (await call,)


def _values(answers: Sequence[Answer[T]]) -> list[T]:
    return [answer.value for answer in answers if answer.is_confirmed and answer.value is not None]


def _most_telling(refusals: Sequence[PenstockError | None]) -> PenstockError:
    """A store without the subscriber had no fault to find with the receipt."""
    found = [error for error in refusals if error is not None]
    return next((error for error in found if isinstance(error, SubscriptionNotFoundError)), found[0])


def _check(children: Mapping[str, Store], quorum: int) -> None:
    if not children:
        raise ConfigError("children must name at least one store")
    for name, store in children.items():
        if store.name != name:
            raise ConfigError(
                f"children: the store under {name!r} calls itself {store.name!r} in its receipts"
            )
    if isinstance(quorum, bool) or not 1 <= quorum <= len(children):
        raise ConfigError(f"quorum must be from 1 to {len(children)} (the number of stores), not {quorum}")
