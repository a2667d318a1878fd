"""The event loop behind synchronous code: one thread a process, started at the first need.

Any thread may call :meth:`Portal.run`; calls of several threads meet on the loop and are
pipelined like those of tasks. Because the loop has its own thread, this works in notebooks,
whose own loop is running already.

Rules: a call that is interrupted (Ctrl-C) is cancelled on the loop before the caller goes on.
A forked child starts its own loop. The thread is a daemon: it never keeps a program alive.
When the program ends, what is still open is closed and the loop stops; later calls raise
instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from penstock.errors import ClosedError, UsageError
from penstock.loops import loop_factory

T = TypeVar("T")

#: How long the end of the program waits for clients that were left open.
_FAREWELL_S: Final = 2.0
#: How long an interrupted call waits for its cancellation.
_PATIENCE_S: Final = 5.0


class Closable(Protocol):
    """What has an end of its own; a repeated one is harmless."""

    async def close(self) -> None: ...


class Portal:
    """The way into the loop's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: the program ends, and the loop has stopped
        self._is_over = False
        #: closed when the program ends
        self._open: WeakSet[Closable] = WeakSet()
        #: closings that nobody waits for; loops do not keep their tasks alive
        self._endings: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return what it returns."""
        try:
            loop = self._loop or self._start()
            if threading.current_thread() is self._thread:
                raise UsageError(
                    "the blocking client cannot be used from its own callbacks: use penstock.open"
                )
        except BaseException:
            work.close()
            raise
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_run_and_tell(work, ended), loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                ended.wait(_PATIENCE_S)  # a BLPOP, say, is taken back first
            raise

    def finish(self, close: Callable[[], Awaitable[object]]) -> None:
        """Run what closes something, wherever its end has come.

        On the loop's own thread (whose garbage collection may find it) it cannot be waited for;
        after the end of the program there is nothing to close.
        """
        loop = self._loop
        if loop is not None and threading.current_thread() is self._thread:
            task = loop.create_task(_await(close()))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)
        elif loop is not None:
            self.run(_await(close()))

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_over:
                raise ClosedError("the program is ending: use the blocking client before that")
            if self._loop is None:
                loop = loop_factory()()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="penstock-blocking", daemon=True
                )
                self._thread.start()
                self._loop = loop
                atexit.register(self._say_farewell, os.getpid())
            return self._loop

    # ------------------------------------------------------------------ the end

    def add(self, closable: Closable) -> None:
        """Close it when the program ends, if it still exists."""
        self._open.add(closable)

    def close(self, closable: Closable) -> None:
        """Close it now."""
        self._open.discard(closable)
        if not self._is_over:
            self.run(closable.close())

    def _say_farewell(self, pid: int) -> None:
        loop = self._loop
        if loop is None or os.getpid() != pid:
            return

        async def close_all() -> None:
            closings = [closable.close() for closable in self._open]
            await asyncio.wait_for(asyncio.gather(*closings, return_exceptions=True), _FAREWELL_S)

        try:
            asyncio.run_coroutine_threadsafe(close_all(), loop).result(_FAREWELL_S)
        except Exception:  # noqa: BLE001 - the program ends anyway, and says so better than we could
            return
        finally:
            self._is_over = True
            self._loop = None
            loop.call_soon_threadsafe(loop.stop)

    def forget(self) -> None:
        """In a forked child: the thread is gone, the loop is the parent's."""
        self._lock = threading.Lock()
        self._loop = None
        self._thread = None
        self._open = WeakSet()
        self._endings = set()


async def _run_and_tell(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


async def _await(work: Awaitable[object]) -> None:
    await work


PORTAL: Final = Portal()

os.register_at_fork(after_in_child=PORTAL.forget)
