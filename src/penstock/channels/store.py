"""Channels in one store: a directory, a server or a cluster. The scripts of ``lua/`` decide everything.

Some of them our own engine has as commands, which take the same arguments and give the same replies.

Rules: a fetch takes its ticket before it looks, so that no message can slip between looking and waiting. What
a receipt says is believed only under this store's seal. The keys are those of ``keys``; whoever else
follows that table may share the store.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from penstock.channels import keys
from penstock.channels.clocks import distance, following
from penstock.channels.model import MAX_FETCH, Backlog, Batch, ChannelInfo, Message, parse_body
from penstock.channels.receipts import Mark, Seal, unwrap, wrap
from penstock.client.asking import has_command
from penstock.client.client import Client
from penstock.client.facts import Argument, to_bytes
from penstock.client.scripts import ScriptLibrary
from penstock.client.waking import Ticket, Wakeups
from penstock.errors import ReceiptError, SubscriptionNotFoundError

_LOG = logging.getLogger(__name__)

#: Bytes of bodies that one fetch gives (a single message may have more).
_FETCH_BYTES: Final = 8 * 1024 * 1024
#: Expired messages that a script steps over in one go.
_STEPS: Final = 5_000
#: Both as they are sent: with every look.
_FETCH_BOUNDS: Final = (str(_FETCH_BYTES), str(_STEPS))
_SECRET_BYTES: Final = 32
#: A channel that publishes with an outbox says so again after this time; whoever was silent for
#: much longer, and whose outbox is empty, is forgotten.
_OUTBOX_RENEWAL_S: Final = 600
_OUTBOX_FORGOTTEN_S: Final = 3_600
_MAX_ANNOUNCED: Final = 10_000
#: Lives are renewed by a fetch after this time, or a twentieth of the life if that is less.
_RENEWAL_S: Final = 10.0
_MAX_NOTED: Final = 100_000
#: Unread messages up to which a look does without the script.
_GLANCE: Final = 128
_MORE, _ASK_AGAIN = 1, 2
#: Scripts that the engine has as commands.
_COMMANDS: Final = {"publish": "CHPUBLISH", "fetch": "CHFETCH", "ack": "CHACK"}


class ChannelStore:
    """The channels of one client. ``name`` stands in receipts and probes."""

    def __init__(self, client: Client, name: str = "default", secret: bytes | None = None) -> None:
        self.name = name
        self._client = client
        self._scripts = ScriptLibrary(client, "penstock.channels")
        self._wakeups = Wakeups(client, keys.TOPICS, keys.channel_of_topic)
        self._seal = Seal(name, secret) if secret else None
        self._is_native: bool | None = None
        #: (channel, subscriber) -> loop time until which their lives need not be renewed
        self._renewals: dict[tuple[str, str], float] = {}
        #: channel -> loop time of the next announcement
        self._announced: dict[str, float] = {}

    # ----------------------------------------------------------------------- subscribers

    async def create(self, channel: str, subscriber: str, *, expire_ms: int) -> bool:
        made: Any = await self._scripts.create(_two_keys(channel, subscriber), [keys.ttl_s(expire_ms)])
        return bool(made)

    async def remove(self, channel: str, subscriber: str) -> bool:
        _, cursor, nack = _three_keys(channel, subscriber)
        removed: Any = await self._scripts.remove([cursor, nack], [keys.topic_of(channel)])
        return bool(removed)

    # ------------------------------------------------------------------------- messages

    async def publish(
        self, channel: str, messages: Sequence[tuple[str, bytes]], *, expire_ms: int, outbox: bool = False
    ) -> list[bool]:
        if not messages:
            return []
        if outbox:
            await self._announce_outbox(channel)
        prefix = keys.prefix_of(channel)
        words = (prefix, keys.ttl_s(expire_ms), keys.topic_of(channel), channel if outbox else "")
        pairs = [word for message in messages for word in message]
        reply = await self._run("publish", (prefix + "clock",), (*words, *pairs))
        return [word == 1 for word in reply]

    async def _run(self, name: str, names: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What the engine has as a command and other servers as a script, with the same arguments."""
        if self._is_native if self._is_native is not None else await self._ask_native():
            return await self._client.execute(_COMMANDS[name], *names, *arguments)
        return await self._scripts[name](names, arguments)

    async def _ask_native(self) -> bool:
        """Whether the server has our commands; asked once, for the newest of them."""
        self._is_native = await has_command(self._client, _COMMANDS["fetch"])
        return self._is_native

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
        if self._is_native is None:
            await self._ask_native()  # before anybody counts this fetch as one that waits
        start = None if after is None else (await self._open(channel, subscriber, after)).clock
        look = partial(self._look, channel, subscriber, limit, expire_ms, start)
        if timeout_ms <= 0:
            return (await look())[0]
        with await self._wakeups.ticket(channel) as ticket:
            return await _until_found(look, ticket, timeout_ms, expire_ms)

    async def _look(
        self, channel: str, subscriber: str, limit: int, expire_ms: int, after: int | None
    ) -> tuple[Batch, float]:
        """One look, and for how long a nack holds the subscriber back."""
        now_s = asyncio.get_running_loop().time()
        ttl_s = keys.ttl_s(expire_ms)
        if self._renewals.get((channel, subscriber), 0.0) > now_s:
            if self._is_native:
                ttl_s = 0  # only read
            elif after is None and limit:
                found = await self._glance(channel, subscriber, limit)
                if found is not None:
                    return found
        more, paused_ms, messages = await self._read(channel, subscriber, limit, ttl_s, after)
        if ttl_s:
            self._note_renewal(channel, subscriber, now_s + min(ttl_s / 20, _RENEWAL_S))
        if not messages:
            return Batch(more=more == _MORE), paused_ms / 1_000
        return await self._batch(channel, subscriber, messages, more != 0), 0.0

    async def _read(
        self, channel: str, subscriber: str, limit: int, ttl_s: int, after: int | None
    ) -> tuple[int, int, tuple[Message, ...]]:
        """What the script says, and its messages. Those that do not decode are stepped over."""
        names = _three_keys(channel, subscriber)
        arguments = (keys.prefix_of(channel), str(ttl_s), str(min(limit, MAX_FETCH)), *_FETCH_BOUNDS)
        start: Any = "" if after is None else after
        unreadable: Any = ""
        while True:
            reply = await self._run("fetch", names, (*arguments, unreadable, start))
            if not reply:
                self._renewals.pop((channel, subscriber), None)
                raise _not_found(channel, subscriber)
            more, paused_ms, position, *flat = reply
            messages = _messages(flat) if flat else ()
            if messages or not (flat or more == _ASK_AGAIN):
                return more, paused_ms, messages
            if flat:
                unreadable = position = flat[-2]
                _LOG.warning("channel %s has messages that do not decode, up to clock %s", channel, position)
            if after is not None:
                start, unreadable = position, ""  # reading ahead, the cursor stays where it is

    async def _glance(self, channel: str, subscriber: str, limit: int) -> tuple[Batch, float] | None:
        """The same without the script, where nothing but reading is to be done; None: ask the script.
        (CHFETCH needs no such way: it only reads by itself.)

        The script renews lives, steps over what expired, and knows about nacks. Most looks come soon after
        another one and find either nothing or a few messages, all of which are there.
        """
        last, cursor, nack = await self._strings(_three_keys(channel, subscriber))
        if last is None or cursor is None or nack is not None:
            return None
        if last == cursor:
            return Batch(), 0.0
        try:
            clock, count = int(cursor), distance(int(cursor), int(last))
        except ValueError:
            return None
        if count > _GLANCE:
            return None
        clocks = []
        for _ in range(min(count, limit + 1)):  # the one behind tells whether there is more
            clock = following(clock)
            clocks.append(clock)
        prefix = keys.prefix_of(channel)
        bodies = await self._strings([f"{prefix}m.{clock}" for clock in clocks])
        if None in bodies or sum(map(len, bodies)) > _FETCH_BYTES:
            return None
        messages = _messages([word for pair in zip(clocks, bodies, strict=True) for word in pair])
        if len(messages) < len(bodies):
            return None  # some do not decode
        return await self._batch(channel, subscriber, messages[:limit], count > limit), 0.0

    async def _strings(self, names: Sequence[str]) -> list[Any]:
        reply: Any = await self._client.execute("MGET", *names)
        return list(reply)

    async def _batch(self, channel: str, subscriber: str, messages: tuple[Message, ...], more: bool) -> Batch:
        last = messages[-1]
        seal = self._seal or await self._unsealed()
        part = seal.issue(channel, subscriber, Mark(last.clock, last.id))
        return Batch(messages, more, wrap({self.name: part}))

    def _note_renewal(self, channel: str, subscriber: str, until_s: float) -> None:
        if len(self._renewals) >= _MAX_NOTED:
            self._renewals.clear()
        self._renewals[channel, subscriber] = until_s

    async def ack(self, channel: str, subscriber: str, receipt: str, *, expire_ms: int) -> bool:
        mark = await self._open(channel, subscriber, receipt)
        names = _keys_of_mark(channel, subscriber, mark)
        moved = await self._run("ack", names, (keys.ttl_s(expire_ms), mark.clock))
        return _moved(moved, channel, subscriber)

    async def nack(self, channel: str, subscriber: str, receipt: str, *, delay_ms: int) -> bool:
        mark = await self._open(channel, subscriber, receipt)
        moved = await self._scripts.nack(
            _keys_of_mark(channel, subscriber, mark), (mark.clock, delay_ms, keys.topic_of(channel))
        )
        return _moved(moved, channel, subscriber)

    async def _open(self, channel: str, subscriber: str, receipt: str) -> Mark:
        part = unwrap(receipt).get(self.name)
        if part is None:
            raise ReceiptError(f"the receipt has nothing of store {self.name!r}")
        seal = self._seal or await self._unsealed()
        return seal.open(channel, subscriber, part)

    async def _unsealed(self) -> Seal:
        """The seal of this store. Its secret is made by the first who needs it."""
        await self._client.execute("SET", keys.SECRET, secrets.token_hex(_SECRET_BYTES), "NX")
        secret: Any = await self._client.execute("GET", keys.SECRET)
        self._seal = Seal(self.name, to_bytes(secret))
        return self._seal

    # -------------------------------------------------------------------------- looking

    async def backlog(
        self, channel: str, subscriber: str, *, after: int | None = None, limit: int
    ) -> Backlog:
        start = "" if after is None else after
        reply: Any = await self._scripts.backlog(
            _two_keys(channel, subscriber),
            (keys.prefix_of(channel), start, min(limit, MAX_FETCH), _STEPS, _FETCH_BYTES),
            readonly=True,
        )
        if not reply:
            raise _not_found(channel, subscriber)
        more, position, unread, *flat = reply
        return Backlog(_messages(flat), int(position) if more else None, int(unread))

    async def find(self, channel: str, message_id: str) -> Message | None:
        prefix = keys.prefix_of(channel)
        clock: Any = await self._client.execute("GET", f"{prefix}mid.{message_id}")
        if clock is None:
            return None
        body: Any = await self._client.execute("GET", f"{prefix}m.{int(clock)}")
        return None if body is None else parse_body(int(clock), to_bytes(body))

    async def are_old(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[bool]:
        clocks = await self.old_clocks(channel, subscriber, message_ids)
        return [clock is not None for clock in clocks]

    async def old_clocks(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[int | None]:
        """The clock of each message that is old to the subscriber, None for others."""
        reply: Any = await self._scripts.age(
            _two_keys(channel, subscriber), (keys.prefix_of(channel), *message_ids), readonly=True
        )
        if reply is None or reply is False:
            raise _not_found(channel, subscriber)
        return [int(clock) if clock else None for clock in reply]

    async def info(self, channel: str) -> ChannelInfo | None:
        prefix = keys.prefix_of(channel)
        stored: Any = await self._client.execute("GET", prefix + "clock")
        if stored is None:
            return None
        clock, ttl_ms = int(stored), await self._client.execute("PTTL", prefix + "clock")
        cursors = [to_bytes(key) async for key in self._client.scan_iter(match=f"{prefix}r.*", count=1_000)]
        unread = {}
        for key in sorted(cursors):
            cursor: Any = await self._client.execute("GET", key)
            if cursor is not None:
                unread[key.decode().removeprefix(prefix + "r.")] = distance(int(cursor), clock)
        return ChannelInfo(channel, clock, max(int(str(ttl_ms)), 0), unread)

    async def names(self) -> list[str]:
        found = [
            to_bytes(key).decode() async for key in self._client.scan_iter(match="c.{*}.clock", count=1_000)
        ]
        return sorted(key.removeprefix("c.{").removesuffix("}.clock") for key in found)

    # -------------------------------------------------------------------------- outboxes

    async def _announce_outbox(self, channel: str) -> None:
        """Before the first message, so that whoever forwards finds it, whatever dies in between."""
        now_s = asyncio.get_running_loop().time()
        if self._announced.get(channel, 0.0) > now_s:
            return
        await self._client.execute("ZADD", keys.OUTBOXES, await self._time_s(), channel)
        if len(self._announced) >= _MAX_ANNOUNCED:
            self._announced.clear()
        self._announced[channel] = now_s + _OUTBOX_RENEWAL_S

    async def _time_s(self) -> int:
        reply: Any = await self._client.execute("TIME")
        return int(reply[0])

    async def read_outbox(self, channel: str, limit: int) -> list[bytes]:
        found: Any = await self._client.execute("LRANGE", keys.prefix_of(channel) + "out", 0, limit - 1)
        return [to_bytes(entry) for entry in found]

    async def forwarded(self, channel: str, entries: Sequence[bytes]) -> int:
        left: Any = await self._scripts.forwarded((keys.prefix_of(channel) + "out",), entries)
        return int(left)

    async def outboxes(self) -> list[str]:
        reply: Any = await self._client.execute("ZRANGE", keys.OUTBOXES, 0, -1)
        return [to_bytes(name).decode() for name in reply]

    async def forget_outbox(self, channel: str) -> None:
        """Of an empty outbox; it stays known while its channel may publish without saying so again."""
        score: Any = await self._client.execute("ZSCORE", keys.OUTBOXES, channel)
        if score is not None and float(score) + _OUTBOX_FORGOTTEN_S < await self._time_s():
            await self._client.execute("ZREM", keys.OUTBOXES, channel)

    # -------------------------------------------------------------------------- the rest

    async def probe(self) -> dict[str, Any]:
        await self._client.execute("PING")
        return {self.name: "ok"}

    def release(self) -> None:
        self._wakeups.release()

    async def close(self) -> None:
        await self._wakeups.close()

    @property
    def waiting(self) -> int:
        return self._wakeups.waiting

    def __repr__(self) -> str:
        return f"<ChannelStore {self.name} on {self._client!r}, {self.waiting} waiting>"


async def _until_found(
    look: Callable[[], Awaitable[tuple[Batch, float]]], ticket: Ticket, timeout_ms: int, expire_ms: int
) -> Batch:
    """Look, and look again whenever somebody wakes the ticket."""
    now_s = asyncio.get_running_loop().time
    end_s = now_s() + timeout_ms / 1_000
    # A subscriber must not expire while it waits.
    patience_s = keys.ttl_s(expire_ms) / 2
    while True:
        batch, paused_s = await look()
        left_s = end_s - now_s()
        if batch.messages or batch.more or left_s <= 0:
            return batch
        if not await ticket.wait(min(left_s, patience_s, paused_s or left_s)):
            return batch


def _two_keys(channel: str, subscriber: str) -> tuple[str, str]:
    prefix = keys.prefix_of(channel)
    return prefix + "clock", f"{prefix}r.{subscriber}"


def _three_keys(channel: str, subscriber: str) -> tuple[str, str, str]:
    prefix = keys.prefix_of(channel)
    return prefix + "clock", f"{prefix}r.{subscriber}", f"{prefix}nack.{subscriber}"


def _keys_of_mark(channel: str, subscriber: str, mark: Mark) -> tuple[str, ...]:
    prefix = keys.prefix_of(channel)
    return (*_three_keys(channel, subscriber), f"{prefix}mid.{mark.id}", f"{prefix}m.{mark.clock}")


def _messages(flat: Sequence[Any]) -> tuple[Message, ...]:
    """Of clocks and bodies in turn. A body that is none is left out: nobody could ever read it."""
    bodies = zip(flat[::2], flat[1::2], strict=True)
    parsed = (parse_body(int(clock), to_bytes(body)) for clock, body in bodies)
    return tuple(message for message in parsed if message is not None)


def _moved(reply: object, channel: str, subscriber: str) -> bool:
    if reply == -1:
        raise _not_found(channel, subscriber)
    return reply == 1


def _not_found(channel: str, subscriber: str) -> SubscriptionNotFoundError:
    return SubscriptionNotFoundError(
        f"channel {channel!r} has no subscriber {subscriber!r}: it was never made, was removed, or expired"
    )
