"""The embedded engine: a directory that behaves like Redis without a server.

Opens the store, hands out sessions, runs batches of commands, and does the background
duties (expiry, garbage, dead processes, syncing). Synchronous; safe to call from
several threads, one batch at a time. Several processes may have the directory open.

Who calls it: ``host`` passes the batches of the RESP server and of embedded clients to
:meth:`Engine.execute` and integrates :meth:`Engine.signal_fd` into their event loop.
Synchronous code uses :class:`penstock.engine.local.LocalSession` instead.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.engine import commands as _commands  # noqa: F401  (registers every handler)
from penstock.engine.bus.endpoint import Endpoint
from penstock.engine.bus.mailboxes import Mailboxes
from penstock.engine.changes import Changes
from penstock.engine.check import find_damage
from penstock.engine.config import Config
from penstock.engine.dispatch import Dispatcher, NeedsWriteError
from penstock.engine.duties import Duties
from penstock.engine.keyspace import Keyspace
from penstock.engine.pausing import Pause
from penstock.engine.pubsub import PubSub
from penstock.engine.scripts import Scripts
from penstock.engine.session import Session, Sink
from penstock.engine.slowlog import SlowLog
from penstock.engine.statistics import Statistics
from penstock.engine.storage.environment import DEFAULT_MAX_BYTES, Durability, open_environment
from penstock.engine.storage.layout import DATABASES
from penstock.engine.storage.transaction import Unit
from penstock.engine.storage.upgrade import check_format
from penstock.engine.tracking import KeyTracking
from penstock.engine.waiting import Waiting
from penstock.errors import ClosedError, CommandError
from penstock.protocol.catalogue.keys import find_keys
from penstock.protocol.catalogue.lookup import find_subcommand

#: Pushes that may wait for one session of another process before the oldest is dropped.
DEFAULT_QUEUE_LIMIT = 10_000


class Engine:
    """An open store. Make one with :meth:`open`; use as a context manager or :meth:`close` it."""

    def __init__(
        self,
        path: Path,
        durability: Durability,
        clock: Clock,
        max_size_bytes: int,
        queue_limit: int,
    ) -> None:
        self.path = path
        self.clock = clock
        self.env = open_environment(path, durability, max_size_bytes)
        self.unit = Unit(self.env, clock)
        check_format(self.env, self.unit)
        self.changes = Changes()
        self.keyspaces = [Keyspace(self.unit, n, self.changes) for n in range(DATABASES)]
        self.sessions: dict[int, Session] = {}
        self.monitors: set[Session] = set()
        self.pause: Pause | None = None
        self.config = Config(durability)
        self.slowlog = SlowLog(clock)
        self.statistics = Statistics(clock)
        self.mailboxes = Mailboxes(self.unit, path / "signals", queue_limit)
        self.pubsub = PubSub(self, self.unit, self.mailboxes)
        self.tracking = KeyTracking(self, self.unit, self.mailboxes)
        self.waiting = Waiting(self, self.unit, self.mailboxes)
        self.dispatcher = Dispatcher(self, self.unit)
        self.scripts = Scripts(self)
        self.duties = Duties(self)
        #: set by a server: what SHUTDOWN does
        self.on_shutdown: Callable[[], None] | None = None
        self._numbers = itertools.count(1)
        self._closed = False
        self._pid = os.getpid()
        _open_engines.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "always",
        clock: Clock | None = None,
        max_size_bytes: int = DEFAULT_MAX_BYTES,
        queue_limit: int = DEFAULT_QUEUE_LIMIT,
    ) -> Engine:
        """Open or create the store in a directory.

        ``durability="always"``: a reply means it is on disk. ``"relaxed"``: it survives a
        killed process, not a power cut.
        """
        return cls(Path(path), durability, clock or SystemClock(), max_size_bytes, queue_limit)

    # ---------------------------------------------------------------- sessions

    def session(self, sink: Sink) -> Session:
        """A new session whose replies and pushes go to ``sink``, in order."""
        self._check_open()
        session = Session(self, next(self._numbers), sink)
        self.sessions[session.number] = session
        self.statistics.sessions_opened += 1
        return session

    def end_session(self, session: Session) -> None:
        """Forget a session: its subscriptions, its wait, its queue. Idempotent."""
        if session.closed:
            return
        session.closed = True
        self.set_monitoring(session, False)
        has_rows = session.is_subscribed or session.blocked is not None or session.tracking is not None
        if has_rows and not self._closed:
            self.run_task(lambda: self._remove_mailbox(session))
        self.sessions.pop(session.number, None)

    def set_monitoring(self, session: Session, on: bool) -> None:
        """Let a session see every command, or no longer."""
        if on:
            self.monitors.add(session)
        elif session in self.monitors:
            self.monitors.remove(session)
        else:
            return
        self._refresh_gates()

    def set_pause(self, pause: Pause | None) -> None:
        """Hold back the clients of this server, or no longer."""
        self.pause = pause
        self._refresh_gates()

    def _refresh_gates(self) -> None:
        for session in list(self.sessions.values()):
            session.refresh_gate()

    def _remove_mailbox(self, session: Session) -> None:
        mailbox = self.mailboxes.address(session.number)
        self.pubsub.subscriptions.remove_all(mailbox)
        self.tracking.stop(session)
        self.waiting.forget(mailbox)
        self.mailboxes.empty_mailbox(mailbox, self._restore)
        self.dispatcher.settle()

    # ----------------------------------------------------------------- execute

    def execute(
        self, calls: Iterable[tuple[Session, list[bytes]]], script_limit_s: float | None = None
    ) -> None:
        """Run a batch in one transaction; replies go to the sessions' sinks when it is safe.

        With ``script_limit_s`` a script that runs longer makes the whole batch raise
        :class:`~penstock.engine.control.SlowScriptError`; nothing happened, run it elsewhere.
        """
        with self.env.lock:
            self._check_open()
            self.scripts.inline_limit_s = script_limit_s
            self.dispatcher.run(calls)

    def run_task(self, task: Callable[[], None], write: bool = True) -> None:
        """Run internal work as a unit of its own."""
        with self.env.lock:
            self._check_open()
            self.dispatcher.run_task(task, write)

    def refresh_shared(self) -> None:
        """At the start of a unit: what other processes may have changed."""
        dispatcher, mailboxes = self.dispatcher, self.mailboxes
        mailboxes.begin()
        if not self.unit.writable:
            self.changes.begin(_NOTHING, False, False, False)
            return
        unit, tables = self.unit, self.unit.tables
        self.config.load_shared(unit.get(b"config", None, tables["system"]))
        watching, awaited = unit.has_rows(tables["watched"]), unit.has_rows(tables["waiters"])
        self.changes.begin(self.config.notify_classes, watching, awaited, self.tracking.is_wanted())
        dispatcher.after_commit.append(mailboxes.committed)
        dispatcher.after_abort.append(mailboxes.aborted)

    def find_damage(self, session: Session, argv: list[bytes]) -> str | None:
        """What is broken about the keys of a command that failed, as a sentence; inside a unit."""
        calls = [argv] if session.queue is None else [queued for queued, _ in session.queue]
        found = ((call, find_subcommand(call)) for call in calls)
        keys = [call[at] for call, spec in found if spec is not None for at in find_keys(spec, call)]
        return find_damage(self, session.ks.index, keys)

    def require_write(self) -> None:
        """Turn a read batch into a write batch (it starts again)."""
        if not self.unit.writable:
            raise NeedsWriteError

    # ----------------------------------------------------------------- signals

    def signal_fd(self) -> int | None:
        """Readable when another process has something for us; None before the first need."""
        endpoint = self.mailboxes.endpoint
        return None if endpoint is None else endpoint.fileno()

    def listening_endpoint(self) -> Endpoint:
        """This process's endpoint, made if there is none yet."""
        with self.env.lock:
            self._check_open()
            return self.mailboxes.own_endpoint()

    def collect(self) -> None:
        """Deliver what other processes posted. Call it when the signal descriptor is readable."""
        endpoint = self.mailboxes.endpoint
        if endpoint is None:
            return
        endpoint.drain()
        self.run_task(self.collect_first, write=False)

    def collect_first(self) -> None:
        """Inside a unit: deliver posted items before anything newer."""
        if not self.mailboxes.has_mail():
            return
        self.require_write()
        for item in self.mailboxes.collect():
            session = self.sessions.get(item.session_number)
            if session is None:
                if item.session_number == 0:
                    self.tracking.receive(item.value)
                continue
            if item.is_reply:
                self.waiting.set_blocked(session, None)
            session.push(item.value)

    def time_out(self, session: Session) -> None:
        """The wait of a blocked session is over: it gets its empty reply, or what just arrived."""
        self.run_task(lambda: self.waiting.time_out(session))

    def bury(self, endpoint_id: bytes) -> None:
        """Inside a write unit: remove every trace of a dead process; elements it never took go back."""
        self.pubsub.subscriptions.remove_all(endpoint_id)
        self.waiting.forget(endpoint_id)
        self.mailboxes.empty_mailbox(endpoint_id, self._restore)

    def _restore(self, argv: list[bytes]) -> None:
        """Put back an element: the first argument of the stored command is its database."""
        session = Session(self, 0, _discard)
        session.ks = self.keyspaces[int(argv[0])]
        try:
            self.dispatcher.call(session, argv[1:], self.dispatcher.resolve(argv[1:]))
        except CommandError:
            # The key is of another type by now: nowhere to put it back to.
            return

    # ------------------------------------------------------------------- close

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the engine on {self.path} is closed")

    def close(self) -> None:
        """End all sessions, remove our files, close the store. Idempotent."""
        with self.env.lock:
            if self._closed:
                return
            for session in list(self.sessions.values()):
                self.end_session(session)
            self._closed = True
            self.mailboxes.close()
        self.env.close()

    def abandon(self) -> None:
        """In a forked child: nothing of the parent's engine may be used or cleaned up."""
        self._closed = True

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.sessions)} sessions"
        return f"<Engine {self.path} {self.env.durability} {state}>"


_NOTHING: frozenset[str] = frozenset()
_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _discard(_: object) -> None:
    """The sink of a session that nobody listens to."""


def _abandon_in_child() -> None:
    for engine in list(_open_engines):
        engine.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)
