"""The client for code without ``await``: the same names, from any thread."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock.blocking
from penstock.errors import ClosedError, CommandError, UsageError, WatchError
from tests.client.conftest import Place


@pytest.fixture
def ps(place: Place) -> Iterator[penstock.blocking.Client]:
    with penstock.blocking.open(place.url, protocol=place.protocol, durability="relaxed") as client:
        yield client


def test_commands(ps: penstock.blocking.Client) -> None:
    assert ps.set("k", "v") == b"OK"
    assert ps.get("k") == b"v"
    assert ps.execute("INCRBY", "n", 5, timeout_ms=5_000) == 5
    ps.hset("h", {"f": "v"})
    assert ps.hgetall("h") == {b"f": b"v"}
    with pytest.raises(CommandError, match="WRONGTYPE"):
        ps.lpush("k", "x")
    assert ps.blpop("none", timeout_s=0.01) is None
    assert "blocking" in repr(ps)


def test_threads_share_a_client(ps: penstock.blocking.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: ps.incr("n"), range(200)))
    assert sorted(values) == list(range(1, 201))


async def test_inside_a_running_loop(ps: penstock.blocking.Client) -> None:
    assert asyncio.get_running_loop().is_running()
    assert ps.set("k", "v") == b"OK"


def test_pipelines_and_transactions(ps: penstock.blocking.Client) -> None:
    pipe = ps.pipeline()
    pipe.set("{p}a", 1)
    later = pipe.incr("{p}a")
    assert len(pipe) == 2
    assert pipe.all()[1] == 2
    assert later.result() == 2
    tx = ps.transaction()
    tx.incr("{p}a")
    assert tx.last() == 3


def test_exclusive_connections(ps: penstock.blocking.Client) -> None:
    ps.set("{w}k", 1)
    with ps.exclusive("{w}k") as own:
        assert own.get("{w}k") == b"1"
        ps.set("{w}k", 2)
        tx = own.transaction()
        tx.set("{w}k", 3)
        with pytest.raises(WatchError):
            tx.all()

    def increment(own: Any) -> Any:
        tx = own.transaction()
        tx.set("{w}k", int(own.get("{w}k")) + 1)
        return tx

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ps.transact(increment, "{w}k"), range(20)))
    assert ps.get("{w}k") == b"22"


def test_scripts(ps: penstock.blocking.Client, tmp_path: Path) -> None:
    assert ps.script("return ARGV[1]")(keys=["k"], args=["x"]) == b"x"
    (tmp_path / "one.lua").write_text("return 1")
    library = ps.scripts(tmp_path)
    assert library["one"](keys=["k"]) == 1


def test_scanning(ps: penstock.blocking.Client) -> None:
    for number in range(30):
        ps.set(f"scan-{number}", 1)
    assert set(ps.scan_iter(match="scan-*", count=5)) == {f"scan-{n}".encode() for n in range(30)}
    ps.sadd("s", "a", "b")
    assert sorted(ps.sscan_iter("s")) == [b"a", b"b"]


def test_messages(ps: penstock.blocking.Client) -> None:
    with ps.pubsub() as subscriber:
        subscriber.subscribe("news")
        ps.execute("PUBLISH", "news", "hello")
        message = subscriber.get(timeout_ms=5_000)
        assert (message.channel, message.data) == (b"news", b"hello")
        assert subscriber.get(timeout_ms=10) is None
        ps.execute("PUBLISH", "news", "again")
        assert next(iter(subscriber)).data == b"again"


def test_monitor(ps: penstock.blocking.Client) -> None:
    there = penstock.ToServer(next(iter(ps.execute("PING", route=penstock.ToAll()))))
    with ps.monitor(there) as lines:
        ps.execute("ECHO", "seen", route=there)
        assert next(iter(lines)).arguments


def test_the_end(place: Place) -> None:
    client = penstock.blocking.open(place.url, protocol=place.protocol)
    client.execute("PING")
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        client.get("k")


def test_ctrl_c_takes_a_waiting_command_back(ps: penstock.blocking.Client) -> None:
    is_noticed = threading.Event()

    def interrupt() -> None:
        while not ps.statistics().get("private_links", {}).get("lent"):
            pass
        # A signal that comes right before the main thread goes to sleep is not noticed by it.
        os.kill(os.getpid(), signal.SIGINT)
        while not is_noticed.wait(1):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        ps.blpop("list", timeout_s=30)
        pytest.fail("it was not interrupted")
    except KeyboardInterrupt:
        is_noticed.set()
    thread.join()
    ps.rpush("list", "x")
    assert ps.lpop("list") == b"x"


def test_statistics_are_counted_where_connections_come_and_go(
    ps: penstock.blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    count = ps._client.statistics

    def count_and_note() -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return count()

    monkeypatch.setattr(ps._client, "statistics", count_and_note)
    assert ps.statistics()["private_links"] == {"lent": 0, "idle": 0}
    assert threads == ["penstock-blocking"]


def test_its_own_callbacks_are_told(ps: penstock.blocking.Client) -> None:
    told: list[Exception] = []

    def use(event: object) -> None:
        try:
            ps.get("k")
        except UsageError as error:
            told.append(error)

    stop = ps.on_event(use)
    ps.close()
    stop()
    assert told
    assert "callbacks" in str(told[0])
