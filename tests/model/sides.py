"""The two sides of a comparison behind one interface: run some commands, get typed replies.

Both speak real RESP bytes: ours are produced by the encoder that the server uses. The
engine is driven as its callers do it: RESP3 through :class:`LocalSession`, RESP2 through a
bare session with a sink.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import hiredis

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from penstock.protocol.encoder import encode2, encode3
from penstock.testing.control import HOST
from penstock.testing.servers import RealServer
from tests.model.templates import Argv
from tests.model.wire import IncompleteError, parse, parse_whole


class Side(Protocol):
    def run(self, commands: Sequence[Argv]) -> list[Any]:
        """Run commands one after another (ours: in one transaction); a reply for each."""

    def close(self) -> None: ...


class Local:
    """The engine through LocalSession; replies are seen in RESP3."""

    def __init__(self, engine: Engine) -> None:
        self._session = LocalSession(engine)

    def run(self, commands: Sequence[Argv]) -> list[Any]:
        if len(commands) > 1:
            replies = self._session.execute_many(list(commands))
            assert len(replies) == len(commands), f"{len(replies)} replies to {len(commands)} commands"
        else:
            replies = [self._execute(argv) for argv in commands]
        return [parse_whole(encode3(reply)) for reply in replies]

    def _execute(self, argv: Argv) -> Any:
        try:
            return self._session.execute(*argv)
        except CommandError as error:
            return error

    def close(self) -> None:
        self._session.close()


class Bare:
    """The engine through a session of its own, in RESP2 or RESP3."""

    def __init__(self, engine: Engine, resp: int = 2) -> None:
        self.engine = engine
        self._encode: Callable[[Any], bytes] = encode2 if resp == 2 else encode3
        #: what has arrived and was not taken yet
        self.inbox: list[Any] = []
        self.session = engine.session(lambda item: self.inbox.append(parse_whole(self._encode(item))))
        self.session.protocol = resp

    def send(self, commands: Sequence[Argv]) -> None:
        self.engine.execute([(self.session, argv) for argv in commands])

    def take(self) -> list[Any]:
        taken, self.inbox[:] = list(self.inbox), []
        return taken

    def run(self, commands: Sequence[Argv]) -> list[Any]:
        self.send(commands)
        replies = self.take()
        assert len(replies) == len(commands), f"{len(replies)} replies to {len(commands)} commands"
        return replies

    def close(self) -> None:
        self.engine.end_session(self.session)


class Real:
    """A real server through a socket."""

    def __init__(self, server: RealServer, resp: int) -> None:
        self._socket = socket.create_connection((HOST, server.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        if resp == 3:
            self.run([[b"HELLO", b"3"]])

    def send(self, commands: Sequence[Argv]) -> None:
        self._socket.sendall(b"".join(hiredis.pack_command(tuple(argv)) for argv in commands))

    def receive(self, count: int) -> list[Any]:
        replies: list[Any] = []
        while len(replies) < count:
            try:
                reply, end = parse(self._data)
            except IncompleteError:
                received = self._socket.recv(1 << 18)
                if not received:
                    raise ConnectionError("the real server closed the connection") from None
                self._data += received
            else:
                self._data = self._data[end:]
                replies.append(reply)
        return replies

    def take(self) -> list[Any]:
        """What has arrived by now; never waits."""
        self._socket.setblocking(False)
        try:
            while received := self._socket.recv(1 << 18):
                self._data += received
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(60)
        replies: list[Any] = []
        while self._data:
            reply, end = parse(self._data)
            self._data = self._data[end:]
            replies.append(reply)
        return replies

    def run(self, commands: Sequence[Argv]) -> list[Any]:
        self.send(commands)
        return self.receive(len(commands))

    def close(self) -> None:
        self._socket.close()


def run_together(calls: Sequence[tuple[Bare, Argv]]) -> list[Any]:
    """Commands of several clients of one engine in one transaction; a reply for each, in their order."""
    calls[0][0].engine.execute([(side.session, argv) for side, argv in calls])
    replies = {side: iter(side.take()) for side in {side for side, _ in calls}}
    return [next(replies[side]) for side, _ in calls]


#: Everything but ``x``: when an expired key is found out is nobody's business.
_EVENTS: Final = b"KEg$lshzt"
_PATTERN: Final = b"__keyevent@*"
_PONG: Final = [b"pong", b""]


class Listeners:
    """Somebody on each side who is told of every change of a key."""

    def __init__(self, engine: Engine, server: RealServer) -> None:
        self._ours = Bare(engine)
        self._real = Real(server, 2)
        self._notify(_EVENTS)
        for side in (self._ours, self._real):
            side.run([[b"PSUBSCRIBE", _PATTERN]])

    def _notify(self, classes: bytes) -> None:
        for side in (self._ours, self._real):
            side.run([[b"CONFIG", b"SET", b"notify-keyspace-events", classes]])

    def hear(self) -> tuple[list[Any], list[Any]]:
        """(channel, key) of what happened since the last time, on both sides."""
        self._real.send([[b"PING"]])
        heard = []
        while (message := self._real.receive(1)[0]) != _PONG:
            heard.append(message[2:])
        return [message[2:] for message in self._ours.take()], heard

    def close(self) -> None:
        self.hear()
        for side in (self._ours, self._real):
            side.run([[b"PUNSUBSCRIBE"]])
        self._notify(b"")
        for side in (self._ours, self._real):
            side.close()
