"""Commands on strings and counters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import (
    at_most_one,
    expiry,
    flag,
    flat,
    milliseconds,
    only_with,
    option,
    seconds,
)
from penstock.client.commands.base import Coming, Key, KeyT, Runner, Value


class Strings(Runner):
    """Commands on strings and counters."""

    __slots__ = ()

    # ------------------------------------------------------------ reading

    def get(self, key: Key) -> Coming[bytes | None]:
        """Read a string."""
        return self._call(("GET", key))

    def mget(self, key: Key, *keys: Key) -> Coming[list[bytes | None]]:
        """Read several strings at once."""
        return self._call(("MGET", key, *keys))

    def getdel(self, key: Key) -> Coming[bytes | None]:
        """Read a string, then delete its key."""
        return self._call(("GETDEL", key))

    def getex(
        self,
        key: Key,
        *,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        persist: bool = False,
    ) -> Coming[bytes | None]:
        """Read a string and change or drop its deadline."""
        return self._call(("GETEX", key, *expiry(ex=ex, px=px, exat=exat, pxat=pxat, persist=persist)))

    def getrange(self, key: Key, start: int, end: int) -> Coming[bytes]:
        """Read a slice of a string, ``end`` included."""
        return self._call(("GETRANGE", key, start, end))

    def getset(self, key: Key, value: Value) -> Coming[bytes | None]:
        """Store a string and answer the one it replaced (deprecated: set with get=True)."""
        return self._call(("GETSET", key, value))

    def strlen(self, key: Key) -> Coming[int]:
        """Length of a string in bytes."""
        return self._call(("STRLEN", key))

    @overload
    def lcs(self, key1: Key, key2: Key) -> Coming[bytes]: ...

    @overload
    def lcs(self, key1: Key, key2: Key, *, len: Literal[True]) -> Coming[int]: ...

    @overload
    def lcs(
        self,
        key1: Key,
        key2: Key,
        *,
        idx: Literal[True],
        minmatchlen: int | None = None,
        withmatchlen: bool = False,
    ) -> Coming[to.Lcs]: ...

    def lcs(
        self,
        key1: Key,
        key2: Key,
        *,
        len: bool = False,
        idx: bool = False,
        minmatchlen: int | None = None,
        withmatchlen: bool = False,
    ) -> Coming[Any]:
        """Longest subsequence that two strings share, its length, or where its pieces are."""
        at_most_one(len=len, idx=idx)
        only_with("idx", idx, minmatchlen=minmatchlen, withmatchlen=withmatchlen)
        options = (
            *flag("LEN", len),
            *flag("IDX", idx),
            *option("MINMATCHLEN", minmatchlen),
            *flag("WITHMATCHLEN", withmatchlen),
        )
        return self._call(("LCS", key1, key2, *options), to.lcs_matches if idx else None)

    # ------------------------------------------------------------ writing

    def set(
        self,
        key: Key,
        value: Value,
        *,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
        get: bool = False,
    ) -> Coming[bytes | None]:
        """Store a string: OK, or None if nx or xx forbade it; with ``get`` what was there before."""
        if ex is px is exat is pxat is None and not (nx or xx or keepttl or get):
            return self._call(("SET", key, value))  # the usual form, without the cost of the others
        at_most_one(nx=nx, xx=xx)
        options = (
            *flag("NX", nx),
            *flag("XX", xx),
            *flag("GET", get),
            *expiry(ex=ex, px=px, exat=exat, pxat=pxat, keepttl=keepttl),
        )
        return self._call(("SET", key, value, *options))

    def setex(self, key: Key, seconds: int | timedelta, value: Value) -> Coming[bytes]:
        """Store a string that lives for so many seconds."""
        return self._call(("SETEX", key, _seconds(seconds), value))

    def psetex(self, key: Key, milliseconds: int | timedelta, value: Value) -> Coming[bytes]:
        """Store a string that lives for so many milliseconds."""
        return self._call(("PSETEX", key, _milliseconds(milliseconds), value))

    def setnx(self, key: Key, value: Value) -> Coming[bool]:
        """Store a string, unless the key exists; whether it was stored."""
        return self._call(("SETNX", key, value), bool)

    def mset(self, mapping: Mapping[KeyT, Value]) -> Coming[bytes]:
        """Store several strings at once."""
        return self._call(("MSET", *flat("mapping", mapping)))

    def msetnx(self, mapping: Mapping[KeyT, Value]) -> Coming[bool]:
        """Store several strings, unless one of the keys exists; whether they were stored."""
        return self._call(("MSETNX", *flat("mapping", mapping)), bool)

    def append(self, key: Key, value: Value) -> Coming[int]:
        """Add bytes to the end of a string; its length then."""
        return self._call(("APPEND", key, value))

    def setrange(self, key: Key, offset: int, value: Value) -> Coming[int]:
        """Overwrite a slice of a string, zero-filling any gap; its length then."""
        return self._call(("SETRANGE", key, offset, value))

    # ------------------------------------------------------------ counting

    def incr(self, key: Key) -> Coming[int]:
        """Add one to a counter; its value then."""
        return self._call(("INCR", key))

    def incrby(self, key: Key, increment: int) -> Coming[int]:
        """Add a number to a counter; its value then."""
        return self._call(("INCRBY", key, increment))

    def incrbyfloat(self, key: Key, increment: float) -> Coming[float]:
        """Add a decimal fraction to a counter; its value then."""
        return self._call(("INCRBYFLOAT", key, increment), float)

    def decr(self, key: Key) -> Coming[int]:
        """Subtract one from a counter; its value then."""
        return self._call(("DECR", key))

    def decrby(self, key: Key, decrement: int) -> Coming[int]:
        """Subtract a number from a counter; its value then."""
        return self._call(("DECRBY", key, decrement))


#: The units under another name, since parameters have theirs.
_seconds = seconds
_milliseconds = milliseconds
