"""A stream: a log that anybody writes to and reads from anywhere.

    orders = ps.stream("orders")
    offset = await orders.write("eu", b"…")
    async for message in orders.read(from_offset=offset): …
    async for message in orders.follow(): …

A ``Stream`` is a name with methods; making one sends nothing. The stream itself is made by the
first write. Groups of readers are in ``groups``, exactly-once writing is in ``producing``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, overload

from penstock.client.resending import persistently
from penstock.client.transports.base import Argument
from penstock.errors import CommandError
from penstock.streams import arguments as check
from penstock.streams.arguments import MAX_COUNT, MAX_OFFSET, MISSING, Data, Execute, Item, Missing, Name
from penstock.streams.consuming import BLOCK_MS
from penstock.streams.groups import Group
from penstock.streams.infos import GroupInfo, Policy, ProducerInfo, StreamInfo, parse_info, text
from penstock.streams.messages import Message, parse_messages
from penstock.streams.producing import PATIENCE_MS, Producer
from penstock.streams.repeating import repeat
from penstock.streams.scanning import MAX_PAGE_BYTES, PAGE_BYTES, Page, scan
from penstock.streams.writing import (
    MAX_BYTES,
    MAX_MESSAGES,
    Batch,
    backlog_options,
    batches,
    condition,
    pair,
    producer_option,
)

T = TypeVar("T")

#: Messages that are read at once.
PAGE: Final = 1_000
#: Most items of one TDROP.
MAX_ITEMS: Final = 10_000


class Stream:
    """One stream. Make one with ``ps.stream(name)``."""

    def __init__(self, client: Execute, commands: Execute, name: Name) -> None:
        """``client`` for commands on any key, ``commands`` for those of streams."""
        self._client = client
        self._commands = commands
        self.name: Name = check.named("name", name)

    # ----------------------------------------------------------------------- writing

    @overload
    async def write(
        self,
        tag: Data,
        entry: Data | None,
        *,
        backlog: int | None = None,
        exact_backlog: bool = False,
        expected_last: int | None = None,
        producer: tuple[Name, int] | None = None,
        keep_producer: bool = False,
    ) -> int: ...
    @overload
    async def write(
        self,
        *,
        entry: Data,
        backlog: int | None = None,
        exact_backlog: bool = False,
        expected_last: int | None = None,
        producer: tuple[Name, int] | None = None,
        keep_producer: bool = False,
    ) -> int: ...
    async def write(
        self,
        tag: Data = b"",
        entry: Data | Missing | None = MISSING,
        *,
        backlog: int | None = None,
        exact_backlog: bool = False,
        expected_last: int | None = None,
        producer: tuple[Name, int] | None = None,
        keep_producer: bool = False,
    ) -> int:
        """Write one message; its offset. ``entry`` None is a tombstone: the tag is over.

        ``backlog``: keep at least so many messages (with ``exact_backlog`` so many), drop older ones.
        ``expected_last``: only if the last offset is this one, else ``CommandError`` with the code
        MISMATCH. ``producer``: id and number of the message in its producer's own count, so that a
        repetition is not written twice; ``stream.producer()`` does that by itself. A producer is
        forgotten a day after its last call, with ``keep_producer`` only with the stream.
        """
        if isinstance(entry, Missing):
            raise TypeError("entry is missing: write(tag, entry), or write(entry=…) without a tag")
        good_tag, good_entry = pair(tag, entry)
        batch = Batch(good_entry is None)
        batch.add(good_tag, good_entry)
        options = backlog_options(backlog, exact_backlog) + condition(expected_last)
        return await self._write(batch, options + producer_option(producer, keep_producer))

    async def write_many(
        self,
        messages: Iterable[tuple[Data, Data | None]],
        *,
        backlog: int | None = None,
        exact_backlog: bool = False,
        expected_last: int | None = None,
        producer: tuple[Name, int] | None = None,
        keep_producer: bool = False,
    ) -> int:
        """Write pairs of tag and entry, in order; the offset of the last one.

        Up to 10,000 messages and 8 MiB are one command: all or none, their offsets contiguous. More
        of them are several commands, one after the other, and others may write in between.
        ``expected_last`` is for what fits into one command. The other options are those of ``write``;
        the number of ``producer`` is that of the first message.
        """
        before = backlog_options(backlog, exact_backlog) + condition(expected_last)
        numbered = producer_option(producer, keep_producer)
        commands: Iterable[Batch] = batches(messages)
        if expected_last is not None:
            commands = [_only(list(commands))]
        last = 0
        for batch in commands:
            last = await self._write(batch, before + numbered)
            if producer is not None:
                producer = (producer[0], producer[1] + len(batch))
                numbered = producer_option(producer, keep_producer)
        return last

    async def _write(self, batch: Batch, options: tuple[Argument, ...]) -> int:
        return int(await self._commands.execute(*batch.command(self.name, options)))

    def producer(self, id: Name, *, patience_ms: int = PATIENCE_MS) -> Producer:
        """A writer whose messages are written exactly once, also when connections are lost.

        ``id`` names it for as long as the stream lives; two at the same time must not share one.
        A write is tried again for ``patience_ms`` before it raises why it cannot.
        """
        return Producer(self._commands, self.name, id, patience_ms=patience_ms)

    async def producer_info(self, id: Name) -> ProducerInfo | None:
        """How far a producer is; None if it never wrote, or is forgotten."""
        words = ("PRODUCER", self.name, check.named("id", id))
        reply = await self._repeat("TINFO", *words)
        return None if reply is None else parse_info(ProducerInfo, reply)

    # ----------------------------------------------------------------------- reading

    def read(
        self, from_offset: int = 1, to: int | None = None, *, page: int = PAGE
    ) -> AsyncGenerator[Message, None]:
        """Messages from one offset to another (inclusive), or to the one that is last when this begins.

        What is gone, evicted or compacted away, is left out. ``page``: how many are fetched at once.
        """
        first = check.offset("from_offset", from_offset)
        last = MAX_OFFSET if to is None else check.offset("to", to)
        return self._read(first, last, check.whole("page", page, 1))

    async def _read(self, first: int, last: int, page: int) -> AsyncGenerator[Message, None]:
        (_, end), *rows = await self._page(first, min(page, max(0, last - first + 1)), "WITHINFO")
        last = min(last, end)
        while rows:
            for message in parse_messages(self.name, rows):
                first = message.offset + 1
                if message.offset > last:
                    return
                yield message
            if first > last:
                return
            rows = await self._page(first, min(page, last - first + 1))

    def scan(
        self, first: int = 1, last: int | None = None, *, page_bytes: int = PAGE_BYTES
    ) -> AsyncGenerator[Page, None]:
        """The same as ``read`` in pages of columns, for who analyses millions of messages.

        There is at least one page, if only to tell what the stream has. ``page_bytes``: about how
        many are fetched at once.
        """
        start = check.offset("first", first)
        end = None if last is None else check.offset("last", last)
        size = check.whole("page_bytes", page_bytes, 1, MAX_PAGE_BYTES)
        return scan(self._commands, self.name, start, end, page_bytes=size)

    def follow(self, from_offset: int | None = None, *, page: int = PAGE) -> AsyncGenerator[Message, None]:
        """Messages from an offset, and then new ones as they are written, for ever.

        Without an offset only those that are written after the first one was asked for. Lost
        connections are survived; nothing is left out or repeated. If the stream is deleted, this
        raises ``CommandError`` with the code UNBLOCKED: offsets begin anew.
        """
        first = None if from_offset is None else check.offset("from_offset", from_offset)
        return self._follow(first, check.whole("page", page, 1))

    async def _follow(self, first: int | None, page: int) -> AsyncGenerator[Message, None]:
        seen = 0
        if first is None:
            first = await self._insist(self._last_offset) + 1
        while True:
            rows = await self._insist(partial(self._page, first, page, "BLOCK", BLOCK_MS))
            for message in parse_messages(self.name, rows or ()):
                seen = message.offset
                first = seen + 1
                yield message
            if not rows and seen > await self._insist(self._last_offset):
                raise CommandError(f"UNBLOCKED the stream {text(self.name)} is gone")

    async def tail(self, count: int = 10) -> list[Message]:
        """The newest messages, oldest of them first."""
        wanted = check.whole("count", count)
        newest: list[Message] = []
        start: Argument = "$"
        while len(newest) < wanted:
            found = list(parse_messages(self.name, await self._page(start, wanted - len(newest), "REV")))
            newest += found
            if not found or found[-1].offset == 1:
                break
            start = found[-1].offset - 1
        newest.reverse()
        return newest

    async def get(self, offset: int) -> Message | None:
        """One message; None if it is gone, or not there yet."""
        rows = await self._repeat("TREAD", self.name, check.offset("offset", offset, 1), 1, "WITHTIME")
        return next(parse_messages(self.name, rows), None)

    async def _last_offset(self) -> int:
        ((_, last),) = await self._repeat("TREAD", self.name, 0, 0, "WITHINFO")
        return int(last)

    async def _page(self, start: Argument, count: int, *options: Argument) -> Any:
        return await self._repeat("TREAD", self.name, start, count, "SKIPNULL", "WITHTIME", *options)

    async def _insist(self, read: Callable[[], Awaitable[T]]) -> T:
        """As long as it takes, whatever happens to connections."""
        return await persistently("TREAD", read, limit_ms=None)

    async def _repeat(self, name: str, *words: Argument) -> Any:
        """Reading changes nothing: what was sent and not answered is sent again, as other reads are."""
        return await repeat(self._commands, name, *words)

    # -------------------------------------------------------------------- looking after

    async def evict(
        self,
        *,
        upto: int | None = None,
        keep: int | None = None,
        older_than_ms: int | None = None,
        acked: bool = False,
    ) -> int:
        """Remove old messages: up to an offset, all but the newest ``keep``, or by age; how many went.

        ``acked`` spares what some group has not read, or has pending. ``keep=0`` removes nothing.
        """
        check.exactly_one(upto=upto, keep=keep, older_than_ms=older_than_ms)
        words: tuple[Argument, ...]
        if upto is not None:
            words = (check.offset("upto", upto),)
        elif keep is not None:
            words = (f"-{check.whole('keep', keep)}",)
        else:
            words = ("AGE", check.whole("older_than_ms", older_than_ms))
        spared = ("ACKED",) if check.switch("acked", acked) == "yes" else ()
        return int(await self._commands.execute("TEVICT", self.name, *words, *spared))

    async def drop(self, *items: Item) -> int:
        """Remove messages by offset, or by first and last, wherever they are; how many of them went.

        Offsets and order stay; what was there is a hole. What a group has pending stays. More than 10,000
        items are several commands, one after the other.
        """
        if not items:
            raise ValueError("items must not be empty")
        words = check.ranges(check.span("items", item) for item in items)
        removed = 0
        for start in range(0, len(words), MAX_ITEMS):
            removed += await self._commands.execute("TDROP", self.name, *words[start : start + MAX_ITEMS])
        return removed

    async def info(self) -> StreamInfo:
        """Offsets, sizes and times. A stream that was never written is a ``CommandError``."""
        return parse_info(StreamInfo, await self._commands.execute("TINFO", "STREAM", self.name))

    async def groups(self) -> list[GroupInfo]:
        """Its groups, how far each is, and their options."""
        try:
            reply = await self._commands.execute("TINFO", "GROUPS", self.name)
        except CommandError as error:
            if "no such key" in str(error):
                return []
            raise
        return [parse_info(GroupInfo, each) for each in reply]

    async def policy(
        self,
        *,
        retain_ms: int | None = None,
        retain_count: int | None = None,
        retain_bytes: int | None = None,
        retain_acked: bool | None = None,
        compact: bool | None = None,
        dirty_ratio: int | None = None,
        min_lag_ms: int | None = None,
        max_lag_ms: int | None = None,
        tombstone_ms: int | None = None,
        node_messages: int | None = None,
        node_bytes: int | None = None,
    ) -> Policy:
        """Set what is given of how long the stream keeps what; answers all of it.

        ``retain_…``: evict what is older, more, or more bytes than this (0: keep), with
        ``retain_acked`` nothing that a group still needs. ``compact``: keep only the newest message of
        each tag. ``docs/streams.md`` tells the rest.
        """
        numbers = {
            "retain_ms": retain_ms, "retain_count": retain_count, "retain_bytes": retain_bytes,
            "dirty_ratio": dirty_ratio, "min_lag_ms": min_lag_ms, "max_lag_ms": max_lag_ms,
            "tombstone_ms": tombstone_ms, "node_messages": node_messages, "node_bytes": node_bytes,
        }  # fmt: skip
        switches = {"retain_acked": retain_acked, "compact": compact}
        words: list[Argument] = []
        for name, number in numbers.items():
            if number is not None:
                most = 100 if name == "dirty_ratio" else MAX_COUNT
                words += (_option(name), check.whole(name, number, int(name.startswith("node_")), most))
        for name, is_on in switches.items():
            if is_on is not None:
                words += (_option(name), check.switch(name, is_on))
        return parse_info(Policy, await self._commands.execute("TPOLICY", self.name, *words))

    async def compact(self) -> int:
        """Keep only the newest message of each tag, now; how many went."""
        return int(await self._commands.execute("TCOMPACT", self.name))

    async def delete(self) -> bool:
        """Remove the stream with its groups; whether there was one. A new one begins at offset 1."""
        return bool(await self._client.execute("DEL", self.name))

    def group(self, name: Name) -> Group:
        """Readers that share the messages, under one name."""
        return Group(self._commands, self.name, name)

    def __repr__(self) -> str:
        return f"<Stream {text(self.name)}>"


def _only(commands: Sequence[Batch]) -> Batch:
    """Refuse what would not be atomic."""
    if len(commands) > 1:
        raise ValueError(
            f"expected_last is for one command: at most {MAX_MESSAGES} messages"
            f" and {MAX_BYTES >> 20} MiB; write fewer messages at once"
        )
    return commands[0]


def _option(name: str) -> str:
    return name.replace("_", "-").upper()
