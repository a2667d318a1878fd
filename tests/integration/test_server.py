"""The server over real sockets: clients people use, the protocol at its edges, passwords.

Every test runs on uvloop and on asyncio's own loop.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.errors import CommandError
from penstock.testing.own_server import PenstockServer
from tests.integration.wire import Wire, connect, pack, resident_bytes
from tests.places import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PenstockServer]:
    """One server for the module; its log must never show a traceback."""
    store = tmp_path_factory.mktemp("server") / "store.pen"
    with PenstockServer(store, durability="relaxed", environment={"PENSTOCK_LOOP": request.param}) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


@pytest.fixture
def wire(server: PenstockServer) -> Iterator[Wire]:
    with connect(server.port) as wire:
        wire.do("FLUSHALL")
        yield wire


# ------------------------------------------------------------------ clients people use


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest, server: PenstockServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, protocol=request.param) as client:
        client.flushall()
        yield client


def test_redis_py_values_and_pipelines(client: redis.Redis) -> None:
    assert client.set("k", "v")
    assert client.get("k") == b"v"
    assert client.hset("h", mapping={"a": 1, "b": 2}) == 2
    assert client.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert client.zadd("z", {"one": 1, "two": 2}) == 2
    assert client.zrange("z", 0, -1, withscores=True) in (
        [(b"one", 1.0), (b"two", 2.0)],
        [[b"one", 1.0], [b"two", 2.0]],
    )
    pipeline = client.pipeline(transaction=False)
    for number in range(3000):
        pipeline.rpush("list", number)
    assert pipeline.execute() == list(range(1, 3001))
    assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(3000)]


def test_redis_py_transactions(client: redis.Redis) -> None:
    client.set("balance", 5)

    def spend(pipeline: Any) -> None:
        left = int(pipeline.get("balance"))
        pipeline.multi()
        pipeline.set("balance", left - 1)
        pipeline.incr("spent")

    assert client.transaction(spend, "balance") == [True, 1]
    with client.pipeline() as pipeline:
        pipeline.watch("balance")
        client.set("balance", 100)
        pipeline.multi()
        pipeline.set("balance", 0)
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert client.get("balance") == b"100"


def test_redis_py_pubsub(client: redis.Redis) -> None:
    with client.pubsub() as listener:
        listener.subscribe("news")
        listener.psubscribe("n*")
        listened = listener.listen()
        assert [next(listened)["type"] for _ in range(2)] == ["subscribe", "psubscribe"]
        assert client.publish("news", "hello") == 2
        messages = [next(listened) for _ in range(2)]
        assert [(message["type"], message["data"]) for message in messages] == [
            ("message", b"hello"),
            ("pmessage", b"hello"),
        ]


def test_redis_py_blocking_pop(client: redis.Redis, server: PenstockServer) -> None:
    with redis.Redis(port=server.port) as other:
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(client.blpop(["jobs"], timeout=20)))
        waiting.start()
        wait_until(lambda: other.info("clients")["blocked_clients"] == 1)
        other.rpush("jobs", "one")
        waiting.join()
    assert list(found[0]) == [b"jobs", b"one"]
    assert client.blpop(["jobs"], timeout=0.01) is None


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py_asyncio(server: PenstockServer, protocol: int) -> None:
    async with redis.asyncio.Redis(port=server.port, protocol=protocol) as client:
        await client.flushall()
        async with client.pipeline(transaction=True) as pipeline:
            assert await pipeline.set("k", 1).incr("k").get("k").execute() == [True, 2, b"2"]
        async with client.pubsub() as listener:
            await listener.subscribe("news")
            confirmed = await listener.get_message(timeout=20)
            assert confirmed is not None
            assert confirmed["type"] == "subscribe"
            assert await client.publish("news", "hello") == 1
            message = await listener.get_message(timeout=20)
            assert message is not None
            assert message["data"] == b"hello"
        await client.rpush("jobs", "one")
        assert list(await client.blpop(["jobs"], timeout=20)) == [b"jobs", b"one"]


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not on PATH")
def test_redis_cli(server: PenstockServer) -> None:
    def cli(*words: str, stdin: str = "") -> str:
        command = ["redis-cli", "-p", str(server.port), *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True, timeout=20
        ).stdout

    assert cli("flushall") == "OK\n"
    assert cli("set", "greeting", "hello") == "OK\n"
    assert cli("-3", "get", "greeting") == "hello\n"
    assert cli("hset", "h", "f", "v") == "1\n"
    assert cli("-3", "--json", "hgetall", "h") == '{"f":"v"}\n'
    assert "WRONGTYPE" in cli("incr", "h")
    lines = "".join(f"SET key:{number} {number}\r\n" for number in range(5000))
    assert "errors: 0, replies: 5000" in cli("--pipe", stdin=lines)
    assert cli("get", "key:4999") == "4999\n"


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not on PATH")
@pytest.mark.parametrize("pipeline", ["1", "16"])
def test_redis_benchmark(server: PenstockServer, pipeline: str) -> None:
    done = subprocess.run(
        ["redis-benchmark", "-p", str(server.port), "-n", "2000", "-c", "20", "-P", pipeline, "--csv",
         "-t", "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert "rror" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 15


# ----------------------------------------------------------------------- pipelines


def test_a_long_pipeline_is_answered_in_order(wire: Wire) -> None:
    count = 30_000
    sender = threading.Thread(
        target=lambda: wire.raw(b"".join(pack("ECHO", number) for number in range(count)))
    )
    sender.start()
    assert [wire.receive() for _ in range(count)] == [b"%d" % number for number in range(count)]
    sender.join()


def test_replies_do_not_depend_on_how_the_bytes_are_cut(wire: Wire) -> None:
    request = pack("SET", "k", "v\r\n$3") + b"GET k\r\n" + pack("PING")
    for byte in request:
        wire.raw(bytes((byte,)))
    assert [wire.receive() for _ in range(3)] == [b"OK", b"v\r\n$3", b"PONG"]


def test_commands_of_many_clients_in_one_tick_keep_their_own_order(
    server: PenstockServer, wire: Wire
) -> None:
    clients = [connect(server.port) for _ in range(30)]
    for client in clients:
        client.raw(b"".join(pack("INCR", "n") for _ in range(20)))
    replies = [[client.receive() for _ in range(20)] for client in clients]
    assert all(row == sorted(row) for row in replies)
    assert sorted(number for row in replies for number in row) == list(range(1, 601))
    for client in clients:
        client.close()


def test_the_protocol_switches_between_two_replies(wire: Wire) -> None:
    wire.raw(pack("HSET", "h", "f", "v") + pack("HGETALL", "h") + pack("HELLO", 3) + pack("HGETALL", "h"))
    wire.raw(pack("RESET") + pack("HGETALL", "h"))
    replies = [wire.receive() for _ in range(6)]
    assert replies[1] == [b"f", b"v"]
    assert replies[2][b"proto"] == 3
    assert replies[3] == {b"f": b"v"}
    assert replies[4:] == [b"RESET", [b"f", b"v"]]


def test_quit_answers_and_closes(wire: Wire) -> None:
    wire.raw(pack("SET", "k", "1") + pack("QUIT") + pack("SET", "k", "2"))
    assert wire.rest() == b"+OK\r\n+OK\r\n"


def test_quit_ignores_what_follows(server: PenstockServer, wire: Wire) -> None:
    with connect(server.port) as other:
        other.raw(pack("SET", "k", "1") + pack("QUIT") + pack("SET", "k", "2"))
        other.rest()
    assert wire.do("GET", "k") == b"1"


def test_reply_modes(server: PenstockServer, wire: Wire) -> None:
    wire.raw(pack("CLIENT", "REPLY", "OFF") + pack("SET", "k", "1") + pack("GET", "missing"))
    wire.raw(pack("CLIENT", "REPLY", "ON") + pack("GET", "k"))
    assert [wire.receive(), wire.receive()] == [b"OK", b"1"]
    wire.raw(pack("CLIENT", "REPLY", "SKIP") + pack("GET", "k") + pack("GET", "k"))
    assert wire.receive() == b"1"
    with connect(server.port) as other:
        assert wire.nothing_arrives(other)


# ------------------------------------------------------------------------ who goes away


def test_a_client_that_stops_sending_gets_its_replies(wire: Wire) -> None:
    wire.raw(b"SET k v\r\nGET k\r\nPING\r\n")
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.rest() == b"+OK\r\n$1\r\nv\r\n+PONG\r\n"


def test_a_long_pipeline_of_a_client_that_stops_sending_is_answered(wire: Wire) -> None:
    def send() -> None:
        wire.raw(b"INCR n\r\n" * 20_000)
        wire.socket.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    assert wire.rest() == b"".join(b":%d\r\n" % number for number in range(1, 20_001))
    sender.join()


def test_commands_of_a_client_that_vanishes_are_executed(server: PenstockServer, wire: Wire) -> None:
    for number in range(50):
        other = connect(server.port)
        other.raw(pack("RPUSH", "log", number))
        other.close()
    wait_until(lambda: wire.do("LLEN", "log") == 50)


def test_a_client_that_resets_its_connection_harms_nobody(server: PenstockServer, wire: Wire) -> None:
    for _ in range(20):
        other = connect(server.port)
        other.raw(pack("SET", "k", "v" * 100_000) + pack("GET", "k") * 50)
        # Close with a reset instead of the usual farewell.
        other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
    with connect(server.port) as last:
        last.do("PING")  # whoever came before it is known by now
    wait_until(lambda: wire.do("INFO", "clients").count(b"connected_clients:1\r") == 1)


# ----------------------------------------------------------------------- bad protocol


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"*1\r\n+PING\r\n", b"-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"*abc\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$9999999999\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b'SET k "unbalanced\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"x" * 70_000, b"-ERR Protocol error: too big inline request\r\n"),
        (b"*" + b"1" * 70_000, b"-ERR Protocol error: too big mbulk count string\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(70_000), b"-ERR Protocol error: too big"),
    ],
)
def test_a_malformed_request_closes_after_the_replies_before_it(
    wire: Wire, sent: bytes, answered: bytes
) -> None:
    wire.raw(pack("SET", "k", "v") + pack("GET", "k") + sent)
    assert wire.rest().startswith(b"+OK\r\n$1\r\nv\r\n" + answered)


def test_a_malformed_request_behind_a_long_pipeline(wire: Wire) -> None:
    wire.raw(b"INCR n\r\n" * 500 + b"*x\r\n" + b"INCR n\r\n")
    expected = b"".join(b":%d\r\n" % number for number in range(1, 501))
    assert wire.rest() == expected + b"-ERR Protocol error: invalid multibulk length\r\n"


def test_a_malformed_request_behind_a_blocked_command(server: PenstockServer, wire: Wire) -> None:
    wire.raw(pack("BLPOP", "jobs", 0) + b"*x\r\n")
    with connect(server.port) as other:
        wait_until(lambda: b"blocked_clients:1\r" in other.do("INFO", "clients"))
        assert wire.nothing_arrives(other)
        other.do("RPUSH", "jobs", "one")
        assert wire.rest() == pack("jobs", "one") + b"-ERR Protocol error: invalid multibulk length\r\n"


def test_inline_commands(wire: Wire) -> None:
    wire.raw(b"\r\n\r\n  SET  key \"a\\x41\\n\"  \r\nget 'key'\nPING\r\nFOO\r\n")
    assert [wire.receive() for _ in range(3)] == [b"OK", b"aA\n", b"PONG"]
    assert str(wire.receive()) == "ERR unknown command 'FOO', with args beginning with: "


def test_refused_commands_leave_the_connection_open(wire: Wire) -> None:
    assert wire.error("NOPE").startswith("ERR unknown command 'NOPE'")
    assert wire.error("GET") == "ERR wrong number of arguments for 'get' command"
    assert wire.error("SETRANGE", "k", 2**40, "v").startswith("ERR string exceeds maximum allowed size")
    assert wire.do("PING") == b"PONG"


def test_a_request_over_the_limits_is_refused_before_it_is_buffered(
    server: PenstockServer, wire: Wire
) -> None:
    before = resident_bytes(server.process.pid)
    wire.raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (600 * MIB))
    assert wire.rest() == b"-ERR Protocol error: invalid bulk length\r\n"
    with connect(server.port) as other:
        # Announced only: what has not arrived occupies nothing.
        other.raw(b"*1000000\r\n$3\r\nSET\r\n")
        with connect(server.port) as third:
            third.raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\nabc" % (500 * MIB))
            with connect(server.port) as fourth:
                assert fourth.do("PING") == b"PONG"
            assert resident_bytes(server.process.pid) - before < 16 * MIB


def test_a_large_value_travels_both_ways(wire: Wire) -> None:
    value = bytes(range(256)) * (8 * MIB // 256)
    assert wire.do("SET", "big", value) == b"OK"
    assert wire.do("GET", "big") == value


# -------------------------------------------------------------------------- passwords


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def locked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PenstockServer]:
    """A server with a password."""
    store = tmp_path_factory.mktemp("locked") / "store.pen"
    environment = {"PENSTOCK_LOOP": request.param, "PENSTOCK_PASSWORD": "secret"}
    with PenstockServer(store, durability="relaxed", environment=environment) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


def test_nothing_without_the_password(locked: PenstockServer) -> None:
    with connect(locked.port) as wire:
        assert wire.error("GET", "k") == "NOAUTH Authentication required."
        assert wire.error("SUBSCRIBE", "c") == "NOAUTH Authentication required."
        assert wire.error("HELLO", 3).startswith(
            "NOAUTH HELLO must be called with the client already authenticated"
        )
        assert wire.error("AUTH", "wrong") == "WRONGPASS invalid username-password pair or user is disabled."
        assert wire.error("AUTH", "somebody", "secret").startswith("WRONGPASS")
        assert wire.do("AUTH", "secret") == b"OK"
        assert wire.do("PING") == b"PONG"
        assert wire.do("RESET") == b"RESET"
        assert wire.error("PING") == "NOAUTH Authentication required."


def test_the_password_in_hello(locked: PenstockServer) -> None:
    with connect(locked.port) as wire:
        assert wire.do("HELLO", 3, "AUTH", "default", "secret", "SETNAME", "me")[b"proto"] == 3
        assert wire.do("CLIENT", "GETNAME") == b"me"
    with redis.Redis(port=locked.port, password="secret", protocol=3) as client:
        assert client.ping()
    wrong = redis.Redis(port=locked.port, password="wrong", retry=Retry(NoBackoff(), 0))
    with wrong, pytest.raises(redis.AuthenticationError):
        wrong.ping()


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"*11\r\n", b"-ERR Protocol error: unauthenticated multibulk length\r\n"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"-ERR Protocol error: unauthenticated bulk length\r\n"),
    ],
)
def test_strangers_are_held_to_small_requests(locked: PenstockServer, sent: bytes, answered: bytes) -> None:
    with connect(locked.port) as wire:
        wire.raw(sent)
        assert wire.rest() == answered
    with connect(locked.port) as wire:
        wire.raw(pack("AUTH", "wrong") + sent)
        refused, error = wire.rest().splitlines(keepends=True)
        assert refused.startswith(b"-WRONGPASS")
        assert error == answered


def test_a_large_request_may_follow_the_password_at_once(locked: PenstockServer) -> None:
    with connect(locked.port) as wire:
        value = "v" * 300_000
        wire.raw(pack("AUTH", "secret") + pack("SET", "k", value) + pack("GET", "k") + pack("PING"))
        assert [wire.receive() for _ in range(4)] == [b"OK", b"OK", value.encode(), b"PONG"]


def test_a_password_set_later_holds_for_newcomers(server: PenstockServer, wire: Wire) -> None:
    assert wire.do("CONFIG", "SET", "requirepass", "new") == b"OK"
    with connect(server.port) as other:
        assert other.error("GET", "k") == "NOAUTH Authentication required."
        other.raw(b"*11\r\n")
        assert other.rest() == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    assert wire.do("CONFIG", "SET", "requirepass", "") == b"OK"
    with connect(server.port) as other:
        assert not isinstance(other.do("GET", "k"), CommandError)


def test_addresses_are_shown(server: PenstockServer, wire: Wire) -> None:
    host, port = wire.socket.getsockname()
    shown = wire.do("CLIENT", "INFO")
    assert f" addr={host}:{port} laddr=127.0.0.1:{server.port} ".encode() in shown


def test_the_store_is_where_it_should_be(server: PenstockServer, wire: Wire) -> None:
    wire.do("SET", "k", "v")
    assert {"data.mdb", "lock.mdb"} <= {entry.name for entry in Path(server.directory).iterdir()}
