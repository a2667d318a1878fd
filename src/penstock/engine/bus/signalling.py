"""One byte into somebody's FIFO: "look again".

Signals go out after the commit (I6). By then the data is safe and nothing may fail any
more, so no error is raised here; a signal that cannot be sent is made up for by the
reader's tick.

    open or write says       meaning
    -----------------------  --------------------------------------------------------
    written                  sent
    EAGAIN                   the FIFO is full, hence readable already: as good as sent
    ENOENT, ENXIO, EPIPE     the reader is gone; the next probe buries it
    EMFILE, ENFILE           a kept writer is given up, then tried once more
    anything else            not sent

A write to a FIFO without reader raises SIGPIPE, which Python ignores from its start; a
program that restores the default action would be killed by it.

This module must not know who is alive nor what was committed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from pathlib import Path

from penstock.engine.bus.files import Descriptor, fifo_path, generation
from penstock.errors import ClosedError

#: How many writers a ``Signaller`` keeps open unless told otherwise.
KEPT_WRITERS = 128

_BYTE = b"\0"


def signal(directory: Path, endpoint_id: bytes) -> bool:
    """Signal once. True if the endpoint now has something to read."""
    try:
        writer = _open_writer(directory, endpoint_id)
    except OSError:
        return False
    try:
        return _write(writer)
    finally:
        writer.close()


class Signaller:
    """Signals the same endpoints again and again; keeps the latest writers open.

    That halves the cost of a signal. A kept writer whose reader is gone is dropped at the
    next signal (EPIPE); ``forget`` drops it at once. Usable from several threads.
    """

    def __init__(self, directory: Path, keep: int = KEPT_WRITERS) -> None:
        assert keep >= 1
        self._directory = directory
        self._keep = keep
        self._born = generation()
        self._mutex = threading.Lock()
        self._closed = False
        self._writers: OrderedDict[bytes, Descriptor] = OrderedDict()  # least recently used first

    def signal(self, endpoint_id: bytes) -> bool:
        """Signal once. True if the endpoint now has something to read."""
        self._require_open()
        with self._mutex:
            self._require_open()
            writer = self._writers.get(endpoint_id)
            if writer is None:
                writer = self._open(endpoint_id)
                if writer is None:
                    return False
            else:
                self._writers.move_to_end(endpoint_id)
            sent = _write(writer)
            if not sent:
                self._writers.pop(endpoint_id).close()
            return sent

    def forget(self, endpoint_id: bytes) -> None:
        """Close the writer of an endpoint that is known to be gone."""
        if self._born != generation():
            return
        with self._mutex:
            writer = self._writers.pop(endpoint_id, None)
            if writer is not None:
                writer.close()

    def close(self) -> None:
        """Close all writers. Idempotent; does nothing in a forked child."""
        if self._born != generation():
            return
        with self._mutex:
            self._closed = True
            while self._writers:
                self._give_up_oldest()

    def __repr__(self) -> str:
        return f"<Signaller {self._state()}, {len(self._writers)}/{self._keep} writers>"

    def _state(self) -> str:
        if self._born != generation():
            return "forked"
        return "closed" if self._closed else "open"

    def _require_open(self) -> None:
        # Asked before taking the mutex too: in a forked child its holder may not exist any more.
        state = self._state()
        if state != "open":
            raise ClosedError(f"signaller is {state}: open the store again in this process")

    def _open(self, endpoint_id: bytes) -> Descriptor | None:
        try:
            try:
                writer = _open_writer(self._directory, endpoint_id)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._writers:
                    raise
                self._give_up_oldest()
                writer = _open_writer(self._directory, endpoint_id)
        except OSError:
            return None
        # Only now, so that an endpoint that is gone costs nobody a kept writer.
        if len(self._writers) >= self._keep:
            self._give_up_oldest()
        self._writers[endpoint_id] = writer
        return writer

    def _give_up_oldest(self) -> None:
        self._writers.popitem(last=False)[1].close()


def _open_writer(directory: Path, endpoint_id: bytes) -> Descriptor:
    return Descriptor(fifo_path(directory, endpoint_id), os.O_WRONLY | os.O_NONBLOCK)


def _write(writer: Descriptor) -> bool:
    try:
        os.write(writer.fd, _BYTE)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True
