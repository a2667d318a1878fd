"""Clients that take too much: too many, those that do not read, those that send too far ahead."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine
from penstock.errors import StoreError
from penstock.server import Server, ServerSettings
from penstock.testing.own_server import PenstockServer
from tests.integration.wire import Wire, connect, pack, resident_bytes
from tests.places import wait_until

MIB = 1 << 20


@pytest.fixture(params=["uvloop", "asyncio"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"PENSTOCK_LOOP": request.param}


@contextlib.contextmanager
def serving(store: Path, *options: str, environment: dict[str, str]) -> Iterator[PenstockServer]:
    with PenstockServer(store, *options, durability="relaxed", environment=environment) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log


def connect_narrow(port: int) -> Wire:
    """A connection whose receiving end holds little, as if its reader were far away."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return Wire(sock)


def test_maxclients(tmp_path: Path, environment: dict[str, str]) -> None:
    with serving(tmp_path / "s.pen", "--maxclients", "2", environment=environment) as server:
        with connect(server.port) as one, connect(server.port) as two:
            assert one.do("PING") == two.do("PING") == b"PONG"
            with connect(server.port) as three:
                assert three.rest() == b"-ERR max number of clients reached\r\n"
            assert b"rejected_connections:1\r" in one.do("INFO", "stats")
            assert one.do("CONFIG", "SET", "maxclients", "3") == b"OK"
            with connect(server.port) as three:
                assert three.do("PING") == b"PONG"
        with connect(server.port) as again:
            wait_until(lambda: b"connected_clients:1\r" in again.do("INFO", "clients"))


def test_a_client_that_does_not_read_is_not_served_on(tmp_path: Path, environment: dict[str, str]) -> None:
    with serving(tmp_path / "s.pen", environment=environment) as server, connect(server.port) as other:
        other.do("SET", "big", "v" * MIB)
        before = resident_bytes(server.process.pid)
        with connect_narrow(server.port) as lazy:
            requests = 2000
            lazy.raw(pack("GET", "big") * requests)
            # As many round trips as it takes to answer everything, were it not held back.
            for _ in range(500):
                assert other.do("PING") == b"PONG"
            assert resident_bytes(server.process.pid) - before < 100 * MIB
            # It is only held back: once it reads, everything arrives.
            lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
            for _ in range(50):
                assert len(lazy.receive()) == MIB
        wait_until(lambda: b"connected_clients:1\r" in other.do("INFO", "clients"))
        assert resident_bytes(server.process.pid) - before < 100 * MIB


def test_unread_replies_over_the_limit_end_the_connection(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    options = ("--output-limit-mb", "8")
    with (
        serving(tmp_path / "s.pen", *options, environment=environment) as server,
        connect(server.port) as other,
    ):
        other.do("SET", "big", "v" * MIB)
        with connect_narrow(server.port) as lazy:
            lazy.raw(pack("MGET", *["big"] * 20))
            wait_until(lambda: b"connected_clients:1\r" in other.do("INFO", "clients"))
            assert len(lazy.rest()) < 20 * MIB
        assert "it does not read its replies" in server.log
        assert other.do("STRLEN", "big") == MIB


def test_a_subscriber_that_does_not_read_is_disconnected(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ("--pubsub-limit-mb", "4")
    with (
        serving(tmp_path / "s.pen", *options, environment=environment) as server,
        connect(server.port) as other,
    ):
        with connect(server.port) as good, connect_narrow(server.port) as lazy:
            good.do("SUBSCRIBE", "news")
            lazy.do("SUBSCRIBE", "news")
            before = resident_bytes(server.process.pid)
            message = "m" * 100_000
            sent = 0
            while other.do("PUBLISH", "news", message) == 2:
                sent += 1
                assert good.receive()[2] == message.encode()
                assert sent < 1000, "the slow subscriber is still there"
            assert resident_bytes(server.process.pid) - before < 50 * MIB
            assert good.receive()[2] == message.encode()
            assert other.do("PUBSUB", "NUMSUB", "news") == [b"news", 1]
            assert len(lazy.rest()) < sent * 100_100
        assert "it does not read its replies" in server.log


def test_a_monitor_that_does_not_read_is_disconnected(tmp_path: Path, environment: dict[str, str]) -> None:
    options = ("--pubsub-limit-mb", "1")
    with (
        serving(tmp_path / "s.pen", *options, environment=environment) as server,
        connect(server.port) as other,
        connect_narrow(server.port) as lazy,
    ):
        lazy.do("MONITOR")
        for _ in range(100):
            other.do("ECHO", "m" * 100_000)
        wait_until(lambda: b"connected_clients:1\r" in other.do("INFO", "clients"))


# ---------------------------------------------------------- in process, for limits that no option sets


@contextlib.asynccontextmanager
async def in_process(store: Path, **settings: Any) -> AsyncIterator[Server]:
    with Engine.open(store, durability="relaxed") as engine:
        server = Server(engine, ServerSettings(port=0, **settings))
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
        assert not server.executor.guests
        assert not engine.sessions


async def test_a_blocked_client_that_sends_too_much_ahead_is_disconnected(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen", ahead_limit_bytes=MIB) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(pack("BLPOP", "jobs", 0) + pack("SET", "k", "v" * 1000) * 2000)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_blocked_client_within_the_limit_is_read_on(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen", ahead_limit_bytes=4 * MIB) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(3):  # the count starts again with every wait
            writer.write(pack("BLPOP", "jobs", 0) + pack("SET", "k", "v" * 1000) * 2000)
            await writer.drain()
            other_writer.write(pack("RPUSH", "jobs", "one"))
            assert await other_reader.readline() == b":1\r\n"
            expected = pack("jobs", "one") + b"+OK\r\n" * 2000
            assert await reader.readexactly(len(expected)) == expected
        writer.close()
        other_writer.close()


async def test_protected_mode_follows_the_password(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen", host="0.0.0.0", password="secret") as server:
        config = server.executor.engine.config
        stranger, neighbours = (
            ("192.0.2.7", 1),
            [("127.0.0.1", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1), ""],
        )
        assert server.refusal(stranger) is None
        config.requirepass = ""
        refusal = server.refusal(stranger)
        assert refusal is not None
        assert refusal.startswith("DENIED this server is in protected mode")
        assert [server.refusal(neighbour) for neighbour in neighbours] == [None] * 4


async def test_a_closed_session_never_receives(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen") as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not server.executor.guests:
            await asyncio.sleep(0)
        connection = next(iter(server.executor.guests.values()))
        session = connection.session
        assert session is not None
        writer.write(pack("PING") * 3)
        writer.transport.abort()
        while server.executor.guests:
            await asyncio.sleep(0)
        assert connection.transport is None
        session.sink(b"late")
        connection.flush()
        assert session.closed
        assert server.executor.is_idle


async def test_a_reply_that_cannot_be_encoded_is_an_error_to_its_client_alone(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(pack("PING"))
        assert await reader.readline() == b"+PONG\r\n"
        connection = next(iter(server.executor.guests.values()))
        connection.receive(object())
        connection.flush()
        assert await reader.readline() == b"-ERR internal error: the reply cannot be sent\r\n"
        writer.close()


async def test_a_stop_does_not_wait_for_ever_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    async with in_process(tmp_path / "s.pen", shutdown_timeout_s=0.2) as server:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.port)) as lazy:
            lazy.setblocking(False)
            await loop.sock_sendall(lazy, pack("SET", "big", "v" * (16 * MIB)) + pack("GET", "big") * 4)
            assert await loop.sock_recv(lazy, 5) == b"+OK\r\n"
            started_s = loop.time()
            await server.stop()
            assert loop.time() - started_s >= 0.2


@pytest.mark.parametrize(
    ("error", "answered"), [(StoreError("broken"), b"-ERR broken\r\n"), (RuntimeError("bug"), b"")]
)
async def test_a_batch_that_fails_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, answered: bytes
) -> None:
    """Its clients are told, or disconnected if nobody knows what they were told; the others are served."""
    async with in_process(tmp_path / "s.pen") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.port)

        def fail(*_: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(server.executor.engine, "execute", fail)
            writer.write(pack("PING"))
            try:
                assert await reader.readline() == answered
            except ConnectionResetError:
                assert answered == b""
        other_writer.write(pack("PING"))
        assert await other_reader.readline() == b"+PONG\r\n"
        writer.close()
        other_writer.close()
