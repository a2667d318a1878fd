"""Commands on Redis's own streams and their groups.

Ids are text such as ``1700000000000-0``, or ``$``, ``>``, ``-``, ``+`` and ``*`` where Redis takes them.
``block_ms`` waits at the server, 0 for ever; None does not wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, overload

from penstock.client.commands import stream_conversions as to
from penstock.client.commands.arguments import (
    at_most_one,
    exactly_one,
    flag,
    flat,
    only_with,
    option,
    optional,
    unix_milliseconds,
)
from penstock.client.commands.base import Coming, Key, KeyT, Runner, Value, ValueT
from penstock.client.transports.base import Arguments


class RedisStreams(Runner):
    """Commands on Redis's own streams and their groups."""

    __slots__ = ()

    # ------------------------------------------------------------ writing

    def xadd(
        self,
        key: Key,
        fields: Mapping[ValueT, Value],
        *,
        id: Value = "*",
        nomkstream: bool = False,
        maxlen: int | None = None,
        minid: Value | None = None,
        approximate: bool = False,
        limit: int | None = None,
    ) -> Coming[bytes | None]:
        """Append an entry; its id, None if nomkstream forbade to create the stream."""
        trimming = _trimming(maxlen, minid, approximate, limit)
        words = ("XADD", key, *flag("NOMKSTREAM", nomkstream), *trimming, id, *flat("fields", fields))
        return self._call(words)

    def xtrim(
        self,
        key: Key,
        *,
        maxlen: int | None = None,
        minid: Value | None = None,
        approximate: bool = False,
        limit: int | None = None,
    ) -> Coming[int]:
        """Drop the oldest entries; how many."""
        exactly_one(maxlen=maxlen, minid=minid)
        return self._call(("XTRIM", key, *_trimming(maxlen, minid, approximate, limit)))

    def xdel(self, key: Key, id: Value, *ids: Value) -> Coming[int]:
        """Delete entries; how many there were."""
        return self._call(("XDEL", key, id, *ids))

    def xsetid(
        self,
        key: Key,
        last_id: Value,
        *,
        entriesadded: int | None = None,
        maxdeletedid: Value | None = None,
    ) -> Coming[bytes]:
        """Set the last id of a stream."""
        options = (*option("ENTRIESADDED", entriesadded), *option("MAXDELETEDID", maxdeletedid))
        return self._call(("XSETID", key, last_id, *options))

    # ------------------------------------------------------------ reading

    def xlen(self, key: Key) -> Coming[int]:
        """How many entries a stream has."""
        return self._call(("XLEN", key))

    def xrange(
        self, key: Key, start: Value = "-", end: Value = "+", *, count: int | None = None
    ) -> Coming[list[to.StreamEntry]]:
        """Entries from one id to another, both included."""
        return self._call(("XRANGE", key, start, end, *option("COUNT", count)), to.entries)

    def xrevrange(
        self, key: Key, end: Value = "+", start: Value = "-", *, count: int | None = None
    ) -> Coming[list[to.StreamEntry]]:
        """Entries from one id back to another, both included."""
        return self._call(("XREVRANGE", key, end, start, *option("COUNT", count)), to.entries)

    def xread(
        self, streams: Mapping[KeyT, Value], *, count: int | None = None, block_ms: int | None = None
    ) -> Coming[dict[bytes, list[to.StreamEntry]]]:
        """Entries after an id, for each of several streams; streams without any are left out."""
        words = ("XREAD", *option("COUNT", count), *option("BLOCK", block_ms), *_streams(streams))
        return self._call(words, to.streams)

    # ------------------------------------------------------------ reading in groups

    def xreadgroup(
        self,
        group: Value,
        consumer: Value,
        streams: Mapping[KeyT, Value],
        *,
        count: int | None = None,
        block_ms: int | None = None,
        noack: bool = False,
    ) -> Coming[dict[bytes, list[to.PendingStreamEntry]]]:
        """Entries that no other consumer of the group was given (``>``), or one's own pending ones."""
        options = (*option("COUNT", count), *option("BLOCK", block_ms), *flag("NOACK", noack))
        return self._call(("XREADGROUP", "GROUP", group, consumer, *options, *_streams(streams)), to.streams)

    def xack(self, key: Key, group: Value, id: Value, *ids: Value) -> Coming[int]:
        """Acknowledge entries; how many were pending."""
        return self._call(("XACK", key, group, id, *ids))

    def xpending(self, key: Key, group: Value) -> Coming[to.PendingSummary]:
        """How much is pending in a group, and with whom."""
        return self._call(("XPENDING", key, group), to.pending_summary)

    def xpending_range(
        self,
        key: Key,
        group: Value,
        start: Value = "-",
        end: Value = "+",
        *,
        count: int,
        consumer: Value | None = None,
        min_idle_ms: int | None = None,
    ) -> Coming[list[to.PendingEntry]]:
        """XPENDING with a range: the entries that are pending, one by one."""
        words = ("XPENDING", key, group, *option("IDLE", min_idle_ms), start, end, count, *optional(consumer))
        return self._call(words, to.pending_entries)

    @overload
    def xclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        id: Value,
        *ids: Value,
        idle_ms: int | None = None,
        time: int | datetime | None = None,
        retrycount: int | None = None,
        force: bool = False,
        justid: Literal[False] = False,
        lastid: Value | None = None,
    ) -> Coming[list[to.StreamEntry]]: ...

    @overload
    def xclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        id: Value,
        *ids: Value,
        idle_ms: int | None = None,
        time: int | datetime | None = None,
        retrycount: int | None = None,
        force: bool = False,
        justid: Literal[True],
        lastid: Value | None = None,
    ) -> Coming[list[bytes]]: ...

    def xclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        id: Value,
        *ids: Value,
        idle_ms: int | None = None,
        time: int | datetime | None = None,
        retrycount: int | None = None,
        force: bool = False,
        justid: bool = False,
        lastid: Value | None = None,
    ) -> Coming[Any]:
        """Take pending entries over from another consumer; ``time`` in milliseconds since 1970."""
        at_most_one(idle_ms=idle_ms, time=time)
        options = (
            *option("IDLE", idle_ms),
            *option("TIME", None if time is None else unix_milliseconds("time", time)),
            *option("RETRYCOUNT", retrycount),
            *flag("FORCE", force),
            *flag("JUSTID", justid),
            *option("LASTID", lastid),
        )
        words = ("XCLAIM", key, group, consumer, min_idle_ms, id, *ids, *options)
        return self._call(words, None if justid else to.entries)

    @overload
    def xautoclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        start: Value = "0-0",
        *,
        count: int | None = None,
        justid: Literal[False] = False,
    ) -> Coming[to.AutoClaimed]: ...

    @overload
    def xautoclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        start: Value = "0-0",
        *,
        count: int | None = None,
        justid: Literal[True],
    ) -> Coming[to.AutoClaimedIds]: ...

    def xautoclaim(
        self,
        key: Key,
        group: Value,
        consumer: Value,
        min_idle_ms: int,
        start: Value = "0-0",
        *,
        count: int | None = None,
        justid: bool = False,
    ) -> Coming[Any]:
        """Take over whatever has been pending for so long, a page at a time."""
        options = (*option("COUNT", count), *flag("JUSTID", justid))
        words = ("XAUTOCLAIM", key, group, consumer, min_idle_ms, start, *options)
        return self._call(words, to.auto_claimed_ids if justid else to.auto_claimed)

    # ------------------------------------------------------------ groups

    def xgroup_create(
        self,
        key: Key,
        group: Value,
        id: Value = "$",
        *,
        mkstream: bool = False,
        entriesread: int | None = None,
    ) -> Coming[bytes]:
        """Create a group that reads what comes after an id."""
        options = (*flag("MKSTREAM", mkstream), *option("ENTRIESREAD", entriesread))
        return self._call(("XGROUP", "CREATE", key, group, id, *options))

    def xgroup_createconsumer(self, key: Key, group: Value, consumer: Value) -> Coming[bool]:
        """Create a consumer; whether it is new."""
        return self._call(("XGROUP", "CREATECONSUMER", key, group, consumer), bool)

    def xgroup_delconsumer(self, key: Key, group: Value, consumer: Value) -> Coming[int]:
        """Delete a consumer; how many entries it had pending, which nobody will be given again."""
        return self._call(("XGROUP", "DELCONSUMER", key, group, consumer))

    def xgroup_destroy(self, key: Key, group: Value) -> Coming[bool]:
        """Delete a group; whether there was one."""
        return self._call(("XGROUP", "DESTROY", key, group), bool)

    def xgroup_setid(
        self, key: Key, group: Value, id: Value, *, entriesread: int | None = None
    ) -> Coming[bytes]:
        """Set the id after which a group reads on."""
        return self._call(("XGROUP", "SETID", key, group, id, *option("ENTRIESREAD", entriesread)))

    # ------------------------------------------------------------ about streams

    def xinfo_stream(
        self, key: Key, *, full: bool = False, count: int | None = None
    ) -> Coming[dict[str, Any]]:
        """Facts about a stream; with ``full`` its entries (up to ``count``), groups and consumers too."""
        only_with("full", full, count=count)
        words = ("XINFO", "STREAM", key, *flag("FULL", full), *option("COUNT", count))
        return self._call(words, to.full_stream if full else to.stream)

    def xinfo_groups(self, key: Key) -> Coming[list[dict[str, Any]]]:
        """Facts about the groups of a stream."""
        return self._call(("XINFO", "GROUPS", key), to.groups)

    def xinfo_consumers(self, key: Key, group: Value) -> Coming[list[dict[str, Any]]]:
        """Facts about the consumers of a group."""
        return self._call(("XINFO", "CONSUMERS", key, group), to.consumers)


def _trimming(maxlen: int | None, minid: Value | None, approximate: bool, limit: int | None) -> Arguments:
    at_most_one(maxlen=maxlen, minid=minid)
    if maxlen is None and minid is None:
        only_with("maxlen or minid", None, approximate=approximate, limit=limit)
        return ()
    only_with("approximate", approximate, limit=limit)
    how = "~" if approximate else "="
    kind = ("MAXLEN", how, maxlen) if maxlen is not None else ("MINID", how, minid)
    return (*(word for word in kind if word is not None), *option("LIMIT", limit))


def _streams(streams: Mapping[KeyT, Value]) -> Arguments:
    if not streams:
        raise ValueError("streams must not be empty")
    return ("STREAMS", *streams, *streams.values())
