"""One connection: a slot for every command, a reply for every slot.

All tasks of the process call :meth:`Connection.call` on the same connection. What they
issue in one tick of the loop leaves with one write; replies are matched by order alone.

Invariants
----------
C1  Every command written owns exactly one slot until its reply or the end of the
    connection. A caller that went away (cancelled, timed out) leaves a tombstone: its
    slot stays, the reply is discarded, the connection goes on.
C2  A reply without a slot, or bytes that do not parse, end the connection. There is no
    resynchronising.
C3  Between ``encode`` and the slot there is no ``await``.
C4  After the end no future is left pending: each slot goes to the owner, which sends it
    again elsewhere or refuses it.

It does not know addresses, routing or retries: those are the owner's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.client.transports.base import NO_MORE, Arguments, Transport
from penstock.errors import ClosedError, CommandError, CommandTimeoutError, PenstockError, ProtocolError
from penstock.protocol.replies import Reply

ReplyFuture: TypeAlias = "asyncio.Future[Reply]"


class Slot(NamedTuple):
    """A command that was issued and has no reply yet. (On the hot path a plain tuple of this shape.)"""

    future: ReplyFuture
    arguments: Arguments
    issued_s: float
    attempt: int


class Owner(Protocol):
    """Whoever the connection belongs to."""

    def on_refused(self, connection: Connection, slot: Slot, error: CommandError) -> bool:
        """A command was refused. True if the owner takes the slot over (redirection, retry)."""

    def on_push(self, connection: Connection, push: list[Any]) -> None: ...

    def on_lost(
        self, connection: Connection, error: Exception | None, unanswered: list[Slot], unsent: list[Slot]
    ) -> None:
        """The connection ended. ``unanswered`` were written, ``unsent`` were not."""

    def on_room(self, connection: Connection) -> None:
        """There is room for more commands after ``has_room`` was False."""


class Connection:
    """Pipelining over one transport."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, max_in_flight: int) -> None:
        self._owner = owner
        self._loop = loop
        self._create_future: Callable[[], ReplyFuture] = loop.create_future
        self._slots: deque[Any] = deque()
        self._out: list[Any] = []
        self._now_s = loop.time()
        self._max_in_flight = max_in_flight
        #: 0 while commands must wait (closed, or the socket's buffer is full)
        self._limit = 0
        self._paused = False
        self._was_full = False
        self._transport: Transport | None = None
        self._encode: Callable[[Arguments], Any] = _not_open
        self._lost = False
        #: replies that nobody waited for any more
        self.discarded = 0
        self.replies = 0

    # ---------------------------------------------------------------- lifecycle

    def attach(self, transport: Transport) -> None:
        """Begin to use a transport that is connected."""
        assert self._transport is None, "a connection has one transport in its life"
        self._transport = transport
        self._encode = transport.encode
        self._push_type = transport.push_type
        self._limit = self._max_in_flight

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost

    @property
    def has_room(self) -> bool:
        if len(self._slots) < self._limit:
            return True
        self._was_full = True
        return False

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def close(self) -> None:
        """Write what was issued and end; what is unanswered then goes to the owner."""
        if self._transport is not None and not self._lost:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None and not self._lost:
            self._transport.abort()

    # --------------------------------------------------------------------- call

    def call(self, arguments: Arguments, attempt: int = 1) -> ReplyFuture:
        """Issue a command; the caller has seen to it that there is room (``has_room``)."""
        out = self._out
        if not out:
            self._begin_tick()
        out.append(self._encode(arguments))
        future = self._create_future()
        self._slots.append((future, arguments, self._now_s, attempt))
        return future

    def resume(self, slot: Slot) -> None:
        """Issue a command again for a future that exists already."""
        if not self._out:
            self._begin_tick()
        self._out.append(self._encode(slot.arguments))
        self._slots.append(slot)

    def _begin_tick(self) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise ClosedError("this client belongs to another event loop; open one for each loop")
        if self._lost or self._transport is None:
            raise ClosedError("the connection is closed")
        self._now_s = self._loop.time()
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._lost:
            self._transport.write(out)

    # ------------------------------------------------------------------ replies

    def replies_ready(self, take: Callable[[], Any]) -> None:
        """Give each reply to the command it belongs to."""
        slots = self._slots
        push_type = self._push_type
        while (reply := take()) is not NO_MORE:
            kind = type(reply)
            if kind is push_type:
                self._owner.on_push(self, reply)
                continue
            if not slots:
                raise ProtocolError("the server sent a reply that no command asked for")
            slot = slots.popleft()
            self.replies += 1
            future = slot[0]
            if future.done():
                self.discarded += 1
            elif kind is CommandError:
                if not self._owner.on_refused(self, Slot(*slot), reply):
                    future.set_exception(reply)
            else:
                future.set_result(reply)
        if self._was_full and len(slots) < self._limit:
            self._was_full = False
            self._owner.on_room(self)

    def pause_writing(self) -> None:
        self._limit = 0

    def resume_writing(self) -> None:
        self._limit = self._max_in_flight
        if self._was_full:
            self._was_full = False
            self._owner.on_room(self)

    def transport_lost(self, error: Exception | None) -> None:
        """Hand every slot back (C4)."""
        if self._lost:
            return
        self._lost = True
        self._limit = 0
        slots = [Slot(*slot) for slot in self._slots]
        written = len(slots) - len(self._out)
        self._slots.clear()
        self._out.clear()
        unanswered = [slot for slot in slots[:written] if not slot.future.done()]
        unsent = [slot for slot in slots[written:] if not slot.future.done()]
        self._owner.on_lost(self, error, unanswered, unsent)

    # ------------------------------------------------------------------ watching

    def expire(self, older_than_s: float) -> int:
        """Time out commands issued before; their slots stay as tombstones. Answers how many."""
        expired = 0
        for slot in self._slots:
            if slot[2] > older_than_s:
                break
            if not slot[0].done():
                slot[0].set_exception(_timed_out(slot[1]))
                expired += 1
        return expired

    def refuse_all(self, error: PenstockError) -> None:
        """Fail every caller that waits; their slots stay as tombstones."""
        for slot in self._slots:
            if not slot[0].done():
                slot[0].set_exception(error)

    @property
    def oldest_unanswered_s(self) -> float | None:
        """When the command was issued that has waited longest; None if nothing is in flight."""
        return self._slots[0][2] if self._slots else None

    def __repr__(self) -> str:
        state = "lost" if self._lost else "open" if self._transport is not None else "new"
        return f"<Connection {state} in_flight={len(self._slots)} unsent={len(self._out)}>"

    _push_type: type[list[Any]]


def _timed_out(arguments: Arguments) -> CommandTimeoutError:
    name = arguments[0]
    shown = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return CommandTimeoutError(f"no reply to {shown} within the command timeout; it may still run")


def _not_open(_: Arguments) -> Any:
    raise ClosedError("the connection is not open yet")
