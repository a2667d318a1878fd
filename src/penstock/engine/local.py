"""The engine for synchronous code: call, poll, wait.

:class:`LocalSession` turns the engine's sink into return values. ``execute`` blocks for
blocking commands; pushes (pub/sub messages) are polled with :meth:`LocalSession.poll`
or awaited up to a timeout with :meth:`LocalSession.wait`.

While some caller waits, one daemon thread of its engine listens to the signal descriptor
and delivers what other processes post. There is no event loop that would do the
background duties, so callers and that thread do them on the way, about once a second.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from penstock.engine.control import Control, Overflow
from penstock.engine.engine import Engine
from penstock.errors import ClosedError, CommandError, PenstockError, StoreError
from penstock.protocol.replies import NULL_ARRAY, Push, Reply

log = logging.getLogger("penstock.engine")

#: How long a wait goes without looking again by itself.
_TICK_S: Final = 1.0
#: Pushes that a session keeps for a caller that does not poll; the oldest go first.
_INBOX_LIMIT: Final = 10_000


class LocalSession:
    """A session for one thread at a time. Replies are values; errors are raised."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._replies: deque[Reply] = deque()
        self._pushes: deque[Push] = deque()
        self._dropped = 0
        self._session = engine.session(self._receive)
        self._session.protocol = 3

    def _receive(self, item: Reply) -> None:
        with self._changed:
            if isinstance(item, Overflow):
                self._dropped += item.dropped
            elif isinstance(item, Control):
                pass  # there is no connection to switch or close
            elif isinstance(item, Push):
                if len(self._pushes) >= _INBOX_LIMIT:
                    self._pushes.popleft()
                    self._dropped += 1
                self._pushes.append(item)
            else:
                self._replies.append(item)
            self._changed.notify_all()

    # ----------------------------------------------------------------- execute

    def execute(self, *argv: bytes | str | int | float) -> Reply:
        """Run one command and return its reply; a refused command raises :class:`CommandError`.

        SUBSCRIBE and its relatives return None: their confirmations are pushes.
        """
        command = [_to_bytes(argument) for argument in argv]
        self._prepare()
        self._engine.execute([(self._session, command)])
        if self._session.blocked is not None:
            self._wait_unblocked()
        with self._changed:
            reply = self._replies.popleft() if self._replies else None
        if isinstance(reply, CommandError):
            raise reply
        return None if reply is NULL_ARRAY else reply

    def execute_many(self, commands: list[list[bytes]]) -> list[Reply]:
        """Run commands in one transaction; errors are values in the answer. Not for blocking commands."""
        self._prepare()
        self._engine.execute([(self._session, command) for command in commands])
        with self._changed:
            replies = [None if reply is NULL_ARRAY else reply for reply in self._replies]
            self._replies.clear()
        return replies

    def _prepare(self) -> None:
        """Before a command: end a wait that was interrupted, do what is due in the background."""
        if self._session.blocked is not None:
            self._engine.time_out(self._session)
        self._replies.clear()
        self._engine.duties.tick_lazily()

    def _wait_unblocked(self) -> None:
        with _listening(self._engine):
            try:
                while not self._await_reply():
                    self._engine.time_out(self._session)
            except BaseException:
                # Nobody will ask for this reply any more (Ctrl-C, a full disk): it must not
                # answer the next command. What cannot be undone now is undone before that one.
                with suppress(PenstockError):
                    self._engine.time_out(self._session)
                raise

    def _await_reply(self) -> bool:
        """Sleep until the reply is there (True) or time is up (False)."""
        with self._changed:
            while not self._replies:
                if self._session.closed:
                    raise ClosedError("the session was closed while it waited")
                waiter = self._session.blocked
                left_s = _TICK_S
                if waiter is not None and waiter.deadline_ms is not None:
                    left_s = (waiter.deadline_ms - self._engine.clock.now_ms()) / 1000
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, _TICK_S))
        return True

    # ------------------------------------------------------------------ pushes

    def poll(self) -> Push | None:
        """The next message if there is one; never waits. ``[b"overflow", n]`` tells that n were lost."""
        with self._changed:
            message = self._take()
        if message is not None:
            return message
        self._engine.duties.tick_lazily()
        self._engine.collect()
        with self._changed:
            return self._take()

    def wait(self, timeout_ms: int) -> Push | None:
        """The next message, waiting up to ``timeout_ms`` for it; None when the time is up."""
        message = self.poll()
        if message is not None or timeout_ms <= 0:
            return message
        clock = self._engine.clock
        deadline_s = clock.monotonic_s() + timeout_ms / 1000
        with _listening(self._engine), self._changed:
            while True:
                message = self._take()
                left_s = deadline_s - clock.monotonic_s()
                if message is not None or left_s <= 0:
                    return message
                if self._session.closed:
                    raise ClosedError("the session was closed while it waited")
                self._changed.wait(min(left_s, _TICK_S))

    def _take(self) -> Push | None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return Push([b"overflow", dropped])
        return self._pushes.popleft() if self._pushes else None

    # ------------------------------------------------------------------- close

    def close(self) -> None:
        self._engine.end_session(self._session)

    def __enter__(self) -> LocalSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalSession {self._session!r}>"


class _Listener:
    """The daemon thread of one engine: at most one, for as long as somebody waits and a tick longer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.users = 0
        threading.Thread(target=self._run, name="penstock-listener", daemon=True).start()

    def _run(self) -> None:
        try:
            while self._is_wanted():
                self._engine.listening_endpoint().wait(_TICK_S)
                try:
                    self._engine.collect()
                except StoreError:
                    log.exception("could not collect messages; they will be tried again")
                self._engine.duties.tick_lazily()
        except ClosedError:
            pass  # the engine is gone, and whoever waits finds out by himself
        finally:
            with _listeners_lock:
                self._retire()

    def _is_wanted(self) -> bool:
        with _listeners_lock:
            if self.users == 0:
                self._retire()
            return self.users > 0

    def _retire(self) -> None:
        if _listeners.get(self._engine) is self:
            del _listeners[self._engine]


_listeners: dict[Engine, _Listener] = {}
_listeners_lock = threading.Lock()


@contextmanager
def _listening(engine: Engine) -> Iterator[None]:
    """See to it that the engine's thread listens meanwhile."""
    engine.listening_endpoint()  # where it cannot be made, the caller should know
    with _listeners_lock:
        listener = _listeners.get(engine)
        if listener is None:
            listener = _listeners[engine] = _Listener(engine)
        listener.users += 1
    try:
        yield
    finally:
        with _listeners_lock:
            listener.users -= 1


def _forget_in_child() -> None:
    global _listeners_lock
    _listeners_lock = threading.Lock()
    _listeners.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _to_bytes(value: bytes | str | int | float) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a command argument must be bytes, str, int or float, not {type(value).__name__}")
    return b"%d" % value if isinstance(value, int) else repr(value).encode()
