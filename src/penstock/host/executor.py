"""Runs what clients send, all commands of a tick as one batch.

Everything that its guests hand over in one round of the event loop, one callback executes
in one transaction and then flushes every reply: the group commit of the engine, and the
least number of system calls. Who is alone on the loop need not wait for that callback.

A script that takes long is moved to a thread, so that the loop stays responsive: its batch
is undone, what came before it is done again, and the script runs alone in the thread. What
came after it waits; after ``busy-reply-threshold`` other clients are told BUSY, except for
what ``busy`` allows.

=========  ===========================  =================================================
state      means                        leaves by
=========  ===========================  =================================================
idle       nothing to run               ``submit``: scheduled
scheduled  a tick will run the batch    ``_tick``: idle, or ``_go_away``: away
away       the thread runs a script     ``_turn_busy``: busy; ``_come_back``: idle or
                                        scheduled
busy       away for long                ``_come_back``: idle or scheduled
=========  ===========================  =================================================

Rules:

1. The engine is called by the loop unless it is away, then by the thread alone: the loop
   would wait for the engine's lock.
2. What the engine calls back (sinks, ``block_changed``, kills) may come from the thread.
   Sinks only append; everything else goes through ``on_loop``, so that the loop's view of a
   client changes together with the replies that it gets.
3. A session ends after the commands that it sent, never while they wait.
4. Nothing runs while replies are flushed: what comes back meanwhile waits for the next tick,
   or newer replies would overtake older ones.

It knows clients as :class:`~penstock.host.guest.Guest`, nothing of sockets or callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Final, Generic, TypeVar

from penstock.engine import Engine, Session
from penstock.engine.control import SlowScriptError
from penstock.engine.duties import TICK_S
from penstock.errors import CommandError, PenstockError
from penstock.host.busy import answers_while_busy
from penstock.host.guest import Guest

log = logging.getLogger("penstock.host")

Call = tuple[Session, list[bytes]]
AnyGuest = TypeVar("AnyGuest", bound=Guest)

_LARGEST_BATCH: Final = 10_000
#: Before trying again what a full disk, say, did not allow.
_RETRY_S: Final = 1.0


class Executor(Generic[AnyGuest]):
    """The only user of its engine, on behalf of every guest. Belongs to the running event loop.

    ``on_shutdown`` is what SHUTDOWN does; without it there is no SHUTDOWN.
    """

    def __init__(
        self, engine: Engine, script_inline_limit_s: float, on_shutdown: Callable[[], None] | None = None
    ) -> None:
        self.engine = engine
        #: by number of their session
        self.guests: dict[int, AnyGuest] = {}
        #: guests with replies to flush this tick
        self.dirty: list[AnyGuest] = []
        self._script_inline_limit_s = script_inline_limit_s
        self._shut_down = on_shutdown
        self._loop = asyncio.get_running_loop()
        self._batch: list[Call] = []
        #: guests that go on when the batch is done
        self._after_batch: list[AnyGuest] = []
        self._is_flushing = False
        #: sessions whose clients are gone, to be ended when the batch is done
        self._leaving: list[Session] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._signal_fd: int | None = None
        # Of its own, since it outlives whatever its first guest is doing.
        self._duty = self._loop.call_later(TICK_S, self._do_duties, context=Context())
        self._thread = ThreadPoolExecutor(1, "penstock-script")
        #: the session whose script the thread runs; None: the engine is on the loop
        self._away: Session | None = None
        self._is_busy = False
        self._busy_timer: asyncio.TimerHandle | None = None
        #: what the thread wants to be done on the loop
        self._when_back: list[Callable[[], None]] = []
        #: guests that send nothing while the engine is away
        self._held: list[AnyGuest] = []
        if on_shutdown is not None:
            engine.on_shutdown = lambda: self.on_loop(on_shutdown)

    # ----------------------------------------------------------------- batches

    def submit(self, session: Session, commands: list[list[bytes]]) -> None:
        """Add a client's commands to the batch of this tick."""
        if self._away is not None:
            self._submit_while_away(session, commands)
            return
        batch = self._batch
        if not batch:
            self._loop.call_soon(self._tick)
        for argv in commands:
            batch.append((session, argv))

    def submit_promptly(self, session: Session, commands: list[list[bytes]]) -> None:
        """As ``submit``, but run them at once if nobody else could join their batch."""
        if (
            self._batch
            or self._away is not None
            or self._is_flushing
            or len(self.guests) > 1
            or len(commands) > _LARGEST_BATCH
        ):
            self.submit(session, commands)
        else:
            self._run([(session, argv) for argv in commands])

    def withdraw(self, session: Session) -> None:
        """Forget the commands of a client that were not executed yet: nobody would take what they answer."""
        self._batch = [call for call in self._batch if call[0] is not session]

    def _tick(self) -> None:
        if self._away is not None:
            self._let_refused_go_on()
        elif self._batch:
            self._run_batch()
        else:
            self._settle()

    def _run_batch(self) -> None:
        batch = self._batch
        if len(batch) > _LARGEST_BATCH:
            self._batch = batch[_LARGEST_BATCH:]
            batch = batch[:_LARGEST_BATCH]
            self._loop.call_soon(self._tick)
        else:
            self._batch = []
        self._run(batch)

    def _run(self, batch: list[Call]) -> None:
        if not self._execute(batch):
            self._run_up_to_script(batch)
        if self._away is None:
            self._settle()

    def _execute(self, batch: list[Call]) -> bool:
        """Execute; False if a script was too slow for the loop, so that nothing happened at all."""
        try:
            self.engine.execute(batch, self._script_inline_limit_s)
        except SlowScriptError:
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must be served
            self._refuse(batch, error)
        return True

    def _flush(self) -> None:
        dirty, self.dirty = self.dirty, []
        self._is_flushing = True
        try:
            for guest in dirty:
                guest.flush()
        finally:
            self._is_flushing = False

    def _settle(self) -> None:
        """After everything that the engine did: end sessions, flush replies, let guests go on."""
        if self._leaving and not self._batch:
            leaving, self._leaving = self._leaving, []
            for session in leaving:
                self._end(session)
        self._flush()
        if self._after_batch and not self._batch:
            waiting, self._after_batch = self._after_batch, []
            for guest in waiting:
                guest.batch_done()
        if self._signal_fd is None:
            self._listen_to_signals()

    def _refuse(self, batch: list[Call], error: BaseException) -> None:
        """The engine could not even answer errors."""
        log.error("a batch of %d commands failed", len(batch), exc_info=error)
        for session, _ in batch:
            if isinstance(error, PenstockError):
                session.sink(CommandError(f"ERR {error}"))
            elif session.kill is not None:
                # A bug: who knows what was answered. A lost connection misleads nobody.
                session.kill()

    def run_now(self) -> None:
        """Answer what has arrived without waiting for the tick: somebody leaves."""
        while self._batch and self._away is None:
            self._run_batch()

    def after_batch(self, guest: AnyGuest) -> None:
        """Call the guest's ``batch_done`` when everything handed over so far is answered."""
        self._after_batch.append(guest)
        if not self._batch or self._is_busy:
            self._loop.call_soon(self._tick)

    def has_commands_of(self, session: Session) -> bool:
        return any(owner is session for owner, _ in self._batch)

    @property
    def is_away(self) -> bool:
        """Whether a slow script keeps the engine."""
        return self._away is not None

    @property
    def is_busy(self) -> bool:
        """Whether it has done so for long."""
        return self._is_busy

    @property
    def is_idle(self) -> bool:
        """Whether everything that arrived is answered."""
        return not self._batch and not self._after_batch and self._away is None

    def on_loop(self, action: Callable[[], None]) -> None:
        """Do this now, or when the engine has come back if it is the thread that asks."""
        if self._away is None:
            action()
        else:
            self._when_back.append(action)

    # ------------------------------------------------------------ slow scripts

    def _run_up_to_script(self, batch: list[Call]) -> None:
        """A script of the batch was slow: run what precedes its first one, and that one alone."""
        resolve = self.engine.dispatcher.resolve
        places = [place for place, (_, argv) in enumerate(batch) if resolve(argv).is_script]
        before, script, after = batch[: places[0]], batch[places[0]], batch[places[0] + 1 :]
        self._put_first(after)
        if before:
            self._execute(before)
            self._flush()
        # If there are others it may be one of them that is slow: try.
        if len(places) == 1 or not self._execute([script]):
            self._go_away(script)

    def _put_first(self, calls: list[Call]) -> None:
        """Run these before everything that waits."""
        if not self._batch and self._away is None:
            self._loop.call_soon(self._tick)
        self._batch[:0] = calls

    def _go_away(self, script: Call) -> None:
        self._away = script[0]
        if self._signal_fd is not None:
            self._loop.remove_reader(self._signal_fd)
            self._signal_fd = None
        threshold_ms = self.engine.config.script_time_limit_ms
        if threshold_ms > 0:
            self._busy_timer = self._loop.call_later(threshold_ms / 1000, self._turn_busy)
        future = self._loop.run_in_executor(self._thread, self.engine.execute, [script])
        future.add_done_callback(lambda done: self._come_back(done, script))

    def _come_back(self, done: asyncio.Future[None], script: Call) -> None:
        if self._busy_timer is not None:
            self._busy_timer.cancel()
        self._away = None
        self._is_busy = False
        error = done.exception()
        if error is not None:
            self._refuse([script], error)
        actions, self._when_back = self._when_back, []
        for action in actions:
            action()
        self._release(lambda _: True)
        self._settle()
        if self._batch:
            self._loop.call_soon(self._tick)

    def _submit_while_away(self, session: Session, commands: list[list[bytes]]) -> None:
        guest = self.guests.get(session.number)
        if guest is not None and self._is_refused(guest):
            self._answer_busy(guest, commands)
            return
        self._batch += [(session, argv) for argv in commands]
        if guest is not None:
            guest.hold(True)
            self._held.append(guest)

    def _is_refused(self, guest: AnyGuest) -> bool:
        """Whether the client is told that we are busy; who waits for an answer already is not."""
        return self._is_busy and not guest.is_blocked and guest.session is not self._away

    def _turn_busy(self) -> None:
        """Those who wait behind the script are told so, from now on."""
        self._is_busy = True
        waiting, self._batch = self._batch, []
        refused: dict[AnyGuest, list[list[bytes]]] = {}
        for session, argv in waiting:
            guest = self.guests.get(session.number)
            if guest is not None and self._is_refused(guest):
                refused.setdefault(guest, []).append(argv)
            else:
                self._batch.append((session, argv))
        for guest, commands in refused.items():
            self._answer_busy(guest, commands)
        self._release(self._is_refused)
        self._let_refused_go_on()

    def _let_refused_go_on(self) -> None:
        waiting, self._after_batch = self._after_batch, []
        for guest in waiting:
            if self._is_refused(guest):
                guest.batch_done()
            else:
                self._after_batch.append(guest)

    def _release(self, is_free: Callable[[AnyGuest], bool]) -> None:
        held, self._held = self._held, []
        for guest in held:
            if is_free(guest):
                guest.hold(False)
            else:
                self._held.append(guest)

    def _answer_busy(self, guest: AnyGuest, commands: list[list[bytes]]) -> None:
        guest.write_aside(answers_while_busy(self.engine, guest, commands, self._shut_down))

    # --------------------------------------------------------- blocked clients

    def block_changed(self, session: Session) -> None:
        """A session blocked or was unblocked: set its timer, or go on with what it sent meanwhile."""
        self.on_loop(lambda: self._after_block_change(session))

    def _after_block_change(self, session: Session) -> None:
        self._cancel_timer(session)
        guest = self.guests.get(session.number)
        if guest is None:
            return
        waiter = session.blocked
        guest.is_blocked = waiter is not None
        if waiter is not None:
            if waiter.deadline_ms is not None:
                self._set_timer(session, (waiter.deadline_ms - self.engine.clock.now_ms()) / 1000)
        elif session.deferred:
            self._put_first([(session, argv) for argv in session.deferred])
            session.deferred.clear()
        guest.wait_for_batch()

    def _set_timer(self, session: Session, delay_s: float) -> None:
        self._timers[session.number] = self._loop.call_later(max(delay_s, 0), self._time_out, session)

    def _cancel_timer(self, session: Session) -> None:
        timer = self._timers.pop(session.number, None)
        if timer is not None:
            timer.cancel()

    def _time_out(self, session: Session) -> None:
        del self._timers[session.number]
        if self._away is not None:
            self._set_timer(session, TICK_S)
            return
        try:
            self.engine.time_out(session)
        except PenstockError:
            log.exception("could not end the wait of %r; it will be tried again", session)
            self._set_timer(session, _RETRY_S)
        self._settle()

    # ----------------------------------------------------------------- leaving

    def leave(self, session: Session) -> None:
        """The client is gone. What it sent is still executed."""
        self.guests.pop(session.number, None)
        self._cancel_timer(session)
        if self._away is not None or self.has_commands_of(session):
            self._leaving.append(session)
        else:
            self._end(session)
            self._settle()

    def _end(self, session: Session) -> None:
        try:
            self.engine.end_session(session)
        except PenstockError:
            log.exception("could not remove what %r left; whoever meets it will", session)

    def close(self) -> None:
        """Stop everything; the engine must not be away."""
        self.abandon()
        if self._signal_fd is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._signal_fd)
        self._thread.shutdown(wait=True)

    def abandon(self) -> None:
        """Never call the engine again. All that a forked child may do: the rest is its parent's."""
        self._duty.cancel()
        for timer in self._timers.values():
            timer.cancel()

    # ------------------------------------------------------------------ duties

    def _listen_to_signals(self) -> None:
        fd = self.engine.signal_fd()
        if fd is not None and self._away is None:
            self._signal_fd = fd
            Context().run(self._loop.add_reader, fd, self._on_signal)

    def _on_signal(self) -> None:
        try:
            self.engine.collect()
        except PenstockError:
            log.exception("could not collect what other processes sent; it will be tried again")
        self._settle()

    def _do_duties(self) -> None:
        more = False
        if self._away is None:
            try:
                more = self.engine.duties.tick()
            except Exception:  # a fault in one duty must not end them all
                log.exception("background duties failed; they will be tried again")
            self._settle()
        self._duty = self._loop.call_later(TICK_S / 10 if more else TICK_S, self._do_duties)

    def __repr__(self) -> str:
        state = "busy" if self._is_busy else "away" if self._away is not None else "on the loop"
        return f"<Executor {state} {len(self._batch)} commands, {len(self.guests)} guests>"
