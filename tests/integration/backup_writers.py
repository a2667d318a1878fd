"""Processes that write to a store while it is copied, and tell what was acknowledged."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from penstock.engine import Engine, LocalSession
from tests.forking import CONTEXT

LONG_S = 60.0


def write(path: str, name: str, pipe: Connection) -> None:
    """Until told to stop: a number to a counter, a list and a stream, in one transaction, then the number to
    whoever listens."""
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        number = 0
        while not pipe.poll():
            number += 1
            text = b"%d" % number
            session.execute_many(
                [
                    [b"SET", f"{name}:count".encode(), text],
                    [b"RPUSH", f"{name}:list".encode(), text],
                    [b"TWRITE", f"{name}:stream".encode(), name.encode(), text],
                ]
            )
            pipe.send(number)
        pipe.send(None)


class Writer:
    """One such process."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._pipe, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=write, args=(str(path), name, theirs), daemon=True)
        self._process.start()
        self.acknowledged = 0

    def wait_for(self, number: int) -> None:
        """Until so many writes are acknowledged."""
        while self.acknowledged < number:
            self._take()

    def look(self) -> int:
        """How many are by now."""
        while self._pipe.poll():
            self._take()
        return self.acknowledged

    def _take(self) -> None:
        assert self._pipe.poll(LONG_S), "the writer is silent"
        self.acknowledged = self._pipe.recv() or self.acknowledged

    def stop(self) -> None:
        self._pipe.send("stop")
        while self._pipe.poll(LONG_S) and self._pipe.recv() is not None:
            pass
        self._process.join(LONG_S)
        assert self._process.exitcode == 0
