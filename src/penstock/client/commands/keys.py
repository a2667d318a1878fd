"""Commands on keys of any type: deadlines, names, copies, order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, overload

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import (
    at_most_one,
    flag,
    joined,
    limited,
    milliseconds,
    option,
    seconds,
    several,
    unix_milliseconds,
    unix_seconds,
)
from penstock.client.commands.base import Coming, Key, Limit, Runner, Value
from penstock.client.transports.base import Arguments


class Keys(Runner):
    """Commands on keys of any type."""

    __slots__ = ()

    # ------------------------------------------------------------ being there

    def copy(
        self, source: Key, destination: Key, *, db: int | None = None, replace: bool = False
    ) -> Coming[bool]:
        """Duplicate a value under another key; whether it was."""
        words = ("COPY", source, destination, *option("DB", db), *flag("REPLACE", replace))
        return self._call(words, bool)

    def delete(self, key: Key, *keys: Key) -> Coming[int]:
        """DEL: delete keys with what they hold; how many there were."""
        return self._call(("DEL", key, *keys))

    def unlink(self, key: Key, *keys: Key) -> Coming[int]:
        """Delete keys now, reclaim their space later; how many there were."""
        return self._call(("UNLINK", key, *keys))

    def exists(self, key: Key, *keys: Key) -> Coming[int]:
        """How many of the keys named exist."""
        return self._call(("EXISTS", key, *keys))

    def touch(self, key: Key, *keys: Key) -> Coming[int]:
        """Mark keys as just used; how many exist."""
        return self._call(("TOUCH", key, *keys))

    def type(self, key: Key) -> Coming[str]:
        """Which data type a key holds; "none" if it does not exist."""
        return self._call(("TYPE", key), to.text)

    # ------------------------------------------------------------ names

    def keys(self, pattern: Value) -> Coming[list[bytes]]:
        """Every key name that fits a pattern; stops the server for that long, so prefer a scan."""
        return self._call(("KEYS", pattern))

    def randomkey(self) -> Coming[bytes | None]:
        """Any key, picked by chance."""
        return self._call(("RANDOMKEY",))

    def rename(self, key: Key, newkey: Key) -> Coming[bytes]:
        """Give a key another name, replacing what had it."""
        return self._call(("RENAME", key, newkey))

    def renamenx(self, key: Key, newkey: Key) -> Coming[bool]:
        """Give a key another name, unless that is taken; whether it was done."""
        return self._call(("RENAMENX", key, newkey), bool)

    def move(self, key: Key, db: int) -> Coming[bool]:
        """Take a key to another database; whether it was."""
        return self._call(("MOVE", key, db), bool)

    def scan(
        self,
        cursor: int = 0,
        *,
        match: Value | None = None,
        count: int | None = None,
        type: Value | None = None,
    ) -> Coming[tuple[int, list[bytes]]]:
        """One step through the key names: the next cursor (0: done) and some names."""
        options = (*option("MATCH", match), *option("COUNT", count), *option("TYPE", type))
        return self._call(("SCAN", cursor, *options), to.page)

    # ------------------------------------------------------------ deadlines

    def expire(
        self,
        key: Key,
        seconds: int | timedelta,
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[bool]:
        """Let a key live for so many seconds; whether the deadline was set."""
        return self._call(("EXPIRE", key, _seconds(seconds), *_condition(nx, xx, gt, lt)), bool)

    def pexpire(
        self,
        key: Key,
        milliseconds: int | timedelta,
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[bool]:
        """Let a key live for so many milliseconds; whether the deadline was set."""
        return self._call(("PEXPIRE", key, _milliseconds(milliseconds), *_condition(nx, xx, gt, lt)), bool)

    def expireat(
        self,
        key: Key,
        time: int | datetime,
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[bool]:
        """Let a key live until a time in seconds since 1970; whether the deadline was set."""
        return self._call(("EXPIREAT", key, unix_seconds("time", time), *_condition(nx, xx, gt, lt)), bool)

    def pexpireat(
        self,
        key: Key,
        time: int | datetime,
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[bool]:
        """Let a key live until a time in milliseconds since 1970; whether the deadline was set."""
        words = ("PEXPIREAT", key, unix_milliseconds("time", time), *_condition(nx, xx, gt, lt))
        return self._call(words, bool)

    def persist(self, key: Key) -> Coming[bool]:
        """Let a key live for ever; whether it had a deadline."""
        return self._call(("PERSIST", key), bool)

    def ttl(self, key: Key) -> Coming[int]:
        """Seconds that a key has left; -1 if it has no deadline, -2 if it does not exist."""
        return self._call(("TTL", key))

    def pttl(self, key: Key) -> Coming[int]:
        """Milliseconds that a key has left; -1 if it has no deadline, -2 if it does not exist."""
        return self._call(("PTTL", key))

    def expiretime(self, key: Key) -> Coming[int]:
        """When a key will expire, in seconds since 1970; -1 and -2 as for ttl."""
        return self._call(("EXPIRETIME", key))

    def pexpiretime(self, key: Key) -> Coming[int]:
        """When a key will expire, in milliseconds since 1970; -1 and -2 as for ttl."""
        return self._call(("PEXPIRETIME", key))

    # ------------------------------------------------------------ inside

    def dump(self, key: Key) -> Coming[bytes | None]:
        """Serialise a value for restore."""
        return self._call(("DUMP", key), to.optional_binary)

    def restore(
        self,
        key: Key,
        ttl: int | timedelta | datetime,
        value: bytes | memoryview,
        *,
        replace: bool = False,
        absttl: bool = False,
        idletime: int | None = None,
        freq: int | None = None,
    ) -> Coming[bytes]:
        """Create a key from what dump serialised; ``ttl`` in ms (0: for ever), with absttl when."""
        at_most_one(idletime=idletime, freq=freq)
        if isinstance(ttl, datetime):
            if not absttl:
                raise ValueError("ttl is a point in time, which needs absttl=True")
            ttl = unix_milliseconds("ttl", ttl)
        options = (
            *flag("REPLACE", replace),
            *flag("ABSTTL", absttl),
            *option("IDLETIME", idletime),
            *option("FREQ", freq),
        )
        return self._call(("RESTORE", key, milliseconds(ttl), value, *options))

    def object_encoding(self, key: Key) -> Coming[str | None]:
        """Name of the encoding a value has."""
        return self._call(("OBJECT", "ENCODING", key), to.optional_text)

    def object_freq(self, key: Key) -> Coming[int | None]:
        """How often a key is used, on a logarithmic scale."""
        return self._call(("OBJECT", "FREQ", key))

    def object_idletime(self, key: Key) -> Coming[int | None]:
        """Seconds since a key was last used."""
        return self._call(("OBJECT", "IDLETIME", key))

    def object_refcount(self, key: Key) -> Coming[int | None]:
        """How many references a value has."""
        return self._call(("OBJECT", "REFCOUNT", key))

    # ------------------------------------------------------------ order

    @overload
    def sort(
        self,
        key: Key,
        *,
        by: Value | None = None,
        limit: Limit | None = None,
        get: Sequence[Value] = (),
        desc: bool = False,
        alpha: bool = False,
        store: None = None,
    ) -> Coming[list[bytes | None]]: ...

    @overload
    def sort(
        self,
        key: Key,
        *,
        by: Value | None = None,
        limit: Limit | None = None,
        get: Sequence[Value] = (),
        desc: bool = False,
        alpha: bool = False,
        store: Key,
    ) -> Coming[int]: ...

    def sort(
        self,
        key: Key,
        *,
        by: Value | None = None,
        limit: Limit | None = None,
        get: Sequence[Value] = (),
        desc: bool = False,
        alpha: bool = False,
        store: Key | None = None,
    ) -> Coming[Any]:
        """The elements of a value in order, or, with ``store``, how many were stored there."""
        return self._call(("SORT", key, *_order(by, limit, get, desc, alpha), *option("STORE", store)))

    def sort_ro(
        self,
        key: Key,
        *,
        by: Value | None = None,
        limit: Limit | None = None,
        get: Sequence[Value] = (),
        desc: bool = False,
        alpha: bool = False,
    ) -> Coming[list[bytes | None]]:
        """The elements of a value in order; a replica may answer."""
        return self._call(("SORT_RO", key, *_order(by, limit, get, desc, alpha)))

    # ------------------------------------------------------------ replication

    def wait(self, numreplicas: int, timeout_ms: int) -> Coming[int]:
        """Wait until replicas have what this connection wrote; how many have."""
        return self._call(("WAIT", numreplicas, timeout_ms))

    def waitaof(self, numlocal: int, numreplicas: int, timeout_ms: int) -> Coming[tuple[int, int]]:
        """Wait until what this connection wrote is on disk, here and on replicas; how many have it."""
        return self._call(("WAITAOF", numlocal, numreplicas, timeout_ms), tuple)


#: The units under another name, since parameters have theirs.
_seconds = seconds
_milliseconds = milliseconds


def _condition(nx: bool, xx: bool, gt: bool, lt: bool) -> Arguments:
    if not (nx or xx or gt or lt):
        return ()
    at_most_one(nx=nx, xx=xx)
    at_most_one(nx=nx, gt=gt, lt=lt)
    return (*flag("NX", nx), *flag("XX", xx), *flag("GT", gt), *flag("LT", lt))


def _order(by: Value | None, limit: Limit | None, get: Sequence[Value], desc: bool, alpha: bool) -> Arguments:
    patterns = joined(("GET", pattern) for pattern in several("get", get))
    return (*option("BY", by), *limited(limit), *patterns, *flag("DESC", desc), *flag("ALPHA", alpha))
