"""Background duties: expiry, timers of groups, garbage, forgotten watches, dead processes, syncing.

Whoever runs an event loop calls :meth:`Duties.tick` about ten times a second; who has
none calls :meth:`Duties.tick_lazily` on the way. Nothing depends on it being called:
expiry is lazy as well, and what one process leaves undone any other does.

Each duty peeks in a read transaction first, so that an idle store costs no write lock,
and works in bounded steps, so that nobody waits long for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.engine.datatypes.stream.overdue import look
from penstock.engine.datatypes.stream.timers import Timer, expired_timers, remove_timer
from penstock.engine.storage.environment import ENGINE_FAULTS, Environment, translate
from penstock.engine.tending import Tending
from penstock.errors import ClosedError, StoreError

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

TICK_S: Final = 0.1
_LAZY_TICK_S: Final = 1.0
_EXPIRE_BATCH: Final = 500
_TIMER_BATCH: Final = 100
_GARBAGE_BATCH: Final = 2_000
_WATCH_LIFE_MS: Final = 3_600_000
_ORPHAN_AGE_S: Final = 60.0
_SLOW_TICK_S: Final = 1.0
_SYNC_TICK_S: Final = 1.0


class Duties:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tending = Tending(engine)
        self._next_slow_s = 0.0
        self._next_sync_s = 0.0
        self._next_lazy_s = 0.0
        self.active_expire = True

    def tick(self) -> bool:
        """Do a bounded share of what is due; True if more is waiting (call again soon)."""
        more = self._tick()
        now_s = self._engine.clock.monotonic_s()
        if now_s >= self._next_sync_s and self._engine.env.durability == "relaxed":
            self._next_sync_s = now_s + _SYNC_TICK_S
            self._sync()
        return more

    def _tick(self) -> bool:
        more = self._if_due(self._expiry_is_due, self._expire) if self.active_expire else False
        more |= self._if_due(self._timer_is_due, self._look_at_groups)
        more |= self._if_due(self._garbage_is_there, self._collect_garbage)
        now_s = self._engine.clock.monotonic_s()
        if now_s >= self._next_slow_s:
            self._next_slow_s = now_s + _SLOW_TICK_S
            self._slow_tick()
        if self._tending.is_busy:
            more |= self._if_due(self._tending.is_due, self._tending.work)
        return more

    def tick_lazily(self) -> None:
        """A tick if the last one was some time ago; for callers who have other things to do.

        Without the syncing of a relaxed store, which may take long. A store that cannot be
        written, or is closed, is not their concern here: their own command will say so.
        """
        now_s = self._engine.clock.monotonic_s()
        if now_s < self._next_lazy_s:
            return
        self._next_lazy_s = now_s + _LAZY_TICK_S
        try:
            if self._tick():
                self._next_lazy_s = now_s + TICK_S
        except StoreError as error:
            log.warning("background duties failed and will be tried again: %s", error)
        except ClosedError:
            return  # by another thread, just now

    def _slow_tick(self) -> None:
        engine = self._engine
        with self._open_environment() as env:
            env.clear_stale_readers()
            env.grow_if_tight()
        self._if_due(self._stale_watch_is_there, self._drop_stale_watches)
        self._if_due(self._tending.is_due, self._tending.work)
        self.sweep_dead(_ORPHAN_AGE_S)
        # A signal lost with a publisher that died between commit and wake-up is made up for here.
        engine.collect()
        self._finish_sessions()

    def _finish_sessions(self) -> None:
        """Do for sessions what failed when it was due, because the store could not be written then."""
        engine = self._engine
        now_ms = engine.clock.now_ms() - int(_SLOW_TICK_S * 1000)
        for session in list(engine.sessions.values()):
            waiter = session.blocked
            if session.closed:
                session.closed = False
                engine.end_session(session)
            elif waiter is not None and waiter.deadline_ms is not None and waiter.deadline_ms < now_ms:
                engine.time_out(session)

    def _if_due(self, is_due: Callable[[], bool], work: Callable[[], bool]) -> bool:
        answer = [False]

        def peek() -> None:
            answer[0] = is_due()

        def act() -> None:
            answer[0] = work()
            self._engine.dispatcher.settle()

        self._engine.run_task(peek, write=False)
        if answer[0]:
            self._engine.run_task(act)
        return answer[0]

    # ------------------------------------------------------------------ expiry

    def _expiry_is_due(self) -> bool:
        now = self._engine.unit.now_ms
        deadlines = (keyspace.next_deadline_ms() for keyspace in self._engine.keyspaces)
        return any(deadline is not None and deadline <= now for deadline in deadlines)

    def _expire(self) -> bool:
        left = _EXPIRE_BATCH
        for keyspace in self._engine.keyspaces:
            left -= keyspace.sweep_expired(left)
        self._engine.statistics.keys_expired += _EXPIRE_BATCH - left
        return left <= 0

    # ----------------------------------------------------------- groups of streams

    def _timer_is_due(self) -> bool:
        return bool(expired_timers(self._engine.unit, 1))

    def _look_at_groups(self) -> bool:
        engine = self._engine
        due = expired_timers(engine.unit, _TIMER_BATCH)
        for timer in due:
            if not engine.dispatcher.try_alone(partial(self._look_at_group, timer)):
                remove_timer(engine.unit, timer)  # or it would be the first one again
        return len(due) == _TIMER_BATCH

    def _look_at_group(self, timer: Timer) -> bool:
        keyspace = self._engine.keyspaces[timer.database]
        look(keyspace, timer, partial(self._engine.waiting.has_readers, timer.database))
        return True

    # ----------------------------------------------------------------- garbage

    def _garbage_is_there(self) -> bool:
        unit = self._engine.unit
        return unit.entries(unit.tables["garbage"]) > 0

    def _collect_garbage(self) -> bool:
        unit = self._engine.unit
        garbage = unit.tables["garbage"]
        left = _GARBAGE_BATCH
        while left > 0:
            cursor = unit.cursor(garbage)
            if not cursor.first():
                return False
            row = cursor.key()
            removed = self._engine.keyspaces[row[0]].remove_elements(row[1:9], left)
            if removed < left:
                unit.delete(row, db=garbage)
            left -= max(removed, 1)
        return True

    # ----------------------------------------------------------------- watches

    def _stale_watch_is_there(self) -> bool:
        return bool(self._stale_watches())

    def _drop_stale_watches(self) -> bool:
        unit = self._engine.unit
        for row in self._stale_watches():
            unit.delete(row, db=unit.tables["watched"])
        return False

    def _stale_watches(self) -> list[bytes]:
        """Rows nobody renewed for an hour. A client that still holds such a watch sees EXEC refused: safe."""
        unit = self._engine.unit
        horizon = unit.now_ms - _WATCH_LIFE_MS
        rows = unit.rows(unit.tables["watched"], b"")
        return [row for row, value in rows if int.from_bytes(value[8:16], "big") < horizon]

    # ----------------------------------------------------------- dead processes

    def sweep_dead(self, older_than_s: float = 0.0) -> None:
        """Remove what dead processes left: rows first, then their files."""
        mailboxes = self._engine.mailboxes
        now_s = self._engine.clock.now_ms() / 1000

        def bury_all() -> bool:
            for endpoint_id in mailboxes.find_dead(older_than_s, now_s):
                self._engine.bury(endpoint_id)
            return False

        self._if_due(lambda: mailboxes.has_dead(older_than_s, now_s), bury_all)

    def _sync(self) -> None:
        with self._open_environment() as env:
            env.sync()

    @contextmanager
    def _open_environment(self) -> Iterator[Environment]:
        """The environment outside of a unit, for work on the whole of it."""
        env = self._engine.env
        with env.lock:
            if env.closed:
                raise ClosedError(f"the store {env.path} is closed")
            try:
                yield env
            except ENGINE_FAULTS as fault:
                raise translate(fault) from fault
