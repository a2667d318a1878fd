"""``Endpoint``: the address at which one process is signalled by all others.

One per open engine, made at the first subscribe or the first blocking wait. The protocol,
its invariants (I1 …) and the crash table stand in the package's docstring.

    state    lock held  files  reached by
    -------  ---------  -----  ----------------------------------------------------------
    open     yes        yes    ``Endpoint.create``
    closed   no         no     ``close``; if a thread polls just then, the lock is let go
                               when that thread has left ``wait``
    forked   no         (the   ``os.fork``, seen from the child; the parent's endpoint
                        owner) stays open

Rules:
- Rows of this id are deleted and committed before ``close`` (I4).
- Threads may share an endpoint through ``drain`` and ``wait``: one of them polls, the
  others sleep on a condition (I8). An event loop uses ``fileno`` and ``drain``. One
  endpoint serves either threads or a loop, never both, because a thread that polls would
  empty the FIFO before the loop noticed.

It must not know what the signals are about. The names of ``liveness`` and ``signalling``
are offered here too, so that users of the file half need one import.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.clock import SystemClock
from penstock.engine.bus.files import (
    ID_BYTES,
    Descriptor,
    fifo_path,
    generation,
    lock_path,
    unlink_endpoint,
)
from penstock.engine.bus.liveness import DeadEndpoint, Life, probe, sweep
from penstock.engine.bus.signalling import Signaller, signal
from penstock.errors import ClosedError, StoreError, StoreFullError

__all__ = ["DeadEndpoint", "Endpoint", "Life", "Signaller", "probe", "signal", "sweep"]

#: How often a new id is tried. One retry is rare; this many mean that something else meddles.
CREATE_ATTEMPTS = 16

#: The longest single sleep in the kernel; poll counts milliseconds in 32 bits.
_LONGEST_POLL_S = 3600.0

_DRAIN_BYTES = 4096

# Sleeping happens in the kernel, in real time, so deadlines cannot use a replaced clock.
_clock = SystemClock()


class Endpoint:
    """Lock file, FIFO and the threads that wait on it. Made by ``create`` only."""

    def __init__(
        self, directory: Path, endpoint_id: bytes, lock: Descriptor, reader: Descriptor, writer: Descriptor
    ) -> None:
        self.id = endpoint_id
        self._born = generation()
        self._directory = directory
        self._lock = lock
        self._reader = reader
        self._writer = writer
        self._turn = threading.Condition()  # guards the three below
        self._closed = False
        self._polling = False  # whether a thread sleeps in poll
        self._epoch = 0  # grows whenever bytes leave the FIFO
        self._poll = select.poll()
        self._poll.register(reader.fd, select.POLLIN)

    @classmethod
    def create(cls, directory: Path) -> Endpoint:
        """Claim a new id in ``directory``, which is made (0700) if missing.

        Raises StoreError where the file system has no flock or no FIFOs.
        """
        with _translated(directory):
            directory.mkdir(mode=0o700, exist_ok=True)
            for _ in range(CREATE_ATTEMPTS):
                endpoint_id = os.urandom(ID_BYTES)
                lock = _claim(directory, endpoint_id)
                if lock is None:
                    continue
                try:
                    return cls(directory, endpoint_id, lock, *_open_fifo(directory, endpoint_id))
                except BaseException:
                    unlink_endpoint(directory, endpoint_id)
                    lock.close()
                    raise
        raise StoreError(
            f"{directory}: {CREATE_ATTEMPTS} new lock files in a row were taken away;"
            " find out what else removes or locks files in that directory"
        )

    def fileno(self) -> int:
        """The read end, readable when signalled; for event loops."""
        self._require_open()
        return self._reader.fd

    def drain(self) -> int:
        """Forget the signals so far, then look. Returns the ticket for ``wait``.

        While another thread polls, the bytes are left to it: it will empty the FIFO and
        advance the epoch, which wakes the holder of this ticket (I8).
        """
        self._require_open()
        with self._turn:
            self._require_open()
            if not self._polling:
                self._empty()
            return self._epoch

    def wait(self, timeout_s: float, ticket: int | None = None) -> bool:
        """Sleep until signalled after ``ticket`` was drawn; False when the time is over.

        Without a ticket only signals still in the FIFO count, which is enough where one
        thread alone uses the endpoint. Raises ClosedError as soon as it is closed.
        """
        self._require_open()
        deadline_s = _clock.monotonic_s() + timeout_s
        with self._turn:
            self._require_open()
            if ticket is None:
                ticket = self._epoch
            while self._epoch == ticket:
                left_s = min(max(deadline_s - _clock.monotonic_s(), 0.0), _LONGEST_POLL_S)
                if self._polling:
                    self._turn.wait(left_s)
                else:
                    self._poll_once(left_s)
                self._require_open()
                if left_s == 0.0:
                    break
            return self._epoch != ticket

    def close(self) -> None:
        """Remove the files and let go of the lock; wakes whoever waits. Idempotent.

        In a forked child it does nothing: the files are the parent's.
        """
        if self._born != generation():
            return
        with self._turn:
            if self._closed:
                return
            self._closed = True
            unlink_endpoint(self._directory, self.id)
            if self._polling:
                # The descriptors are in use by the polling thread, who closes them on leaving.
                with suppress(BlockingIOError):
                    os.write(self._writer.fd, b"\0")
            else:
                self._let_go()
            self._turn.notify_all()

    def __repr__(self) -> str:
        polled = ", polled" if self._state() == "open" and self._polling else ""
        return f"<Endpoint {self.id.hex()[:12]} {self._state()}{polled}>"

    def __del__(self) -> None:
        # Only the descriptors go (each closes itself). The files stay for the sweep, which
        # through them finds the rows that nobody deleted (I4).
        if self._state() == "open":
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=1, source=self)

    def _state(self) -> str:
        if self._born != generation():
            return "forked"
        return "closed" if self._closed else "open"

    def _require_open(self) -> None:
        # Asked before taking the mutex too: in a forked child its holder may not exist any more.
        state = self._state()
        if state != "open":
            hint = "open the store again in this process" if state == "forked" else "its engine was closed"
            raise ClosedError(f"signal endpoint is {state}: {hint}")

    def _poll_once(self, timeout_s: float) -> None:
        """Poll outside the mutex, which the caller holds; empty the FIFO if readable."""
        assert not self._polling, "I8: two threads poll one endpoint"
        self._polling = True
        try:
            self._turn.release()
            readable = self._poll.poll(timeout_s * 1000)
        finally:
            self._turn.acquire()
            self._polling = False
            # Also when nothing came: another thread must take over the polling.
            self._turn.notify_all()
            if self._closed:
                self._let_go()
        if readable and not self._closed:
            self._empty()

    def _empty(self) -> None:
        assert not self._polling, "I8: drained under a polling thread"
        with suppress(BlockingIOError):
            # A short read has emptied the FIFO; what arrives later is a later signal.
            size = _DRAIN_BYTES
            while size == _DRAIN_BYTES:
                size = len(os.read(self._reader.fd, _DRAIN_BYTES))
                self._epoch += 1

    def _let_go(self) -> None:
        self._reader.close()
        self._writer.close()
        self._lock.close()  # last: until here we count as alive


def _claim(directory: Path, endpoint_id: bytes) -> Descriptor | None:
    """Steps 2-4 of Create: the held lock, or None if a sweeper was faster."""
    path = lock_path(directory, endpoint_id)
    try:
        lock = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return None
    claimed = False
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        claimed = _names(path, lock)
    except BlockingIOError:
        pass
    finally:
        if not claimed:
            # Whoever holds it may let it go without burial, so we remove it ourselves.
            unlink_endpoint(directory, endpoint_id)
            lock.close()
    return lock if claimed else None


def _names(path: str, descriptor: Descriptor) -> bool:
    """Whether the name still leads to the open file."""
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor.fd))
    except FileNotFoundError:
        return False


def _open_fifo(directory: Path, endpoint_id: bytes) -> tuple[Descriptor, Descriptor]:
    """Step 5 of Create: read end first, since a write end cannot be opened without one."""
    path = fifo_path(directory, endpoint_id)
    os.mkfifo(path, 0o600)
    reader = Descriptor(path, os.O_RDONLY | os.O_NONBLOCK)
    return reader, Descriptor(path, os.O_WRONLY | os.O_NONBLOCK)


_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ENOLCK, errno.EINVAL}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NOT_ALLOWED = {errno.EACCES, errno.EROFS}
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}


@contextmanager
def _translated(directory: Path) -> Iterator[None]:
    """Tell a failure to create in our words: what it means and what to do."""
    try:
        yield
    except OSError as error:
        what = f"{directory}: cannot create a signal endpoint ({error.strerror})"
        if error.errno in _NO_ROOM:
            raise StoreFullError(f"{what}; free some disk space") from error
        if error.errno in _UNSUPPORTED:
            hint = (
                "this file system lacks flock or FIFOs, which subscribing and blocking need;"
                " put the store on a local disk"
            )
        elif error.errno in _NOT_ALLOWED:
            hint = "subscribing and blocking need write permission in the store's directory"
        elif error.errno in _NO_DESCRIPTOR:
            hint = "too many open files; raise the limit (ulimit -n)"
        else:
            hint = "check that the store's directory exists and can be written"
        raise StoreError(f"{what}; {hint}") from error
