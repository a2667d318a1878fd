"""Our streams beside Redis Streams: append, density, consume and acknowledge, seek.

Aims: bulk append at least a million messages a second in process and 5 times pipelined XADD; at most
25 bytes a message of 120-byte JSON, and 5 times denser; consume and acknowledge 3 times as
fast; a random seek as fast at 10 million messages as at one (within 1.5 times), below 200 µs.

Redis is used through redis-py and through our own client, so that the difference is not the
client's. ``--seek 100000000`` builds a store of that size first, with a progress bar.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis
import uvloop

import penstock
from bench.tables import Table
from penstock.engine import Engine, LocalSession
from penstock.engine.storage.environment import Durability
from penstock.testing.servers import RealServer, find_servers

ROUNDS: Final = 3
_BATCH: Final = 1_000
_GROUP_BATCH: Final = 100


def main(scale: float = 1.0, seek: int = 0) -> None:
    binary = next((b for b in find_servers() if b.kind == "redis"), None) or find_servers()[0]
    print(f"Redis Streams: {binary.kind} {binary.version}; messages are JSON of about 120 bytes\n")
    count = int(200_000 * scale)
    messages = list(make_messages(count))
    with tempfile.TemporaryDirectory() as directory, RealServer(binary) as server:
        _append(messages, Path(directory), server)
        _density(messages, Path(directory), server)
        _consume(messages, Path(directory), server)
        _durable(messages, Path(directory), binary, scale)
    with tempfile.TemporaryDirectory() as directory:
        sizes = [int(size * scale) for size in (1_000_000, 10_000_000)] + ([seek] if seek else [])
        _seek(sizes, Path(directory))


def make_messages(count: int) -> Iterator[bytes]:
    chance = random.Random(1)
    for number in range(count):
        yield json.dumps(
            {
                "id": number,
                "user": f"user-{chance.randrange(10_000)}",
                "event": chance.choice(("click", "view", "buy", "return")),
                "amount": round(chance.random() * 100, 2),
                "time": 1_700_000_000 + number * 3,
                "page": f"/products/{chance.randrange(500)}",
            }
        ).encode()


# ------------------------------------------------------------------------- append


def _append(messages: list[bytes], directory: Path, server: RealServer) -> None:
    table = Table(f"Bulk append, {_BATCH} messages a call (messages/s)", ("how", "rate", "penstock is"))
    with _embedded(directory / "append.pen", "relaxed") as session:
        ours = _median(lambda: _rate(len(messages), lambda: _write_all(session, messages)))
    with redis.Redis(port=server.port) as client:
        theirs = _median(lambda: _rate(len(messages), lambda: _xadd_all(client, messages)))
    through_us = _median(lambda: _rate(len(messages), lambda: uvloop.run(_xadd_ours(server, messages))))
    table.row("penstock, in process", f"{ours:,.0f}", "")
    table.row("Redis, XADD pipelined by redis-py", f"{theirs:,.0f}", f"{ours / theirs:.1f}×")
    table.row("Redis, XADD pipelined by penstock's client", f"{through_us:,.0f}", f"{ours / through_us:.1f}×")
    table.print()


def _write_all(session: LocalSession, messages: list[bytes]) -> None:
    for start in range(0, len(messages), _BATCH):
        batch = messages[start : start + _BATCH]
        pairs = [b""] * (2 * len(batch))
        pairs[1::2] = batch
        session.execute_many([[b"TWRITE", b"log", b"ENTRIES", *pairs]])


def _xadd_all(client: redis.Redis, messages: list[bytes]) -> None:
    client.delete("log")
    for start in range(0, len(messages), _BATCH):
        pipe = client.pipeline(transaction=False)
        for message in messages[start : start + _BATCH]:
            pipe.xadd("log", {"e": message})
        pipe.execute()


async def _xadd_ours(server: RealServer, messages: list[bytes]) -> None:
    async with penstock.open(server.url) as client:
        await client.delete("log")
        for start in range(0, len(messages), _BATCH):
            pipe = client.pipeline()
            for message in messages[start : start + _BATCH]:
                pipe.execute("XADD", "log", "*", "e", message)
            await pipe.all()


# ------------------------------------------------------------------------ density


def _density(messages: list[bytes], directory: Path, server: RealServer) -> None:
    with _embedded(directory / "density.pen", "relaxed") as session:
        _write_all(session, messages)
        info: Any = session.execute("TINFO", "STREAM", "log")
        ours = info[b"bytes"] / len(messages)
    with redis.Redis(port=server.port) as client:
        _xadd_all(client, messages)
        theirs = int(client.execute_command("MEMORY", "USAGE", "log", "SAMPLES", 0)) / len(messages)
    size = statistics.mean(map(len, messages))
    table = Table(f"Bytes a message of {size:.0f} bytes", ("where", "bytes", "denser"))
    table.row("penstock, on disk", f"{ours:.1f}", "")
    table.row("Redis, in memory", f"{theirs:.1f}", f"{theirs / ours:.1f}×")
    table.print()


# ------------------------------------------------------------------------ consume


def _consume(messages: list[bytes], directory: Path, server: RealServer) -> None:
    count = len(messages)
    title = f"Read for a group and acknowledge, {_GROUP_BATCH} at a time (messages/s)"
    table = Table(title, ("how", "rate", "penstock is"))
    with _embedded(directory / "consume.pen", "relaxed") as session:
        _write_all(session, messages)
        names = iter(range(1_000))
        ours = _median(lambda: _rate(count, lambda: _consume_ours(session, f"group-{next(names)}")))
    with redis.Redis(port=server.port) as client:
        _xadd_all(client, messages)
        names = iter(range(1_000))
        theirs = _median(lambda: _rate(count, lambda: _consume_theirs(client, f"group-{next(names)}")))
    table.row("penstock, in process (TACK of a range)", f"{ours:,.0f}", "")
    table.row("Redis, XREADGROUP and XACK by redis-py", f"{theirs:,.0f}", f"{ours / theirs:.1f}×")
    table.print()


def _consume_ours(session: LocalSession, group: str) -> None:
    while True:
        batch: Any = session.execute("TREAD", "log", 0, _GROUP_BATCH, "GROUP", group, "RETRY", 60_000, 0)
        if not batch:
            return
        session.execute("TACK", "log", group, f"{batch[0][0]}-{batch[-1][0]}")


def _consume_theirs(client: redis.Redis, group: str) -> None:
    client.xgroup_create("log", group, "0")
    while True:
        found: Any = client.xreadgroup(group, "me", {"log": ">"}, count=_GROUP_BATCH)
        if not found:
            return
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
        client.xack("log", group, *(entry[0] for entry in entries))


# ------------------------------------------------------------------------ durable


def _durable(messages: list[bytes], directory: Path, binary: Any, scale: float) -> None:
    table = Table("One message a call from 100 tasks, on disk when answered (messages/s)", ("how", "rate"))
    calls = int(30_000 * scale)
    ours = uvloop.run(_write_singly(directory / "durable.pen", messages, calls, "TWRITE", "log", "tag"))
    table.row("penstock, embedded, always", f"{ours:,.0f}")
    with RealServer(binary, options={"appendonly": "yes", "appendfsync": "always"}) as server:
        theirs = uvloop.run(_write_singly(server.url, messages, calls, "XADD", "log", "*", "e"))
        table.row("Redis, appendfsync always, penstock's client", f"{theirs:,.0f}")
    table.print()


async def _write_singly(url: str | Path, messages: list[bytes], calls: int, *command: str) -> float:
    async with penstock.open(url) as client:

        async def work(start: int) -> None:
            for number in range(start, start + calls // 100):
                await client.execute(*command, messages[number % len(messages)])

        started = time.perf_counter()
        await asyncio.gather(*(work(task * calls // 100) for task in range(100)))
        return calls / (time.perf_counter() - started)


# --------------------------------------------------------------------------- seek


def _seek(sizes: list[int], directory: Path) -> None:
    title = "Random seek: one message anywhere (µs, median of 3 × 2,000)"
    table = Table(title, ("messages", "penstock", "process, MB"))
    messages = list(make_messages(100_000))
    for size in sizes:
        with _embedded(directory / f"{size}.pen", "relaxed") as session:
            for start in range(0, size, len(messages)):
                _write_all(session, messages[: size - start])
                _progress(min(start + len(messages), size), size)
            micros = statistics.median(1e6 / _rate(2_000, _seeks(session, size)) for _ in range(ROUNDS))
        used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        table.row(f"{size:,}", f"{micros:.1f}", f"{used_mb:,.0f}")
    table.print()


def _seeks(session: LocalSession, size: int) -> Callable[[], None]:
    chance = random.Random(2)

    def work() -> None:
        for _ in range(2_000):
            offset = chance.randrange(1, size + 1)
            reply: Any = session.execute("TREAD", "log", offset, 1)
            assert reply[0][0] == offset

    return work


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        width = 40 * done // total
        end = "\n" if done == total else ""
        print(f"\r{'█' * width}{'░' * (40 - width)} {done:,} of {total:,}", end=end, file=sys.stderr)


# ------------------------------------------------------------------------- common


@contextmanager
def _embedded(path: Path, durability: Durability) -> Iterator[LocalSession]:
    """A session on a store of its own."""
    with Engine.open(path, durability=durability) as engine, LocalSession(engine) as session:
        yield session


def _rate(count: int, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))
