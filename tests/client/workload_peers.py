"""Other processes on the store of a client, that are killed at any moment.

A peer pushes numbered elements onto the lists of a workload, counts them, and moves elements
that others push to ``peers:taken``, waiting where there are none. What it had done when it was
killed can be read from the store: it pushed as many as it counted, or one more.
"""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection
from pathlib import Path

from penstock.engine import Engine, LocalSession
from tests.forking import CONTEXT

_READY_WITHIN_S = 30.0


def list_of(number: int, n_lists: int) -> str:
    return f"{{w{number % n_lists}}}list"


def element_of(peer: int, number: int) -> bytes:
    return b"peer%d:%d" % (peer, number)


def _work(path: str, peer: int, n_lists: int, pipe: Connection) -> None:
    with Engine.open(path, durability="relaxed") as engine:
        session = LocalSession(engine)
        pipe.send("ready")
        for number in itertools.count():
            session.execute("RPUSH", list_of(number, n_lists), element_of(peer, number))
            session.execute("INCR", f"peers:{peer}:count")
            session.execute(
                "BLMOVE", list_of(number * 7 + 3, n_lists), "peers:taken", "LEFT", "RIGHT", "0.02"
            )


class BusyPeer:
    """A process of its own, at work from the beginning."""

    def __init__(self, path: Path, peer: int, n_lists: int) -> None:
        pipe, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_work, args=(str(path), peer, n_lists, theirs), daemon=True)
        self._process.start()
        try:
            assert pipe.poll(_READY_WITHIN_S), "the other process did not start"
            assert pipe.recv() == "ready"
        finally:
            pipe.close()
            theirs.close()

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._process.close()
