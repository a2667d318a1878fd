"""What there is to measure, how much of it, and how long that takes: the one table of budgets.

A section belongs to the short run (``make bench``: about ten minutes on two cores), to the large one
(``make bench-large``: about an hour), or to both with other sizes. Seconds are those of a quiet machine with
two cores, environments of peers already made: the short ones must add up to less than ``LIMIT_S``, which a
test checks; whoever makes a section longer makes another shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

#: Of the short run, all sections together.
LIMIT_S: Final = 720


@dataclass(frozen=True, slots=True)
class Section:
    """``about`` is what a reader of the page sees as its heading."""

    part: str
    name: str
    about: str
    #: 0: not in this run
    short_s: int
    large_s: int = 0

    @property
    def key(self) -> str:
        return f"{self.part}.{self.name}"

    def is_in(self, *, large: bool) -> bool:
        return bool(self.large_s if large else self.short_s)


PARTS: Final = {
    "server": "The engine over RESP, beside a real server",
    "client": "The client, beside other clients and a bare loop",
    "streams": "Streams, beside Redis Streams",
    "channels": "Channels over HTTP",
    "transactions": "Transactions, beside job queues",
    "spark": "Spark",
}

SECTIONS: Final = (
    Section("server", "commands", "Six commands, 50 connections, `relaxed`", 55),
    Section("server", "durable", "SET, every reply on disk", 15),
    Section("server", "keys", "Cost of a command as the store grows", 0, 900),
    Section("client", "calls", "GET and INCR on one connection", 105),
    Section("client", "embedded", "On an embedded store", 25),
    Section("streams", "messages", "Append, keep, consume", 25),
    Section("streams", "durable", "One message a call from 100 tasks, on disk when answered", 10),
    Section("streams", "growth", "Cost of an operation as a log grows", 15, 300),
    Section("channels", "publish", "Publishes as fast as they are taken", 75, 140),
    Section("channels", "traffic", "One publisher and three subscribers a channel", 70, 450),
    Section("channels", "polls", "Long polls that wait", 0, 200),
    Section("transactions", "peers", "Jobs of one step that does nothing", 165),
    Section("transactions", "kept", "Cost of a transaction while many are kept", 0, 900),
    Section("spark", "source", "A stream as a table, into nothing", 45),
    Section("spark", "lake", "A stream into the lake, a DataFrame into a stream", 0, 120),
    Section("spark", "growth", "The end of a log that grows", 0, 300),
    Section("spark", "archive", "Ended transactions into the lake", 0, 60),
    Section("spark", "lookup", "One transaction by its id among archived ones", 40, 500),
    Section("spark", "latency", "From a message to the micro-batch that has it", 30),
    Section("spark", "steps", "Transactions through a step on Spark", 0, 60),
    Section("spark", "session", "Start of a session", 0, 70),
)


def _count(size: float, least: float) -> Any:
    """A size that ``--scale`` changes, and below which nothing is measured."""
    return field(default=size, metadata={"least": least})


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done in a round; the defaults are those of the short run."""

    rounds: int = 3

    # server
    requests: int = _count(40_000, 1_000)
    pipelined_requests: int = _count(250_000, 2_000)
    durable_requests: tuple[tuple[int, int], ...] = ((1, 1_500), (50, 25_000), (500, 50_000))
    key_sizes: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)

    # client
    call_s: float = _count(0.4, 0.05)
    embedded_s: float = _count(0.4, 0.05)

    # streams
    messages: int = _count(200_000, 2_000)
    single_messages: int = _count(20_000, 500)
    log_sizes: tuple[int, ...] = (1_000_000, 10_000_000)

    # channels
    publish_s: float = _count(2.0, 1.0)
    connections: tuple[int, ...] = (64,)
    traffic_s: float = _count(3.0, 2.0)
    channels: tuple[int, ...] = (400,)
    traffic_workers: tuple[int, ...] = (2,)
    polls: int = _count(10_000, 100)

    # transactions
    jobs: int = _count(3_000, 100)
    latency_jobs: int = _count(40, 5)
    kept: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)

    # spark
    table_messages: int = _count(3_000_000, 1_000)
    table_sizes: tuple[int, ...] = (1_000_000, 10_000_000, 100_000_000)
    sunk: int = _count(1_000_000, 1_000)
    archived: int = _count(20_000, 100)
    #: Fewer archived transactions stay in one file.
    looked_up_in: int = _count(200_000, 20_000)
    stepped: int = _count(10_000, 100)

    def scaled(self, scale: float) -> Sizes:
        """All of them, multiplied; lists of sizes keep their order and lose what became equal."""
        changed: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if "least" in one.metadata:
                changed[one.name] = max(type(value)(value * scale), one.metadata["least"])
            elif one.name.endswith("_sizes") or one.name == "kept":
                changed[one.name] = tuple(sorted({max(int(size * scale), 1_000) for size in value}))
        changed["durable_requests"] = tuple((c, max(int(n * scale), c)) for c, n in self.durable_requests)
        return replace(self, **changed)

    def with_rounds(self, rounds: int) -> Sizes:
        return replace(self, rounds=rounds)


SHORT: Final = Sizes()
LARGE: Final = replace(
    SHORT,
    log_sizes=(1_000_000, 10_000_000, 100_000_000),
    publish_s=4.0,
    connections=(32, 64),
    channels=(50, 100, 200, 400),
    traffic_workers=(1, 2),
    table_messages=5_000_000,
    looked_up_in=5_000_000,
)


def choose(words: Sequence[str], *, large: bool) -> list[Section]:
    """The sections that are meant, in the order of the table; ``ValueError`` says which word is wrong."""
    offered = [section for section in SECTIONS if section.is_in(large=large)]
    if not words:
        return offered
    chosen: set[str] = set()
    for word in words:
        keys = {section.key for section in offered if word in (section.part, section.key)}
        if not keys:
            raise ValueError(_what_is_wrong_with(word, large=large))
        chosen |= keys
    return [section for section in offered if section.key in chosen]


def _what_is_wrong_with(word: str, *, large: bool) -> str:
    if any(word in (section.part, section.key) for section in SECTIONS):
        return f"{word!r} is not part of the {'large' if large else 'short'} run: " + (
            "leave --large out" if large else "add --large"
        )
    return f"there is no {word!r} to measure; --help lists what there is"


def budget_s(sections: Sequence[Section], *, large: bool) -> int:
    return sum(section.large_s if large else section.short_s for section in sections)
