"""A group of readers: it shares the messages of a stream among them until each is acknowledged.

    billing = orders.group("billing")
    async for message in billing.consume(retry_ms=30_000):
        await message.ack()

    await billing.run(handle, concurrency=8)      # the same, eight at a time

A ``Group`` is a name with methods; making one sends nothing. The group itself is made by
``create``, or by whoever reads it first.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.client.transports.base import Argument
from penstock.errors import CommandError
from penstock.streams import arguments as check
from penstock.streams.arguments import MAX_OFFSET, Execute, Item, Name, Start
from penstock.streams.consumer import Consumer
from penstock.streams.consuming import Consumption, Terms
from penstock.streams.infos import (
    ConsumerInfo,
    GroupInfo,
    PendingMessage,
    PendingSummary,
    parse_info,
    parse_pending,
    parse_summary,
    text,
)
from penstock.streams.running import Handler, run_handlers
from penstock.streams.settling import Settling

#: How long to wait before the second, third, … delivery of a message whose handler failed.
BACKOFF_MS: Final = (1_000, 5_000, 30_000)
RETRY_MS: Final = 30_000
PREFETCH: Final = 100


class Group:
    """One group of one stream. Make one with ``stream.group(name)``."""

    def __init__(self, commands: Execute, key: Name, name: Name) -> None:
        self._commands = commands
        #: the name of the stream
        self.stream = key
        self.name: Name = check.named("name", name)
        self._settling = Settling(commands, key, name)
        #: those that ``stop`` ends
        self._consumptions: set[Consumption] = set()

    # ----------------------------------------------------------------- the group itself

    async def create(
        self,
        at: Start = 0,
        *,
        max_pending: int | None = None,
        ttl_ms: int | None = None,
        ordered: bool | None = None,
        max_deliveries: int | None = None,
        backoff_ms: Sequence[int] | None = None,
        dead_letter: Name | None = None,
    ) -> bool:
        """Make the group (and the stream); False if it is there already, and then nothing changes.

        ``at``: the first offset that it delivers; 0 is the first message there is, "$" what comes
        after now. ``max_pending``: new messages are held back beyond so many (1,000). ``ttl_ms``: a
        group that nobody used for so long goes. ``ordered``: while a message of a tag is pending, no
        other of that tag is delivered. ``max_deliveries``: then a message is given up. ``backoff_ms``:
        delays before the second, third, … delivery. ``dead_letter``: the stream that gets what is
        given up.
        """
        start = check.start("at", at)
        options = _options(max_pending, ttl_ms, ordered, max_deliveries, backoff_ms, dead_letter)
        return bool(await self._execute("TGROUP", "CREATE", self.stream, self.name, start, *options))

    async def configure(
        self,
        *,
        at: Start | None = None,
        max_pending: int | None = None,
        ttl_ms: int | None = None,
        ordered: bool | None = None,
        max_deliveries: int | None = None,
        backoff_ms: Sequence[int] | None = None,
        dead_letter: Name | None = None,
    ) -> bool:
        """Change what is given; False if there is no such group. What is pending stays so.

        ``backoff_ms=()`` and ``dead_letter=""`` take theirs away.
        """
        where: tuple[Argument, ...] = () if at is None else ("OFFSET", check.start("at", at))
        options = _options(max_pending, ttl_ms, ordered, max_deliveries, backoff_ms, dead_letter)
        return bool(await self._execute("TGROUP", "SET", self.stream, self.name, *where, *options))

    async def destroy(self) -> bool:
        """Remove the group with what is pending; whether there was one."""
        return bool(await self._execute("TGROUP", "DESTROY", self.stream, self.name))

    async def info(self) -> GroupInfo | None:
        """How far it is, what it has counted, its options; None if there is no such group."""
        try:
            reply = await self._execute("TINFO", "GROUPS", self.stream)
        except CommandError as error:
            if "no such key" in str(error):
                return None
            raise
        infos = (parse_info(GroupInfo, each) for each in reply)
        return next((info for info in infos if info.name == text(self.name)), None)

    async def consumers(self) -> list[ConsumerInfo]:
        """Who reads it, and what each has pending."""
        reply = await self._execute("TINFO", "CONSUMERS", self.stream, self.name)
        return [parse_info(ConsumerInfo, each) for each in reply]

    async def pending_summary(self) -> PendingSummary:
        """How many messages are delivered and not acknowledged, and when the next one is due."""
        return parse_summary(await self._execute("TPENDING", self.stream, self.name))

    async def pending(
        self,
        from_offset: int = 0,
        to: int | None = None,
        *,
        count: int = 1_000,
        consumer: Name | None = None,
    ) -> list[PendingMessage]:
        """Those messages, by offset, at most ``count``; all, or those of one consumer."""
        first = check.offset("from_offset", from_offset)
        last = MAX_OFFSET if to is None else check.offset("to", to)
        whose: tuple[Argument, ...] = ()
        if consumer is not None:
            whose = ("CONSUMER", check.named("consumer", consumer))
        most = check.whole("count", count, 1)
        reply = await self._execute("TPENDING", self.stream, self.name, first, last, most, *whose)
        return [parse_pending(row) for row in reply]

    # ---------------------------------------------------------------------- by offset

    async def ack(self, *offsets: Item) -> int:
        """Acknowledge messages by offset, or by first and last; how many of them were pending."""
        return await self._settle("TACK", offsets)

    async def nack(self, *offsets: Item, delay_ms: int | None = 0) -> int:
        """Have them delivered again, not before ``delay_ms``; None: as the group's backoff says."""
        delay = check.optional("delay_ms", delay_ms)
        return await self._settle("TNACK", offsets, "*" if delay is None else delay)

    async def renew(self, *offsets: Item, retry_ms: int = RETRY_MS) -> int:
        """Put their next delivery off until ``retry_ms`` from now."""
        return await self._settle("TRENEW", offsets, check.whole("retry_ms", retry_ms, 1))

    async def reject(self, *offsets: Item, reason: str) -> int:
        """Give them up; the dead letters, if there are any, get them with the reason."""
        return await self._settle("TDEAD", offsets, check.line("reason", reason))

    async def _settle(self, command: str, offsets: tuple[Item, ...], *parameters: Argument) -> int:
        if not offsets:
            raise ValueError("offsets must not be empty")
        words = [check.item_word(*check.span("offsets", item)) for item in offsets]
        return int(await self._execute(command, self.stream, self.name, *parameters, *words))

    # ----------------------------------------------------------------------- consuming

    def consume(
        self,
        retry_ms: int | None = RETRY_MS,
        expire_ms: int = 0,
        *,
        consumer: Name | None = None,
        prefetch: int | None = None,
        concurrency: int | None = None,
        renew: bool = False,
        at: Start = 0,
    ) -> Consumer:
        """Messages, for ever. One that is not settled within ``retry_ms`` goes to whoever reads next.

        ``retry_ms``: None delivers at most once: nothing needs to be acknowledged, and what was read
        ahead is lost when the reader is. ``expire_ms``: so long after its first delivery a message is
        given up (0: never). ``consumer``: a name for the reader that no other one uses at the same
        time; one is made up otherwise. ``prefetch``: most messages read ahead (100; 1 without
        ``retry_ms``). ``concurrency``: most messages handed out and not settled (no limit); the next
        one waits. ``renew``: keep what was handed out until it is settled, however long that takes.
        ``at``: where the group begins if it is new.
        """
        terms = _terms(retry_ms, expire_ms, consumer, prefetch, concurrency, renew, at)
        return Consumer(lambda: self._begin(terms), self._consumptions.discard)

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 8,
        retry_ms: int = RETRY_MS,
        expire_ms: int = 0,
        consumer: Name | None = None,
        prefetch: int | None = None,
        backoff_ms: Sequence[int] = BACKOFF_MS,
        at: Start = 0,
    ) -> None:
        """Call an async function for every message, so many at a time, until ``stop``.

        A message is acknowledged when its handler returns and given back when it raises, with the
        group's own backoff or, if it has none, these delays. While a handler runs its message is
        renewed. ``stop`` lets the handlers finish; cancelling ``run`` cancels them, and gives their
        messages back.
        """
        if not callable(handler):
            raise TypeError(f"handler must be an async function, not {type(handler).__name__}")
        check.delays("backoff_ms", backoff_ms)
        limit = check.whole("concurrency", concurrency, 1)
        terms = _terms(
            check.whole("retry_ms", retry_ms, 1), expire_ms, consumer, prefetch, None, renew=True, at=at
        )
        consumption = self._begin(terms)
        try:
            info = await self.info()
            has_own_backoff = info is not None and bool(info.backoff_ms)
            await run_handlers(consumption, handler, limit, None if has_own_backoff else backoff_ms or (0,))
        finally:
            self._consumptions.discard(consumption)
            await consumption.close()

    def stop(self) -> None:
        """End every ``run`` and ``consume`` of this object, gracefully: they take no more messages."""
        for consumption in self._consumptions:
            consumption.stop()

    def _begin(self, terms: Terms) -> Consumption:
        consumption = Consumption(self._commands, self.stream, self.name, self._settling, self.info, terms)
        self._consumptions.add(consumption)
        return consumption

    def _execute(self, *words: Argument) -> Any:
        return self._commands.execute(*words)

    def __repr__(self) -> str:
        return f"<Group {text(self.name)} of {text(self.stream)}>"


# ----------------------------------------------------------------------------- arguments


def _options(
    max_pending: int | None,
    ttl_ms: int | None,
    ordered: bool | None,
    max_deliveries: int | None,
    backoff_ms: Sequence[int] | None,
    dead_letter: Name | None,
) -> list[Argument]:
    """The options of TGROUP that are given."""
    given: list[tuple[str, object, Callable[[], Argument]]] = [
        ("MAXPENDING", max_pending, lambda: check.whole("max_pending", max_pending, 1)),
        ("TTL", ttl_ms, lambda: check.whole("ttl_ms", ttl_ms)),
        ("ORDERED", ordered, lambda: check.switch("ordered", ordered)),
        ("MAXDELIVERIES", max_deliveries, lambda: check.whole("max_deliveries", max_deliveries)),
        ("BACKOFF", backoff_ms, lambda: check.delays("backoff_ms", backoff_ms)),
        ("DEADLETTER", dead_letter, lambda: check.data("dead_letter", dead_letter)),
    ]
    return [word for name, value, judge in given if value is not None for word in (name, judge())]


def _terms(
    retry_ms: int | None,
    expire_ms: int,
    consumer: Name | None,
    prefetch: int | None,
    concurrency: int | None,
    renew: bool,
    at: Start,
) -> Terms:
    if prefetch is None:
        prefetch = 1 if retry_ms is None else PREFETCH
    return Terms(
        retry_ms=check.optional("retry_ms", retry_ms, 1),
        expire_ms=check.whole("expire_ms", expire_ms),
        consumer=_made_up_name() if consumer is None else text(check.named("consumer", consumer)),
        prefetch=check.whole("prefetch", prefetch, 1, 100_000),
        concurrency=check.optional("concurrency", concurrency, 1),
        renews=renew,
        at=check.start("at", at),
    )


def _made_up_name() -> str:
    """Tells an operator where the reader runs; never the same twice."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
