"""Scripts behind the server: quick ones, slow ones in their thread, runaways that must be killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from penstock.engine import Engine
from penstock.errors import CommandError
from penstock.server import Server, ServerSettings
from penstock.testing.own_server import PenstockServer
from tests.integration.wire import TIMEOUT_S, Wire, connect, pack, resident_bytes, table_sizes
from tests.places import wait_until

MIB = 1 << 20
BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."

#: Longer than a script may take on the event loop, yet not for ever.
SLOW = "for i = 1, 1e7 do end "
RUNAWAY = "redis.call('SET', 'half', 'done') while true do end"


@contextlib.contextmanager
def serving(store: Path, loop: str) -> Iterator[PenstockServer]:
    with PenstockServer(store, durability="relaxed", environment={"PENSTOCK_LOOP": loop}) as running:
        yield running
        if running.process.poll() is None:
            assert running.stop() == 0
        assert "Traceback" not in running.log
        assert not (store / "signals").exists() or list((store / "signals").iterdir()) == []


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PenstockServer]:
    with serving(tmp_path_factory.mktemp("scripts") / "store.pen", request.param) as running:
        yield running


@pytest.fixture
def wire(server: PenstockServer) -> Iterator[Wire]:
    with connect(server.port) as wire:
        wire.do("FLUSHALL")
        wire.do("CONFIG", "SET", "busy-reply-threshold", 5000)
        yield wire


@pytest.fixture
def other(server: PenstockServer) -> Iterator[Wire]:
    with connect(server.port) as other:
        other.do("PING")
        yield other


@pytest.fixture
def runaway(wire: Wire, other: Wire) -> Wire:
    """The client whose script runs for ever; the server says BUSY to everybody else."""
    run_away(wire, other)
    return wire


def run_away(wire: Wire, other: Wire) -> None:
    other.do("CONFIG", "SET", "busy-reply-threshold", 50)
    wire.send("EVAL", RUNAWAY, 0)
    wait_until(lambda: isinstance(other.do("PING"), CommandError))


def kill(other: Wire, runaway: Wire) -> None:
    assert other.do("SCRIPT", "KILL") == b"OK"
    assert "killed by user" in str(runaway.receive())


# --------------------------------------------------------------------------- quick ones


def test_scripts_through_redis_py(server: PenstockServer) -> None:
    with redis.Redis(port=server.port) as client:
        add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        assert [add(keys=["n"], args=[5]), add(keys=["n"], args=[2])] == [5, 7]
        pipeline = client.pipeline()
        add(keys=["n"], args=[1], client=pipeline)
        pipeline.get("n")
        assert pipeline.execute() == [8, b"8"]
        with pytest.raises(redis.ResponseError):
            client.eval("return redis.call('INCR', 'n', 'too', 'many')", 0)


# ---------------------------------------------------------------------------- slow ones


def test_a_slow_script_ends_and_everything_goes_on_in_order(wire: Wire, other: Wire) -> None:
    wire.raw(
        pack("SET", "a", 1) + pack("EVAL", SLOW + "return redis.call('INCR', 'a')", 0) + pack("INCR", "a")
    )
    wire.raw(pack("INCR", "a") * 100)
    other.raw(pack("GET", "a") + pack("PING"))
    assert [wire.receive() for _ in range(103)] == [b"OK", *range(2, 104)]
    assert int(other.receive() or 0) in range(104)
    assert other.receive() == b"PONG"


def test_commands_of_the_same_batch_run_once(wire: Wire, other: Wire) -> None:
    """The batch of a slow script is undone and done again; nobody may see it twice."""
    for _ in range(5):
        wire.raw(
            pack("INCR", "n") + pack("EVAL", SLOW + "return redis.call('INCR', 'n')", 0) + pack("INCR", "n")
        )
        other.raw(pack("INCR", "m"))
        other.receive()
        for _ in range(3):
            wire.receive()
    assert wire.do("MGET", "n", "m") == [b"15", b"5"]


def test_several_scripts_of_one_batch(wire: Wire) -> None:
    count = "return redis.call('INCR', 'n')"
    scripts = [count, SLOW + count, count, SLOW + count, count]
    wire.raw(b"".join(pack("EVAL", script, 0) for script in scripts) + pack("GET", "n"))
    assert [wire.receive() for _ in range(6)] == [1, 2, 3, 4, 5, b"5"]


def test_a_slow_script_reaches_subscribers_and_waiters(
    server: PenstockServer, wire: Wire, other: Wire
) -> None:
    with connect(server.port, 3) as subscriber, connect(server.port) as waiter:
        subscriber.do("SUBSCRIBE", "news")
        waiter.raw(pack("BLPOP", "jobs", 0) + pack("PING"))
        wait_until(lambda: b"blocked_clients:1\r" in other.do("INFO", "clients"))
        script = SLOW + "redis.call('RPUSH', 'jobs', 'one') return redis.call('PUBLISH', 'news', 'hello')"
        assert wire.do("EVAL", script, 0) == 1
        assert subscriber.receive() == [b"message", b"news", b"hello"]
        assert [waiter.receive(), waiter.receive()] == [[b"jobs", b"one"], b"PONG"]


def test_what_follows_a_slow_script_in_its_batch_runs_in_the_thread(
    server: PenstockServer, wire: Wire
) -> None:
    """Blocking, killing others and leaving must work from there, too."""
    with connect(server.port) as victim, connect(server.port) as blocked:
        number = victim.do("CLIENT", "ID")
        wire.raw(
            pack("EVAL", SLOW + "return 1", 0)
            + pack("CLIENT", "KILL", "ID", number)
            + pack("BLPOP", "jobs", "0.05")
            + pack("PING")
        )
        assert victim.rest() == b""
        assert [wire.receive() for _ in range(4)] == [1, 1, None, b"PONG"]
        blocked.raw(pack("EVAL", SLOW + "return 1", 0) + pack("QUIT") + pack("SET", "never", 1))
        assert blocked.rest() == b":1\r\n+OK\r\n"
        assert wire.do("EXISTS", "never") == 0


def test_clients_come_and_go_while_a_slow_script_runs(server: PenstockServer, wire: Wire) -> None:
    with table_sizes(server.directory) as rows:
        for _ in range(3):
            wire.send("EVAL", SLOW + "return 1", 0)
            for _ in range(10):
                leaver = connect(server.port)
                leaver.raw(pack("RPUSH", "log", 1) + pack("SUBSCRIBE", "news") + pack("BLPOP", "jobs", 0))
                leaver.close()
            assert wire.receive() == 1
        wait_until(lambda: wire.do("LLEN", "log") == 30)
        wait_until(lambda: b"connected_clients:1\r" in wire.do("INFO", "clients"))
        assert rows("waiting") == rows("subscribed") == 0


def test_a_client_that_leaves_its_slow_script(server: PenstockServer, wire: Wire) -> None:
    with connect(server.port) as leaver:
        leaver.raw(pack("EVAL", SLOW + "return redis.call('SET', 'k', 'v')", 0) + pack("BLPOP", "jobs", 0))
    wait_until(lambda: wire.do("GET", "k") == b"v")
    wait_until(lambda: b"connected_clients:1\r" in wire.do("INFO", "clients"))
    assert wire.do("RPUSH", "jobs", "kept") == 1
    assert wire.do("LLEN", "jobs") == 1


def test_nobody_is_told_busy_before_the_threshold(wire: Wire, other: Wire) -> None:
    wire.send("EVAL", SLOW + SLOW + "return 1", 0)
    assert [other.do("PING") for _ in range(10)] == [b"PONG"] * 10
    assert wire.receive() == 1


def test_a_threshold_of_zero_means_never_busy(wire: Wire, other: Wire) -> None:
    other.do("CONFIG", "SET", "busy-reply-threshold", 0)
    wire.send("EVAL", SLOW * 5 + "return 1", 0)
    assert [other.do("PING") for _ in range(10)] == [b"PONG"] * 10
    assert wire.receive() == 1


def test_who_sends_much_while_a_script_runs_is_read_no_further(server: PenstockServer, wire: Wire) -> None:
    before = resident_bytes(server.process.pid)
    wire.send("EVAL", SLOW * 10 + "return 1", 0)
    with connect(server.port) as flooder:
        count = 2000
        request = pack("SET", "k", "v" * 50_000)
        sender = threading.Thread(target=lambda: [flooder.raw(request) for _ in range(count)])
        sender.start()
        assert wire.receive() == 1
        assert resident_bytes(server.process.pid) - before < 50 * MIB
        assert [flooder.receive() for _ in range(count)] == [b"OK"] * count
        sender.join()


# ----------------------------------------------------------------------------- runaways


def test_a_runaway_is_killed_and_undone(server: PenstockServer, runaway: Wire, other: Wire) -> None:
    assert other.error("GET", "k") == BUSY
    assert other.error("NOPE").startswith("ERR unknown command 'NOPE'")
    assert other.error("GET") == "ERR wrong number of arguments for 'get' command"
    with connect(server.port) as newcomer:
        assert newcomer.error("SET", "k", "v") == BUSY
        assert newcomer.do("HELLO", 3)[b"proto"] == 3
        assert newcomer.error("PING") == BUSY
        newcomer.send("QUIT")
        assert newcomer.rest() == b"+OK\r\n"
    kill(other, runaway)
    assert other.do("EXISTS", "half") == 0
    assert runaway.do("PING") == b"PONG"
    assert other.error("SCRIPT", "KILL") == "NOTBUSY No scripts in execution right now."


def test_a_runaway_in_a_transaction_is_undone(wire: Wire, other: Wire) -> None:
    other.do("CONFIG", "SET", "busy-reply-threshold", 50)
    wire.raw(
        pack("MULTI") + pack("SET", "a", 1) + pack("EVAL", RUNAWAY, 0) + pack("SET", "b", 1) + pack("EXEC")
    )
    wait_until(lambda: isinstance(other.do("PING"), CommandError))
    assert other.do("SCRIPT", "KILL") == b"OK"
    assert [wire.receive() for _ in range(4)] == [b"OK", b"QUEUED", b"QUEUED", b"QUEUED"]
    first, killed, last = wire.receive()
    assert (first, last) == (b"OK", b"OK")
    assert "killed by user" in str(killed)
    assert other.do("MGET", "a", "half", "b") == [b"1", None, b"1"]


async def test_who_shares_a_batch_with_a_runaway_is_not_stuck(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine:
        server = Server(engine, ServerSettings(port=0))
        await server.start()
        try:
            engine.config.script_time_limit_ms = 50
            streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
            while len(server.executor.guests) < 3:
                await asyncio.sleep(0)
            # Each sends once a tick, so these make one batch.
            for (_, writer), argv in zip(
                streams, (["SET", "k", "v"], ["EVAL", RUNAWAY, 0], ["PING"]), strict=True
            ):
                writer.write(pack(*argv))
            assert await streams[0][0].readline() == b"+OK\r\n"
            assert await streams[2][0].readline() == f"-{BUSY}\r\n".encode()
            streams[2][1].write(pack("SCRIPT", "KILL"))
            assert await streams[2][0].readline() == b"+OK\r\n"
            assert b"killed by user" in await streams[1][0].readline()
            for _, writer in streams:
                writer.close()
        finally:
            await server.stop()


def test_those_who_waited_are_told_in_order(wire: Wire, other: Wire) -> None:
    other.do("CONFIG", "SET", "busy-reply-threshold", 200)
    wire.raw(pack("EVAL", RUNAWAY, 0) + pack("PING"))
    other.raw(pack("GET", "k") * 100 + pack("SCRIPT", "KILL"))
    replies = [other.receive() for _ in range(101)]
    # Some may have been answered before the script began.
    assert [str(reply) for reply in replies[:-1] if reply is not None][-1:] == [BUSY]
    assert replies[-1] == b"OK"
    assert "killed by user" in str(wire.receive())
    assert wire.receive() == b"PONG"


def test_a_long_pipeline_is_refused_command_by_command(
    server: PenstockServer, runaway: Wire, other: Wire
) -> None:
    with connect(server.port) as eager:
        eager.raw(pack("INCR", "n") * 3000 + b"*x\r\n")
        refusals = f"-{BUSY}\r\n".encode() * 3000
        assert eager.rest() == refusals + b"-ERR Protocol error: invalid multibulk length\r\n"
    kill(other, runaway)


def test_refused_commands_spoil_a_transaction(server: PenstockServer, wire: Wire, other: Wire) -> None:
    with connect(server.port) as spoiled, connect(server.port) as refused:
        assert spoiled.do("MULTI") == refused.do("MULTI") == b"OK"
        refused.do("SET", "k", "v")
        run_away(wire, other)
        assert spoiled.error("SET", "k", "v") == BUSY
        assert refused.error("EXEC") == f"EXECABORT Transaction discarded because of: {BUSY}"
        kill(other, wire)
        assert spoiled.error("EXEC") == "EXECABORT Transaction discarded because of previous errors."
        assert refused.error("EXEC") == "ERR EXEC without MULTI"
        assert other.do("EXISTS", "k") == 0


def test_a_blocked_client_is_not_told_busy(server: PenstockServer, wire: Wire, other: Wire) -> None:
    with connect(server.port) as blocked:
        blocked.raw(pack("BLPOP", "jobs", 0) + pack("PING"))
        wait_until(lambda: b"blocked_clients:1\r" in other.do("INFO", "clients"))
        run_away(wire, other)
        blocked.raw(pack("GET", "k"))
        assert other.error("PING") == BUSY
        kill(other, wire)
        other.do("RPUSH", "jobs", "one")
        assert [blocked.receive() for _ in range(3)] == [[b"jobs", b"one"], b"PONG", None]


def test_timeouts_wait_for_the_script(server: PenstockServer, wire: Wire, other: Wire) -> None:
    with connect(server.port) as blocked:
        blocked.send("BLPOP", "jobs", "0.4")
        due_s = time.monotonic() + 0.4
        wait_until(lambda: b"blocked_clients:1\r" in other.do("INFO", "clients"))
        run_away(wire, other)
        wait_until(lambda: other.error("PING") == BUSY and time.monotonic() > due_s)
        blocked.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            blocked.socket.recv(1)
        blocked.socket.settimeout(TIMEOUT_S)
        kill(other, wire)
        assert blocked.receive() is None


def test_strangers_cannot_kill(server: PenstockServer, wire: Wire, other: Wire) -> None:
    other.do("CONFIG", "SET", "requirepass", "secret")
    run_away(wire, other)
    with connect(server.port) as stranger:
        assert stranger.error("SCRIPT", "KILL") == "NOAUTH Authentication required."
        assert stranger.error("SHUTDOWN", "NOSAVE") == "NOAUTH Authentication required."
        assert stranger.error("AUTH", "wrong").startswith("WRONGPASS")
        assert stranger.do("AUTH", "secret") == b"OK"
        kill(stranger, wire)
        assert stranger.do("CONFIG", "SET", "requirepass", "") == b"OK"


# ------------------------------------------------------------------ the end of the server


@pytest.fixture(params=["uvloop", "asyncio"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PenstockServer]:
    with serving(tmp_path / "store.pen", request.param) as running:
        yield running


def test_shutdown_while_busy(mortal: PenstockServer) -> None:
    with connect(mortal.port) as wire, connect(mortal.port) as other:
        run_away(wire, other)
        assert other.error("SHUTDOWN") == BUSY
        other.send("SHUTDOWN", "NOSAVE")
        assert other.rest() == b""
        assert mortal.process.wait(20) == 0
    mortal.start()
    with connect(mortal.port) as again:
        assert again.do("EXISTS", "half") == 0


def test_sigterm_ends_a_runaway(mortal: PenstockServer) -> None:
    with connect(mortal.port) as wire, connect(mortal.port) as other:
        run_away(wire, other)
        assert mortal.stop(timeout_s=20) == 0
        assert b"killed by user" in wire.rest()


def test_kill_9_in_the_middle_of_a_script(mortal: PenstockServer) -> None:
    with connect(mortal.port) as wire, connect(mortal.port) as other:
        run_away(wire, other)
        mortal.kill()
    mortal.start()
    with connect(mortal.port) as again:
        assert again.do("EXISTS", "half") == 0
        assert again.do("SET", "k", "v") == b"OK"
