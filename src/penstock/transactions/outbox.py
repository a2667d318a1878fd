"""From the outbox of a partition to streams and channels: in order, each message once.

A settle appends to the outbox in the same script that writes the step down (``lua/settle.lua``); each
destination counts its own messages from 1. A forwarder takes the oldest under a lock, hands them to an
:class:`Outlet`, and removes them.

Rules
-----
1. Whatever dies, the messages are still in the outbox: they are removed after every destination has them.
   Sending them again does no harm, since destinations know them by number or id (``penstock.delivering``).
2. A message goes out when the one before it, of the same destination, is there or was buried. Destinations
   do not wait for one another within a batch.
3. A message that is refused several times, or whose destination nobody reaches for ``patience_ms``, is
   buried in ``outboxDeadL`` with the reason, so that the rest goes on. While the store itself does not
   answer, nothing is buried. :meth:`OutboxForwarder.revive` appends the dead again under new numbers: one
   whose outcome was unknown when it was buried may then be in its stream twice.
4. The lock only saves work. Who lost it without noticing sends what its successor sends, and removes nothing.
5. A new process looks once at each partition; so does each renewal of leases (:meth:`OutboxForwarder.look`).

Keys, after the prefix: ``outboxL``, ``outboxH``, ``outboxLock`` (``lua/outbox.lua``), and ``outboxDeadL``, a
list of msgpack (:class:`DeadEntry`), the oldest first; beyond ``MAX_DEAD`` the oldest go.

Nothing here knows how streams or channels are written.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Any, Final, NamedTuple

import msgspec

from penstock.client.exclusive import ExclusiveConnection
from penstock.client.facts import to_bytes
from penstock.client.pipelines import Transaction
from penstock.client.policies import ErrorClass, classify_error
from penstock.clock import Clock, SystemClock
from penstock.errors import ClosedError, CommandError, ConfigError, PenstockError, UsageError
from penstock.transactions.keys import prefix_of
from penstock.transactions.outbox_messages import (
    ChannelMessage,
    DeadEntry,
    OutboxEntry,
    Outlet,
    StreamMessage,
    channel_destination,
    decode_channel_message,
    decode_dead,
    decode_stream_message,
    encode,
    encode_channel_message,
    encode_stream_message,
    stream_destination,
)
from penstock.transactions.store import TransactionStore

__all__ = [
    "ChannelMessage",
    "DeadEntry",
    "OutboxEntry",
    "OutboxForwarder",
    "OutboxSettings",
    "Outlet",
    "StreamMessage",
    "channel_destination",
    "decode_channel_message",
    "decode_stream_message",
    "encode_channel_message",
    "encode_stream_message",
    "stream_destination",
]

_LOG = logging.getLogger(__name__)

MAX_DEAD: Final = 100_000
MAX_REASON: Final = 500
#: Destinations of whose trouble a forwarder remembers.
_MAX_SUSPECTS: Final = 1_000
_LONGEST_PAUSE_S: Final = 5.0


class OutboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a forwarder behaves."""

    #: messages at a time
    batch: int = 64
    #: after so long without a sign of life others take over
    lock_ms: int = 5_000
    #: how often what is refused is tried
    tries: int = 3
    #: how long a destination that cannot be reached holds up its batch
    patience_ms: int = 60_000
    #: between tries: doubled from the first to the second
    first_pause_ms: int = 50
    max_pause_ms: int = 2_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")


class OutboxForwarder:
    """One process's share of forwarding. ``node`` is for people; who holds a lock has a name of its own."""

    def __init__(
        self,
        store: TransactionStore,
        outlet: Outlet,
        node: str,
        settings: OutboxSettings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._outlet = outlet
        self._settings = settings or OutboxSettings()
        self._clock = clock or SystemClock()
        #: a process that is started again under its old name must not take itself for the one that died
        self._holder = f"{node} {secrets.token_hex(8)}"
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: partitions that got more while they were looked at
        self._again: set[int] = set()
        #: partitions to look at once more, in case that whoever had the lock has died
        self._later: dict[int, asyncio.TimerHandle] = {}
        self._suspects: dict[str, _Suspect] = {}
        self._is_closed = False

    def kick(self, partition: int) -> None:
        """Something was written to this outbox: forward it."""
        if partition in self._tasks:
            self._again.add(partition)
        else:
            self._start(partition, is_repetition=False)

    def _start(self, partition: int, *, is_repetition: bool) -> None:
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(
            self._forward(partition, is_repetition), name=f"penstock outbox {partition}"
        )
        self._tasks[partition] = task
        task.add_done_callback(lambda _: self._ended(partition))

    def look(self, partition: int, words: int) -> None:
        """What a renewal said: so many words are in the outbox; others may be at it."""
        if words > 0:
            self.kick(partition)

    async def idle(self) -> None:
        """Until nothing is being forwarded."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def close(self, grace_ms: int = 5_000) -> None:
        """Finish what is being sent, if it takes no longer, and leave the rest to others. Idempotent."""
        self._is_closed = True
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        if not self._tasks:
            return
        tasks = dict(self._tasks)
        _, late = await asyncio.wait(tasks.values(), timeout=grace_ms / 1000)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for partition, task in tasks.items():
            if task in late:
                await self._leave(partition)

    def _ended(self, partition: int) -> None:
        del self._tasks[partition]
        if partition in self._again:
            self._again.discard(partition)
            self.kick(partition)

    # --------------------------------------------------------------------------------- one partition

    async def _forward(self, partition: int, is_repetition: bool) -> None:
        """Until the outbox is empty, or somebody else has it."""
        pause_s = self._settings.first_pause_ms / 1000
        may_be_locked = not is_repetition
        while not self._is_closed:
            try:
                self._again.discard(partition)
                words = await self._take(partition, self._settings.batch)
                is_mine = bool(words) and await self._send_batch(partition, words)
                if not is_mine:
                    if words or may_be_locked:
                        self._look_later(partition)
                    return
                may_be_locked = False
                pause_s = self._settings.first_pause_ms / 1000
            except ClosedError:
                return
            except PenstockError as error:
                _LOG.warning("the outbox of partition %d waits: %s", partition, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception:  # noqa: BLE001 - a fault of ours must not stop the outbox until a restart
                _LOG.exception("forwarding from partition %d stumbled and goes on in a moment", partition)
                await asyncio.sleep(_LONGEST_PAUSE_S)
        await self._leave(partition)

    def _look_later(self, partition: int) -> None:
        if partition not in self._later and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._later[partition] = loop.call_later(
                self._settings.lock_ms / 1000, self._look_again, partition
            )

    def _look_again(self, partition: int) -> None:
        del self._later[partition]
        if partition not in self._tasks:
            self._start(partition, is_repetition=True)

    async def _take(self, partition: int, limit: int) -> list[Any]:
        """(number, destination, payload) in turn; taking again renews the lock."""
        found: list[Any] = await self._store.run(
            "outbox", partition, "take", self._holder, self._settings.lock_ms, limit
        )
        return found

    async def _leave(self, partition: int) -> None:
        try:
            await self._store.run("outbox", partition, "leave", self._holder, 0)
        except PenstockError as error:
            _LOG.info("the lock of outbox %d was not given back and ends by itself: %s", partition, error)

    async def _send_batch(self, partition: int, words: list[Any]) -> bool:
        """Whether the batch is done with; False: somebody else has the lock."""
        destinations, dead = _sorted_out(partition, words)
        sending = asyncio.ensure_future(
            asyncio.gather(*(self._send_run(name, run) for name, run in destinations.items()))
        )
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=self._settings.lock_ms / 3000)
                if not sending.done() and not await self._take(partition, 1):
                    return False
        finally:
            # Also where the store does not answer: then nobody is buried meanwhile.
            if not sending.done():
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        for buried in sending.result():
            dead += buried
        if dead:
            return await self._bury(partition, len(words) // 3, dead)
        done: int = await self._store.run("outbox", partition, "done", self._holder, len(words) // 3)
        return done == 1

    # ------------------------------------------------------------------------------- one destination

    async def _send_run(self, destination: str, entries: list[OutboxEntry]) -> list[_Dead]:
        """Bring them there; those that could not be."""
        loop = asyncio.get_running_loop()
        suspected = self._suspects.get(destination)
        if suspected is not None and suspected.until_s < loop.time():
            suspected = None
        began_s, tries, rest = loop.time(), 0, entries
        is_alone = False
        dead: list[_Dead] = []
        while rest:
            answer = await self._tried(rest[:1] if is_alone else rest)
            if isinstance(answer, int):
                # Patience is for those behind, too.
                began_s, tries, rest = loop.time(), 0, rest[answer:]
                continue
            why = answer
            tries += 1
            if _may_pass(why):
                waited_ms = (loop.time() - began_s) * 1000
                if (suspected and suspected.is_away) or waited_ms > self._settings.patience_ms:
                    dead += [_Dead(entry, why) for entry in rest]
                    break
            elif dead or (suspected and not suspected.is_away) or tries >= self._settings.tries:
                if is_alone or len(rest) == 1:
                    dead.append(_Dead(rest[0], why))
                    rest = rest[1:]
                is_alone = True  # one bad message must not take the others with it
                continue
            await asyncio.sleep(self._pause_ms(tries) / 1000)
        self._remember(destination, dead)
        return dead

    async def _tried(self, entries: list[OutboxEntry]) -> int | Exception:
        """How many went out, or why none did."""
        try:
            count = await self._outlet.send(entries)
        except ClosedError:
            raise
        except Exception as error:  # noqa: BLE001 - an outlet's mistake must not stop the others
            return error
        return (
            count if count > 0 else UsageError("the outlet must bring at least one message there, or raise")
        )

    def _pause_ms(self, tries: int) -> int:
        return min(self._settings.first_pause_ms << min(tries - 1, 20), self._settings.max_pause_ms)

    def _remember(self, destination: str, dead: list[_Dead]) -> None:
        """Who has just failed does not hold up the next batch as well."""
        if not dead:
            self._suspects.pop(destination, None)
            return
        if len(self._suspects) >= _MAX_SUSPECTS:
            self._suspects.clear()
        until_s = asyncio.get_running_loop().time() + self._settings.patience_ms / 1000
        self._suspects[destination] = _Suspect(until_s, _may_pass(dead[-1].why))

    # ------------------------------------------------------------------------------------- the dead

    async def _bury(self, partition: int, count: int, dead: list[_Dead]) -> bool:
        """Remove a batch, and keep what did not go out, both or neither; False if the lock was lost."""
        prefix = prefix_of(partition)
        packed = [encode(self._dead_entry(each)) for each in dead]

        async def bury(own: ExclusiveConnection) -> Transaction:
            transaction = own.transaction()
            holder: Any = await own.execute("GET", f"{prefix}outboxLock")
            # Others write the lock when they take over, and then this does not happen.
            if holder is not None and to_bytes(holder) == self._holder.encode():
                transaction.execute("RPUSH", f"{prefix}outboxDeadL", *packed)
                transaction.execute("LTRIM", f"{prefix}outboxDeadL", -MAX_DEAD, -1)
                transaction.execute("LTRIM", f"{prefix}outboxL", 3 * count, -1)
            else:
                transaction.execute("EXISTS", f"{prefix}outboxLock")
            return transaction

        replies = await self._store.client.transact(bury, f"{prefix}outboxLock")
        if len(replies) < 2:
            return False
        for each in dead:
            _LOG.error("message %d for %s was given up: %s", each.entry.number, each.entry.name, each.why)
        return True

    def _dead_entry(self, dead: _Dead) -> DeadEntry:
        entry = dead.entry
        reason = f"{type(dead.why).__name__}: {dead.why}"[:MAX_REASON]
        destination = f"{entry.kind}:{entry.name}" if entry.kind else entry.name
        return DeadEntry(entry.number, destination, entry.payload, reason, self._clock.now_ms())

    async def dead(self, partition: int, limit: int = 100) -> list[DeadEntry]:
        """What was buried, the oldest first."""
        found: Any = await self._store.client.execute(
            "LRANGE", f"{prefix_of(partition)}outboxDeadL", 0, limit - 1
        )
        return [decode_dead(to_bytes(each)) for each in found]

    async def revive(self, partition: int, limit: int = 100) -> int:
        """Send the oldest of the dead again, behind everything else; how many."""
        prefix = prefix_of(partition)
        outbox, numbers, graves = f"{prefix}outboxL", f"{prefix}outboxH", f"{prefix}outboxDeadL"
        count = 0

        async def move(own: ExclusiveConnection) -> Transaction:
            nonlocal count
            found: Any = await own.execute("LRANGE", graves, 0, limit - 1)
            count = len(found)
            transaction = own.transaction()
            last: dict[str, int] = {}
            for each in found:
                entry = decode_dead(to_bytes(each))
                if entry.destination not in last:
                    at: Any = await own.execute("HGET", numbers, entry.destination)
                    last[entry.destination] = int(at or 0)
                last[entry.destination] += 1
                transaction.execute("HINCRBY", numbers, entry.destination, 1)
                transaction.execute(
                    "RPUSH", outbox, last[entry.destination], entry.destination, entry.payload
                )
            transaction.execute("LTRIM", graves, count, -1)
            return transaction

        await self._store.client.transact(move, graves, numbers)
        if count:
            self._suspects.clear()
            self.kick(partition)
        return count

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<OutboxForwarder {self._holder} {state}, busy with partitions {sorted(self._tasks)}>"


class _Dead(NamedTuple):
    entry: OutboxEntry
    why: Exception


class _Suspect(NamedTuple):
    """A destination that is tried once only, until this loop time."""

    until_s: float
    #: it could not be reached; else it refused something
    is_away: bool


def _sorted_out(partition: int, words: list[Any]) -> tuple[dict[str, list[OutboxEntry]], list[_Dead]]:
    """Entries by their destinations, and those that are none."""
    destinations: dict[str, list[OutboxEntry]] = {}
    dead: list[_Dead] = []
    for place in range(0, len(words) - 2, 3):
        number, raw, payload = (to_bytes(word) for word in words[place : place + 3])
        destination = raw.decode("utf-8", "replace")
        kind, _, name = destination.partition(":")
        if kind in ("stream", "channel") and name and number.isdigit():
            entry = OutboxEntry(partition, int(number), kind, name, payload)
            destinations.setdefault(destination, []).append(entry)
        else:
            why = UsageError(f"destination must be stream:<name> or channel:<name>, not {destination!r}")
            nobody = OutboxEntry(partition, int(number) if number.isdigit() else 0, "", destination, payload)
            dead.append(_Dead(nobody, why))
    return destinations, dead


def _may_pass(error: Exception) -> bool:
    """Whether it may work later without anybody's doing."""
    if isinstance(error, CommandError):
        kind = classify_error(str(error)).kind
        return error.code == "OOM" or kind not in (ErrorClass.OTHER, ErrorClass.NOPERM)
    return isinstance(error, PenstockError) and not isinstance(error, UsageError)
