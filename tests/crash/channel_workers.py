"""The processes of the crash test of channels: what they do, and what they write down about it.

A worker keeps its name and its log over all its lives. A line is a JSON array, written by one system call:

    ["publish", channel, [id, …]]      before it is sent
    ["published", channel, [id, …]]    after it was confirmed
    ["got", [[id, clock], …]]          a batch
    ["ack", clock]                     before it is sent, with the last clock of the batch
    ["acked", clock]                   after it was confirmed

So a *publish* or an *ack* without its confirmation may have happened or not. A publisher whose life ended
between the two repeats itself, as a program should; so does everybody while the store is away. They must not
import pytest: many of them are started.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.crash import lives
from tests.crash.lives import Life, persistently, repeatedly
from tests.crash.stream_workers import read_lines

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


async def publish(life: Life) -> None:
    """Publish for ever, one to four messages at a time."""
    chance, diary = life.chance, life.diary
    used, again, channel = _last_try(diary.path)
    while True:
        if again is not None:
            names, again = again, None
        else:
            count, channel = chance.choice((1, 1, 2, 4)), chance.choice(CHANNELS)
            names = [f"{life.name}-{used + number}" for number in range(count)]
        used += len(names)
        room = life.ps.channel(channel)
        diary.write("publish", channel, names)
        await persistently(partial(room.publish_many, [(name, {"text": name}) for name in names]))
        diary.write("published", channel, names)
        if chance.random() < 0.05:  # somebody who repeats what was confirmed
            repeated = partial(room.publish_many, [(name, "again") for name in names])
            assert not any(await persistently(repeated))
        await life.pause()


async def subscribe(life: Life) -> None:
    """Fetch for ever, and acknowledge most of it."""
    chance, diary = life.chance, life.diary
    alice = life.ps.channel(SUBSCRIBERS[life.name]).subscription(life.name)
    while True:
        limit, timeout_ms = chance.choice((1, 5, 64)), chance.choice((0, 20, 1_000))
        batch = await persistently(partial(alice.fetch, limit, timeout_ms=timeout_ms))
        if batch.receipt is not None:
            diary.write("got", [[message.id, message.clock] for message in batch.messages])
            fate = chance.random()
            if fate < 0.8:
                clock = batch.messages[-1].clock
                diary.write("ack", clock)
                is_news, attempts = await repeatedly(partial(alice.ack, batch))
                assert is_news or attempts > 1
                diary.write("acked", clock)
            elif fate < 0.9:
                is_news, attempts = await repeatedly(
                    partial(alice.nack, batch, delay_ms=chance.choice((0, 5, 50)))
                )
                assert is_news or attempts > 1
        await life.pause()


def work(store: str, log: str, seed: int) -> None:
    """The whole life of a worker process."""
    role = publish if Path(log).stem in PUBLISHERS else subscribe
    lives.live(role, url_of(Path(store)), log, seed)
