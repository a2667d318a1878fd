"""What the logs of a gateway's clients promise, compared with each other. One sentence a broken promise.

1. An id whose publishing was answered with 200 is received by every subscriber.
2. Nobody receives what nobody tried to publish, nor an id in the batch twice.
3. The messages of one publisher are received in the order in which they were published, and all subscribers
   receive all messages in the same order.
4. A fetch that begins after the 204 of an acknowledgement does not give the message again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.gateway_clients import PUBLISHERS, SUBSCRIBERS
from tests.crash.stream_workers import read_lines


@dataclass
class Receipts:
    """What one subscriber received and acknowledged."""

    batches: list[tuple[int, list[str]]] = field(default_factory=list)
    #: id -> when its acknowledgement was confirmed first
    acked_ns: dict[str, int] = field(default_factory=dict)

    def add(self, lines: Iterable[list[Any]]) -> None:
        for kind, at_ns, ids in lines:
            if kind == "got":
                self.batches.append((at_ns, ids))
            else:
                for each in ids:
                    self.acked_ns.setdefault(each, at_ns)

    def first_receipts(self) -> list[str]:
        """Every id once, in the order of its first coming."""
        return list(dict.fromkeys(each for _, ids in self.batches for each in ids))


@dataclass
class Books:
    """All logs together."""

    tried: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    subscribers: dict[str, Receipts] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Books:
        books = cls()
        for name in PUBLISHERS:
            for kind, message in read_lines(directory / f"{name}.log"):
                (books.tried if kind == "try" else books.confirmed).add(message)
        for name in SUBSCRIBERS:
            books.subscribers[name] = Receipts()
            books.subscribers[name].add(read_lines(directory / f"{name}.log"))
        return books


def judge(books: Books) -> list[str]:
    """After everything was fetched to its end."""
    broken: list[str] = []
    orders: dict[str, list[str]] = {}
    for name, receipts in books.subscribers.items():
        orders[name] = receipts.first_receipts()
        received = set(orders[name])
        broken += [
            f"{name} never got {each}, which was confirmed" for each in sorted(books.confirmed - received)
        ]
        broken += [f"{name} got {each}, which nobody published" for each in sorted(received - books.tried)]
        broken += _judge_order(name, orders[name])
        broken += _judge_acknowledgements(name, receipts)
    (first, order), *others = orders.items()
    broken += [f"{name} got messages in another order than {first}" for name, each in others if each != order]
    return broken


def _judge_order(name: str, order: Sequence[str]) -> list[str]:
    last: dict[str, int] = {}
    broken: list[str] = []
    for each in order:
        publisher, _, number = each.partition("-")
        if last.get(publisher, -1) >= int(number):
            broken.append(f"{name} got {each} after {publisher}-{last[publisher]}")
        last[publisher] = int(number)
    return broken


def _judge_acknowledgements(name: str, receipts: Receipts) -> list[str]:
    broken: list[str] = []
    for begun_ns, ids in receipts.batches:
        if len(set(ids)) < len(ids):
            broken.append(f"{name} got a message twice in one batch")
        broken += [
            f"{name} got {each} again after its acknowledgement"
            for each in ids
            if receipts.acked_ns.get(each, begun_ns) < begun_ns
        ]
    return broken
