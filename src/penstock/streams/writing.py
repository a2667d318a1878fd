"""Messages on their way in: pairs of tag and entry, judged, and cut into commands of a sensible size.

Pure. One TWRITE is atomic and its messages are contiguous; it holds at most ``MAX_MESSAGES``
messages and about ``MAX_BYTES``, so that one writer never keeps a server from everybody else for
long. Entries and tombstones do not go into the same command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.client.transports.base import Argument
from penstock.streams.arguments import (
    MAX_COUNT,
    MAX_OFFSET,
    Data,
    Name,
    data,
    named,
    offset,
    optional,
    switch,
    whole,
)

#: Most messages in one command, …
MAX_MESSAGES: Final = 10_000
#: … and about how many bytes.
MAX_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Batch:
    """The messages of one command."""

    is_tombstones: bool = False
    #: tag, entry, tag, entry, …; of tombstones the tags
    words: list[Argument] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.words) if self.is_tombstones else len(self.words) // 2

    def add(self, tag: Argument, entry: Argument | None) -> None:
        self.size_bytes += _size_of(tag, entry)
        self.words.append(tag)
        if entry is not None:
            self.words.append(entry)

    def command(self, key: Name, options: tuple[Argument, ...]) -> tuple[Argument, ...]:
        if not options and len(self) == 1:
            if not self.is_tombstones:
                return ("TWRITE", key, *self.words)
            # With exactly three arguments TWRITE would take the word for a tag: say something that
            # changes nothing.
            options = ("BACKLOG", MAX_COUNT)
        return ("TWRITE", key, *options, "TOMBSTONES" if self.is_tombstones else "ENTRIES", *self.words)


def fits(messages: int, size_bytes: int) -> bool:
    """Whether so much goes into one command. (A single message always does; the server may refuse it.)"""
    return messages <= MAX_MESSAGES and size_bytes <= MAX_BYTES


def pair(tag: Data, entry: Data | None) -> tuple[Argument, Argument | None]:
    """One message, judged."""
    good_tag = data("tag", tag)
    if entry is not None:
        return good_tag, data("entry", entry)
    if not len(good_tag):
        raise ValueError("tag must not be empty where entry is None: a tombstone says which tag is over")
    return good_tag, None


def batches(messages: Iterable[tuple[Data, Data | None]]) -> Iterator[Batch]:
    """The messages in commands, each as large as allowed; at least one message."""
    batch: Batch | None = None
    for number, message in enumerate(messages):
        good_tag, good_entry = _taken_apart(number, message)
        size_bytes = _size_of(good_tag, good_entry)
        if batch is not None and not fits(len(batch) + 1, batch.size_bytes + size_bytes):
            yield batch
            batch = None
        if batch is None:
            batch = Batch(good_entry is None)
        elif batch.is_tombstones != (good_entry is None):
            raise ValueError(
                f"messages[{number}]: entries and tombstones cannot be written together; call once for each"
            )
        batch.add(good_tag, good_entry)
    if batch is None:
        raise ValueError("messages must not be empty")
    yield batch


def _taken_apart(number: int, message: object) -> tuple[Argument, Argument | None]:
    if not isinstance(message, tuple | list) or len(message) != 2:
        raise TypeError(f"messages[{number}] must be a pair of tag and entry, not {message!r:.60}")
    return pair(*message)


def backlog_options(backlog: int | None, is_exact: bool) -> tuple[Argument, ...]:
    count = optional("backlog", backlog)
    if count is None:
        if is_exact:
            raise ValueError("exact_backlog means nothing without backlog")
        return ()
    return ("BACKLOG", "=", count) if is_exact else ("BACKLOG", count)


def condition(expected_last: int | None) -> tuple[Argument, ...]:
    return () if expected_last is None else ("IF", offset("expected_last", expected_last))


def producer_option(producer: object, is_kept: object) -> tuple[Argument, ...]:
    keep = ("KEEP",) if switch("keep_producer", is_kept) == "yes" else ()
    if producer is None:
        if keep:
            raise ValueError("keep_producer means nothing without producer")
        return ()
    if not isinstance(producer, tuple) or len(producer) != 2:
        raise TypeError(f"producer must be a pair of id and sequence, not {producer!r:.60}")
    name, sequence = producer
    return ("PRODUCER", named("producer", name), whole("producer", sequence, 0, MAX_OFFSET), *keep)


def _size_of(tag: Argument, entry: Argument | None) -> int:
    return _size(tag) + (0 if entry is None else _size(entry))


def _size(word: Argument) -> int:
    if isinstance(word, memoryview):
        return word.nbytes
    assert isinstance(word, bytes | str)
    return len(word)
