"""The crew of PUB/SUB: publishers that count, and subscribers that write down what they hear.

A line of a publisher is ``["publish", number]`` before it is sent and ``["published", number]`` after it was
confirmed; nothing is sent twice. Lines of a subscriber:

    ["listening"]                    a life (or a subscriber) begins: what was said before is not for it
    ["heard", publisher, number]     a message
    ["gap"]                          it was told that messages may be missing here

Promises: nobody hears what was never said; no message comes twice; those of one publisher come in order; none
that was confirmed is missing between two others unless a gap is told at its place. When it is calm, everybody
hears again.

On a cluster members use shard channels, and only the first and the last promise hold: when a primary is
replaced, messages reach the subscribers of one node over another, by a way of its own, late or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import penstock
from penstock.client.pubsub import Message
from penstock.errors import PenstockError
from tests.chaos.crews.members import member
from tests.chaos.model import Member, Scene, Verdict
from tests.client.hearing import Channel
from tests.crash.lives import Life, may_pass
from tests.crash.stream_workers import read_lines

NAME: Final = "pubsub"
CHANNEL: Final = "{news}channel"
PUBLISHERS: Final = ("p0", "p1")
SUBSCRIBERS: Final = ("s0", "s1", "s2")
#: Says something when the others have ended.
CALM: Final = "calm"
#: A line of a log is shorter.
_LINE_BYTES: Final = 200


async def publish(life: Life) -> None:
    diary = life.diary
    number = max((line[1] for line in read_lines(diary.path)), default=-1)
    while True:
        number += 1
        diary.write("publish", number)
        try:
            await _say(life.ps, life.extra["command"], life.name, number)
        except PenstockError as error:
            if not may_pass(error):
                raise
        else:
            diary.write("published", number)
        await life.pause()


async def _say(ps: penstock.Penstock, command: str, publisher: str, number: int) -> None:
    await ps.execute(command, CHANNEL, f"{publisher}:{number}")


async def listen(life: Life) -> None:
    while True:
        try:
            await _listen(life)
        except PenstockError as error:
            if not may_pass(error):
                raise


async def _listen(life: Life) -> None:
    async with life.ps.pubsub() as subscriber:
        life.diary.write("listening")
        is_sharded = life.extra["command"] == "SPUBLISH"
        await (subscriber.ssubscribe if is_sharded else subscriber.subscribe)(CHANNEL)
        async for item in subscriber:
            if isinstance(item, Message):
                publisher, _, number = bytes(item.data).decode().partition(":")  # type: ignore[arg-type]
                life.diary.write("heard", publisher, int(number))
            else:
                life.diary.write("gap")


def _command_of(scene: Scene) -> str:
    return "SPUBLISH" if scene.kind == "cluster" else "PUBLISH"


def _extra(scene: Scene) -> dict[str, str]:
    return {"command": _command_of(scene)}


class PubSubCrew:
    name = NAME

    def __init__(self) -> None:
        self._said = 0
        self._deaf: list[str] = []

    def __repr__(self) -> str:
        return f"<PubSubCrew {self._said} said when it was calm, not heard by {self._deaf}>"

    @property
    def members(self) -> Sequence[Member]:
        make = partial(member, NAME, extra=_extra)
        return [
            *(make(name, publish, pause_s=0.1, is_maker=True) for name in PUBLISHERS),
            *(make(name, listen, pause_s=0.0) for name in SUBSCRIBERS),
        ]

    async def prepare(self, scene: Scene, ps: penstock.Penstock) -> None:
        """Channels need no preparation."""

    async def is_settled(self, scene: Scene, ps: penstock.Penstock) -> bool:
        """Whether everybody hears us."""
        await _say(ps, _command_of(scene), CALM, self._said)
        self._said += 1
        logs = {name: scene.log_of(f"{NAME}-{name}") for name in SUBSCRIBERS}
        self._deaf = [name for name, log in logs.items() if CALM.encode() not in _end_of(log)]
        return not self._deaf

    async def judge(self, scene: Scene, ps: penstock.Penstock) -> Verdict:
        return await asyncio.to_thread(self._judge, scene)

    def _judge(self, scene: Scene) -> Verdict:
        published = {name: published_by(read_lines(scene.log_of(f"{NAME}-{name}"))) for name in PUBLISHERS}
        published[CALM] = dict.fromkeys(range(self._said), "unknown")
        wrong: list[str] = []
        heard = 0
        for subscriber in SUBSCRIBERS:
            lines = list(read_lines(scene.log_of(f"{NAME}-{subscriber}")))
            heard += sum(line[0] == "heard" for line in lines)
            wrong += judge_subscriber(subscriber, lines, published, is_ordered=scene.kind != "cluster")
        outcomes = [outcome for name in PUBLISHERS for outcome in published[name].values()]
        counts = {"messages confirmed": outcomes.count("ok"), "messages heard": heard}
        return Verdict(NAME, counts, wrong)


def _end_of(log: Path) -> bytes:
    if not log.exists():
        return b""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LINE_BYTES))
        return file.read()


def published_by(lines: Iterable[list[Any]]) -> dict[int, str]:
    """What a publisher has said, and whether that was confirmed."""
    fates: dict[int, str] = {}
    for kind, number in lines:
        fates[number] = "ok" if kind == "published" else "unknown"
    return fates


def judge_subscriber(
    name: str, lines: Iterable[list[Any]], published: dict[str, dict[int, str]], *, is_ordered: bool
) -> list[str]:
    channels = {publisher: Channel(numbers) for publisher, numbers in published.items()}
    wrong: list[str] = []
    for line in lines:
        match line:
            case ["heard", publisher, number] if publisher in channels:
                channels[publisher].heard.append(number)
            case ["heard", publisher, _]:
                wrong.append(f"{name} heard {publisher}, who is nobody")
            case _:
                for channel in channels.values():
                    channel.heard.append(None)
    for publisher, channel in channels.items():
        breaches = channel.strangers()
        breaches += channel.repetitions() + channel.breaches() if is_ordered else []
        wrong += [f"{name}, of {publisher}: {breach}" for breach in breaches]
    return wrong
