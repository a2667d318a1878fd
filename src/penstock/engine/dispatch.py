"""From a batch of commands to committed effects: resolve, choose a transaction, call, serve, commit.

All commands of a batch share one LMDB transaction, and with it one fsync: that is the
group commit. Replies leave only after the commit. A batch of reads takes a read
transaction, which waits for nobody.

What can go wrong, and what happens
-----------------------------------
=========================  ==================================================
a command is refused       its error is its reply, the others go on
the map is full            abort, grow the map, do the batch again
the store is full          abort; the batch is done again with the reserve at
                           hand and every command refused that needs room, so
                           that deleting frees some (as Redis at ``maxmemory``)
a read batch must write    abort, do it again in a write transaction
a script fails after       abort, do the batch again with a savepoint around
having written             each script, so that it can be undone alone
a handler fails (damage,   abort, do it again with a savepoint around each
or a bug)                  command; the failing one answers an error, which
                           names the key if that is what is damaged
the commit fails           abort; the batch is done again with every write
                           refused, so that reads still answer
a sink fails (a bug)       logged; what is committed is never done again
=========================  ==================================================

Doing a batch again is safe since nothing left the engine yet; changes to sessions are
taken back through ``undo``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from penstock.engine.commands.registry import Argv
from penstock.engine.control import MustUndoScriptError, SlowScriptError
from penstock.engine.pausing import Pause
from penstock.engine.session import Session
from penstock.engine.statistics import monitor_line
from penstock.engine.storage.environment import ENGINE_FAULTS, is_map_full, translate
from penstock.engine.storage.transaction import Unit
from penstock.engine.table import CommandTable, Entry, Refusal
from penstock.errors import CommandError, StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from penstock.protocol.replies import NO_REPLY, QUEUED, Push, Reply, Status

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

_BEFORE_AUTH: Final = frozenset({b"AUTH", b"HELLO", b"QUIT", b"RESET"})
_NEVER_QUEUED: Final = frozenset({b"EXEC", b"DISCARD", b"MULTI", b"WATCH", b"QUIT", b"RESET"})
_WHILE_SUBSCRIBED: Final = frozenset(
    {b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"SSUBSCRIBE", b"SUNSUBSCRIBE",
     b"PING", b"QUIT", b"RESET"}
)  # fmt: skip


class NeedsWriteError(Exception):
    """A command of a read batch found that it must write; never leaves the dispatcher."""


class Dispatcher:
    """Runs batches. The engine's lock is held around :meth:`run`."""

    def __init__(self, engine: Engine, unit: Unit) -> None:
        self._engine = engine
        self._unit = unit
        self._changes = engine.changes
        self.table = CommandTable()
        self.resolve = self.table.resolve
        #: (session, item) to deliver once the unit is committed
        self.out: list[tuple[Session, Reply]] = []
        #: as ``out``, but for after the reply of the command that runs
        self.late: list[tuple[Session, Reply]] = []
        #: takes back changes of session state if the unit is done again, last first
        self.undo: list[Callable[[], None]] = []
        #: runs after the commit (signals to other processes, files to remove)
        self.after_commit: list[Callable[[], None]] = []
        #: told after the replies are delivered
        self.after_delivery: list[tuple[Callable[[Session], None], Session]] = []
        #: runs if the unit is aborted, whatever follows
        self.after_abort: list[Callable[[], None]] = []
        #: whether every script of the unit must be undoable alone (see ``scripts``)
        self.is_careful = False
        self._commands_before = 0

    # --------------------------------------------------------------------- run

    def run(self, calls: Iterable[tuple[Session, Argv]]) -> None:
        """Execute a batch in one unit and deliver what came of it."""
        plan = []
        write = False
        simple = self.table.simple
        for session, argv in calls:
            entry = simple.get(argv[0])
            if entry is None or not entry.least <= len(argv) <= entry.most:
                entry = self.resolve(argv)
            plan.append((session, argv, entry))
            if entry.writes:
                write = True
        self._engine.statistics.commands_processed += len(plan)
        self._run_plan(plan, write)
        self._deliver()

    def run_task(self, task: Callable[[], None], write: bool = True) -> None:
        """Run internal work (sweeping, timeouts, collecting messages) as a unit of its own."""
        try:
            self._attempt(task, write)
        except StoreFullError:
            with self._engine.env.reserve():
                self._attempt(task, write)
        self._deliver()

    def _run_plan(self, plan: list[tuple[Session, Argv, Entry]], write: bool) -> None:
        try:
            self._attempt(lambda: self._call_all(plan), write)
        except StoreFullError as error:
            self._run_without_room(plan, error)
        except StoreError as error:
            self._run_reading(plan, error)
        except SlowScriptError:
            raise
        except Exception:
            log.exception("a command failed unexpectedly; doing its batch again, each command alone")
            self._attempt(lambda: self._call_guarded(plan), write)

    def _run_without_room(self, plan: list[tuple[Session, Argv, Entry]], reason: StoreError) -> None:
        """What frees room may use the reserve; what needs room is refused."""
        try:
            with self._engine.env.reserve():
                self._attempt(lambda: self._call_refusing(plan, reason, _needs_room), write=True)
        except StoreError:
            self._run_reading(plan, reason)

    def _run_reading(self, plan: list[tuple[Session, Argv, Entry]], reason: StoreError) -> None:
        """What would write is refused."""
        self._attempt(lambda: self._call_refusing(plan, reason, _writes), write=False)

    def _attempt(self, work: Callable[[], None], write: bool) -> None:
        """Do ``work`` in a unit until it is committed, growing the map or turning to writing on the way."""
        env, tracking = self._engine.env, self._engine.tracking
        room_was_made = False
        self.is_careful = False
        while True:
            try:
                self._begin(write)
                work()
                if tracking.announcements:
                    self._announce()
                self._unit.commit()
            except NeedsWriteError:
                self._abort()
                write = True
            except MustUndoScriptError:
                self._abort()
                self.is_careful = True
            except ENGINE_FAULTS as fault:
                self._abort()
                if not is_map_full(fault):
                    raise translate(fault) from fault
                if not env.grow():
                    if room_was_made or not env.recover_pages():
                        raise translate(fault) from fault
                    room_was_made = True
            except BaseException:
                self._abort()
                raise
            else:
                return

    def _begin(self, write: bool) -> None:
        self.out = []
        self.late = []
        self.undo = []
        self.after_commit = []
        self.after_delivery = []
        self.after_abort = []
        self._commands_before = self._engine.statistics.commands_processed
        self._unit.begin(write)
        self._engine.tracking.announcements.clear()
        self._engine.refresh_shared()

    def _abort(self) -> None:
        self._unit.abort()
        self._engine.statistics.commands_processed = self._commands_before
        for action in reversed(self.undo):
            action()
        for action in self.after_abort:
            action()

    def _deliver(self) -> None:
        """Tell everybody. What fails here is nobody else's business, and undoes nothing."""
        # At hand, since whoever is told may use the engine at once.
        after_commit, out, after_delivery = self.after_commit, self.out, self.after_delivery
        for action in after_commit:
            try:
                action()
            except Exception:
                log.exception("what follows a commit failed")
        for session, item in out:
            try:
                session.sink(item)
            except Exception:
                log.exception("a reply to %r could not be delivered", session)
        for tell, session in after_delivery:
            tell(session)

    # -------------------------------------------------------------------- call

    def _call_all(self, plan: list[tuple[Session, Argv, Entry]]) -> None:
        changes = self._changes
        out = self.out
        slow_ns = self._engine.config.slowlog_threshold_ns
        unit = self._unit
        now_ms = unit.now_ms
        started = perf_counter_ns()
        for session, argv, entry in plan:
            session.last_entry = entry
            session.last_used_ms = now_ms
            try:
                reply = (
                    self._pass_gate(session, argv, entry) if session.gated else entry.handler(session, argv)
                )
            except CommandError as error:
                reply = error
                unit.serial += 1
                self.count_error(error)
            if changes.unsettled:
                self._conclude(session, reply)
            elif reply is not NO_REPLY:
                out.append((session, reply))
            ended = perf_counter_ns()
            if ended - started > slow_ns:
                self.log_slow(session, argv, entry, ended - started)
            started = ended

    def _call_guarded(self, plan: list[tuple[Session, Argv, Entry]]) -> None:
        """As ``_call_all``, each command undone alone if it fails in a way nobody foresaw."""
        self.is_careful = True  # scripts as well, or one that fails would ask for what is being done
        for call in plan:
            try:
                with self.savepoint():
                    self._call_all([call])
            except (*ENGINE_FAULTS, NeedsWriteError, SlowScriptError):
                raise
            except Exception as error:
                log.exception("command %r failed", call[1][0])
                self.out.append((call[0], self._explain(call[0], call[1], error)))
                if call[2].name == b"EXEC":  # its client takes the transaction for ended
                    call[0].assign(queue=None, queue_broken=False, watches={})

    def _explain(self, session: Session, argv: Argv, error: Exception) -> CommandError:
        """Damaged rows are what commands fail at in ways nobody foresaw; if there are none, it is a bug."""
        fault = self._engine.find_damage(session, argv)
        if fault is not None:
            return CommandError(f"CORRUPT a stored key is damaged, see penstock check: {fault}")
        if isinstance(error, MemoryError):
            return CommandError("ERR not enough memory for this command")
        return CommandError(f"ERR internal error: {type(error).__name__}: {error}")

    def _call_refusing(
        self,
        plan: list[tuple[Session, Argv, Entry]],
        reason: StoreError,
        is_refused: Callable[[Session, Entry], bool],
    ) -> None:
        """Answer some commands; the others get the reason why not. Queueing and deferring goes on."""
        for call in plan:
            session, _, entry = call
            is_queued = session.blocked is not None or (
                session.queue is not None and entry.name not in _NEVER_QUEUED
            )
            if is_refused(session, entry) and not is_queued:
                self._refuse(session, entry, reason)
                continue
            try:
                self._call_all([call])
            except NeedsWriteError:
                self._refuse(session, entry, reason)

    def _refuse(self, session: Session, entry: Entry, reason: StoreError) -> None:
        # Redis's word for a server whose disk takes no writes: whoever waits for better times knows it.
        is_lasting = isinstance(reason, StoreCorruptError | StoreFormatError)
        refusal = CommandError(f"{'ERR' if is_lasting else 'MISCONF'} {reason}")
        if entry.name == b"EXEC" and session.queue is not None:
            session.assign(queue=None, queue_broken=False, watches={})
            refusal = CommandError(f"EXECABORT Transaction discarded because of: {refusal}")
        self.count_error(refusal)
        self.out.append((session, refusal))

    def count_error(self, error: CommandError) -> None:
        """For INFO; not twice if the unit is done again."""
        statistics = self._engine.statistics
        statistics.count_error(error)
        self.undo.append(lambda: statistics.discount_error(error))

    def log_slow(self, session: Session, argv: Argv, entry: Entry, took_ns: int) -> None:
        """For SLOWLOG; not twice either."""
        slowlog = self._engine.slowlog
        slow = slowlog.record(session, argv, entry, took_ns // 1000)
        if slow is not None:
            self.undo.append(lambda: slowlog.discard(slow))

    def call(self, session: Session, argv: Argv, entry: Entry) -> Reply:
        """One command inside another (EXEC, scripts): its error is raised, nobody is served yet."""
        try:
            if self._engine.monitors:
                reply = self._call_shown(session, argv, entry)
            else:
                reply = entry.handler(session, argv)
        except CommandError:
            self._unit.serial += 1
            self._after_call(session.caller or session, argv, entry)
            raise
        owner = session.caller or session
        if self._changes.unsettled or owner.tracking is not None:
            self._after_call(owner, argv, entry)
        return reply

    def _after_call(self, owner: Session, argv: Argv, entry: Entry) -> None:
        """What must not wait for the end of the whole: who reads a key after this is not meant by it."""
        if self._changes.unsettled:
            self._publish_changes(owner)
        if owner.tracking is not None and entry.tells_keys:
            self._engine.tracking.remember(owner, entry.spec, argv)

    def _call_shown(self, session: Session, argv: Argv, entry: Entry) -> Reply:
        """Call, and show the command to those who monitor: EVAL before what it calls, others when done."""
        spec = entry.spec
        if spec.is_admin:
            return entry.handler(session, argv)
        if spec.skip_monitor:
            self._show(session, argv, entry)
            return entry.handler(session, argv)
        try:
            return entry.handler(session, argv)
        finally:
            self._show(session, argv, entry)

    def _show(self, session: Session, argv: Argv, entry: Entry) -> None:
        line = monitor_line(self._engine.clock.now_us(), session, argv, entry.name)
        for monitor in self._engine.monitors:
            self.out.append((monitor, Status(line) if monitor.is_remote else Push([b"monitor", line])))

    def try_alone(self, work: Callable[[], bool]) -> bool:
        """A part of a duty; if it fails (damage, or a bug) it is undone alone, logged, and answers False."""
        try:
            with self.savepoint():
                return work()
        except (*ENGINE_FAULTS, NeedsWriteError, StoreError):
            raise
        except Exception:
            log.exception("a duty failed for one key, which may be damaged (penstock check); others go on")
            return False

    def savepoint(self) -> _Savepoint:
        """Undo data, replies, events and session changes of what happens inside, if it raises."""
        return _Savepoint(self, self._unit)

    def settle(self, current: Session | None = None) -> None:
        """After a whole command: publish changes, serve blocked clients; either may cause the other."""
        changes = self._changes
        changes.unsettled = False
        while changes.ready or changes.events or changes.touched:
            self._publish_changes(current)
            ready, changes.ready[:] = changes.ready[:], []
            if ready:
                self._engine.waiting.serve(ready)

    def _conclude(self, session: Session, reply: Reply) -> None:
        """Settle, answer, and send what has to follow the answer."""
        self.settle(session)
        if reply is not NO_REPLY:
            self.out.append((session, reply))
        self.out += self.late
        self.late.clear()

    def _announce(self) -> None:
        """Before the commit; burying a dead process on the way may change more."""
        tracking = self._engine.tracking
        while tracking.announcements:
            tracking.announce()
            self.settle()

    def _publish_changes(self, current: Session | None) -> None:
        """In the order in which they happened, also among what scripts and transactions publish."""
        changes = self._changes
        if changes.touched:
            touched, changes.touched[:] = changes.touched[:], []
            self._engine.tracking.invalidate(touched, current)
        if not changes.events:
            return
        events, changes.events[:] = changes.events[:], []
        for database, event, key in events:
            self._engine.pubsub.publish_event(database, event, key)

    # -------------------------------------------------------------------- gate

    def _pass_gate(self, session: Session, argv: Argv, entry: Entry) -> Reply:
        """Commands of a session in an unusual state; the table is in ``session``."""
        if session.hanging_up:
            return NO_REPLY
        if session.blocked is not None or session.deferred:
            return self._defer(session, argv)
        session.refresh_gate()  # the reason may be gone: a pause, or deferred commands taken over
        refusal = self._refusal(session, entry)
        if refusal is not None:
            if session.queue is not None:
                session.assign(queue_broken=True)
            self._engine.tracking.spend_caching(session, argv)
            raise refusal
        if self._engine.pause is not None and self._hold(session, entry, self._engine.pause):
            return self._defer(session, argv)
        if session.queue is not None and entry.name not in _NEVER_QUEUED:
            return self._enqueue(session, argv, entry)
        try:
            return self.call(session, argv, entry)
        finally:
            if session.tracking is not None:
                self._engine.tracking.spend_caching(session, argv)

    def _refusal(self, session: Session, entry: Entry) -> CommandError | None:
        """Why the session may not call the command now; checked in Redis's order."""
        if isinstance(entry, Refusal):
            return entry.error
        name, spec = entry.name, entry.spec
        if not session.authenticated and name not in _BEFORE_AUTH:
            return CommandError("NOAUTH Authentication required.")
        if session.protocol == 2 and session.is_subscribed and name not in _WHILE_SUBSCRIBED:
            return CommandError(
                f"ERR Can't execute '{name.decode().lower()}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE /"
                " PING / QUIT / RESET are allowed in this context"
            )
        if session.queue is not None and spec.no_multi:
            return CommandError("ERR Command not allowed inside a transaction")
        if session.monitoring and (spec.is_write or spec.is_readonly or spec.may_replicate):
            return CommandError("ERR Replica can't interact with the keyspace")
        return None

    def _hold(self, session: Session, entry: Entry, pause: Pause) -> bool:
        """Whether the session has to wait for the end of a pause; it does from now on, then."""
        if pause.until_ms <= self._unit.now_ms:
            self._engine.set_pause(None)
            return False
        if not pause.holds(session, entry):
            return False
        self._engine.waiting.set_blocked(session, pause.waiter(session))
        return True

    def _defer(self, session: Session, argv: Argv) -> Reply:
        session.deferred.append(argv)
        session.remember(lambda: _pop(session.deferred))
        return NO_REPLY

    def _enqueue(self, session: Session, argv: Argv, entry: Entry) -> Reply:
        queue = session.queue
        assert queue is not None
        queue.append((argv, entry))
        session.remember(lambda: _pop(queue))
        return QUEUED


class _Savepoint:
    __slots__ = ("_dispatcher", "_marks", "_unit")

    def __init__(self, dispatcher: Dispatcher, unit: Unit) -> None:
        self._dispatcher = dispatcher
        self._unit = unit
        self._marks: tuple[int, ...] = ()

    def __enter__(self) -> None:
        self._marks = tuple(map(len, self._lists()))
        self._unit.enter_savepoint()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._unit.leave_savepoint(keep=kind is None)
        if kind is None:
            return
        for action in reversed(self._dispatcher.undo[self._marks[0] :]):
            action()
        for items, mark in zip(self._lists(), self._marks, strict=True):
            del items[mark:]

    def _lists(self) -> tuple[list[Any], ...]:
        """Everything that a unit collects for later."""
        d, changes = self._dispatcher, self._dispatcher._changes
        announcements = self._dispatcher._engine.tracking.announcements
        return (
            d.undo, d.out, d.late, d.after_commit,
            changes.events, changes.ready, changes.touched, announcements,
        )  # fmt: skip


def _writes(session: Session, entry: Entry) -> bool:
    return entry.writes


def _needs_room(session: Session, entry: Entry) -> bool:
    """Whether a command may make the store larger: Redis's flag ``denyoom``, and what it has no flag for."""
    if entry.name == b"EXEC":
        return any(_needs_room(session, queued) for _, queued in session.queue or ())
    return entry.needs_room


def _pop(items: list[tuple[Argv, Entry]] | deque[Argv]) -> None:
    items.pop()
