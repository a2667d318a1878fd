"""Our streams beside Redis Streams: append, density, consume and acknowledge; and what they cost as a log
grows.

Aims: bulk append at least a million messages a second in process and 5 times pipelined XADD; at most 25
bytes a message of 120-byte JSON, and 5 times denser; consume and acknowledge 3 times as fast; a random
seek as fast in 100 million messages as in one (within 1.5 times), below 200 µs.

Redis is used through redis-py, in a process and an environment of its own, and through our own client, so
that the difference is not the client's.
"""

from __future__ import annotations

import asyncio
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import penstock
from bench.client_peers.measuring import run as run_loop
from bench.environments import ASYNCHRONOUS, NotMeasuredError, figures_of, python_with
from bench.growing import Flat, Progress, embedded, micros_each
from bench.results import OURS, Role
from bench.running import Measure, Run, server_name
from bench.stream_peers.messages import BATCH, GROUP_BATCH, STREAM, make_messages
from bench.tables import Table, spread
from penstock.engine import LocalSession
from penstock.testing.servers import RealServer

_TASKS: Final = 100
_SEEKS: Final = 2_000
_APPENDS: Final = 1_000
_BULKS: Final = 20
_ACKS: Final = 200
_SEEK_AIM_US: Final = 200.0
_REDIS_PY: Final = "Redis, redis-py"
_BY_US: Final = "Redis, Penstock's client"
_MESSAGES: Final = "streams.messages"

Rounds = dict[str, list[float]]


# ----------------------------------------------------------------------- messages


def messages(run: Run) -> None:
    binary = run.real_server()
    made = list(make_messages(run.sizes.messages))
    names = {
        OURS: OURS,
        _REDIS_PY: f"{server_name(binary)}, redis-py",
        _BY_US: f"{server_name(binary)}, our client",
    }
    python = _redis_py(run, names[_REDIS_PY])
    append: Rounds = {name: [] for name in names}
    consume: Rounds = {OURS: [], _REDIS_PY: []}
    size: Rounds = {OURS: [], _REDIS_PY: []}
    with tempfile.TemporaryDirectory() as directory, RealServer(binary) as server:
        for number in range(run.sizes.rounds):
            with embedded(Path(directory) / f"{number}.pen") as session:
                append[OURS].append(_rate(len(made), lambda s=session: _write_all(s, made)))  # type: ignore[misc]
                info: Any = session.execute("TINFO", "STREAM", STREAM)
                size[OURS].append(info[b"bytes"] / len(made))
                consume[OURS].append(_rate(len(made), lambda s=session: _consume(s, "group")))  # type: ignore[misc]
            if python:
                found = figures_of(
                    python, "bench.stream_peers.redis_py_streams", str(server.port), str(len(made))
                )
                run.took_part(names[_REDIS_PY], found["versions"])
                append[_REDIS_PY].append(found["append_per_s"])
                consume[_REDIS_PY].append(found["consume_per_s"])
                size[_REDIS_PY].append(found["bytes"])
            append[_BY_US].append(_rate(len(made), lambda: run_loop(_xadd(server.url, made))))
    mean = statistics.mean(map(len, made))
    run.results.note(
        _MESSAGES, f"Messages of {mean:.0f} bytes. Ours are kept on disk, those of Redis in memory."
    )
    _compare(run, f"bulk append, {BATCH:,} a call", "messages/s", names, append, 1_000_000, 5)
    _compare(run, "kept for a message", "bytes", names, size, 25, 5, lower=True)
    _compare(
        run,
        f"read for a group and acknowledge, {GROUP_BATCH} at a time",
        "messages/s",
        names,
        consume,
        None,
        3,
    )


def _redis_py(run: Run, name: str) -> Path | None:
    try:
        return python_with("redis-py", ("redis==8.1.0", *ASYNCHRONOUS), run.cache)
    except NotMeasuredError as error:
        run.leave_out(_MESSAGES, name, error)
        return None


def _compare(
    run: Run, line: str, unit: str, names: dict[str, str], taken: Rounds, aim: float | None, times: float,
    *, lower: bool = False,
) -> None:  # fmt: skip
    """Record a line of all that have figures, and print it."""
    found = {name: rounds for name, rounds in taken.items() if rounds}
    table = Table(f"{line} ({unit})", ("how", "figure", "Penstock is"))
    ours = statistics.median(found[OURS])
    for name, rounds in found.items():
        is_ours = name == OURS
        run.results.add(
            _MESSAGES, line, names[name], unit, rounds,
            role="ours" if is_ours else "peer", better="lower" if lower else "higher",
            aim=aim if is_ours else times,
        )  # fmt: skip
        theirs = statistics.median(rounds)
        better = theirs / ours if lower else ours / theirs
        table.row(
            names[name], spread(rounds, ",.1f" if lower else ",.0f"), "" if is_ours else f"{better:.1f}×"
        )
    table.print()


def _write_all(session: LocalSession, some: list[bytes]) -> None:
    for start in range(0, len(some), BATCH):
        batch = some[start : start + BATCH]
        pairs = [b""] * (2 * len(batch))
        pairs[1::2] = batch
        session.execute_many([[b"TWRITE", STREAM.encode(), b"ENTRIES", *pairs]])


async def _xadd(url: str, some: list[bytes]) -> None:
    async with penstock.open(url) as client:
        await client.delete(STREAM)
        for start in range(0, len(some), BATCH):
            pipe = client.pipeline()
            for message in some[start : start + BATCH]:
                pipe.execute("XADD", STREAM, "*", "e", message)
            await pipe.all()


def _consume(session: LocalSession, group: str) -> None:
    while _consume_some(session, group):
        pass


def _consume_some(session: LocalSession, group: str) -> int:
    batch: Any = session.execute("TREAD", STREAM, 0, GROUP_BATCH, "GROUP", group, "RETRY", 60_000, 0)
    if batch:
        session.execute("TACK", STREAM, group, f"{batch[0][0]}-{batch[-1][0]}")
    return len(batch or ())


# ------------------------------------------------------------------------ durable


def durable(run: Run) -> None:
    binary = run.real_server()
    some = list(make_messages(_TASKS * 10))
    calls = run.sizes.single_messages
    theirs = f"{server_name(binary)}, appendfsync always, our client"
    taken: Rounds = {OURS: [], theirs: []}
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServer(binary, options={"appendonly": "yes", "appendfsync": "always"}) as server,
    ):
        for number in range(run.sizes.rounds):
            store = Path(directory) / f"{number}.pen"
            taken[OURS].append(run_loop(_write_singly(store, some, calls, "TWRITE", STREAM, "tag")))
            taken[theirs].append(run_loop(_write_singly(server.url, some, calls, "XADD", STREAM, "*", "e")))
    table = Table(
        f"One message a call from {_TASKS} tasks, on disk when answered (messages/s)", ("how", "rate")
    )
    for name, rounds in taken.items():
        role: Role = "ours" if name == OURS else "peer"
        run.results.add("streams.durable", "single durable appends", name, "messages/s", rounds, role=role)
        table.row(name, spread(rounds))
    table.print()


async def _write_singly(url: str | Path, some: list[bytes], calls: int, *command: str) -> float:
    async with penstock.open(url) as client:

        async def work() -> None:
            for number in range(calls // _TASKS):
                await client.execute(*command, some[number % len(some)])

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(_TASKS)))
        return calls // _TASKS * _TASKS / (time.perf_counter() - started)


# ------------------------------------------------------------------------- growth


def growth(run: Run) -> None:
    """One log that becomes longer, in one store; at every size the same operations."""
    table = Table(
        "Operations on a log that grows (µs, in process, relaxed)",
        (
            "messages",
            "seek one",
            "append one",
            f"append {BATCH:,}",
            f"read and ack {GROUP_BATCH}",
            "process, MB",
        ),
    )
    made = list(make_messages(100_000))
    flat = Flat()
    with tempfile.TemporaryDirectory() as directory, embedded(Path(directory) / "log.pen") as session:
        for size in run.sizes.log_sizes:
            _grow(session, made, size)
            taken = {
                name: micros_each(work, calls, run.sizes.rounds)
                for name, (work, calls) in _works(session, made, size).items()
            }
            for name, rounds in taken.items():
                aim = flat.aim(name, rounds)
                if name == "seek one":
                    aim = min(aim or _SEEK_AIM_US, _SEEK_AIM_US)
                run.results.add(
                    "streams.growth", name, f"in {size:,} messages", "µs", rounds,
                    role="ours", better="lower", aim=aim,
                )  # fmt: skip
            used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            table.row(f"{size:,}", *(spread(rounds, ",.1f") for rounds in taken.values()), f"{used_mb:,.0f}")
    run.results.note(
        "streams.growth",
        f"The aim is {Flat.TIMES:g} times the cost in the shortest log, and 200 µs a seek.",
    )
    table.print()


def _grow(session: LocalSession, made: list[bytes], size: int) -> None:
    info: Any = session.execute("TINFO", "STREAM", STREAM) if session.execute("EXISTS", STREAM) else None
    have = info[b"last"] if info else 0
    progress = Progress("messages", size)
    for start in range(have, size, len(made)):
        _write_all(session, made[: size - start])
        progress.reached(min(start + len(made), size))


def _works(
    session: LocalSession, made: list[bytes], size: int
) -> dict[str, tuple[Callable[[int], object], int]]:
    """By name: what is done, and how often in a round."""
    chance = random.Random(2)
    # A group that begins a bit before the end: what it has read stays out of its way.
    session.execute("TGROUP", "CREATE", STREAM, f"at-{size}", max(size - 1_000_000, 1))

    def seek(_: int) -> None:
        offset = chance.randrange(1, size + 1)
        reply: Any = session.execute("TREAD", STREAM, offset, 1)
        assert reply[0][0] == offset

    return {
        "seek one": (seek, _SEEKS),
        "append one": (lambda n: session.execute(b"TWRITE", STREAM, b"tag", made[n % len(made)]), _APPENDS),
        f"append {BATCH:,}": (lambda n: _write_all(session, made[:BATCH]), _BULKS),
        f"read and ack {GROUP_BATCH}": (lambda _: _consume_some(session, f"at-{size}"), _ACKS),
    }


def _rate(count: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


SECTIONS: Final[dict[str, Measure]] = {"messages": messages, "durable": durable, "growth": growth}
