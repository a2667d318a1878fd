"""What the logs of channel workers promise, compared with one another. One sentence a broken promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.channel_workers import CHANNELS, PUBLISHERS, SUBSCRIBERS
from tests.crash.stream_workers import read_lines


@dataclass
class Books:
    """All logs together."""

    #: channel -> publications in the order of each publisher: ids, whether it was confirmed
    tried: dict[str, list[tuple[tuple[str, ...], bool]]] = field(default_factory=dict)
    #: subscriber -> its lines
    lines: dict[str, list[list[Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, prefix: str = "") -> Books:
        """``prefix``: how the names of these logs begin."""
        books = cls({channel: [] for channel in CHANNELS})
        for publisher in PUBLISHERS:
            books.add_publisher(read_lines(directory / f"{prefix}{publisher}.log"))
        for subscriber in SUBSCRIBERS:
            books.lines[subscriber] = list(read_lines(directory / f"{prefix}{subscriber}.log"))
        return books

    def add_publisher(self, lines: Iterable[list[Any]]) -> None:
        """A publication that was repeated counts once, as what became of it in the end."""
        fates: dict[tuple[str, tuple[str, ...]], bool] = {}
        for kind, channel, names in lines:
            fates[channel, tuple(names)] = kind == "published"
        for (channel, names), is_confirmed in fates.items():
            self.tried.setdefault(channel, []).append((names, is_confirmed))


def judge(books: Books) -> list[str]:
    broken: list[str] = []
    for channel in CHANNELS:
        order: dict[int, str] = {}
        for subscriber in (name for name, of in SUBSCRIBERS.items() if of == channel):
            broken += judge_subscriber(subscriber, books.lines.get(subscriber, []))
            broken += _merge(subscriber, books.lines.get(subscriber, []), order)
            broken += _judge_lost(subscriber, books.lines.get(subscriber, []), books.tried.get(channel, []))
        broken += judge_order(channel, order, books.tried.get(channel, []))
    return broken


def judge_subscriber(name: str, lines: list[list[Any]]) -> list[str]:
    """Every batch begins behind what was acknowledged, and has no gaps."""
    broken: list[str] = []
    cursor = 0
    # What was not confirmed may have happened, or happen yet: it may be on its way while its sender is dead.
    unsure: set[int] = set()
    for kind, value in lines:
        if kind == "ack":
            unsure.add(value)
        elif kind == "acked":
            cursor = value
        else:
            clocks = [clock for _, clock in value]
            if clocks != list(range(clocks[0], clocks[0] + len(clocks))):
                broken.append(f"{name} got a batch with gaps or out of order: {clocks}")
            if clocks[0] - 1 not in {cursor, *unsure}:
                known = sorted({cursor, *unsure})
                broken.append(f"{name} got {clocks[0]} first, although it had acknowledged {known}")
            cursor = clocks[0] - 1
        unsure = {clock for clock in unsure if clock > cursor}
    return broken


def _merge(name: str, lines: list[list[Any]], order: dict[int, str]) -> list[str]:
    """All subscribers of a channel agree on which message has which clock."""
    pairs = [pair for kind, value in lines if kind == "got" for pair in value]
    return [
        f"{name} got {message} at clock {clock}, where others got {order[clock]}"
        for message, clock in pairs
        if order.setdefault(clock, message) != message
    ]


def _judge_lost(name: str, lines: list[list[Any]], tried: list[tuple[tuple[str, ...], bool]]) -> list[str]:
    got = {message for kind, value in lines if kind == "got" for message, _ in value}
    confirmed = {message for names, is_confirmed in tried if is_confirmed for message in names}
    return [f"{name} never got {message}, which was confirmed" for message in sorted(confirmed - got)]


def judge_order(channel: str, order: dict[int, str], tried: list[tuple[tuple[str, ...], bool]]) -> list[str]:
    """Each message once; a publication in one piece or not at all, behind earlier ones of its publisher."""
    broken: list[str] = []
    clocks: dict[str, int] = {}
    for clock, message in sorted(order.items()):
        if clocks.setdefault(message, clock) != clock:
            broken.append(f"{channel} has {message} at clocks {clocks[message]} and {clock}")
    latest: dict[str, int] = {}
    known = {message for names, _ in tried for message in names}
    broken += [f"{channel} has {message}, which nobody published" for message in clocks.keys() - known]
    for names, _ in tried:
        there = [clocks[message] for message in names if message in clocks]
        if not there:
            continue
        if there != list(range(there[0], there[0] + len(names))):
            broken.append(f"{channel} has a part of {names}, or not in one piece: {there}")
        publisher = names[0].partition("-")[0]
        if there[0] <= latest.get(publisher, 0):
            broken.append(f"{channel} has {names} before what {publisher} had published earlier")
        latest[publisher] = there[-1]
    return broken
