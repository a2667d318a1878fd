"""Commands on fields of hashes that expire (Redis 7.4, Valkey 9; HGETEX, HSETEX and HGETDEL are younger).

Those that change a deadline answer a number a field: -2 no such field, 0 the condition was not
met, 1 done, 2 deleted since the deadline has passed. Those that ask answer -2 for a field
that does not exist and -1 for one without a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from penstock.client.commands.arguments import (
    at_most_one,
    expiry,
    flag,
    flat,
    milliseconds,
    seconds,
    unix_milliseconds,
    unix_seconds,
)
from penstock.client.commands.base import Coming, Key, Runner, Value, ValueT
from penstock.client.transports.base import Arguments


class HashFields(Runner):
    """Commands on fields of hashes that expire."""

    __slots__ = ()

    # ------------------------------------------------------------ deadlines

    def hexpire(
        self,
        key: Key,
        seconds: int | timedelta,
        field: Value,
        *fields: Value,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[list[int]]:
        """Let fields live for so many seconds."""
        return self._call(
            ("HEXPIRE", key, _seconds(seconds), *_condition(nx, xx, gt, lt), *_fields(field, fields))
        )

    def hpexpire(
        self,
        key: Key,
        milliseconds: int | timedelta,
        field: Value,
        *fields: Value,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[list[int]]:
        """Let fields live for so many milliseconds."""
        lifetime_ms = _milliseconds(milliseconds)
        return self._call(
            ("HPEXPIRE", key, lifetime_ms, *_condition(nx, xx, gt, lt), *_fields(field, fields))
        )

    def hexpireat(
        self,
        key: Key,
        time: int | datetime,
        field: Value,
        *fields: Value,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[list[int]]:
        """Let fields live until a time in seconds since 1970."""
        until_s = unix_seconds("time", time)
        return self._call(("HEXPIREAT", key, until_s, *_condition(nx, xx, gt, lt), *_fields(field, fields)))

    def hpexpireat(
        self,
        key: Key,
        time: int | datetime,
        field: Value,
        *fields: Value,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> Coming[list[int]]:
        """Let fields live until a time in milliseconds since 1970."""
        until_ms = unix_milliseconds("time", time)
        return self._call(("HPEXPIREAT", key, until_ms, *_condition(nx, xx, gt, lt), *_fields(field, fields)))

    def hpersist(self, key: Key, field: Value, *fields: Value) -> Coming[list[int]]:
        """Let fields live for ever; 1 for each that had a deadline."""
        return self._call(("HPERSIST", key, *_fields(field, fields)))

    def httl(self, key: Key, field: Value, *fields: Value) -> Coming[list[int]]:
        """Seconds that fields have left."""
        return self._call(("HTTL", key, *_fields(field, fields)))

    def hpttl(self, key: Key, field: Value, *fields: Value) -> Coming[list[int]]:
        """Milliseconds that fields have left."""
        return self._call(("HPTTL", key, *_fields(field, fields)))

    def hexpiretime(self, key: Key, field: Value, *fields: Value) -> Coming[list[int]]:
        """When fields will expire, in seconds since 1970."""
        return self._call(("HEXPIRETIME", key, *_fields(field, fields)))

    def hpexpiretime(self, key: Key, field: Value, *fields: Value) -> Coming[list[int]]:
        """When fields will expire, in milliseconds since 1970."""
        return self._call(("HPEXPIRETIME", key, *_fields(field, fields)))

    # ------------------------------------------------------------ values

    def hgetex(
        self,
        key: Key,
        field: Value,
        *fields: Value,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        persist: bool = False,
    ) -> Coming[list[bytes | None]]:
        """Read fields and change or drop their deadline."""
        options = expiry(ex=ex, px=px, exat=exat, pxat=pxat, persist=persist)
        return self._call(("HGETEX", key, *options, *_fields(field, fields)))

    def hgetdel(self, key: Key, field: Value, *fields: Value) -> Coming[list[bytes | None]]:
        """Read fields, then drop them."""
        return self._call(("HGETDEL", key, *_fields(field, fields)))

    def hsetex(
        self,
        key: Key,
        mapping: Mapping[ValueT, Value],
        *,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        exat: int | datetime | None = None,
        pxat: int | datetime | None = None,
        keepttl: bool = False,
        fnx: bool = False,
        fxx: bool = False,
    ) -> Coming[bool]:
        """Write fields with a deadline; whether fnx (none exists) or fxx (all exist) allowed it."""
        at_most_one(fnx=fnx, fxx=fxx)
        options = (
            *flag("FNX", fnx),
            *flag("FXX", fxx),
            *expiry(ex=ex, px=px, exat=exat, pxat=pxat, keepttl=keepttl),
        )
        words = ("HSETEX", key, *options, "FIELDS", len(mapping), *flat("mapping", mapping))
        return self._call(words, bool)


#: The units under another name, since parameters have theirs.
_seconds = seconds
_milliseconds = milliseconds


def _fields(field: Value, fields: tuple[Value, ...]) -> Arguments:
    return ("FIELDS", 1 + len(fields), field, *fields)


def _condition(nx: bool, xx: bool, gt: bool, lt: bool) -> Arguments:
    at_most_one(nx=nx, xx=xx, gt=gt, lt=lt)
    return (*flag("NX", nx), *flag("XX", xx), *flag("GT", gt), *flag("LT", lt))
