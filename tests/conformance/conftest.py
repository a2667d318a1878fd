"""One suite, every backend: the engine in process, our server, real servers; RESP2 and RESP3.

A test asks for ``db`` and gets an empty store behind the smallest possible client. What
differs by protocol is asked from the client (``db.double(1.5)``), never from the backend.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY, Pairs
from penstock.testing.servers import RealServer, find_servers

TIMEOUT_S = 20.0


class Client:
    """One connection to some backend. ``do`` returns values; refusals are CommandError values."""

    kind: str
    resp: int

    def do(self, *args: Any) -> Any:
        raise NotImplementedError

    def send(self, *args: Any) -> None:
        """Send without waiting for the reply (for blocking commands)."""
        raise NotImplementedError

    def receive(self, timeout_s: float = TIMEOUT_S) -> Any:
        """The next reply or push."""
        raise NotImplementedError

    def nothing_arrives(self) -> bool:
        """Whether no reply or push is waiting; a round trip settles it, no sleep."""
        raise NotImplementedError

    def client(self, resp: int | None = None) -> Client:
        """Another connection to the same backend."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------- what tests compare with

    def error(self, *args: Any) -> str:
        reply = self.do(*args)
        assert isinstance(reply, CommandError), f"{args!r} answered {reply!r} instead of an error"
        return str(reply)

    def double(self, value: float) -> Any:
        """How a double looks in this protocol: Redis 7.0 prints 17 digits, Valkey as few as will do."""
        if self.resp == 3:
            return value
        return (repr(value).removesuffix(".0") if self.kind == "valkey" else f"{value:.17g}").encode()

    def map(self, pairs: dict[Any, Any]) -> Any:
        """How a map looks in this protocol."""
        return dict(pairs) if self.resp == 3 else [item for pair in pairs.items() for item in pair]

    def pairs(self, pairs: list[tuple[Any, Any]]) -> Any:
        """How a list of pairs (scores, random fields) looks in this protocol."""
        return [list(pair) for pair in pairs] if self.resp == 3 else [item for pair in pairs for item in pair]


def normalise(value: Any) -> Any:
    """The engine's reply values as a RESP3 client would see them."""
    if value is NULL_ARRAY:
        return None
    if isinstance(value, Pairs):
        return [[normalise(item) for item in pair] for pair in value]
    if isinstance(value, list):
        return [normalise(item) for item in value]
    if isinstance(value, dict):
        return {normalise(key): normalise(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return bytes(value)
    return value


class EngineClient(Client):
    """In process. Blocking calls run on a thread of their own, as ``send`` needs it."""

    kind = "engine"
    resp = 3

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = LocalSession(engine)
        self._pending: list[tuple[threading.Thread, list[Any]]] = []
        self._others: list[EngineClient] = []

    def do(self, *args: Any) -> Any:
        try:
            return normalise(self._session.execute(*args))
        except CommandError as error:
            return error

    def send(self, *args: Any) -> None:
        box: list[Any] = []
        thread = threading.Thread(target=lambda: box.append(self.do(*args)), daemon=True)
        thread.start()
        self._pending.append((thread, box))
        # The command has reached the engine when the session is blocked or the call is over.
        while thread.is_alive() and self._session._session.blocked is None:
            thread.join(0.001)

    def receive(self, timeout_s: float = TIMEOUT_S) -> Any:
        if self._pending:
            thread, box = self._pending.pop(0)
            thread.join(timeout_s)
            assert box, "no reply arrived in time"
            return box[0]
        push = self._session.wait(int(timeout_s * 1000))
        assert push is not None, "no push arrived in time"
        return normalise(list(push))

    def nothing_arrives(self) -> bool:
        if self._pending:
            return self._pending[0][0].is_alive()
        return not self._session._pushes and self._session.poll() is None

    def client(self, resp: int | None = None) -> Client:
        other = EngineClient(self._engine)
        self._others.append(other)
        return other

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._session.close()


class SocketClient(Client):
    """Over RESP, to our server or a real one."""

    def __init__(self, kind: str, port: int, resp: int) -> None:
        self.kind = kind
        self.resp = resp
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(notEnoughData=Ellipsis, replyError=lambda text: CommandError(text))
        self._others: list[SocketClient] = []
        if resp == 3:
            self.do("HELLO", "3")

    def send(self, *args: Any) -> None:
        self._socket.sendall(hiredis.pack_command(tuple(args)))

    def receive(self, timeout_s: float = TIMEOUT_S) -> Any:
        self._socket.settimeout(timeout_s)
        while (reply := self._reader.gets()) is Ellipsis:
            data = self._socket.recv(65536)
            assert data, "the server closed the connection"
            self._reader.feed(data)
        return list(reply) if isinstance(reply, hiredis.PushNotification) else reply

    def do(self, *args: Any) -> Any:
        self.send(*args)
        return self.receive()

    def raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def nothing_arrives(self) -> bool:
        if self._reader.gets() is not Ellipsis:
            return False
        # Whatever was caused by earlier commands is in our buffer once another client got an answer.
        with contextlib.closing(SocketClient(self.kind, self._port, 2)) as other:
            other.do("PING")
        self._socket.setblocking(False)
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(TIMEOUT_S)
        self._reader.feed(data)
        return not data

    def client(self, resp: int | None = None) -> Client:
        other = SocketClient(self.kind, self._port, resp or self.resp)
        self._others.append(other)
        return other

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._socket.close()


def _reference() -> list[str]:
    """The real servers. Redis, where there is one, shows both protocols; Valkey is a second opinion."""
    kinds = {binary.kind for binary in find_servers()}
    return [
        f"{kind}-{resp}"
        for kind in sorted(kinds)
        for resp in (2, 3)
        if (kind, resp) != ("valkey", 2) or "redis" not in kinds
    ]


_BACKENDS = ["engine", "server-2", "server-3", *_reference()]


@pytest.fixture(scope="session")
def _ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], int]]:
    """Starts each server once a session, at first use."""
    from penstock.testing.own_server import PenstockServer

    with contextlib.ExitStack() as stack:
        running: dict[str, int] = {}

        def port_of(kind: str) -> int:
            if kind not in running:
                if kind == "server":
                    directory: Path = tmp_path_factory.mktemp("server")
                    server: Any = PenstockServer(directory / "store.pen", durability="relaxed")
                else:
                    server = RealServer(next(binary for binary in find_servers() if binary.kind == kind))
                running[kind] = stack.enter_context(server).port
            return running[kind]

        yield port_of


@pytest.fixture(params=_BACKENDS)
def db(request: pytest.FixtureRequest, _ports: Callable[[str], int]) -> Iterator[Client]:
    """An empty store behind a client."""
    kind, _, resp = request.param.partition("-")
    if kind == "engine":
        # Others need no directory, which takes as long as many a test.
        path = request.getfixturevalue("tmp_path") / "store.pen"
        with Engine.open(path, durability="relaxed") as engine:
            local = EngineClient(engine)
            yield local
            local.close()
        return
    client = SocketClient(kind, _ports(kind), int(resp))
    client.do("FLUSHALL")
    client.do("SCRIPT", "FLUSH")
    client.do("CONFIG", "SET", "notify-keyspace-events", "")
    yield client
    client.close()
