"""One connection: a slot for every command, a reply for every slot.

All tasks of the process call :meth:`Connection.call` on the same connection. What they
issue in one tick of the loop leaves with one write; replies are matched by order alone.

    call ──> out ──(end of the tick)──> slots ──(reply)──> future

Invariants
----------
C1  Every command written owns exactly one slot until its reply or the end of the
    connection. A caller that went away (cancelled, timed out) before the write is never
    sent; after it, its slot stays as a tombstone, the reply is discarded
    (``on_orphan``), the connection goes on.
C2  A reply without a slot, or bytes that do not parse, end the connection. There is no
    resynchronising.
C3  A command moves from ``out`` to ``slots`` and to the transport without an ``await``
    or a way to fail in between.
C4  After the end no future is left pending: each slot goes to the owner, which sends it
    again elsewhere or refuses it.

What is not one reply for one command:

=====================  ===============================================================
SUBSCRIBE and family   answered by one push a channel; the slot goes with the last, or
                       with an error. In RESP2 these pushes are arrays: they are told
                       from replies by their first word and by who is first in line
MONITOR                ``monitor``: lines that no command asked for are pushes
a burst                several commands written in one piece, one future for all
=====================  ===============================================================

It does not know addresses, routing or retries: those are the owner's.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from penstock.client.transports.base import NO_MORE, Arguments, Transport
from penstock.errors import (
    BackpressureError,
    ClosedError,
    CommandError,
    CommandTimeoutError,
    NotSentError,
    PenstockError,
    ProtocolError,
    WrongTypeError,
)
from penstock.protocol.replies import Reply

log = logging.getLogger("penstock.client")

ReplyFuture: TypeAlias = "asyncio.Future[Reply]"

#: Commands written at once; more of one tick are written in several pieces, so that the
#: transport can say "enough" in between.
MAX_BATCH: Final = 1024

_MESSAGES: Final = frozenset({b"message", b"pmessage", b"smessage"})
_CONFIRMATIONS: Final = frozenset(
    b"subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe".split()
)
_SHARD_CONFIRMATIONS: Final = frozenset({b"ssubscribe", b"sunsubscribe"})


_arguments_of: Final = itemgetter(1)


class Slot(NamedTuple):
    """A command that was issued and has no reply yet. (On the hot path a plain tuple of this shape.)"""

    #: a future, or a :class:`Burst`
    future: ReplyFuture
    arguments: Arguments
    #: what the command timeout counts from; in the future for one that may block until then
    issued_s: float
    #: 1, and one more each time that a connection ended with it written and unanswered
    attempt: int


class Burst:
    """Several commands that leave in one piece and are answered together.

    Stands in the place of the future in each of their slots. A refused command is a
    ``CommandError`` among the replies; only the end of the connection fails the whole.
    """

    __slots__ = ("_replies", "commands", "future", "is_harmless")

    def __init__(self, future: ReplyFuture, commands: tuple[Arguments, ...], is_harmless: bool) -> None:
        self.future = future
        self.commands = commands
        #: whether all of it may be sent twice
        self.is_harmless = is_harmless
        self._replies: list[Reply] = []

    def slots(self, issued_s: float, attempt: int) -> list[Slot]:
        """One a command, as if none had been answered yet."""
        self._replies.clear()
        place = cast("ReplyFuture", self)
        return [Slot(place, arguments, issued_s, attempt) for arguments in self.commands]

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, reply: Reply) -> None:
        self._replies.append(reply)
        if len(self._replies) == len(self.commands):
            self.future.set_result(self._replies)

    def set_exception(self, error: Exception) -> None:
        self.future.set_exception(error)


class Durations:
    """Samples of how long something took."""

    __slots__ = ("count", "longest_s", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.longest_s = 0.0

    def add(self, duration_s: float) -> None:
        self.count += 1
        self.total_s += duration_s
        if duration_s > self.longest_s:
            self.longest_s = duration_s

    def as_ms(self) -> dict[str, float]:
        mean_s = self.total_s / self.count if self.count else 0.0
        return {"mean": round(mean_s * 1000, 3), "max": round(self.longest_s * 1000, 3)}


class Owner(Protocol):
    """Whoever the connection belongs to."""

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        """A command was refused. True if the owner takes the slot over (redirection, retry)."""

    def on_push(self, connection: Connection, push: list[Any]) -> None: ...

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        """The connection ended. ``unanswered`` were written, ``unsent`` were not; their callers wait."""

    def on_room(self, connection: Connection) -> None:
        """There is room for more commands after ``has_room`` was False."""


class Connection:
    """Pipelining over one transport."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, max_in_flight: int) -> None:
        self._owner = owner
        self._loop = loop
        self._thread_id = get_ident()
        # Our callbacks outlive the request that caused them and must not keep its context alive.
        self._context = contextvars.Context()
        self._create_future: Callable[[], ReplyFuture] = loop.create_future
        #: written, without a reply
        self._slots: deque[Slot] = deque()
        #: issued, not written
        self._out: list[Slot] = []
        #: how many may be in ``out`` before ``_make_room`` has to look; 0 between two ticks
        self._room = 0
        #: 0 while commands must wait: not open, ended, or the transport has enough to send
        self._limit = 0
        self._max_in_flight = max_in_flight
        self._was_full = False
        self._wants_empty = False
        self._transport: Transport | None = None
        #: the same, and still after the end
        self._last_transport: Transport | None = None
        self._encode: Callable[[Arguments], Any] = _not_open
        #: types of replies that are not simply given to a future
        self._unusual: frozenset[type] = frozenset()
        self._is_lost = False
        self._is_monitor = False
        #: whether ``issued_s`` only grows along the slots
        self._is_in_order = True
        #: RESP2: how many channels and patterns, how many shard channels
        self._subscribed = [0, 0]
        #: pushes that have confirmed the SUBSCRIBE first in line
        self._confirmed = 0
        self._now_s = loop.time()
        self._silent_since_s = self._now_s
        #: takes a command that cannot be issued now: too many, paused or closed
        self.on_full: Callable[[Arguments], ReplyFuture] = self._refuse
        #: takes a reply whose caller has gone: a popped element must not be lost without a word
        self.on_orphan: Callable[[Slot, Reply], None] | None = None
        self.sent = 0
        #: replies whose callers had gone
        self.discarded = 0
        #: from issue to reply, and of that the time before commands that had to wait were written
        self.answering, self.queueing = Durations(), Durations()

    # ---------------------------------------------------------------- lifecycle

    def attach(self, transport: Transport) -> None:
        """Begin to use a transport that is connected."""
        assert self._transport is None, "a connection has one transport in its life"
        if self._is_lost:
            return  # it ended before anybody could use it
        self._transport = self._last_transport = transport
        self._encode = transport.encode
        self._limit = self._max_in_flight
        self._silent_since_s = self._loop.time()
        self.speak(3)

    def speak(self, protocol: int) -> None:
        """What the handshake has agreed on; in RESP2 pushes are arrays like others."""
        assert self._transport is not None
        push_type = self._transport.push_type if protocol == 3 else list
        self._unusual = frozenset((push_type, CommandError, WrongTypeError))

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_lost

    @property
    def in_flight(self) -> int:
        """Commands without a reply, tombstones included."""
        return len(self._slots) + len(self._out)

    @property
    def has_room(self) -> bool:
        return self.has_room_for(1)

    def has_room_for(self, count: int) -> bool:
        """Also for a burst above the limit, once nothing else is in flight. If not, ``on_room`` follows."""
        in_flight = self.in_flight
        if in_flight + count <= self._limit or (self._limit and not in_flight):
            return True
        self._was_full = True
        return False

    def tell_when_empty(self) -> None:
        """Call ``on_room`` once nothing is in flight."""
        self._was_full = self._wants_empty = True

    def close(self) -> None:
        """Write what was issued and end; what is unanswered then goes to the owner."""
        self._flush()
        self._limit = self._room = 0
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End now; what is not written yet will not be."""
        self._limit = self._room = 0
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """Let go of the transport without touching it: in a forked child it is the parent's."""
        self._limit = self._room = 0
        self._is_lost = True
        self._transport = self._last_transport = None
        self._slots.clear()
        self._out.clear()

    # --------------------------------------------------------------------- call

    def call(self, arguments: Arguments) -> ReplyFuture:
        """Issue a command."""
        out = self._out
        if len(out) >= self._room and not self._make_room():
            return self.on_full(arguments)
        future = self._create_future()
        out.append((future, arguments, self._now_s, 1))  # type: ignore[arg-type]
        return future

    def resume(self, slot: Slot) -> None:
        """Issue a command for a future that exists already; the caller has asked ``has_room``."""
        self.resume_all([slot])

    def resume_all(self, slots: list[Slot]) -> None:
        """The same for commands that go together; the caller has asked ``has_room_for`` them."""
        if len(self._out) >= MAX_BATCH:
            self._flush()
        if not self._out:
            self._begin_tick()
        if slots[0][2] <= self._now_s:
            self.queueing.add(self._now_s - slots[0][2])
        self._out.extend(slots)
        self._is_in_order = False

    def monitor(self) -> ReplyFuture:
        """From the reply on, the server tells every command it runs; nothing else may be issued."""
        self._is_monitor = True
        return self.call(("MONITOR",))

    def _make_room(self) -> bool:
        """Whether one more command may be issued in this tick. Once a tick: kept flat for speed."""
        out = self._out
        if len(out) >= MAX_BATCH:
            self._flush()
        room = self._limit - len(self._slots)
        if len(out) >= room:
            self._was_full = True
            return False
        if not out:
            self._begin_tick()
        self._room = room if room < MAX_BATCH else MAX_BATCH
        return True

    def _refuse(self, arguments: Arguments) -> ReplyFuture:
        future = self._create_future()
        if self.is_open:
            future.set_exception(
                BackpressureError(f"{self.in_flight} commands are unanswered (max_in_flight)")
            )
        else:
            future.set_exception(NotSentError("the connection is closed"))
        return future

    def _begin_tick(self) -> None:
        loop = self._loop
        # In its thread, while it runs, no other loop can; asking for the running one takes longer.
        if get_ident() != self._thread_id or not loop.is_running():
            self._check_loop()
        if not self._slots:
            self._is_in_order = True
        self._now_s = loop.time()
        loop.call_soon(self._flush, context=self._context)

    def _check_loop(self) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise ClosedError("this client belongs to another event loop; open one for each loop")
        self._thread_id = get_ident()

    def _flush(self) -> None:
        """Write what was issued, without those that went away."""
        self._room = 0
        out = self._out
        transport = self._transport
        if not out or not self._limit or transport is None or transport.is_closing():
            return
        if len(out) == 1 and not out[0][0].done():
            batch = out.copy()  # one caller alone: the shortest way
        else:
            batch = [slot for slot in out if not slot[0].done()]
        out.clear()
        try:
            encoded = list(map(self._encode, map(_arguments_of, batch)))
        except Exception:  # noqa: BLE001 - whatever an argument raises is its caller's, not everybody's
            batch, encoded = self._encode_one_by_one(batch)
        if batch:
            if not self._slots:
                self._silent_since_s = self._now_s
            self._slots.extend(batch)
            self.sent += len(batch)
            transport.write(encoded)
        if self._was_full:
            self._tell_room()

    def _encode_one_by_one(self, batch: list[Slot]) -> tuple[list[Slot], list[Any]]:
        """Without the commands that cannot be encoded; their callers are told."""
        commands: dict[int, Any] = {}
        for index, slot in enumerate(batch):
            try:
                commands[index] = self._encode(slot[1])
            except Exception as error:  # noqa: BLE001 - see _flush
                if not slot[0].done():
                    slot[0].set_exception(error)
        # A burst goes whole or not at all.
        kept = [index for index in commands if not batch[index][0].done()]
        return [batch[index] for index in kept], [commands[index] for index in kept]

    # ------------------------------------------------------------------ replies

    def replies_ready(self, take: Callable[[], Any]) -> None:
        """Give each reply to the command it belongs to."""
        unusual = self._unusual
        slots = self._slots
        pop = slots.popleft
        issued_s = slots[0][2] if slots else math.inf
        while (reply := take()) is not NO_MORE:
            if type(reply) in unusual and self._handled(reply):
                continue
            try:
                slot = pop()
            except IndexError:
                self._stray(reply)
                continue
            future = slot[0]
            if future.done():
                self._orphaned(slot, reply)
            else:
                future.set_result(reply)
        self._silent_since_s = now_s = self._loop.time()
        if issued_s <= now_s:  # one sample a read, of the command first in line
            self.answering.add(now_s - issued_s)
        if self._was_full:
            self._tell_room()

    def _handled(self, reply: Any) -> bool:
        """An error goes to its caller or the owner, a push to the owner; False for a plain reply."""
        if isinstance(reply, CommandError):
            if not self._slots:
                raise ProtocolError(f"the server sent an error that no command caused: {reply}")
            self._confirmed = 0
            slot = _whole(self._slots.popleft())
            if slot.future.done():
                self._orphaned(slot, reply)
            elif isinstance(cast("object", slot.future), Burst):
                slot.future.set_result(reply)
            elif not self._is_taken_over(slot, reply):
                slot.future.set_exception(reply)
            return True
        kind = _first_word(reply)
        if type(reply) is list and not self._is_resp2_push(kind, reply):
            return False
        if kind in _CONFIRMATIONS:
            self._confirm(kind)
        self._pushed(reply)
        return True

    def _is_taken_over(self, slot: Slot, error: CommandError) -> bool:
        try:
            return self._owner.on_refused(self, slot, error)
        except Exception:
            log.exception("cannot handle the refusal %s", error)
            return False

    def _is_resp2_push(self, kind: bytes, reply: list[Any]) -> bool:
        if kind in _MESSAGES:
            return any(self._subscribed)
        if kind in _CONFIRMATIONS and (any(self._subscribed) or self._is_first_in_line(kind)):
            self._subscribed[kind in _SHARD_CONFIRMATIONS] = reply[2]
            return True
        return False

    def _confirm(self, kind: bytes) -> None:
        """One channel of the SUBSCRIBE first in line; a server also unsubscribes on its own."""
        if not self._is_first_in_line(kind):
            return
        self._confirmed += 1
        channels = len(self._slots[0][1]) - 1
        if self._confirmed >= channels:
            self._confirmed = 0
            future = self._slots.popleft()[0]
            if not future.done():
                future.set_result(channels)

    def _is_first_in_line(self, kind: bytes) -> bool:
        return bool(self._slots) and _word(self._slots[0][1][0]).lower() == kind

    def _pushed(self, push: list[Any]) -> None:
        try:
            self._owner.on_push(self, push)
        except Exception:
            log.exception("cannot handle the push %.200r", push)

    def _orphaned(self, slot: Slot, reply: Reply) -> None:
        self.discarded += 1
        if self.on_orphan is None:
            return
        try:
            self.on_orphan(_whole(slot), reply)
        except Exception:
            log.exception("cannot handle a reply whose caller has gone")

    def _stray(self, reply: Any) -> None:
        if not self._is_monitor:
            raise ProtocolError(f"the server sent a reply that no command asked for: {reply!r:.100}")
        self._pushed([b"monitor", reply])

    def _tell_room(self) -> None:
        in_flight = self.in_flight
        if self._limit and (not in_flight or (in_flight < self._limit and not self._wants_empty)):
            self._was_full = self._wants_empty = False
            self._owner.on_room(self)

    def pause_writing(self) -> None:
        self._limit = self._room = 0

    def resume_writing(self) -> None:
        if self._is_lost or self._transport is None or self._transport.is_closing():
            return
        self._limit = self._max_in_flight
        self._flush()
        if self._was_full:
            self._tell_room()

    def transport_lost(self, error: Exception | None) -> None:
        """Hand every slot back (C4)."""
        if self._is_lost:
            return
        self._is_lost = True
        self._limit = self._room = 0
        self._transport = None
        unanswered = [_whole(slot) for slot in self._slots if not slot[0].done()]
        unsent = [_whole(slot) for slot in self._out if not slot[0].done()]
        self._slots.clear()
        self._out.clear()
        self._owner.on_lost(self, error, unanswered, unsent)

    # ------------------------------------------------------------------ watching

    def expire(self, horizon_s: float) -> None:
        """Time out commands that count from before; written ones stay as tombstones."""
        expire(self._slots, horizon_s, self._is_in_order, _no_reply)
        expire(self._out, horizon_s, self._is_in_order, _no_reply)

    def refuse_all(
        self, unanswered: Callable[[], PenstockError], unsent: Callable[[], PenstockError]
    ) -> None:
        """Fail every caller that waits; the slots of those that were written stay as tombstones."""
        for slots, why in ((self._slots, unanswered), (self._out, unsent)):
            for slot in slots:
                if not slot[0].done():
                    slot[0].set_exception(why())

    @property
    def silent_since_s(self) -> float:
        """Since when the server owes us a sign of life.

        Counts from the oldest command without a reply, not from the last write, or steady
        writes would keep a dead peer alive. The one first in line may be allowed to take
        its time (it blocks), and none behind it can be answered sooner; for a caller that
        has gone nobody is kept waiting.
        """
        if not self._slots or self._slots[0][0].done():
            return self._silent_since_s
        return max(self._silent_since_s, self._slots[0][2])

    def position_of(self, future: ReplyFuture) -> int | None:
        """How many commands before that of this caller are unanswered; None if it is not in flight."""
        for position, slot in enumerate(self._slots):
            place: object = slot[0]
            if place is future or (isinstance(place, Burst) and place.future is future):
                return position
        return None

    @property
    def bytes_sent(self) -> int:
        return 0 if self._last_transport is None else self._last_transport.bytes_sent

    @property
    def bytes_received(self) -> int:
        return 0 if self._last_transport is None else self._last_transport.bytes_received

    @property
    def tombstones(self) -> int:
        """Commands in flight whose callers have gone."""
        return sum(slot[0].done() for slot in self._slots)

    def __repr__(self) -> str:
        state = "lost" if self._is_lost else "open" if self._transport is not None else "new"
        return f"<Connection {state} unanswered={len(self._slots)} unsent={len(self._out)}>"


def expire(
    slots: Iterable[Slot], horizon_s: float, is_in_order: bool, error: Callable[[Slot], PenstockError]
) -> None:
    for slot in slots:
        if slot[2] <= horizon_s:
            if not slot[0].done():
                slot[0].set_exception(error(slot))
        elif is_in_order:
            break


def _whole(slot: Slot) -> Slot:
    """A slot with names; what came through ``resume`` keeps its own type."""
    return slot if isinstance(cast("object", slot), Slot) else Slot(*slot)


def _no_reply(slot: Slot) -> CommandTimeoutError:
    name = _word(slot[1][0]).decode(errors="replace")
    return CommandTimeoutError(f"no reply to {name} within the command timeout; it may still run")


def _word(argument: Any) -> bytes:
    return argument.encode(errors="replace") if isinstance(argument, str) else bytes(argument)


def _first_word(reply: list[Any]) -> bytes:
    return _word(reply[0]) if reply and isinstance(reply[0], str | bytes) else b""


def _not_open(_: Arguments) -> Any:
    raise ClosedError("the connection is not open yet")
