"""Clients that wait: order of what they send meanwhile, timeouts, how a wait can end, what stays behind."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import CommandError
from penstock.testing.own_server import PenstockServer
from tests.integration.wire import Wire, connect, pack, table_sizes
from tests.places import wait_until


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PenstockServer]:
    store = tmp_path_factory.mktemp("blocking") / "store.pen"
    with PenstockServer(store, durability="relaxed", environment={"PENSTOCK_LOOP": request.param}) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log
        assert list((store / "signals").iterdir()) == []


@pytest.fixture
def wire(server: PenstockServer) -> Iterator[Wire]:
    with connect(server.port) as wire:
        wire.do("FLUSHALL")
        yield wire


@pytest.fixture
def other(server: PenstockServer) -> Iterator[Wire]:
    with connect(server.port) as other:
        yield other


@pytest.fixture(scope="module")
def rows(server: PenstockServer) -> Iterator[Callable[[str], int]]:
    with table_sizes(server.directory) as count:
        yield count


def blocked_clients(wire: Wire) -> int:
    return int(wire.do("INFO", "clients").partition(b"blocked_clients:")[2].split(b"\r")[0])


def wait_for_blocked(wire: Wire, count: int = 1) -> None:
    wait_until(lambda: blocked_clients(wire) == count)


def test_what_a_blocked_client_sends_runs_afterwards_in_order(wire: Wire, other: Wire) -> None:
    wire.raw(pack("BLPOP", "jobs", 0) + pack("APPEND", "s", "a"))
    wait_for_blocked(other)
    for letter in "bcd":
        wire.send("APPEND", "s", letter)
    assert other.do("EXISTS", "s") == 0
    other.do("RPUSH", "jobs", "one")
    assert [wire.receive() for _ in range(5)] == [[b"jobs", b"one"], 1, 2, 3, 4]
    assert wire.do("GET", "s") == b"abcd"


def test_a_pipeline_that_blocks_again_and_again(wire: Wire, other: Wire) -> None:
    wire.raw(b"".join(pack("BLPOP", "jobs", 0) + pack("APPEND", "s", number) for number in range(200)))
    for number in range(200):
        other.do("RPUSH", "jobs", number)
    replies = [wire.receive() for _ in range(400)]
    assert [reply[1] for reply in replies[::2]] == [b"%d" % number for number in range(200)]
    assert wire.do("GET", "s") == b"".join(b"%d" % number for number in range(200))


def test_a_client_is_served_and_goes_on_within_one_batch(wire: Wire, other: Wire) -> None:
    # All of these arrive in one read, so they run in one transaction.
    wire.raw(pack("CLIENT", "ID"))
    wire.receive()
    for round_ in range(20):
        wire.raw(pack("BLPOP", "jobs", 0) + pack("APPEND", "s", "a") + pack("STRLEN", "s"))
        other.raw(pack("RPUSH", "jobs", round_))
        assert [wire.receive() for _ in range(3)] == [[b"jobs", b"%d" % round_], round_ + 1, round_ + 1]
        other.receive()


def test_a_long_pipeline_behind_a_blocked_command(wire: Wire, other: Wire) -> None:
    wire.raw(pack("BLPOP", "jobs", 0) + pack("INCR", "n") * 5000)
    wait_for_blocked(other)
    other.do("RPUSH", "jobs", "one")
    assert [wire.receive() for _ in range(5001)] == [[b"jobs", b"one"], *range(1, 5001)]


def test_timeouts(wire: Wire, other: Wire, rows: Callable[[str], int]) -> None:
    wire.raw(pack("BLPOP", "jobs", "0.05") + pack("BRPOP", "jobs", "0.01") + pack("PING"))
    assert [wire.receive() for _ in range(3)] == [None, None, b"PONG"]
    assert rows("waiting") == rows("waiters") == 0
    assert blocked_clients(other) == 0


def test_a_served_client_is_not_timed_out_later(wire: Wire, other: Wire) -> None:
    wire.send("BLPOP", "jobs", "0.2")
    wait_for_blocked(other)
    other.do("RPUSH", "jobs", "one")
    assert wire.receive() == [b"jobs", b"one"]
    wire.send("BLPOP", "jobs", 0)
    wait_for_blocked(other)
    # Longer than the first timeout would have been.
    assert other.do("BLPOP", "nothing", "0.3") is None
    assert wire.nothing_arrives(other)
    other.do("RPUSH", "jobs", "two")
    assert wire.receive() == [b"jobs", b"two"]


@pytest.mark.parametrize("farewell", ["close", "half-close", "reset"])
def test_a_client_that_leaves_while_blocked_leaves_nothing(
    server: PenstockServer, wire: Wire, rows: Callable[[str], int], farewell: str
) -> None:
    with connect(server.port) as leaver:
        leaver.raw(pack("BLPOP", "jobs", "more", 0) + pack("SET", "never", "done"))
        wait_for_blocked(wire)
        assert rows("waiters") == 2
        if farewell == "half-close":
            leaver.socket.shutdown(socket.SHUT_WR)
        elif farewell == "reset":
            leaver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if farewell != "half-close":
            leaver.close()
        wait_until(lambda: rows("waiting") == 0)
        assert rows("waiters") == 0
    assert wire.do("RPUSH", "jobs", "kept") == 1
    assert wire.do("LRANGE", "jobs", 0, -1) == [b"kept"]
    assert wire.do("EXISTS", "never") == 0


def test_a_client_that_blocks_and_leaves_at_once_leaves_nothing(
    server: PenstockServer, wire: Wire, rows: Callable[[str], int]
) -> None:
    for _ in range(50):
        leaver = connect(server.port)
        leaver.raw(pack("BLPOP", "jobs", 0))
        leaver.close()
    with connect(server.port) as subscriber:
        subscriber.send("SUBSCRIBE", "news")
    with connect(server.port) as last:
        last.do("PING")  # whoever came before it is known by now
    wait_until(lambda: wire.do("INFO", "clients").count(b"connected_clients:1\r") == 1)
    assert rows("waiting") == rows("waiters") == rows("subscribed") == 0
    assert wire.do("RPUSH", "jobs", "kept") == 1


def test_client_unblock(wire: Wire, other: Wire, rows: Callable[[str], int]) -> None:
    number = wire.do("CLIENT", "ID")
    wire.send("BLPOP", "jobs", 0)
    wait_for_blocked(other)
    assert other.do("CLIENT", "UNBLOCK", number) == 1
    assert wire.receive() is None
    wire.raw(pack("BLPOP", "jobs", 0) + pack("PING"))
    wait_for_blocked(other)
    assert other.do("CLIENT", "UNBLOCK", number, "ERROR") == 1
    assert str(wire.receive()) == "UNBLOCKED client unblocked via CLIENT UNBLOCK"
    assert wire.receive() == b"PONG"
    assert other.do("CLIENT", "UNBLOCK", number) == 0
    assert rows("waiters") == 0


def test_client_kill(server: PenstockServer, wire: Wire, rows: Callable[[str], int]) -> None:
    with connect(server.port) as victim:
        number = victim.do("CLIENT", "ID")
        victim.send("BLPOP", "jobs", 0)
        wait_for_blocked(wire)
        assert wire.do("CLIENT", "KILL", "ID", number) == 1
        assert victim.rest() == b""
        assert f"id={number} ".encode() not in wire.do("CLIENT", "LIST")
        assert rows("waiters") == 0
    assert wire.error("CLIENT", "KILL", "1.2.3.4:5") == "ERR No such client"
    assert wire.do("CLIENT", "KILL", "ID", wire.do("CLIENT", "ID"), "SKIPME", "no") == 1
    assert wire.rest() == b""


def test_client_pause(wire: Wire, other: Wire) -> None:
    assert other.do("CLIENT", "PAUSE", 100_000, "WRITE") == b"OK"
    wire.raw(pack("GET", "k") + pack("SET", "k", "v") + pack("GET", "k"))
    assert wire.receive() is None
    assert wire.nothing_arrives(other)
    assert other.do("CLIENT", "UNPAUSE") == b"OK"
    assert [wire.receive(), wire.receive()] == [b"OK", b"v"]
    assert other.do("CLIENT", "PAUSE", 50) == b"OK"
    assert wire.do("SET", "k", "after") == b"OK"


def test_clients_are_served_in_order_of_arrival(server: PenstockServer, wire: Wire) -> None:
    waiters = []
    for number in range(5):
        waiter = connect(server.port)
        waiter.send("BLPOP", "jobs", 0)
        wait_for_blocked(wire, number + 1)
        waiters.append(waiter)
    wire.do("RPUSH", "jobs", *range(5))
    assert [waiter.receive()[1] for waiter in waiters] == [b"%d" % number for number in range(5)]
    for waiter in waiters:
        waiter.close()


def test_a_blocking_command_in_a_transaction_does_not_wait(wire: Wire) -> None:
    wire.raw(pack("MULTI") + pack("BLPOP", "jobs", 0) + pack("EXEC"))
    assert [wire.receive() for _ in range(3)] == [b"OK", b"QUEUED", [None]]


def test_a_subscriber_hears_while_others_wait(wire: Wire, other: Wire) -> None:
    other.do("SUBSCRIBE", "news")
    wire.send("BLPOP", "jobs", "0.05")
    assert wire.receive() is None
    assert wire.do("PUBLISH", "news", "hello") == 1
    assert other.receive() == [b"message", b"news", b"hello"]
    assert isinstance(other.do("GET", "k"), CommandError)
