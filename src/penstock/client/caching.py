"""Replies kept in this process, for as long as the server would have told us of a change.

Shared connections say CLIENT TRACKING ON in their handshake, so the server remembers what
we read and sends ``invalidate`` when it changes. Reads of one key are then answered from
here without a round trip.

    call ──> known ──> a copy, at once
         └─> unknown ──> send ──(reply)──> kept, unless its key was touched meanwhile

Rules
-----
K1  A reply is kept only if nothing touched its key between the call and the reply: no
    invalidation, no write of ours, no flush. Each key has a *shelf*; touching the key takes
    the shelf away with everything on it, and a reply that comes back to a shelf which is
    not there any more is not kept. In doubt (an invalidation right before or after the
    reply) it is not kept either.
K2  Own writes take the shelf away when they are issued: what is read later on the same
    connection is read after them. A server tells us of our own writes too, right *after*
    their reply (Redis 7.0; scripts and transactions alike), which alone would be too late
    for whoever reads as soon as the reply is there. Writes that do not pass here
    (transactions, connections of their own) are reported with :meth:`Cache.touch`.
K3  When a connection is lost nobody tells us of changes: :meth:`Cache.flush`, everything.
K4  What is handed out is the caller's to change: lists, maps and sets are copies.
K5  At most ``max_entries`` replies, the least recently used goes first.
K6  A caller that only ever reads what is known still lets the loop turn, or it would never
    see the news: now and then a reply from here comes a tick later.

A key that expires is known until the server has removed it, which Redis and the engine
do within a fraction of a second as a rule.

It knows nothing of servers and connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.client.connection import ReplyFuture
from penstock.client.facts import Argument, is_readonly, keys_of, to_bytes
from penstock.client.transports.base import Arguments
from penstock.protocol.catalogue import CommandSpec, every_command
from penstock.protocol.replies import Reply

Send: TypeAlias = Callable[[Arguments], ReplyFuture]
#: A read as it goes over the wire, its name in capitals.
_Read: TypeAlias = tuple[bytes, ...]

#: Reads of one key whose replies depend on more than the key: chance, time, a cursor, other
#: keys, or how the data is kept.
_NEVER_KEPT: Final = frozenset(
    """
    HRANDFIELD SRANDMEMBER ZRANDMEMBER
    TTL PTTL EXPIRETIME PEXPIRETIME TOUCH
    HSCAN SSCAN ZSCAN
    SORT_RO DUMP PFCOUNT
    """.split()
)
#: Not in the catalogue.
_KEPT_TOO: Final = ("XLEN", "XRANGE", "XREVRANGE")
#: Reads of any number of keys, kept if it is one.
_KEPT_FOR_ONE_KEY: Final = frozenset({b"EXISTS", b"MGET"})
#: They change keys that they do not name.
_CHANGE_ALL: Final = frozenset({b"FLUSHALL", b"FLUSHDB", b"SWAPDB"})

#: So many replies in a row come at once (K6).
_MOST_IN_A_ROW: Final = 64


def _is_kept(spec: CommandSpec) -> bool:
    """Whether the reply follows from the content of the one key at 1."""
    name = spec.full_name.decode().upper()
    return (
        spec.is_readonly
        and not spec.is_blocking
        and not spec.movable_keys
        and (spec.first_key, spec.last_key) == (1, 1)
        and name not in _NEVER_KEPT
        and spec.group != "stream"  # what is pending depends on the time
    )


#: Commands whose replies can be kept, in capitals.
CACHEABLE: Final = frozenset(
    [spec.name for spec in every_command() if _is_kept(spec)]
    + [name.encode() for name in _KEPT_TOO]
    + sorted(_KEPT_FOR_ONE_KEY)
)


class _Shelf:
    """What is known of one key, and how many reads of it are on their way."""

    __slots__ = ("pending", "reads")

    def __init__(self) -> None:
        self.reads: set[_Read] = set()
        self.pending = 0


class Cache:
    """Replies by command. Used by one event loop; stands before whatever sends commands."""

    def __init__(self, max_entries: int) -> None:
        assert max_entries > 0
        self._max_entries = max_entries
        self._loop = asyncio.get_running_loop()
        # What outlives the call that caused it must not keep that call's context alive.
        self._context = contextvars.Context()
        #: least recently used first
        self._replies: OrderedDict[_Read, Reply] = OrderedDict()
        self._shelves: dict[bytes, _Shelf] = {}
        self._in_a_row = 0
        self._hits = self._misses = self._invalidations = self._flushes = 0
        _caches.add(self)

    # ---------------------------------------------------------------------- call

    def call(self, arguments: Arguments, send: Send) -> ReplyFuture:
        """Answer a command from here, or send it and keep what may be kept."""
        read = _as_read(arguments)
        if read is None:
            self.touch(arguments)
            return send(arguments)
        if read in self._replies:
            self._hits += 1
            self._replies.move_to_end(read)
            return self._answer(_copy(self._replies[read]))
        self._misses += 1
        self._in_a_row = 0
        return self._fetch(read, send(arguments))

    def _answer(self, reply: Reply) -> ReplyFuture:
        future: ReplyFuture = self._loop.create_future()
        self._in_a_row += 1
        if self._in_a_row < _MOST_IN_A_ROW:
            future.set_result(reply)
        else:
            self._in_a_row = 0
            self._loop.call_soon(_resolve, future, reply, context=self._context)
        return future

    def _fetch(self, read: _Read, future: ReplyFuture) -> ReplyFuture:
        key = read[1]
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = _Shelf()
        shelf.pending += 1
        future.add_done_callback(lambda done: self._arrived(read, shelf, done), context=self._context)
        return future

    def _arrived(self, read: _Read, shelf: _Shelf, done: ReplyFuture) -> None:
        shelf.pending -= 1
        key = read[1]
        if self._shelves.get(key) is not shelf:
            return  # K1
        if not done.cancelled() and done.exception() is None:
            shelf.reads.add(read)
            self._replies[read] = _copy(done.result())
            if len(self._replies) > self._max_entries:
                self._take_off(next(iter(self._replies)))
        self._remove_if_empty(key, shelf)

    def _take_off(self, read: _Read) -> None:
        del self._replies[read]
        key = read[1]
        shelf = self._shelves[key]
        shelf.reads.discard(read)
        self._remove_if_empty(key, shelf)

    def _remove_if_empty(self, key: bytes, shelf: _Shelf) -> None:
        if not shelf.reads and not shelf.pending:
            self._shelves.pop(key, None)

    # ------------------------------------------------------------------- changes

    def touch(self, arguments: Arguments) -> None:
        """A command is about to be sent: if it may write, nothing is known of its keys any more.

        For commands that go another way than :meth:`call`; on another connection, again when
        their reply is there.
        """
        if not self._shelves or not arguments:
            return
        if _is_word(arguments[0], _CHANGE_ALL):
            self._clear()
        elif not is_readonly(*arguments[:2]):
            for key in keys_of(arguments):
                self._drop(key)

    def on_push(self, push: list[Any]) -> None:
        """A push of a shared connection; what is no invalidation is ignored."""
        if to_bytes(push[0]) != b"invalidate":
            return
        if push[1] is None:
            self.flush()
            return
        for key in push[1]:
            self._invalidations += 1
            self._drop(to_bytes(key))

    def flush(self) -> None:
        """Everything may have changed."""
        self._flushes += 1
        self._clear()

    def _clear(self) -> None:
        self._replies.clear()
        self._shelves.clear()

    def _drop(self, key: bytes) -> None:
        shelf = self._shelves.pop(key, None)
        if shelf is not None:
            for read in shelf.reads:
                del self._replies[read]

    # ---------------------------------------------------------------- statistics

    def statistics(self) -> dict[str, int]:
        """``invalidations`` counts keys that the server named, ``flushes`` when it was all of them."""
        return {
            "entries": len(self._replies),
            "hits": self._hits,
            "misses": self._misses,
            "invalidations": self._invalidations,
            "flushes": self._flushes,
        }

    def __repr__(self) -> str:
        return f"<Cache {len(self._replies)}/{self._max_entries} hits={self._hits} misses={self._misses}>"


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()


def _flush_in_child() -> None:
    """A forked child hears nothing of what its parent's connections are told."""
    for cache in list(_caches):
        cache.flush()


os.register_at_fork(after_in_child=_flush_in_child)


# --------------------------------------------------------------------- reading commands


def _as_read(arguments: Arguments) -> _Read | None:
    """A command whose reply can be kept, spelled as it is kept; None for others."""
    if len(arguments) < 2:
        return None
    name = to_bytes(arguments[0])
    if name not in CACHEABLE:
        name = name.upper()
        if name not in CACHEABLE:
            return None
    if name in _KEPT_FOR_ONE_KEY and len(arguments) > 2:
        return None
    # As bytes: 1, 1.0 and True are equal in Python, and different on the wire.
    return (name, *map(to_bytes, arguments[1:]))


def _is_word(argument: Argument, words: frozenset[bytes]) -> bool:
    return to_bytes(argument).upper() in words


# --------------------------------------------------------------------- values


def _copy(reply: Reply) -> Reply:
    """The same value, of which nothing that can be changed is shared."""
    kind = type(reply)
    if kind in _FIXED:
        return reply
    if kind is list:
        return [item if type(item) in _FIXED else _copy(item) for item in reply]
    if kind is dict:
        return {name: _copy(value) for name, value in reply.items()}
    if isinstance(reply, set | frozenset):
        return kind(reply)
    if isinstance(reply, list | tuple):
        return kind(_copy(item) for item in reply)
    return reply


_FIXED: Final = frozenset({bytes, str, int, float, bool, type(None)})


def _resolve(future: ReplyFuture, reply: Reply) -> None:
    if not future.done():  # its caller may have gone
        future.set_result(reply)
