"""The processes of the crash test of channels: what they do, and what they write down about it.

A worker keeps its name and its log over all its lives. A line is a JSON array, written by one system call:

    ["publish", channel, [id, …]]      before it is sent
    ["published", channel, [id, …]]    after it was confirmed
    ["got", [[id, clock], …]]          a batch
    ["ack", clock]                     before it is sent, with the last clock of the batch
    ["acked", clock]                   after it was confirmed

So a *publish* or an *ack* without its confirmation may have happened or not. A publisher whose life ended
between the two repeats itself, as a program should. They must not import pytest: many of them are started.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import penstock
from tests.crash.stream_workers import StreamLog, read_lines

CHANNELS: Final = ("one", "two")
#: subscriber -> its channel
SUBSCRIBERS: Final = {"s0": "one", "s1": "one", "s2": "two", "s3": "two"}
PUBLISHERS: Final = ("p0", "p1", "p2")


def url_of(store: Path) -> str:
    return f"embedded:{store}?durability=relaxed"


def _last_try(path: Path) -> tuple[int, list[str] | None, str]:
    """How many ids were used, and the publication that nobody confirmed."""
    used, open_ids, channel = 0, None, ""
    for line in read_lines(path):
        used += len(line[2]) if line[0] == "publish" else 0
        open_ids, channel = (line[2], line[1]) if line[0] == "publish" else (None, "")
    return used, open_ids, channel


async def publish(ps: penstock.Penstock, diary: StreamLog, worker: str, chance: random.Random) -> None:
    """Publish for ever, one to four messages at a time."""
    used, again, channel = _last_try(diary.path)
    while True:
        if again is not None:
            names, again = again, None
        else:
            count, channel = chance.choice((1, 1, 2, 4)), chance.choice(CHANNELS)
            names = [f"{worker}-{used + number}" for number in range(count)]
        used += len(names)
        diary.write("publish", channel, names)
        await ps.channel(channel).publish_many([(name, {"text": name}) for name in names])
        diary.write("published", channel, names)
        if chance.random() < 0.05:  # somebody who repeats what was confirmed
            assert not any(await ps.channel(channel).publish_many([(name, "again") for name in names]))


async def subscribe(ps: penstock.Penstock, diary: StreamLog, worker: str, chance: random.Random) -> None:
    """Fetch for ever, and acknowledge most of it."""
    alice = ps.channel(SUBSCRIBERS[worker]).subscription(worker)
    while True:
        batch = await alice.fetch(chance.choice((1, 5, 64)), timeout_ms=chance.choice((0, 20, 1_000)))
        if batch.receipt is None:
            continue
        diary.write("got", [[message.id, message.clock] for message in batch.messages])
        fate = chance.random()
        if fate < 0.8:
            clock = batch.messages[-1].clock
            diary.write("ack", clock)
            assert await alice.ack(batch)
            diary.write("acked", clock)
        elif fate < 0.9:
            assert await alice.nack(batch, delay_ms=chance.choice((0, 5, 50)))


Role = Callable[[penstock.Penstock, StreamLog, str, random.Random], Awaitable[None]]


async def _live(store: str, log: Path, seed: int) -> None:
    role: Role = publish if log.stem in PUBLISHERS else subscribe
    async with penstock.open(url_of(Path(store))) as ps:
        await role(ps, StreamLog(log), log.stem, random.Random(seed))


def work(store: str, log: str, seed: int) -> None:
    """The whole life of a worker process. What goes wrong stands beside its log."""
    try:
        asyncio.run(_live(store, Path(log), seed))
    except BaseException:
        Path(log).with_suffix(".error").write_text(traceback.format_exc())
        raise
