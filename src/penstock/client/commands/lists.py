"""Commands on lists, waiting ones included.

``timeout_s`` is in seconds; 0 waits for ever.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import option, optional
from penstock.client.commands.base import Coming, Key, Runner, Side, Value


class Lists(Runner):
    """Commands on lists."""

    __slots__ = ()

    # ------------------------------------------------------------ reading

    def lindex(self, key: Key, index: int) -> Coming[bytes | None]:
        """Read the element at a position."""
        return self._call(("LINDEX", key, index))

    def llen(self, key: Key) -> Coming[int]:
        """How many elements a list has."""
        return self._call(("LLEN", key))

    def lrange(self, key: Key, start: int, stop: int) -> Coming[list[bytes]]:
        """Read a run of elements, ``stop`` included."""
        return self._call(("LRANGE", key, start, stop))

    @overload
    def lpos(
        self,
        key: Key,
        element: Value,
        *,
        rank: int | None = None,
        count: None = None,
        maxlen: int | None = None,
    ) -> Coming[int | None]: ...

    @overload
    def lpos(
        self, key: Key, element: Value, *, rank: int | None = None, count: int, maxlen: int | None = None
    ) -> Coming[list[int]]: ...

    def lpos(
        self,
        key: Key,
        element: Value,
        *,
        rank: int | None = None,
        count: int | None = None,
        maxlen: int | None = None,
    ) -> Coming[Any]:
        """Position at which an element stands, or, with ``count``, several (0: all)."""
        options = (*option("RANK", rank), *option("COUNT", count), *option("MAXLEN", maxlen))
        return self._call(("LPOS", key, element, *options))

    # ------------------------------------------------------------ writing

    def lpush(self, key: Key, element: Value, *elements: Value) -> Coming[int]:
        """Put elements before the head; how many the list has then."""
        return self._call(("LPUSH", key, element, *elements))

    def lpushx(self, key: Key, element: Value, *elements: Value) -> Coming[int]:
        """Put elements before the head of a list that exists; how many the list has then."""
        return self._call(("LPUSHX", key, element, *elements))

    def rpush(self, key: Key, element: Value, *elements: Value) -> Coming[int]:
        """Put elements after the tail; how many the list has then."""
        return self._call(("RPUSH", key, element, *elements))

    def rpushx(self, key: Key, element: Value, *elements: Value) -> Coming[int]:
        """Put elements after the tail of a list that exists; how many the list has then."""
        return self._call(("RPUSHX", key, element, *elements))

    def linsert(
        self, key: Key, where: Literal["BEFORE", "AFTER"], pivot: Value, element: Value
    ) -> Coming[int]:
        """Put an element next to another one; how many the list has then, -1 without the pivot."""
        return self._call(("LINSERT", key, where, pivot, element))

    def lset(self, key: Key, index: int, element: Value) -> Coming[bytes]:
        """Replace the element at a position."""
        return self._call(("LSET", key, index, element))

    def lrem(self, key: Key, count: int, element: Value) -> Coming[int]:
        """Remove elements equal to a value: the first ``count``, the last -``count``, or all (0)."""
        return self._call(("LREM", key, count, element))

    def ltrim(self, key: Key, start: int, stop: int) -> Coming[bytes]:
        """Keep a run of elements, ``stop`` included, and drop the others."""
        return self._call(("LTRIM", key, start, stop))

    # ------------------------------------------------------------ taking

    @overload
    def lpop(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def lpop(self, key: Key, count: int) -> Coming[list[bytes] | None]: ...

    def lpop(self, key: Key, count: int | None = None) -> Coming[Any]:
        """Take an element off the head, or, with ``count``, up to so many."""
        return self._call(("LPOP", key, *optional(count)))

    @overload
    def rpop(self, key: Key) -> Coming[bytes | None]: ...

    @overload
    def rpop(self, key: Key, count: int) -> Coming[list[bytes] | None]: ...

    def rpop(self, key: Key, count: int | None = None) -> Coming[Any]:
        """Take an element off the tail, or, with ``count``, up to so many."""
        return self._call(("RPOP", key, *optional(count)))

    def lmpop(
        self, key: Key, *keys: Key, where: Side, count: int | None = None
    ) -> Coming[tuple[bytes, list[bytes]] | None]:
        """Take elements off the first list that is not empty: its key and them."""
        words = ("LMPOP", 1 + len(keys), key, *keys, where, *option("COUNT", count))
        return self._call(words, to.popped)

    def lmove(self, source: Key, destination: Key, wherefrom: Side, whereto: Side) -> Coming[bytes | None]:
        """Take an element off one list and push it on another."""
        return self._call(("LMOVE", source, destination, wherefrom, whereto))

    def rpoplpush(self, source: Key, destination: Key) -> Coming[bytes | None]:
        """Move the tail of one list to the head of another (deprecated: lmove)."""
        return self._call(("RPOPLPUSH", source, destination))

    # ------------------------------------------------------------ waiting

    def blpop(self, key: Key, *keys: Key, timeout_s: float) -> Coming[tuple[bytes, bytes] | None]:
        """Take the head of the first list that has an element, or wait: its key and the element."""
        return self._call(("BLPOP", key, *keys, timeout_s), to.optional_pair)

    def brpop(self, key: Key, *keys: Key, timeout_s: float) -> Coming[tuple[bytes, bytes] | None]:
        """Take the tail of the first list that has an element, or wait: its key and the element."""
        return self._call(("BRPOP", key, *keys, timeout_s), to.optional_pair)

    def blmpop(
        self, key: Key, *keys: Key, timeout_s: float, where: Side, count: int | None = None
    ) -> Coming[tuple[bytes, list[bytes]] | None]:
        """lmpop that waits for an element."""
        words = ("BLMPOP", timeout_s, 1 + len(keys), key, *keys, where, *option("COUNT", count))
        return self._call(words, to.popped)

    def blmove(
        self, source: Key, destination: Key, wherefrom: Side, whereto: Side, *, timeout_s: float
    ) -> Coming[bytes | None]:
        """lmove that waits for an element."""
        return self._call(("BLMOVE", source, destination, wherefrom, whereto, timeout_s))

    def brpoplpush(self, source: Key, destination: Key, *, timeout_s: float) -> Coming[bytes | None]:
        """rpoplpush that waits for an element (deprecated: blmove)."""
        return self._call(("BRPOPLPUSH", source, destination, timeout_s))
