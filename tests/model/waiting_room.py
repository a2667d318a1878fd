"""Several clients that block and serve one another, on our engine and on a real server at once.

After each command everything that reached any client is compared: who was served, with
what, and who still waits. A client that waits sends nothing until it is served.

A key that changes its type inside one transaction is avoided: Redis remembers only those
changes that somebody waited for, so that keys become ready in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from penstock.engine import Engine
from penstock.testing.servers import RealServer
from tests.model.comparing import agree_at_all
from tests.model.pair import shorten
from tests.model.sides import Bare, Real, Side
from tests.model.templates import Argv
from tests.model.wire import Typed


class Guest:
    """One client of both sides."""

    def __init__(self, engine: Engine, server: RealServer, resp: int) -> None:
        self.ours = Bare(engine, resp)
        self.real = Real(server, resp)
        self.numbers = (self.ours.run([[b"CLIENT", b"ID"]])[0], self.real.run([[b"CLIENT", b"ID"]])[0])
        #: the command that has no reply yet
        self.pending: Argv | None = None
        self.queue: list[Argv] | None = None

    def close(self) -> None:
        self.ours.close()
        self.real.close()


class WaitingRoom:
    def __init__(
        self, engine: Engine, server: RealServer, resp: int, guests: int, keys: Collection[bytes]
    ) -> None:
        self._keys = frozenset(keys)
        self.guests = [Guest(engine, server, resp) for _ in range(guests)]
        self._porter = Guest(engine, server, 2)
        self._history: list[str] = []

    def close(self) -> None:
        for guest in (*self.guests, self._porter):
            guest.close()

    def reset(self) -> None:
        """Send everybody home, whatever happened before, and empty the stores."""
        for guest in self.guests:
            self._unblock(guest, [])
        for side in (self._porter.ours, self._porter.real):
            side.run([[b"FLUSHALL"]])
            side.run([[b"PING"]])
        for guest in self.guests:
            guest.pending = guest.queue = None
            for side in (guest.ours, guest.real):
                side.take()
                side.run([[b"DISCARD"]])
                side.run([[b"SELECT", b"0"]])
        self._history = []

    def run(self, number: int, argv: Argv) -> None:
        """Let one client run a command, unless it waits."""
        guest = self.guests[number]
        if argv[0] == b"@UNBLOCK":
            self._history.append(f"unblock {number} {argv[1:]}")
            ours, real = self._unblock(guest, argv[1:])
            if ours != real:
                self._fail(f"ours: {ours}\nreal: {real}")
        elif guest.pending is None and not self._meets_again(guest.queue or (), argv):
            self._history.append(f"{number}> {' '.join(map(shorten, argv))}")
            guest.pending = argv
            guest.ours.send([argv])
            guest.real.send([argv])
        self._compare()

    def _meets_again(self, queue: Sequence[Argv], argv: Argv) -> bool:
        """Whether another kind of command in the queue uses one of the keys."""
        keys = self._keys.intersection(argv)
        return any(other[0].upper() != argv[0].upper() and keys.intersection(other) for other in queue)

    def _unblock(self, guest: Guest, how: Argv) -> tuple[Any, Any]:
        sides: tuple[Side, Side] = (self._porter.ours, self._porter.real)
        ours, real = (
            side.run([[b"CLIENT", b"UNBLOCK", b"%d" % number, *how]])[0]
            for side, number in zip(sides, guest.numbers, strict=True)
        )
        return ours, real

    def _compare(self) -> None:
        # What a command caused is written before the server looks for the next one; the second
        # PING comes after all of that.
        for _ in range(2):
            self._porter.real.run([[b"PING"]])
        for number, guest in enumerate(self.guests):
            ours, real = guest.ours.take(), guest.real.take()
            if len(ours) != len(real) or len(ours) > (guest.pending is not None):
                self._fail(f"client {number} got\nours: {shorten(ours)}\nreal: {shorten(real)}")
            if ours and guest.pending is not None:
                if not agree_at_all(guest.pending, ours[0], real[0], guest.queue or ()):
                    self._fail(f"client {number} got\nours: {shorten(ours)}\nreal: {shorten(real)}")
                self._follow_queue(guest, guest.pending, real[0])
                guest.pending = None

    @staticmethod
    def _follow_queue(guest: Guest, argv: Argv, reply: Any) -> None:
        name = argv[0].upper()
        if name == b"MULTI":
            guest.queue = guest.queue or []
        elif name in (b"EXEC", b"DISCARD"):
            guest.queue = None
        elif guest.queue is not None and reply == Typed("+", b"QUEUED"):
            guest.queue.append(argv)

    def _fail(self, difference: str) -> None:
        waiting = [number for number, guest in enumerate(self.guests) if guest.pending]
        said = "\n  ".join(self._history)
        raise AssertionError(f"the servers differ after\n  {said}\nwaiting: {waiting}\n{difference}")
