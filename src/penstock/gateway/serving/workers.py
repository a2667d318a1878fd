"""Several processes behind one port, looked after by this one.

    supervisor = Supervisor("penstock.gateway.assembly:run_worker", payload, count=4, port=3000)
    sys.exit(supervisor.run())

Children are fresh processes (never forks: a store must not be open in two of them by accident) that inherit a
listening socket. A child that dies is replaced under the same number, at once the first time, later and later
if it keeps dying. SIGTERM and SIGINT stop all of them gracefully; a second one, or the time, kills them. If
this process dies itself, children notice and stop.

================  ==========================================================================================
``"shared"``      one socket for all: whoever is free takes the next connection; nothing waits for a dead one
``"per worker"``  a socket each (SO_REUSEPORT), kept open here: the system spreads connections evenly; those
                  that arrive while a worker is replaced wait for its successor
================  ==========================================================================================

Rules: the supervisor serves nobody and opens no store. It runs in the main thread. Nothing secret is in
arguments or environment: what children must know comes through a pipe.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, TypeAlias

from penstock.clock import Clock, SystemClock
from penstock.gateway.serving.listening import open_listener
from penstock.gateway.serving.worker import EX_CONFIG

_LOG = logging.getLogger("penstock.gateway.server")

#: Tells children a directory that all of them share; see ``observing.cells``.
SHARED_DIRECTORY_VARIABLE: Final = "PENSTOCK_SHARED_DIRECTORY"

Balance: TypeAlias = Literal["shared", "per worker"]

#: A child that lived so long did not die of starting.
_HEALTHY_AFTER_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.25
_LONGEST_DELAY_S: Final = 15.0
#: How long signals may go unnoticed if the system loses one.
_LOOK_EVERY_S: Final = 1.0
#: Beyond what a worker allows itself to stop.
_PATIENCE_S: Final = 2.0


@dataclass(slots=True)
class _Place:
    """A worker's number, and who has it at the moment."""

    index: int
    listener: socket.socket
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    failures: int = 0
    start_at_s: float = 0.0


class Supervisor:
    """The parent of all workers."""

    def __init__(
        self,
        target: str,
        payload: bytes,
        count: int,
        *,
        host: str = "",
        port: int = 0,
        listener: socket.socket | None = None,
        balance: Balance = "shared",
        stop_timeout_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """Listens at once, so that a port in use is known before anything starts.

        ``listener``: a socket that listens already, ours from now on, instead of ``host`` and ``port``.
        ``target``: see ``worker``. ``stop_timeout_s``: what a worker itself takes to stop, at most.
        """
        self._target = target
        self._payload = payload
        self._stop_timeout_s = stop_timeout_s
        self._clock: Clock = clock or SystemClock()
        self._listeners = (
            [listener]
            if listener is not None
            else _open_listeners(host, port, count if balance == "per worker" else 1)
        )
        self._places = [
            _Place(index, self._listeners[index % len(self._listeners)]) for index in range(count)
        ]
        self._stop_signals = 0
        self._exit_code = 0
        self._directory = ""
        #: children wait for its end; only this process has the other one
        self._parent_pipe: tuple[int, int] = (-1, -1)

    @property
    def port(self) -> int:
        return int(self._listeners[0].getsockname()[1])

    @property
    def process_ids(self) -> list[int]:
        """Of those who live at the moment."""
        return [place.process.pid for place in self._places if place.process is not None]

    def run(self) -> int:
        """Until a signal ends it; the exit code for this process."""
        self._directory = tempfile.mkdtemp(prefix="penstock-")
        self._parent_pipe = os.pipe()
        try:
            with _signals(self._note_signal) as wake:
                try:
                    self._supervise(wake)
                    self._stop(wake)
                finally:
                    self._kill()
        finally:
            for descriptor in self._parent_pipe:
                os.close(descriptor)
            for listener in self._listeners:
                listener.close()
            shutil.rmtree(self._directory, ignore_errors=True)
        return self._exit_code

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._stop_signals += 1

    # ------------------------------------------------------------------------- while it runs

    def _supervise(self, wake: selectors.BaseSelector) -> None:
        while not self._stop_signals and not self._exit_code:
            now_s = self._clock.monotonic_s()
            next_s = now_s + _LOOK_EVERY_S
            for place in self._places:
                if place.process is not None:
                    self._look_at(place, place.process, now_s)
                if place.process is None and not self._exit_code:
                    if place.start_at_s <= now_s:
                        self._start(place)
                    else:
                        next_s = min(next_s, place.start_at_s)
            _wait(wake, next_s - now_s)

    def _look_at(self, place: _Place, process: subprocess.Popen[bytes], now_s: float) -> None:
        code = process.poll()
        if code is None:
            return
        place.process = None
        lived_s = now_s - place.started_s
        place.failures = 1 if lived_s >= _HEALTHY_AFTER_S else place.failures + 1
        delay_s = restart_delay_s(place.failures)
        place.start_at_s = now_s + delay_s
        if code == EX_CONFIG:
            _LOG.error("worker %d cannot start with this configuration; all are stopped", place.index)
            self._exit_code = code
            return
        _LOG.error(
            "worker %d (process %d) ended with %d after %.1f s; another one starts in %.2f s",
            place.index,
            process.pid,
            code,
            lived_s,
            delay_s,
        )

    def _start(self, place: _Place) -> None:
        listener, parent = place.listener.fileno(), self._parent_pipe[0]
        grace_s = self._stop_timeout_s + _PATIENCE_S
        numbers = (place.index, len(self._places), listener, parent, grace_s)
        command = [sys.executable, "-m", "penstock.gateway.serving.worker", self._target]
        place.process = subprocess.Popen(
            [*command, *map(str, numbers)],
            stdin=subprocess.PIPE,
            pass_fds=(listener, parent),
            env={**os.environ, SHARED_DIRECTORY_VARIABLE: self._directory},
        )
        place.started_s = self._clock.monotonic_s()
        assert place.process.stdin is not None
        # A child that dies before it has read is noticed where all deaths are.
        with suppress(BrokenPipeError):
            place.process.stdin.write(self._payload)
        with suppress(BrokenPipeError):
            place.process.stdin.close()

    # ------------------------------------------------------------------------- at the end

    def _stop(self, wake: selectors.BaseSelector) -> None:
        signals_before = max(self._stop_signals, 1)
        deadline_s = self._clock.monotonic_s() + self._stop_timeout_s + _PATIENCE_S
        for place in self._places:
            if place.process is not None:
                place.process.terminate()
        while self._count_living():
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or self._stop_signals > signals_before:
                _LOG.warning("%d workers did not stop in time and are killed", self._count_living())
                return
            _wait(wake, min(left_s, _LOOK_EVERY_S))

    def _kill(self) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.kill()
                place.process.wait()
                place.process = None

    def _count_living(self) -> int:
        for place in self._places:
            if place.process is not None and place.process.poll() is not None:
                place.process = None
        return sum(place.process is not None for place in self._places)

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._places)} workers, {len(self.process_ids)} live>"


def restart_delay_s(failures: int) -> float:
    """How long to wait after so many deaths in a row."""
    if failures <= 1:
        return 0.0
    return float(min(_FIRST_DELAY_S * 2 ** min(failures - 2, 16), _LONGEST_DELAY_S))


def _open_listeners(host: str, port: int, count: int) -> list[socket.socket]:
    first = open_listener(host, port, shares_port=count > 1)
    port = first.getsockname()[1]
    return [first, *(open_listener(host, port, shares_port=True) for _ in range(count - 1))]


@contextmanager
def _signals(handler: signal._HANDLER) -> Iterator[selectors.BaseSelector]:
    """Signals wake whoever selects; a signal between two looks is not lost."""
    receiving, sending = socket.socketpair()
    receiving.setblocking(False)
    sending.setblocking(False)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    before = {number: signal.signal(number, handler) for number in numbers}
    fd_before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(receiving, selectors.EVENT_READ)
            yield selector
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, old in before.items():
            signal.signal(number, old)
        receiving.close()
        sending.close()


def _wait(wake: selectors.BaseSelector, timeout_s: float) -> None:
    for key, _ in wake.select(max(timeout_s, 0.0)):
        with suppress(BlockingIOError):
            while key.fileobj.recv(4096):  # type: ignore[union-attr]
                pass
