"""The crew of streams: writers, producers and readers of two logs from which nothing is ever removed.

==========  ============================================================================================
member      what it does
==========  ============================================================================================
``w0 w1``   write to ``plain`` without a number: what was not confirmed is there once or not at all
``p0 p1``   produce to ``plain``: they number their messages, repeat what was not confirmed, also in the
            next life, and so write each once
``q0``      writes to ``quiet`` with ``Stream.producer``, which counts for itself
``r0 … r2`` read ``plain`` for the group ``work`` by command, and acknowledge, give back, or renew
``c0 c1``   consume ``quiet`` for the group ``billing``, with what they read ahead
==========  ============================================================================================

Promises: what was confirmed is in the stream, at its offset, with its bytes; no message is there twice;
offsets are 1 to the last one without a hole; each delivery of a message to a group has a number of its own,
and none comes after its acknowledgement was confirmed; in the end each message was acknowledged, once.

Work and judgement are those of ``tests/crash`` (``stream_workers``, ``stream_ledger``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import penstock
from penstock.errors import PenstockError
from penstock.streams import GroupMessage, StreamCommands
from tests.chaos.crews.members import member
from tests.chaos.model import Member, Scene, Verdict
from tests.crash import stream_ledger, stream_workers
from tests.crash.lives import Life, may_pass, persistently
from tests.crash.stream_ledger import Books
from tests.crash.stream_workers import Message

NAME: Final = "streams"
PLAIN: Final = "plain"
QUIET: Final = "quiet"
#: stream -> its group
GROUPS: Final = {PLAIN: "work", QUIET: "billing"}

#: A reader that is stopped or waits for its store keeps others waiting for so long.
_RETRY_MS: Final = 1_500
#: How soon a command that found no store is tried again.
_PAUSE_S: Final = 0.05


# ------------------------------------------------------------------------------ by command


class StoreDoor:
    """Any store, as the workers of ``tests/crash`` want it: one that is away is a ConnectionError."""

    def __init__(self, life: Life) -> None:
        self._commands = StreamCommands(life.ps)
        self._loop = asyncio.get_running_loop()
        self._pause_s = float(life.extra["pause_s"])

    def run(self, commands: list[list[Any]]) -> list[Any]:
        """From a thread that may wait."""
        time.sleep(self._pause_s)
        return [self._run(words) for words in commands]

    def _run(self, words: list[Any]) -> Any:
        call = asyncio.run_coroutine_threadsafe(self._commands.execute(*words), self._loop)
        try:
            return call.result()
        except PenstockError as error:
            if not may_pass(error):
                raise
            time.sleep(_PAUSE_S)
            raise ConnectionError(str(error)) from error


async def _by_command(life: Life, work: Callable[..., None]) -> None:
    life.diary.count_on()
    await asyncio.to_thread(work, StoreDoor(life), life.diary, life.name, life.chance)


async def write(life: Life) -> None:
    await _by_command(life, partial(stream_workers.write, streams=(PLAIN,)))


async def produce(life: Life) -> None:
    await _by_command(life, stream_workers.produce)


async def read(life: Life) -> None:
    await _by_command(life, partial(stream_workers.read, groups={PLAIN: (GROUPS[PLAIN],)}))


# ---------------------------------------------------------------- by the names that users know


async def write_once(life: Life) -> None:
    """What was given up is never tried again: only the producer itself repeats, and it counts."""
    diary = life.diary
    diary.count_on()
    producer = life.ps.stream(QUIET).producer(life.name)
    what = f"{QUIET} one"
    while True:
        number = diary.attempt(what)
        [(tag, entry)] = stream_workers.messages_of(what, life.name, number)
        try:
            offset = await producer.write(tag, entry)
        except PenstockError as error:
            if not may_pass(error):
                raise
        else:
            diary.write("ok", number, offset, time.monotonic_ns())
        await life.pause()


async def consume(life: Life) -> None:
    """Take what comes, acknowledge most of it, give some back, and forget some."""
    life.diary.count_on()
    # What was read ahead was read at some time of this life.
    begun_ns = time.monotonic_ns()
    group = life.ps.stream(QUIET).group(GROUPS[QUIET])
    while True:
        try:
            async with aclosing(group.consume(retry_ms=_RETRY_MS, prefetch=20)) as messages:
                async for message in messages:
                    await _take(life, message, begun_ns)
        except PenstockError as error:
            if not may_pass(error):
                raise
            await asyncio.sleep(_PAUSE_S)


async def _take(life: Life, message: GroupMessage, begun_ns: int) -> None:
    diary = life.diary
    number = diary.attempt(f"{QUIET} {GROUPS[QUIET]} read", begun_ns)
    row = [message.offset, message.tag.decode(), (message.entry or b"").decode(), message.deliveries]
    diary.write("ok", number, [row], time.monotonic_ns())
    fate = life.chance.random()
    if fate < 0.9:
        number = diary.attempt(f"{QUIET} {GROUPS[QUIET]} TACK {message.offset}")
        await persistently(message.ack)
        # How many there were is not told by this way: None is neither found nor unknown.
        diary.write("ok", number, None, time.monotonic_ns())
    elif fate < 0.95:
        await persistently(message.nack)
    await life.pause()


# ------------------------------------------------------------------------------------ crew


class StreamCrew:
    name = NAME

    def __init__(self) -> None:
        self._state = "at work"

    def __repr__(self) -> str:
        return f"<StreamCrew {self._state}>"

    @property
    def members(self) -> Sequence[Member]:
        return [
            *(member(NAME, name, write, pause_s=0.15, is_maker=True) for name in ("w0", "w1")),
            *(member(NAME, name, produce, pause_s=0.4, is_maker=True) for name in ("p0", "p1")),
            member(NAME, "q0", write_once, pause_s=0.08, is_maker=True),
            *(member(NAME, name, read, pause_s=0.02) for name in ("r0", "r1", "r2")),
            *(member(NAME, name, consume, pause_s=0.01) for name in ("c0", "c1")),
        ]

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        for stream, group in GROUPS.items():
            await ps.stream(stream).policy(node_messages=50)
            await ps.stream(stream).group(group).create()

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        infos = [await ps.stream(stream).group(group).info() for stream, group in GROUPS.items()]
        open_ends = {info.name: (info.pending, info.lag) for info in infos if info is not None}
        self._state = f"pending and lag {open_ends}"
        return len(open_ends) == len(GROUPS) and not any(map(any, open_ends.values()))

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        books = await asyncio.to_thread(Books.read, scene.logs, f"{NAME}-")
        wrong: list[str] = []
        for stream in GROUPS:
            wrong += await _judge_stream(books, ps, stream)
        return Verdict(NAME, _counts(books), wrong)


async def _judge_stream(books: Books, ps: penstock.Penstock, stream: str) -> list[str]:
    group = GROUPS[stream]
    there: dict[int, Message] = {}
    async for message in ps.stream(stream).read():
        entry = message.entry
        there[message.offset] = (message.tag.decode(), None if entry is None else entry.decode())
    info, group_info = await ps.stream(stream).info(), await ps.stream(stream).group(group).info()
    assert group_info is not None
    given_up = group_info.dead + group_info.expired
    return [
        *stream_ledger.judge_stream(stream, books, there, info.first, info.last),
        *stream_ledger.judge_group(stream, group, books, [], [], info.last),
        *stream_ledger.judge_ends(stream, group, info.last, group_info.acked, given_up, group_info.lost),
        *judge_delivered(stream, group, books, there),
    ]


def judge_delivered(stream: str, group: str, books: Books, there: dict[int, Message]) -> list[str]:
    """A group delivers what the stream has at that offset."""
    return [
        f"{stream} {group}: {offset} was delivered as {tag, entry}, and is {there.get(offset)}"
        for _, rows in books.reads(stream, group)
        for offset, tag, entry, _ in rows
        if there.get(offset, ("", None)) not in ((tag, entry), (tag, entry or None))
    ]


def _counts(books: Books) -> dict[str, int]:
    written = [replies for stream in GROUPS for _, _, replies in books.writes(stream)]
    return {
        "writes confirmed": sum(map(bool, written)),
        "writes of which nobody knows": sum(not replies for replies in written),
        "messages delivered": sum(len(rows) for s, g in GROUPS.items() for _, rows in books.reads(s, g)),
        "acknowledgements confirmed": sum(len(books.acknowledged(s, g)[0]) for s, g in GROUPS.items()),
    }
