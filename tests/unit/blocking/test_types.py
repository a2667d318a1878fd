"""What a type checker makes of the clients: the helpers of each answer what running them answers.

Two programs are checked with the settings of the project, in which an unneeded ``type: ignore``
is an error too: what is marked with one must be refused. The cache of ``make check`` is
used, so that only the programs themselves take time.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
import penstock.blocking
from penstock.blocking.twins import Twin

ROOT = Path(__file__).parents[3]

SYNCHRONOUS = """
from collections.abc import Iterator
from typing import Any, assert_type

import penstock.blocking
from penstock import streams
from penstock.blocking import Client, ExclusiveConnection, Monitor, Pipeline, Script, Subscriber, Transaction
from penstock.blocking import GroupMessage, Stream
from penstock.client.events import Event
from penstock.client.monitoring import MonitorLine
from penstock.client.pipelines import Later
from penstock.client.pubsub import Item, Message

with penstock.blocking.open("./shop.pen") as ps:
    assert_type(ps, Client)
    assert_type(ps.get("k"), bytes | None)
    assert_type(ps.hgetall("h"), dict[bytes, bytes])
    assert_type(ps.using(timeout_ms=200).get("k"), bytes | None)
    assert_type(ps.scan_iter(), Iterator[bytes])
    assert_type(ps.events(), Iterator[Event])
    ps.get("k", "too many")  # type: ignore[call-arg]
    ps.nonsense  # type: ignore[attr-defined]

    pipe = ps.pipeline()
    assert_type(pipe, Pipeline)
    assert_type(pipe.incr("n"), Later[int])
    assert_type(pipe.get("k").result(), bytes | None)
    assert_type(pipe.zrange("z", 0, -1, withscores=True), Later[list[tuple[bytes, float]]])
    assert_type(pipe.execute("PING"), Later[Any])
    assert_type(pipe.all(timeout_ms=1_000), list[Any])
    assert_type(len(pipe), int)
    pipe.nonsense  # type: ignore[attr-defined]
    with pipe:  # type: ignore[attr-defined]
        pass

    with ps.exclusive("k") as own:
        assert_type(own, ExclusiveConnection)
        assert_type(own.get("k"), bytes | None)
        assert_type(own.transaction(), Transaction)
        assert_type(own.is_watching, bool)
        own.is_watching = True  # type: ignore[misc]
    ps.exclusive("k").get("k")  # type: ignore[attr-defined]

    def buy(own: ExclusiveConnection) -> Transaction:
        tx = own.transaction()
        assert_type(tx.set("stock", int(own.get("stock") or 0) - 1), Later[bytes | None])
        return tx

    assert_type(ps.transact(buy, "stock"), list[Any])
    ps.transact(lambda own: 1, "stock")  # type: ignore[arg-type, return-value]

    with ps.pubsub() as subscriber:
        assert_type(subscriber, Subscriber)
        subscriber.subscribe("news")
        assert_type(subscriber.get(timeout_ms=10), Item | None)
        for item in subscriber:
            assert_type(item, Item)
        for news in subscriber.messages():
            assert_type(news, Message)

    with ps.monitor() as lines:
        assert_type(lines, Monitor)
        assert_type(lines.dropped, int)
        for line in lines:
            assert_type(line, MonitorLine)

    reserve = ps.script("return 1")
    assert_type(reserve, Script)
    reserve(keys=["k"], args=[1])
    reserve(nonsense=1)  # type: ignore[call-arg]
    assert_type(reserve.queue(pipe, keys=["k"]), Later[Any])
    library = ps.scripts("shop.lua")
    assert_type(library["reserve"], Script)
    assert_type(library.reserve, Script)
    assert_type(list(library.values()), list[Script])

    orders = ps.stream("orders")
    assert_type(orders, Stream)
    assert_type(orders.write("eu", b"x"), int)
    assert_type(orders.write(entry="x"), int)
    orders.write("eu")  # type: ignore[call-overload]
    orders.write("eu", 5)  # type: ignore[call-overload]
    for message in orders.read(to=5):
        assert_type(message, streams.Message)
    assert_type(orders.tail(3), list[streams.Message])
    assert_type(orders.producer("host-1").write("eu", None), int)
    billing = orders.group("billing")
    assert_type(billing.info(), streams.GroupInfo | None)
    for job in billing.consume(retry_ms=30_000):
        assert_type(job, GroupMessage)
        assert_type(job.entry, bytes | None)
        job.ack()
    billing.run(print)  # type: ignore[attr-defined]
"""

ASYNCHRONOUS = """
import asyncio
from typing import Any, assert_type

import penstock
from penstock.client.exclusive import ExclusiveConnection
from penstock.client.pipelines import Later, Pipeline, Transaction
from penstock.streams import GroupMessage, Message, Stream


async def main(ps: penstock.Client) -> None:
    assert_type(await ps.get("k"), bytes | None)
    assert_type(asyncio.create_task(ps.get("k")), asyncio.Task[bytes | None])

    pipe = ps.pipeline()
    assert_type(pipe, Pipeline)
    count = pipe.incr("n")
    assert_type(count, Later[int])
    assert_type(await pipe.all(), list[Any])
    assert_type(await count, int)
    asyncio.create_task(pipe.incr("n"))  # type: ignore[arg-type]
    pipe.nonsense  # type: ignore[attr-defined]

    tx = ps.transaction()
    assert_type(tx, Transaction)
    assert_type(tx.hget("h", "f"), Later[bytes | None])

    async with ps.exclusive("k") as own:
        assert_type(own, ExclusiveConnection)
        assert_type(await own.get("k"), bytes | None)
        assert_type(own.transaction().get("k"), Later[bytes | None])


async def streams(ps: penstock.Penstock) -> None:
    orders = ps.stream("orders")
    assert_type(orders, Stream)
    assert_type(await orders.write("eu", b"x", expected_last=3), int)
    assert_type(await orders.write_many([("eu", "x"), ("us", None)]), int)
    async for message in orders.follow():
        assert_type(message, Message)
    async with orders.group("billing").consume() as jobs:
        async for job in jobs:
            assert_type(job, GroupMessage)
            await job.ack()

    async def handle(job: GroupMessage) -> None: ...

    await orders.group("billing").run(handle, concurrency=4)
    await orders.group("billing").run(print)  # type: ignore[arg-type]


assert_type(penstock.open("./shop.pen"), penstock.Penstock)
"""

#: Stubs say more than the classes, which get these from their originals as they go.
KNOWN_DIFFERENCES = r"""
penstock\.blocking\._twins\.(ExclusiveConnection\.is_(changed|watching)|Monitor\.dropped)
penstock\.blocking\._twins\.Script\.(name|sha1|source)
penstock\.blocking\._twins\.((Group|Producer|Stream)\.(id|name|stream))
penstock\.blocking\._twins\.(Channel\.(expire_ms|name)|Subscription\.(channel|subscriber))
penstock\.blocking\._twins\.(Handle\.(id|is_new|owner)|Schedules\.store)
penstock\.blocking\._twins\.Transactions\.(archive|looking|registry|schedules|statistics|store|workers)
# An entry that is left out is an error, at run time as in the stubs.
penstock\.blocking\._twins\.(Producer|Stream)\.write
# Abstract at run time, so that nobody forgets _call.
penstock\.blocking\._twins\.(Batch|ExclusiveConnection|Pipeline|Transaction|Using)
penstock\.blocking\._commands\.BlockingCommands
penstock\.client\._batch_commands\.BatchCommands
"""


@pytest.fixture(autouse=True)
def recursion_limit() -> Iterator[None]:
    """mypy raises it for the whole process, and tests of deep nesting count on Python's own."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("program", [SYNCHRONOUS, ASYNCHRONOUS], ids=["blocking", "asyncio"])
def test_programs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "program.py"
    path.write_text(program)
    monkeypatch.chdir(ROOT)
    report, troubles, status = api.run(["--config-file", "pyproject.toml", "--no-error-summary", str(path)])
    assert (report, troubles, status) == ("", "", 0)


def test_the_stubs_tell_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every name, every parameter and default, as they are at run time."""
    stubtest = pytest.importorskip("mypy.stubtest")
    differences = tmp_path / "differences"
    differences.write_text(KNOWN_DIFFERENCES)
    monkeypatch.chdir(ROOT)
    modules = ["penstock.blocking._twins", "penstock.blocking._commands", "penstock.client._batch_commands"]
    options = ["--mypy-config-file", "pyproject.toml", "--allowlist", str(differences), "--concise"]
    status = stubtest.test_stubs(stubtest.parse_options([*options, *modules]))
    report = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("Success")]
    assert (report, status) == ([], 0)


def test_the_blocking_client_has_every_name_of_the_other() -> None:
    differing = [
        name
        for name in dir(penstock.Penstock)
        if not name.startswith("_") and name not in ("on_event", "transact")
        if _parameters(getattr(penstock.blocking.Client, name, None))
        != _parameters(getattr(penstock.Penstock, name))
    ]
    assert differing == []


def _parameters(function: object) -> list[tuple[str, object, object]] | None:
    if not callable(function):
        return None
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


def test_twins_are_exported() -> None:
    from penstock.blocking import _twins

    twins = {
        name for name, value in vars(_twins).items() if isinstance(value, type) and issubclass(value, Twin)
    }
    assert twins == set(penstock.blocking.__all__) - {"Client", "open"}
