"""One fetch from several stores: look everywhere, put it together, or wait and look again.

1. **Look.** Every store that its breaker lets is asked, and all of them are waited for, up to the time
   limit: who lags behind can only be told from who does not.
2. **Compare.** A store that did not give what others gave is asked whether it knows the message as old. Then
   the message is dropped, and the store that still had it is moved over it.
3. **Repair.** A store without the subscriber gets it, from its current position. It has no say about what was
   published before that (``start_of``).
4. **Wait.** Without messages, all stores that live are polled. The first that has any opens a short window
   for the others, so that a message which is just arriving everywhere is acknowledged everywhere.
   After some seconds everybody is looked at again: a store that came back must be heard.

A fetch needs the answers of a quorum. It does not know how an acknowledgement is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.channels.members import Answer, Members, Store
from penstock.channels.merging import Merged, is_known, is_thin, merge, unseen
from penstock.channels.model import FETCH_LIMIT, Batch
from penstock.channels.receipts import unwrap, wrap
from penstock.errors import PenstockError, SubscriptionNotFoundError

#: No user can have such a name: it is not one of ``keys.is_id``.
START_SUFFIX: Final = "~start"
#: How long stores are polled before all are looked at again.
_SLICE_MS: Final = 5_000
#: Polls of one store that may fail during one fetch while looking at it works.
_MAX_POLL_FAILURES: Final = 3


class Request(NamedTuple):
    """What is fetched."""

    channel: str
    subscriber: str
    limit: int
    expire_ms: int


async def join(store: Store, channel: str, subscriber: str, expire_ms: int) -> bool:
    """Make a subscriber in one store, and the mark of where it began. False: it existed."""
    try:
        await store.old_clocks(channel, subscriber, ())
    except SubscriptionNotFoundError:
        pass
    else:
        return await store.create(channel, subscriber, expire_ms=expire_ms)
    start = start_of(subscriber)
    # In one tick, hence one after another without a gap: a message in between would be before the
    # subscriber's time, yet behind the mark, and count as acknowledged.
    made, _, _ = await asyncio.gather(
        store.create(channel, subscriber, expire_ms=expire_ms),
        store.remove(channel, start),
        store.create(channel, start, expire_ms=expire_ms),
    )
    return made


def start_of(subscriber: str) -> str:
    """The name under which a store remembers where the subscriber began: a subscriber that reads nothing.

    It lives as long as any message from before.
    """
    return subscriber + START_SUFFIX


async def acknowledged(store: Store, channel: str, subscriber: str, ids: list[str]) -> set[str]:
    """Those of the messages that are old because somebody acknowledged them here.

    What is old because the subscriber began later in this store may be unread in another.
    """
    clocks = await store.old_clocks(channel, subscriber, ids)
    old = [each for each, clock in zip(ids, clocks, strict=True) if clock is not None]
    if not old:
        return set()
    try:
        before = await store.old_clocks(channel, start_of(subscriber), old)
    except SubscriptionNotFoundError:
        return set(old)  # it began so long ago that nothing from before is left
    return {each for each, clock in zip(old, before, strict=True) if clock is None}


class Fetch:
    """One fetch. Made for it, and used once."""

    def __init__(
        self,
        members: Members,
        request: Request,
        after: Mapping[str, str] | None,
        *,
        quorum: int,
        timeout_ms: int,
        window_ms: int,
        is_released: Callable[[], bool],
    ) -> None:
        self._members = members
        self._request = request
        self._quorum = quorum
        self._catching_up_s = timeout_ms / 1_000
        self._window_s = window_ms / 1_000
        self._is_released = is_released
        #: reading ahead: store -> the part of its receipt behind which to read
        self._after = None if after is None else dict(after)
        #: stores that live, but cannot be moved over what is old
        self._stuck: set[str] = set()
        self._poll_failures: dict[str, int] = {}
        self._look_limit = request.limit

    async def run(self, timeout_ms: int) -> Batch:
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + timeout_ms / 1_000
        polled: dict[str, Batch] = {}
        while True:
            batches = await self._look(polled)
            if self._is_order_open(batches):
                self._look_limit = max(4 * self._request.limit, FETCH_LIMIT)
                batches = await self._look({})
            elif is_thin(batches, self._quorum):
                # Most often it is just arriving: better to have it in the receipt of all who will have it.
                batches = await self._look({})
            merged = merge(batches, await self._old(batches), self._request.limit)
            has_moved = await self._catch_up(batches, merged)
            if merged.messages:
                parts = await self._parts(batches, merged)
                if parts:
                    return Batch(merged.messages, merged.more, wrap(parts))
                has_moved = True  # somebody else has acknowledged meanwhile
            elif merged.more and not self._request.limit:
                return Batch(more=True)
            polled = {}
            left_s = end_s - now_s()
            if has_moved and left_s > -self._catching_up_s:
                self._look_limit = max(self._request.limit, FETCH_LIMIT)
            elif left_s <= 0 or self._is_released():
                return Batch(more=has_moved)
            else:
                polled = await self._wait(batches, min(left_s, _SLICE_MS / 1_000))

    # ---------------------------------------------------------------------------- looking

    async def _look(self, polled: Mapping[str, Batch]) -> dict[str, Batch]:
        """What each store has that knows the subscriber; the others get it."""
        names = [name for name in self._members.names if name not in polled and name not in self._stuck]
        if self._after is not None:
            # Without a position of its own a store would begin with what was given long ago.
            names = [name for name in names if name in self._after]
        answers = await self._members.ask(self._fetch_from, names)
        answers += [Answer(name, batch) for name, batch in polled.items()]
        lacking = [each for each in answers if isinstance(each.error, SubscriptionNotFoundError)]
        having = {each.name: each.value for each in answers if each.value is not None}
        refusals = [each.error for each in lacking or answers if each.is_refusal and each.error is not None]
        needed = self._quorum if self._after is None else min(self._quorum, len(self._after))
        if not is_known(len(having), len(lacking), needed) and len(refusals) >= needed:
            raise refusals[0]
        if not having or len(having) + len(refusals) < needed:
            raise self._members.unavailable(answers, needed)
        if lacking:
            await self._members.ask(self._join_in, [answer.name for answer in lacking])
        return {name: having[name] for name in self._members.names if name in having}

    def _is_order_open(self, batches: Mapping[str, Batch]) -> bool:
        """Whether a store may have further back what others gave: a longer look tells the order."""
        is_first = 0 < self._request.limit == self._look_limit
        return is_first and any(batches[name].more for name in unseen(batches))

    async def _fetch_from(self, store: Store) -> Batch:
        return await self._fetch(store, self._look_limit, 0)

    async def _fetch(self, store: Store, limit: int, timeout_ms: int) -> Batch:
        request = self._request
        part = None if self._after is None else self._after.get(store.name)
        return await store.fetch(
            request.channel,
            request.subscriber,
            limit=limit,
            timeout_ms=timeout_ms,
            expire_ms=request.expire_ms,
            after=None if part is None else wrap({store.name: part}),
        )

    async def _join_in(self, store: Store) -> bool:
        return await join(store, self._request.channel, self._request.subscriber, self._request.expire_ms)

    # ---------------------------------------------------------------------------- comparing

    async def _old(self, batches: Mapping[str, Batch]) -> set[str]:
        """What any store knows as acknowledged, of all that was given."""
        missing = unseen(batches)
        if self._after is not None:
            # Those that do not take part may know nonetheless.
            every = list(dict.fromkeys(each.id for batch in batches.values() for each in batch.messages))
            missing.update((name, every) for name in self._members.names if name not in batches)
        if not missing:
            return set()
        channel, subscriber = self._request.channel, self._request.subscriber
        answers = await self._members.ask(
            lambda store: acknowledged(store, channel, subscriber, missing[store.name]), missing
        )
        silent = {each.name for each in answers if each.value is None and not each.is_refusal}
        if self._after is None and len(batches) - len(silent) < min(self._quorum, len(batches)):
            raise self._members.unavailable(answers, self._quorum)
        return {message_id for answer in answers if answer.value for message_id in answer.value}

    async def _catch_up(self, batches: Mapping[str, Batch], merged: Merged) -> bool:
        """Move stores over what is old to others. True: some have moved, and may have more."""
        if not merged.lagging:
            return False
        if self._after is not None:
            # Nothing may be acknowledged that was read ahead; reading goes on behind it.
            parts = await self._parts_of(batches, merged.lagging)
            self._after.update(parts)
            self._stuck |= merged.lagging.keys() - parts.keys()
            return bool(parts)
        parts = await self._parts_of(batches, merged.lagging)
        request = self._request
        answers = await self._members.ask(
            lambda store: store.ack(
                request.channel,
                request.subscriber,
                wrap({store.name: parts[store.name]}),
                expire_ms=request.expire_ms,
            ),
            parts,
        )
        moved = {answer.name for answer in answers if answer.value}
        self._stuck |= merged.lagging.keys() - moved
        return bool(moved)

    async def _parts(self, batches: Mapping[str, Batch], merged: Merged) -> dict[str, str]:
        """The receipt of what is given. Reading ahead, it is also that of what was given before."""
        parts = await self._parts_of(batches, merged.reached)
        return {**self._after, **parts} if parts and self._after is not None else parts

    async def _parts_of(self, batches: Mapping[str, Batch], counts: Mapping[str, int]) -> dict[str, str]:
        """A part for the first messages of each batch. Only the store can seal one, so it is asked again."""
        parts: dict[str, str] = {}
        shorter: list[str] = []
        for name, count in counts.items():
            receipt = batches[name].receipt
            if count == len(batches[name].messages) and receipt is not None:
                parts[name] = unwrap(receipt)[name]
            else:
                shorter.append(name)
        answers = await self._members.ask(lambda store: self._fetch(store, counts[store.name], 0), shorter)
        for answer in answers:
            again, wanted = answer.value, batches[answer.name].messages[: counts[answer.name]]
            if again is not None and again.receipt is not None and again.messages == wanted:
                parts[answer.name] = unwrap(again.receipt)[answer.name]
        return parts

    # ---------------------------------------------------------------------------- waiting

    async def _wait(self, alive: Mapping[str, Batch], slice_s: float) -> dict[str, Batch]:
        """Poll all that live until one has messages, and what the others have by the end of its window."""
        names = [
            name
            for name in alive
            if name not in self._stuck and self._poll_failures.get(name, 0) < _MAX_POLL_FAILURES
        ]
        if not names:
            raise self._members.unavailable([], self._quorum)
        polls = {
            asyncio.create_task(
                self._poll(self._members[name].store, slice_s), name=f"penstock poll {name}"
            ): name
            for name in names
        }
        try:
            return await self._first(polls, slice_s)
        finally:
            for task in polls:
                task.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    async def _poll(self, store: Store, slice_s: float) -> Batch:
        return await self._fetch(store, self._request.limit, max(int(slice_s * 1_000), 1))

    async def _first(self, polls: Mapping[asyncio.Task[Batch], str], slice_s: float) -> dict[str, Batch]:
        now_s = asyncio.get_running_loop().time
        # Whoever is silent for longer than it was asked to wait is found out by looking.
        end_s = now_s() + slice_s + self._window_s
        waiting = set(polls)
        found: dict[str, Batch] = {}
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=max(end_s - now_s(), 0), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for task in done:
                name, error = polls[task], task.exception()
                if isinstance(error, PenstockError):
                    self._poll_failures[name] = self._poll_failures.get(name, 0) + 1
                    end_s = now_s()
                elif task.result().messages:
                    found[name] = task.result()
                    end_s = min(end_s, now_s() + self._window_s)
                elif task.result().more:
                    end_s = now_s()
        return found
