"""A bare connection to a server: bytes out, replies in. Says what a client library would hide."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hiredis

from penstock.engine import Engine
from penstock.errors import CommandError

TIMEOUT_S = 20.0
_MORE = object()


class Wire:
    """One socket. Replies are plain values; errors are CommandError values."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.socket.settimeout(TIMEOUT_S)
        self._reader = hiredis.Reader(notEnoughData=_MORE, replyError=CommandError)

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *args: str | bytes | int | float) -> None:
        self.raw(pack(*args))

    def receive(self) -> Any:
        """The next reply or push."""
        while (reply := self._reader.gets()) is _MORE:
            data = self.socket.recv(1 << 16)
            assert data, "the server closed the connection"
            self._reader.feed(data)
        return list(reply) if isinstance(reply, hiredis.PushNotification) else reply

    def do(self, *args: str | bytes | int | float) -> Any:
        self.send(*args)
        return self.receive()

    def error(self, *args: str | bytes | int | float) -> str:
        reply = self.do(*args)
        assert isinstance(reply, CommandError), f"{args!r} answered {reply!r} instead of an error"
        return str(reply)

    def rest(self) -> bytes:
        """Everything until the server closes."""
        pieces = []
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(1 << 16):
                pieces.append(data)
        return b"".join(pieces)

    def nothing_arrives(self, other: Wire) -> bool:
        """Whether nothing is on its way here, once another client got an answer."""
        other.do("PING")
        self.socket.setblocking(False)
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)
        self._reader.feed(data)
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pack(*args: str | bytes | int | float) -> bytes:
    packed: bytes = hiredis.pack_command(args)
    return packed


def connect(port: int, *hello: str | int) -> Wire:
    """A connection to a port of this machine; ``connect(port, 3)`` speaks RESP3."""
    wire = Wire(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S))
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hello:
        assert not isinstance(wire.do("HELLO", *hello), CommandError)
    return wire


def connect_unix(path: Path) -> Wire:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return Wire(sock)


@contextlib.contextmanager
def table_sizes(store: Path) -> Iterator[Callable[[str], int]]:
    """Counts rows of a table of a store that a server has open."""
    with Engine.open(store, durability="relaxed") as engine:

        def count(table: str) -> int:
            found = [0]
            engine.run_task(
                lambda: found.__setitem__(0, engine.unit.entries(engine.unit.tables[table])), write=False
            )
            return found[0]

        yield count


def resident_bytes(pid: int) -> int:
    """Memory that a process occupies now."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4096
