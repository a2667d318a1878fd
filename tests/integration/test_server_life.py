"""Doors (TLS, unix sockets), graceful stop, kill -9, several servers on one directory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from penstock.errors import PenstockError
from penstock.testing.own_server import PenstockServer
from tests.certificates import CERTIFICATES
from tests.integration.wire import Wire, connect, connect_unix, pack, table_sizes
from tests.places import wait_until


@pytest.fixture(params=["uvloop", "asyncio"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"PENSTOCK_LOOP": request.param}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.pen"


@pytest.fixture
def server(store: Path, environment: dict[str, str]) -> Iterator[PenstockServer]:
    with PenstockServer(store, environment=environment) as running:
        yield running
        assert "Traceback" not in running.log


# ------------------------------------------------------------------------------- TLS


@pytest.fixture
def tls_options() -> tuple[str, ...]:
    return (
        "--tls-cert-file",
        str(CERTIFICATES / "server.crt"),
        "--tls-key-file",
        str(CERTIFICATES / "server.key"),
    )


def test_tls(store: Path, environment: dict[str, str], tls_options: tuple[str, ...]) -> None:
    with PenstockServer(store, *tls_options, environment=environment) as server:
        trusted = {"ssl": True, "ssl_ca_certs": str(CERTIFICATES / "server.crt")}
        with redis.Redis(host="localhost", port=server.port, protocol=3, **trusted) as client:
            assert client.set("k", "v" * 1_000_000)
            assert client.get("k") == b"v" * 1_000_000
            pipeline = client.pipeline(transaction=False)
            for number in range(5000):
                pipeline.echo(str(number))
            assert pipeline.execute() == [b"%d" % number for number in range(5000)]
        context = ssl.create_default_context(cafile=str(CERTIFICATES / "server.crt"))
        with context.wrap_socket(
            socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost"
        ) as sock:
            wire = Wire(sock)
            wire.raw(pack("PING") + b"*x\r\n")
            assert wire.rest() == b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"
        assert server.stop() == 0
        assert "Traceback" not in server.log


def test_plain_text_to_a_tls_port_is_dropped(
    store: Path, environment: dict[str, str], tls_options: tuple[str, ...]
) -> None:
    with PenstockServer(store, *tls_options, environment=environment) as server:
        with connect(server.port) as wire:
            wire.raw(pack("PING"))
            assert b"PONG" not in wire.rest()
        with redis.Redis(host="localhost", port=server.port, ssl=True, ssl_cert_reqs="none") as client:
            assert client.ping()
        assert server.stop() == 0
        assert "Traceback" not in server.log


# ----------------------------------------------------------------------- unix sockets


def test_a_unix_socket(store: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "s.sock"
    with PenstockServer(store, "--unixsocket", str(path), environment=environment) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        with connect_unix(path) as wire, connect(server.port) as other:
            assert wire.do("SET", "k", "v") == b"OK"
            assert other.do("GET", "k") == b"v"
            assert f" addr={path}:0 laddr={path}:0 ".encode() in wire.do("CLIENT", "INFO")
            wire.raw(pack("PING"))
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.rest() == b"+PONG\r\n"
        with redis.Redis(unix_socket_path=str(path)) as client:
            assert client.get("k") == b"v"
        assert server.stop() == 0
        assert not path.exists()


def test_the_socket_file_of_a_killed_server_is_replaced(
    store: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "s.sock"
    with PenstockServer(store, "--unixsocket", str(path), environment=environment) as server:
        server.kill()
        assert path.exists()
        server.start()
        with connect_unix(path) as wire:
            assert wire.do("PING") == b"PONG"


def test_a_socket_on_which_somebody_listens_is_left_alone(
    store: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "s.sock"
    with PenstockServer(store, "--unixsocket", str(path), environment=environment):
        second = PenstockServer(store, "--unixsocket", str(path), environment=environment)
        with pytest.raises(PenstockError, match="somebody already listens on the unix socket"):
            second.start()
        with connect_unix(path) as wire:
            assert wire.do("PING") == b"PONG"


def test_a_file_in_place_of_the_socket_is_left_alone(
    store: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(PenstockError, match="exists and is not a socket"):
        PenstockServer(store, "--unixsocket", str(path), environment=environment).start()
    assert path.read_text() == "data"


def test_a_replaced_socket_is_not_removed_at_the_end(
    store: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "s.sock"
    with PenstockServer(store, "--unixsocket", str(path), environment=environment) as first:
        path.unlink()
        with PenstockServer(store, "--unixsocket", str(path), environment=environment):
            assert first.stop() == 0
            with connect_unix(path) as wire:
                assert wire.do("PING") == b"PONG"


# ------------------------------------------------------------------------ graceful stop


def test_sigterm_answers_what_has_arrived(server: PenstockServer, store: Path) -> None:
    with contextlib.ExitStack() as open_connections:
        clients = [open_connections.enter_context(connect(server.port)) for _ in range(20)]
        for client in clients:
            client.do("PING")
        subscriber, blocked = (open_connections.enter_context(connect(server.port)) for _ in range(2))
        subscriber.do("SUBSCRIBE", "news")
        blocked.send("BLPOP", "jobs", 0)
        for client in clients:
            client.raw(pack("INCR", "n") * 100)
        assert server.stop() == 0
        assert all(client.rest().count(b"\r\n") == 100 for client in clients)
        assert subscriber.rest() == blocked.rest() == b""
    assert list((store / "signals").iterdir()) == []
    with table_sizes(store) as rows:
        assert rows("waiting") == rows("waiters") == rows("subscribed") == 0
    server.start()
    with connect(server.port) as client:
        assert client.do("GET", "n") == b"2000"


def test_sigterm_under_load(server: PenstockServer) -> None:
    def hammer() -> None:
        with contextlib.suppress(AssertionError, OSError), connect(server.port) as wire:
            while True:
                wire.raw(pack("INCR", "n") * 10)
                for _ in range(10):
                    wire.receive()

    threads = [threading.Thread(target=hammer) for _ in range(5)]
    for thread in threads:
        thread.start()
    with connect(server.port) as wire:
        wait_until(lambda: int(wire.do("GET", "n") or 0) > 100)
    # Less than it would wait for a client that does not read.
    assert server.stop(timeout_s=4) == 0
    for thread in threads:
        thread.join()


def test_shutdown_command(server: PenstockServer, store: Path) -> None:
    with connect(server.port) as wire:
        wire.do("SET", "k", "v")
        wire.send("SHUTDOWN")
        assert wire.rest() == b""
    assert server.process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_quietly(server: PenstockServer, number: signal.Signals) -> None:
    with connect(server.port) as wire:
        wire.do("PING")
        server.process.send_signal(number)
        assert server.process.wait(10) == 0
        assert wire.rest() == b""
    assert server.log == ""


# ------------------------------------------------------------------------------ kill -9


def test_what_was_acknowledged_survives_kill_9(server: PenstockServer, store: Path) -> None:
    acknowledged: list[int] = []

    def write(name: int) -> None:
        with connect(server.port) as wire:
            try:
                for number in range(1_000_000):
                    wire.do("SET", f"{name}:{number}", number)
                    acknowledged.append(name * 1_000_000 + number)
            except (AssertionError, OSError):
                return

    writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for writer in writers:
        writer.start()
    wait_until(lambda: len(acknowledged) > 500)
    server.kill()
    for writer in writers:
        writer.join()
    server.start()
    with connect(server.port) as wire:
        for key in acknowledged:
            name, number = divmod(key, 1_000_000)
            assert wire.do("GET", f"{name}:{number}") == b"%d" % number


def test_waiters_and_subscribers_of_a_killed_server_are_forgotten(
    server: PenstockServer, store: Path
) -> None:
    with connect(server.port) as wire, connect(server.port) as blocked, connect(server.port) as subscriber:
        subscriber.do("SUBSCRIBE", "news")
        blocked.send("BLPOP", "jobs", 0)
        wait_until(lambda: b"blocked_clients:1\r" in wire.do("INFO", "clients"))
        server.kill()
    server.start()
    with connect(server.port) as wire, table_sizes(store) as rows:
        assert wire.do("RPUSH", "jobs", "kept") == 1
        assert wire.do("LLEN", "jobs") == 1
        assert wire.do("PUBLISH", "news", "anybody?") == 0
        wait_until(lambda: rows("waiters") == rows("waiting") == rows("subscribed") == 0)


# -------------------------------------------------------------------------- two servers


def test_two_servers_share_everything(
    server: PenstockServer, store: Path, environment: dict[str, str]
) -> None:
    with (
        PenstockServer(store, environment=environment) as second,
        connect(server.port) as here,
        connect(second.port) as there,
    ):
        here.do("SET", "k", "v")
        assert there.do("GET", "k") == b"v"

        with connect(second.port, 3) as listener:
            listener.do("SUBSCRIBE", "news")
            listener.do("PSUBSCRIBE", "n*")
            for number in range(100):
                assert here.do("PUBLISH", "news", number) == 2
            heard = [listener.receive() for _ in range(200)]
            assert [item[2] for item in heard if item[0] == b"message"] == [b"%d" % n for n in range(100)]
            assert [item[3] for item in heard if item[0] == b"pmessage"] == [b"%d" % n for n in range(100)]

        there.send("BLPOP", "jobs", 0)
        with table_sizes(store) as rows:
            wait_until(lambda: rows("waiting") == 1)
        assert here.do("RPUSH", "jobs", "one", "two") == 2
        assert there.receive() == [b"jobs", b"one"]
        assert here.do("LRANGE", "jobs", 0, -1) == [b"two"]

        here.do("WATCH", "k")
        there.do("SET", "k", "other")
        here.do("MULTI")
        here.do("SET", "k", "mine")
        assert here.do("EXEC") is None
        assert second.stop() == 0
        assert here.do("GET", "k") == b"other"
        assert "Traceback" not in second.log


def test_a_wait_that_times_out_as_it_is_served_elsewhere(
    server: PenstockServer, store: Path, environment: dict[str, str]
) -> None:
    with (
        PenstockServer(store, environment=environment) as second,
        connect(server.port) as here,
        connect(second.port) as there,
    ):
        taken = []
        for number in range(100):
            there.send("BLPOP", "jobs", "0.01")
            here.do("RPUSH", "jobs", number)
            reply = there.receive()
            if reply is not None:
                taken.append(reply[1])
        left = here.do("LRANGE", "jobs", 0, -1)
        assert sorted([*taken, *left], key=int) == [b"%d" % number for number in range(100)]


def test_a_dead_server_does_not_keep_what_was_meant_for_its_clients(
    server: PenstockServer, store: Path, environment: dict[str, str]
) -> None:
    with (
        PenstockServer(store, environment=environment) as second,
        connect(server.port) as here,
        connect(second.port) as there,
        table_sizes(store) as rows,
    ):
        there.send("BLPOP", "jobs", 0)
        wait_until(lambda: rows("waiting") == 1)
        os.kill(second.process.pid, signal.SIGSTOP)
        assert here.do("RPUSH", "jobs", "precious") == 1
        assert here.do("LLEN", "jobs") == 0
        second.kill()
        # The first server finds out by itself and puts the element back.
        wait_until(lambda: here.do("LRANGE", "jobs", 0, -1) == [b"precious"])
