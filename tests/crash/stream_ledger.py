"""What the logs of stream workers promise, compared with the store. One sentence a broken promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock.engine import LocalSession
from tests.crash.stream_workers import LEFT, ONCE, Message, messages_of, read_lines

_ALL = 1_000_000


class Try(NamedTuple):
    worker: str
    number: int
    what: str


@dataclass
class Books:
    """All logs together."""

    #: when each try was begun first
    begun_ns: dict[Try, int] = field(default_factory=dict)
    #: replies, with when they came; more than one where a producer repeated itself
    done: dict[Try, list[tuple[Any, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, prefix: str = "") -> Books:
        """``prefix``: how the names of these logs begin; the rest is the name of the worker."""
        books = cls()
        for path in sorted(directory.glob(f"{prefix}*.log")):
            books._add(path.stem.removeprefix(prefix), read_lines(path))
        return books

    def _add(self, worker: str, lines: Iterable[list[Any]]) -> None:
        tries: dict[int, Try] = {}
        for kind, number, value, at_ns in lines:
            if kind == "try":
                tries[number] = Try(worker, number, value)
                self.begun_ns.setdefault(tries[number], at_ns)
            else:
                self.done.setdefault(tries[number], []).append((value, at_ns))

    def writes(self, stream: str) -> Iterator[tuple[Try, list[Message], list[int]]]:
        """Tries to write to a stream: what, and the offsets that were answered (several if repeated)."""
        for tried in self.begun_ns:
            words = tried.what.split()
            if words[0] == stream and len(words) == 2:
                replies = [reply for reply, _ in self.done.get(tried, ())]
                yield tried, messages_of(tried.what, tried.worker, tried.number), replies

    def reads(self, stream: str, group: str) -> Iterator[tuple[Try, list[list[Any]]]]:
        for tried, replies in self.done.items():
            if tried.what == f"{stream} {group} read":
                yield from ((tried, rows) for rows, _ in replies if rows)

    def acknowledged(self, stream: str, group: str) -> tuple[dict[int, int], set[int], set[int]]:
        """Offsets with when their TACK was confirmed, those for which nobody knows, those that it found.

        A TACK that comes late finds nothing where the message was acknowledged or given up before.
        """
        sure: dict[int, int] = {}
        unsure: set[int] = set()
        found: set[int] = set()
        for tried in self.begun_ns:
            if not tried.what.startswith(f"{stream} {group} TACK "):
                continue
            offsets = [int(word) for word in tried.what.split()[-1].split(",")]
            if tried not in self.done:
                unsure.update(offsets)
            elif self.done[tried][0][0] == len(offsets):
                found.update(offsets)
            for offset in offsets if tried in self.done else ():
                sure[offset] = min(self.done[tried][0][1], sure.get(offset, 1 << 63))
        return sure, unsure, found


# ------------------------------------------------------------------------------------ writes


def judge_writes(books: Books, session: LocalSession) -> list[str]:
    """Nothing confirmed is lost, nothing is written twice or by half, no offset is given twice."""
    return [
        line
        for stream in ("plain", "short", "tags")
        for line in _judge_stream(stream, books, session)
    ]  # fmt: skip


def _judge_stream(stream: str, books: Books, session: LocalSession) -> list[str]:
    (first, last), *rows = session.execute("TREAD", stream, 1, _ALL, "WITHINFO", "SKIPNULL")
    there = {offset: (tag.decode(), entry and entry.decode()) for offset, tag, entry in rows}
    return judge_stream(stream, books, there, first, last)


def judge_stream(stream: str, books: Books, there: dict[int, Message], first: int, last: int) -> list[str]:
    """The same of one stream: ``there`` is what it has, by offset, ``first`` and ``last`` what it says."""
    broken: list[str] = []
    if stream not in ("short", "tags") and list(there) != list(range(1, last + 1)):
        broken.append(f"{stream} has holes, and should have {last} messages")
    if stream == "short" and len(there) < LEFT <= last:
        broken.append(f"short has {len(there)} messages left")
    given: dict[int, Message] = {}
    for tried, messages, replies in books.writes(stream):
        if len(set(replies)) > 1:
            broken.append(f"{tried} was answered with {set(replies)}")
        for offset, message in enumerate(messages, replies[0] - len(messages) + 1) if replies else ():
            if offset in given:
                broken.append(f"{stream} {offset} was given twice: {given[offset]} and {message}")
            given[offset] = message
    newest = {tag: offset for offset, (tag, _) in there.items()}
    for offset, message in given.items():
        if there.get(offset, message) != message:
            broken.append(f"{stream} {offset} is {there[offset]}, and {message} was confirmed")
        is_gone_by_rule = (stream == "short" and offset < first) or (
            stream == "tags" and message[0] and newest.get(message[0], 0) > offset
        )
        if offset not in there and not is_gone_by_rule:
            broken.append(f"{stream} {offset} {message} was confirmed and is lost")
    return broken + _judge_wholeness(stream, books, there)


def _judge_wholeness(stream: str, books: Books, there: dict[int, Message]) -> list[str]:
    """Every message was tried, and is there once; those of one call are together."""
    places: dict[Message, list[int]] = {}
    for offset, message in there.items():
        places.setdefault(message, []).append(offset)
    broken: list[str] = []
    for tried, messages, _ in books.writes(stream):
        found = [places.pop(message, []) for message in messages]
        if stream == "tags":
            continue  # parts of it are compacted, and its tombstones have no names
        doubled = [message for message, offsets in zip(messages, found, strict=True) if len(offsets) > 1]
        broken += [f"{stream} has {message} of {tried} more than once" for message in doubled]
        offsets = [offset for each in found for offset in each]
        is_whole = len(offsets) == len(messages) or (
            stream == "short" and offsets[:1] == [min(there, default=0)]
        )
        if offsets and not (is_whole and offsets == list(range(offsets[0], offsets[0] + len(offsets)))):
            broken.append(f"{stream} has {tried} by half: {offsets}")
    return broken + [f"{stream} has {message}, which nobody wrote" for message in places if message[1]]


# ------------------------------------------------------------------------------------ groups


def judge_group(
    stream: str, group: str, books: Books, drained: list[int], letters: list[int], last: int
) -> list[str]:
    """Nothing acknowledged came again, all else came in the end, or is a dead letter."""
    sure, unsure, found = books.acknowledged(stream, group)
    broken = [
        f"{stream} {group}: {offset} was acknowledged and came again"
        for tried, rows in books.reads(stream, group)
        for offset in (row[0] for row in rows)
        if books.begun_ns[tried] > sure.get(offset, 1 << 63)
    ]
    broken += [
        f"{stream} {group}: {offset} was acknowledged and came in the end"
        for offset in sure.keys() & set(drained)
    ]
    broken += [f"{stream} {group}: {o} was acknowledged and given up" for o in found & set(letters)]
    broken += [
        f"{stream} {group}: {offset} was given up {times} times"
        for offset, times in Counter(letters).items()
        if times > 1
    ]
    if stream not in ("short", "tags"):
        lost = set(range(1, last + 1)) - sure.keys() - unsure - {*drained, *letters}
        broken += [
            f"{stream} {group}: {offset} was never acknowledged and never came again" for offset in lost
        ]
    return broken + _judge_deliveries(stream, group, books)


def _judge_deliveries(stream: str, group: str, books: Books) -> list[str]:
    """Each delivery of a message has a number of its own; what is in somebody's hands is not compacted."""
    counts = Counter(
        (row[0], row[-1]) for _, rows in books.reads(stream, group) for row in rows if row[1] is not None
    )
    broken = [f"{stream} {group}: delivery {each} happened twice" for each, n in counts.items() if n > 1]
    gone = [row[0] for _, rows in books.reads(stream, group) for row in rows if row[1] is None]
    if stream != "short":
        broken += [f"{stream} {group}: {offset} was pending and is gone" for offset in gone]
    return broken


def judge_ends(stream: str, group: str, last: int, acked: int, given_up: int, lost: int) -> list[str]:
    """By what a group has counted: every message was acknowledged or given up, exactly once."""
    if (acked + given_up, lost) == (last, 0):
        return []
    return [f"{stream} {group} has {acked} + {given_up} ends of {last} messages, and {lost} are lost"]


def judge_once(books: Books) -> list[str]:
    """Without RETRY nothing comes twice."""
    counts = Counter(row[0] for _, rows in books.reads("plain", ONCE) for row in rows)
    return [f"{offset} was delivered {times} times" for offset, times in counts.items() if times > 1]
