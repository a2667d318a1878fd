"""Iterators over SCAN, HSCAN, SSCAN and ZSCAN.

A ``Scan`` knows what to ask next and when it is over, and sends nothing; ``walk`` drives it over
awaitable calls and ``walk_blocking`` over those that answer the value itself. The next page is
asked for only when the caller has taken the last item of the one before, so that whoever stops
early leaves nothing behind.

What the servers promise: whatever is there from the beginning to the end of a walk is found,
what comes or goes meanwhile may be, and some items may be found twice. A walk ends with
cursor 0. A cursor is all that a server knows of a walk, so one that comes back means that
the walk would never end: it is refused, with the memory of one cursor (Brent's method).

A cluster is walked one primary after the other: one call for each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.client.commands.arguments import option
from penstock.client.commands.base import Key, Value, converted
from penstock.client.commands.conversions import flat_pairs, scored
from penstock.client.transports.base import Argument, Arguments
from penstock.errors import ProtocolError

T = TypeVar("T")

#: Sends a command, as ``Router.call`` and ``Link.call`` do.
Call: TypeAlias = Callable[[Arguments], Awaitable[Any]]
#: Sends a command and waits for its reply.
BlockingCall: TypeAlias = Callable[[Arguments], Any]


class Scan(Generic[T]):
    """One walk over one server: send ``arguments``, ``take`` the reply, until ``arguments`` is None."""

    __slots__ = ("_checkpoint", "_head", "_options", "_pages", "_read", "arguments")

    def __init__(self, head: Arguments, options: Arguments, read: Callable[[Any], list[T]]) -> None:
        self._head = head
        self._options = options
        self._read = read
        self._pages = 0
        self._checkpoint = 0
        #: the next command to send; None: the walk is over
        self.arguments: Arguments | None = (*head, 0, *options)

    def take(self, reply: Any) -> list[T]:
        """The items of a page."""
        cursor, items = converted(self._head, self._page, reply)
        self.arguments = (*self._head, cursor, *self._options) if cursor else None
        if cursor and cursor == self._checkpoint:
            self.arguments = None
            raise ProtocolError(f"{self._head[0]!s} came back to cursor {cursor} and would never end")
        self._pages += 1
        if not self._pages & (self._pages - 1):  # at powers of two: a circle of any length is noticed
            self._checkpoint = cursor
        return items

    def _page(self, reply: Any) -> tuple[int, list[T]]:
        cursor, items = reply
        return int(cursor), self._read(items)


# ---------------------------------------------------------------- what to walk over


def scan(*, match: Value | None = None, count: int | None = None, type: Value | None = None) -> Scan[bytes]:
    """The key names of a server."""
    return Scan(("SCAN",), (*_options(match, count), *option("TYPE", type)), list)


def hscan(key: Key, *, match: Value | None = None, count: int | None = None) -> Scan[tuple[bytes, bytes]]:
    """The fields of a hash with their values."""
    return Scan(("HSCAN", key), _options(match, count), flat_pairs)


def sscan(key: Key, *, match: Value | None = None, count: int | None = None) -> Scan[bytes]:
    """The members of a set."""
    return Scan(("SSCAN", key), _options(match, count), list)


def zscan(key: Key, *, match: Value | None = None, count: int | None = None) -> Scan[tuple[bytes, float]]:
    """The members of a sorted set with their scores."""
    return Scan(("ZSCAN", key), _options(match, count), scored)


def _options(match: Argument | None, count: int | None) -> Arguments:
    return (*option("MATCH", match), *option("COUNT", count))


# ---------------------------------------------------------------- walking


async def walk(calls: Sequence[Call], make: Callable[[], Scan[T]]) -> AsyncIterator[T]:
    """Item by item, over one server after the other; ``make`` begins the walk over each."""
    for call in calls:
        walking = make()
        while walking.arguments is not None:
            for item in walking.take(await call(walking.arguments)):
                yield item


def walk_blocking(calls: Sequence[BlockingCall], make: Callable[[], Scan[T]]) -> Iterator[T]:
    """``walk`` over calls that answer the reply itself."""
    for call in calls:
        walking = make()
        while walking.arguments is not None:
            yield from walking.take(call(walking.arguments))


async def scan_pages(
    calls: Sequence[Call],
    *,
    match: Value | None = None,
    count: int | None = None,
    type: Value | None = None,
) -> AsyncGenerator[list[bytes], None]:
    """The key names of several servers as they come, page by page; pages may be empty."""
    for call in calls:
        walking = scan(match=match, count=count, type=type)
        while walking.arguments is not None:
            yield walking.take(await call(walking.arguments))


def scan_iter(
    calls: Sequence[Call],
    *,
    match: Value | None = None,
    count: int | None = None,
    type: Value | None = None,
) -> AsyncIterator[bytes]:
    """The key names of several servers: one call for each primary of a cluster."""
    return walk(calls, partial(scan, match=match, count=count, type=type))


def hscan_iter(
    call: Call, key: Key, *, match: Value | None = None, count: int | None = None
) -> AsyncIterator[tuple[bytes, bytes]]:
    """The fields of a hash with their values."""
    return walk((call,), partial(hscan, key, match=match, count=count))


def sscan_iter(
    call: Call, key: Key, *, match: Value | None = None, count: int | None = None
) -> AsyncIterator[bytes]:
    """The members of a set."""
    return walk((call,), partial(sscan, key, match=match, count=count))


def zscan_iter(
    call: Call, key: Key, *, match: Value | None = None, count: int | None = None
) -> AsyncIterator[tuple[bytes, float]]:
    """The members of a sorted set with their scores."""
    return walk((call,), partial(zscan, key, match=match, count=count))
