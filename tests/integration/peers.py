"""Another process with the same store open, told through a pipe what to do."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from tests.forking import CONTEXT

LONG_S = 30.0


def _serve_pipe(path: str, pipe: Connection) -> None:
    """The other process: executes what it is told; ``wait`` and ``poll`` read pushes."""
    with Engine.open(path, durability="relaxed") as engine:
        sessions: dict[str, LocalSession] = {}
        pipe.send("ready")
        while True:
            name, argv = pipe.recv()
            session = sessions.setdefault(name, LocalSession(engine))
            try:
                if argv[0] == "wait":
                    reply: Any = session.wait(int(argv[1]))
                elif argv[0] == "poll":
                    reply = session.poll()
                else:
                    reply = session.execute(*argv)
            except CommandError as error:
                reply = error
            pipe.send(list(reply) if isinstance(reply, list) else reply)


class Peer:
    """A process of its own with the store open."""

    def __init__(self, path: Path) -> None:
        self._pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve_pipe, args=(str(path), theirs), daemon=True)
        self.process.start()
        assert self.receive() == "ready"

    def send(self, *argv: Any, session: str = "main") -> None:
        self._pipe.send((session, argv))

    def receive(self) -> Any:
        assert self._pipe.poll(LONG_S), "the other process did not answer"
        return self._pipe.recv()

    def do(self, *argv: Any, session: str = "main") -> Any:
        self.send(*argv, session=session)
        return self.receive()

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
