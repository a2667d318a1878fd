"""A store in this process: commands go to the engine of the running loop, replies come back as values.

A guest of the host (``penstock.host``): what all transports of a loop write in one tick is one
transaction, and what a socket would see it sees, byte for byte but without the bytes.

=========================  ==================================================
what happens               reported as
=========================  ==================================================
the store cannot be used   ``StoreError`` or ``ConfigError``, raised
QUIT, CLIENT KILL          ``transport_lost(None)``
messages were dropped      ``transport_lost(ConnectionLostError)``
the receiver fails         ``transport_lost`` with what it raised
=========================  ==================================================

Rules
-----
E1  Replies leave in the order of the commands, also when a receiver writes while it is
    given some.
E2  ``close`` lets what was written run and gives out its replies; what blocks then is ended.
    ``abort`` takes back what has not run. Neither leaves a waiter behind that would take an
    element nobody reads.
E3  Nothing is held back for a blocked session or while a slow script runs: how much may wait
    is for the connection to limit (``max_in_flight``).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from penstock.client.transports.base import NO_MORE, Arguments, Receiver
from penstock.errors import CommandError, ConnectionLostError
from penstock.host import Close, Control, Host, Overflow, ReplyMode, SwitchProtocol, open_host
from penstock.host.values import values_of
from penstock.protocol.replies import Push, Reply

log = logging.getLogger("penstock.client")

_NOTHING: Final[frozenset[type]] = frozenset()


class EmbeddedTransport:
    """One session of the engine. Made by :func:`connect_embedded`."""

    push_type: type[list[Any]] = Push
    bytes_sent = bytes_received = 0

    def __init__(self, host: Host, receiver: Receiver, encoding: str | None) -> None:
        self._host = host
        self._executor = host.executor
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._encoding = encoding
        self._values = values_of(2, encoding)
        #: types of items that are values already; none while there are replies to be left out
        self._plain = self._values.plain
        self._mode = ReplyMode.ON
        #: what the engine answered and nobody was given yet
        self._inbox: list[Reply] = []
        #: what the receiver is being given
        self._current: list[Any] | None = None
        self._is_over = False
        #: for the executor
        self.is_blocked = False
        self.closing = False
        self.session = host.engine.session(self._receive)
        self.session.is_remote = True
        self.session.kill = self._kill
        self.session.on_block_change = self._executor.block_changed
        self._executor.guests[self.session.number] = self

    # ---------------------------------------------------------- for the connection

    @staticmethod
    def encode(arguments: Arguments) -> list[bytes]:
        """Takes and refuses what ``hiredis.pack_command`` does."""
        argv: list[bytes] = []
        append = argv.append  # a comprehension would cost a third more
        for item in arguments:
            append(item.encode() if type(item) is str else item if type(item) is bytes else _to_bytes(item))
        return argv or _no_name()

    def write(self, encoded: list[list[bytes]]) -> None:
        self._executor.submit_promptly(self.session, encoded)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._executor.after_batch(self)

    def abort(self) -> None:
        self.closing = True
        if not self._is_over:
            self._executor.withdraw(self.session)
            self._end_soon(None)

    def _kill(self) -> None:
        self._executor.on_loop(self.abort)

    # -------------------------------------------------------------- for the engine

    def _receive(self, item: Reply) -> None:
        """The sink, for the first item of a tick; the others need no frame of ours."""
        self._inbox.append(item)
        self.session.sink = self._inbox.append
        self._executor.dirty.append(self)

    # ------------------------------------------------------------ for the executor

    def flush(self) -> None:
        if self._is_over:
            return
        inbox = self._inbox
        items = inbox.copy()
        inbox.clear()
        self.session.sink = self._receive
        self._deliver(items)

    def write_aside(self, items: list[Reply]) -> None:
        self._deliver(items)

    def hold(self, on: bool) -> None:
        """E3."""

    def wait_for_batch(self) -> None:
        """E3."""

    def batch_done(self) -> None:
        """``close`` has waited for this."""
        self._end_soon(None)

    # -------------------------------------------------------------------- delivery

    def _deliver(self, items: list[Reply]) -> None:
        if not self._plain.issuperset(map(type, items)):
            items = self._converted(items)
        if self._current is not None:
            self._current += items  # E1
            return
        self._current = items
        try:
            self._receiver.replies_ready(partial(next, iter(items), NO_MORE))
        except Exception as error:  # noqa: BLE001 - as the port says: after that, the transport must end
            self.closing = True
            self._end_soon(error)
        finally:
            self._current = None

    def _converted(self, items: list[Reply]) -> list[Any]:
        values: list[Any] = []
        for item in items:
            if type(item) in self._plain:
                values.append(item)
            elif isinstance(item, Control):
                self._obey(item)
            elif self._mode is ReplyMode.ON or self._passes(item):
                values.append(self._value(item))
        return values

    def _value(self, item: Reply) -> Any:
        try:
            return self._values.of(item)
        except (TypeError, RecursionError):
            log.exception("a command answered %s, which cannot be given to anybody", type(item).__name__)
            return CommandError("ERR internal error: the reply cannot be sent")

    def _obey(self, control: Control) -> None:
        if isinstance(control, SwitchProtocol):
            self._values = values_of(control.version, self._encoding)
            self._set_mode(self._mode)
        elif isinstance(control, ReplyMode):
            self._set_mode(control)
        elif isinstance(control, Close | Overflow):
            self.closing = True
            self._end_soon(None if isinstance(control, Close) else _too_slow(control.dropped))

    def _set_mode(self, mode: ReplyMode) -> None:
        self._mode = mode
        self._plain = self._values.plain if mode is ReplyMode.ON else _NOTHING

    def _passes(self, item: Reply) -> bool:
        """Whether an item is given out though replies are not; the one to be left out is the last such."""
        is_push = isinstance(item, Push)
        # A push that confirms SUBSCRIBE is that command's reply, too; a message is nobody's.
        answers = not is_push or item[0].endswith(b"subscribe")
        if answers and self._mode is ReplyMode.SKIP:
            self._set_mode(ReplyMode.ON)
        return is_push

    # --------------------------------------------------------------------- the end

    def _end_soon(self, error: Exception | None) -> None:
        self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.session.sink = _discard
        self._host.leave(self.session, lambda: self._receiver.transport_lost(error))

    def __repr__(self) -> str:
        state = "ended" if self._is_over else "closing" if self.closing else "open"
        return f"<EmbeddedTransport {state} {self.session!r}>"


def connect_embedded(
    receiver: Receiver,
    path: Path,
    *,
    durability: Literal["always", "relaxed"] = "always",
    encoding: str | None = None,
) -> EmbeddedTransport:
    """A session on the store in a directory, which is opened or made where nobody on this loop has yet.

    Raises the :class:`StoreError` or :class:`ConfigError` that says why it cannot be used.
    """
    return EmbeddedTransport(open_host(path, durability), receiver, encoding)


def _to_bytes(argument: object) -> bytes:
    kind = type(argument)
    if kind is int or kind is float:
        return repr(argument).encode()
    if isinstance(argument, bytes | memoryview):
        return bytes(argument)
    if isinstance(argument, str):
        return argument.encode()
    raise TypeError(f"an argument must be bytes, str, int, float or memoryview, not {kind.__name__}")


def _no_name() -> list[bytes]:
    raise TypeError("a command needs at least its name")


def _too_slow(dropped: int) -> ConnectionLostError:
    return ConnectionLostError(f"{dropped} messages for this connection were dropped: it reads too slowly")


def _discard(_: object) -> None:
    """The sink of a session whose owner is gone."""
