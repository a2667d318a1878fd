"""Processes that write, read, evict and compact streams until they are killed, and their logs.

Each worker appends lines to a log (see ``workers.Log``), one JSON array a line:

    ["try", number, what, monotonic_ns]     before the command is sent
    ["ok", number, reply, monotonic_ns]     after its reply arrived

What is written follows from the name of the worker and the number of the try (:func:`messages_of`). A
*producer* goes on under its name after it was killed: it repeats its last calls, then counts on.

==========  ==========================================================================================
stream      what happens to it
==========  ==========================================================================================
``plain``   written in every way, read by three groups; every message stays
``short``   also evicted, and read by a group meanwhile
``tags``    has few tags and is compacted all the time, also under a group with messages in hand
==========  ==========================================================================================
"""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.crash import workers
from tests.crash.workers import Door, Embedded, Log

#: Messages that eviction leaves in ``short``.
LEFT = 50
#: With RETRY, whose messages may be acknowledged by anybody who gets them.
GROUPS: Final = {"plain": ("work", "picky"), "short": ("work",), "tags": ("work",)}
#: Without RETRY.
ONCE: Final = "once"
RETRY_MS = 150

_TAGS = tuple(f"tag{number}" for number in range(12))
_REPEATED_CALLS = 4

Message: TypeAlias = tuple[str, str | None]

SETUP: Final[list[list[Any]]] = [
    ["TPOLICY", "plain", "NODE-MESSAGES", 7],
    ["TPOLICY", "short", "NODE-MESSAGES", 5],
    ["TPOLICY", "tags", "NODE-MESSAGES", 5, "COMPACT", "yes", "DIRTY-RATIO", 1],
    ["TGROUP", "CREATE", "plain", "work", 0],
    ["TGROUP", "CREATE", "plain", "picky", 0, "ORDERED", "yes", "MAXDELIVERIES", 2, "DEADLETTER", "dead"],
    ["TGROUP", "CREATE", "plain", ONCE, 0],
    ["TGROUP", "CREATE", "short", "work", 0],
    ["TGROUP", "CREATE", "tags", "work", 0],
]


# ------------------------------------------------------------------------------- writing


def messages_of(what: str, worker: str, number: int) -> list[Message]:
    """Tags and entries of a try; ``what`` is a stream and a way to write."""
    stream, way = what.split()
    count = 1 if way == "one" else 2 + number * 7919 % 13
    names = [f"{worker}:{number}:{index}" for index in range(count)]
    if stream == "tags":
        tags = [
            "" if (number + index) % 17 == 0 else _TAGS[(number * 5 + index) % 12] for index in range(count)
        ]
    else:
        # Where nothing is compacted a tombstone is known by its tag.
        tags = names if way == "tombstones" else [f"t{(number + index) % 5}" for index in range(count)]
    return [(tag, None if way == "tombstones" else name) for tag, name in zip(tags, names, strict=True)]


def command_of(what: str, worker: str, number: int) -> list[Any]:
    stream, way = what.split()
    messages = messages_of(what, worker, number)
    if way == "one":
        return ["TWRITE", stream, *messages[0]]
    options: list[Any] = ["PRODUCER", worker, number] if way == "producer" else []
    if stream == "short" and way == "bulk":
        options += ["BACKLOG", *(["="] if number % 2 else []), LEFT]
    if way == "tombstones":
        return ["TWRITE", stream, *options, "TOMBSTONES", *(tag for tag, _ in messages)]
    return ["TWRITE", stream, *options, "ENTRIES", *(word for message in messages for word in message)]


def write(
    door: Door,
    diary: Log,
    worker: str,
    chance: random.Random,
    streams: Sequence[str] = ("plain", "short", "tags", "tags"),
) -> None:
    while True:
        stream = chance.choice(streams)
        what = f"{stream} {chance.choice(('one', 'one', 'one', 'bulk', 'tombstones'))}"
        _try(door, diary, what, lambda number, what=what: command_of(what, worker, number))


def produce(door: Door, diary: StreamLog, worker: str, chance: random.Random) -> None:
    """Count on from what an earlier life has logged, after repeating the end of it."""
    what = "plain producer"
    for number in _numbers(diary.path):
        if chance.random() < 0.05:
            time.sleep(0.001)
        while True:
            diary.write("try", number, what, time.monotonic_ns())
            try:
                reply = door.run([command_of(what, worker, number)])[0]
            except ConnectionError:
                continue  # nobody knows whether it was written: say it again
            diary.write("ok", number, reply, time.monotonic_ns())
            break


def _numbers(path: Path) -> Iterator[int]:
    tried = sorted({line[1] for line in read_lines(path) if line[0] == "try"})
    yield from tried[-_REPEATED_CALLS:]
    number = tried[-1] if tried else 0
    while True:
        number += len(messages_of("plain producer", "", number)) if number else 1
        yield number


# ------------------------------------------------------------------------------- reading


def read(
    door: Door,
    diary: Log,
    worker: str,
    chance: random.Random,
    groups: Mapping[str, Sequence[str]] = GROUPS,
) -> None:
    """Read for groups, and acknowledge most of it."""
    while True:
        stream = chance.choice(list(groups))
        group = chance.choice(groups[stream])
        command = [
            "TREAD",
            stream,
            0,
            chance.choice((1, 5, 30)),
            "GROUP",
            group,
            "CONSUMER",
            worker,
            "WITHCOUNT",
        ]
        command += ["RETRY", RETRY_MS, 0, "BLOCK", chance.choice((1, 30))]
        rows = _try(door, diary, f"{stream} {group} read", lambda _, command=command: command)
        offsets = [row[0] for row in rows or ()]
        chance.shuffle(offsets)
        for verb, words, share in (("TACK", [], 0.8), ("TNACK", [0], 0.5), ("TRENEW", [RETRY_MS], 0.5)):
            chosen = offsets[: round(len(offsets) * share * chance.random() * 1.5)]
            offsets = offsets[len(chosen) :]
            if chosen:
                what = f"{stream} {group} {verb} {','.join(map(str, chosen))}"
                settle = [verb, stream, group, *words, *chosen]
                _try(door, diary, what, lambda _, settle=settle: settle)


def read_once(door: Door, diary: Log, worker: str, chance: random.Random) -> None:
    while True:
        command = ["TREAD", "plain", 0, chance.choice((1, 5, 30)), "GROUP", ONCE, "WITHCOUNT"]
        command += ["BLOCK", chance.choice((1, 30))]
        _try(door, diary, f"plain {ONCE} read", lambda _, command=command: command)


# ---------------------------------------------------------------------------- looking after


def tend(door: Door, diary: Log, worker: str, chance: random.Random) -> None:
    """Evict and compact."""
    commands: list[list[Any]] = [
        ["TEVICT", "short", f"-{LEFT}"],
        ["TEVICT", "short", f"-{LEFT}", "ACKED"],
        ["TCOMPACT", "tags"],
        ["TCOMPACT", "tags"],
        ["TPOLICY", "tags", "NODE-MESSAGES", chance.choice((2, 5, 9))],
        ["TINFO", "GROUPS", "plain"],
    ]
    while True:
        command = chance.choice(commands)
        _try(door, diary, "tend", lambda _, command=command: command)
        time.sleep(chance.random() * 0.01)


# ------------------------------------------------------------------------------------ start


class StreamLog(Log):
    """A log that a later life of the same worker may go on with."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        if not path.read_bytes().endswith(b"\n"):
            os.write(self._fd, b"\n")  # ends the line that was torn, or nothing

    def count_on(self) -> None:
        """Number tries behind those of earlier lives."""
        tried = (line[1] for line in read_lines(self.path) if line[0] == "try")
        self._number = max(tried, default=0)


def read_lines(path: Path) -> Iterator[list[Any]]:
    """The lines of a log. What a kill has torn never happened."""
    if path.exists():
        for line in path.read_bytes().split(b"\n"):
            with suppress(ValueError):
                yield json.loads(line)


def _shown(reply: Any) -> Any:
    """A reply as JSON has it."""
    if isinstance(reply, bytes):
        return reply.decode()
    return (
        [_shown(item) for item in reply] if isinstance(reply, list) else reply if _is_plain(reply) else None
    )


def _is_plain(reply: Any) -> bool:
    return reply is None or isinstance(reply, int)


def _try(door: Door, diary: Log, what: str, command: Callable[[int], list[Any]]) -> Any:
    """One command; None if nobody knows what became of it."""
    number = diary.attempt(what)
    words = command(number)
    try:
        if isinstance(door, Embedded) and "BLOCK" in words:
            reply = door.session.execute(*words)
        else:
            (reply,) = door.run([words])
    except ConnectionError:
        return None
    diary.write("ok", number, _shown(reply), time.monotonic_ns())
    return reply


_ROLES: Final = {"writer": write, "producer": produce, "reader": read, "once": read_once, "tender": tend}


def work(role: str, store: str, port_file: str | None, log: str, seed: int) -> None:
    """The whole life of a worker process. What goes wrong stands beside its log."""
    path = Path(log)
    chance = random.Random(seed)
    try:
        door = workers.open_door(store, "relaxed", port_file, chance)
        _ROLES[role](door, StreamLog(path), path.stem, chance)
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc())
        raise
