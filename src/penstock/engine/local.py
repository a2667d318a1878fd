"""The engine for synchronous code: call, poll, wait.

:class:`LocalSession` turns the engine's sink into return values. ``execute`` blocks for
blocking commands; pushes (pub/sub messages) are polled with :meth:`LocalSession.poll`
or awaited up to a timeout with :meth:`LocalSession.wait`.

While some session of the process subscribes or blocks, one daemon thread listens to
the engine's signal descriptor and delivers what other processes post.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Final

from penstock.engine.control import Control, Overflow
from penstock.engine.engine import Engine
from penstock.errors import ClosedError, CommandError
from penstock.protocol.replies import NULL_ARRAY, Push, Reply

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
        self._engine.execute([(self._session, command) for command in commands])
        with self._changed:
            replies = list(self._replies)
            self._replies.clear()
        return replies

    def _wait_unblocked(self) -> None:
        listener = _listener_of(self._engine)
        session = self._session
        waiter = session.blocked
        clock = self._engine.clock
        with listener, self._changed:
            while waiter is not None and not self._replies:
                deadline = waiter.deadline_ms
                left_s = _TICK_S if deadline is None else (deadline - clock.now_ms()) / 1000
                if left_s <= 0:
                    self._changed.release()
                    try:
                        self._engine.time_out(session)
                    finally:
                        self._changed.acquire()
                    return
                self._changed.wait(min(left_s, _TICK_S))

    # ------------------------------------------------------------------ pushes

    def poll(self) -> Push | None:
        """The next message if there is one; never waits. ``[b"overflow", n]`` tells that n were lost."""
        self._engine.collect()
        with self._changed:
            return self._take()

    def wait(self, timeout_ms: int) -> Push | None:
        """The next message, waiting up to ``timeout_ms`` for it; None when the time is up."""
        listener = _listener_of(self._engine)
        deadline_s = self._engine.clock.monotonic_s() + timeout_ms / 1000
        with listener:
            message = self.poll()
            with self._changed:
                while message is None:
                    message = self._take()
                    left_s = deadline_s - self._engine.clock.monotonic_s()
                    if message is not None or left_s <= 0:
                        break
                    self._changed.wait(min(left_s, _TICK_S))
        return message

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
    """The daemon thread of one engine; runs while at least one caller is inside ``with``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                threading.Thread(target=self._run, name="penstock-listener", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._users -= 1

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._users == 0:
                    return
            try:
                self._engine.listening_endpoint().wait(_TICK_S)
                self._engine.collect()
            except ClosedError:
                return


_listeners: dict[int, _Listener] = {}
_listeners_lock = threading.Lock()


def _listener_of(engine: Engine) -> _Listener:
    with _listeners_lock:
        return _listeners.setdefault(id(engine), _Listener(engine))


def _to_bytes(value: bytes | str | int | float) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a command argument must be bytes, str, int or float, not {type(value).__name__}")
    return b"%d" % value if isinstance(value, int) else repr(value).encode()
