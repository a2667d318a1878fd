"""Durable channels without Lua: CHPUBLISH, CHFETCH, CHACK, which every message passes.

The same as ``publish.lua``, ``fetch.lua`` and ``ack.lua`` of ``penstock.channels``, argument for argument:
a script costs several times as much here as all that it does. One suite holds both to the same behaviour.

    CHPUBLISH clock prefix ttl-s topic outbox id content [id content …]
    CHFETCH   clock cursor nack prefix ttl-s limit bytes steps unreadable start
    CHACK     clock cursor nack id body ttl-s message-clock

``clock``, ``cursor``, ``nack``, ``id`` and ``body`` are keys; those of a channel begin with ``prefix``.

=========  =====================================================================================
CHPUBLISH  ``topic`` is woken; ``outbox`` is the name of the channel if its webhooks want the new
           messages, else empty. The reply has a 1 for each message that is new, a 0 for a duplicate
CHFETCH    ``ttl-s`` 0: renew no life (which the script always does). It is a read, repeatable, and
           writes only where a life is to be renewed or the cursor steps over what expired
CHACK      1 moved, 0 stale, -1 no such subscriber. A life that was renewed within the last second is
           left as it is; the script renews it each time
=========  =====================================================================================

Clocks count up to 2^53 - 1 and go on with its negative.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.engine.changes import EVENT_GENERIC, EVENT_STRING
from penstock.engine.commands.arguments import integer, positive, syntax_error
from penstock.engine.commands.lists import rpush
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.strings import set_with_deadline
from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.keyspace import Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import STRING, TYPE_MASK, deadline_in, string_in
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

#: The largest clock; the next one is its negative.
_MAX: Final = 2**53 - 1
_SPAN: Final = 2 * _MAX + 1
#: How old a deadline may get before it is renewed.
_RENEWAL_MS: Final = 1_000
_NEWS: Final = b"new message"
_OUTBOXES: Final = b"channels.outboxes"
#: Bodies that are read at once.
_CHUNK: Final = 128
#: What a fetch says about messages behind those that it gives.
_NO_MORE, _MORE, _ASK_AGAIN = 0, 1, 2


# ------------------------------------------------------------------------- publish


@command("CHPUBLISH")
def chpublish(s: Session, argv: Argv) -> Reply:
    _, clock_key, prefix, ttl, topic, outbox, *pairs = argv
    if len(pairs) % 2:
        raise syntax_error()
    ks = s.ks
    deadline_ms = _deadline_ms(ks, ttl, "chpublish")
    record = ks.find(clock_key)
    clock = 0 if record is None else _clock_in(clock_key, record)
    reply: list[Reply] = []
    entries: list[bytes] = []
    for at in range(0, len(pairs), 2):
        key = prefix + b"mid." + pairs[at]
        if ks.exists(key):
            reply.append(0)
            continue
        clock = _following(clock)
        text = b"%d" % clock
        body = b'{"id":"%b","content":%b}' % (pairs[at], pairs[at + 1])
        set_with_deadline(s, key, text, deadline_ms)
        set_with_deadline(s, prefix + b"m." + text, body, deadline_ms)
        entries.append(text + b" " + body)
        reply.append(1)
    _move_clock(ks, clock_key, record, clock, deadline_ms)
    if entries:
        _tell(s, prefix, topic, outbox, entries)
    return reply


def _move_clock(ks: Keyspace, key: bytes, record: bytes | None, clock: int, deadline_ms: int) -> None:
    """Its life is never shortened: cursors may have been promised a longer one."""
    text = b"%d" % clock
    kept_ms = None if record is None else deadline_in(record)
    if record is not None and kept_ms is not None and kept_ms >= deadline_ms - _RENEWAL_MS:
        ks.store(key, record[: len(record) - len(string_in(record))] + text)
    else:
        ks.set_string(key, text, deadline_ms)
    ks.changed(key, EVENT_STRING, b"incrby")


def _tell(s: Session, prefix: bytes, topic: bytes, outbox: bytes, entries: list[bytes]) -> None:
    if outbox:
        rpush(s, [b"RPUSH", prefix + b"out", *entries])
    s.engine.pubsub.publish(topic, _NEWS)
    if outbox:
        s.engine.pubsub.publish(_OUTBOXES, outbox)


# --------------------------------------------------------------------------- fetch


@command("CHFETCH")
def chfetch(s: Session, argv: Argv) -> Reply:
    _, clock_key, cursor_key, nack_key, prefix, ttl, limit, size, steps, unreadable, start = argv
    wanted = positive(limit), positive(size), positive(steps)
    blind, first = _clock_or_none(unreadable), _clock_or_none(start)
    deadline_ms = None if ttl == b"0" else _deadline_ms(s.ks, ttl, "chfetch")
    place = _find_subscriber(s.ks, clock_key, cursor_key)
    if place is None:
        return None
    paused_ms = _paused_ms(s.ks, nack_key, place)
    if deadline_ms is not None:
        _refresh(s, clock_key, cursor_key, place, deadline_ms)
    if paused_ms or place.cursor == place.last:
        return [_NO_MORE, paused_ms, b""]
    if first is None or not place.is_unread(first):
        first = place.cursor
    if blind is not None and not place.is_unread(blind):
        blind = None  # somebody else has stepped over the unreadable ones meanwhile
    reply, head = _read(s.ks, prefix, first, place.last, blind, *wanted)
    if head is not None and first == place.cursor:
        s.engine.require_write()
        _move_cursor(s.ks, cursor_key, head)
    return reply


def _read(
    ks: Keyspace,
    prefix: bytes,
    clock: int,
    last: int,
    blind: int | None,
    limit: int,
    room_bytes: int,
    steps: int,
) -> tuple[list[Reply], bytes | None]:
    """What lies behind a clock, and the last expired clock before the first living message.

    Up to the clock ``blind`` bodies are unreadable, and count as expired. One message always fits.
    """
    reply: list[Reply] = [_NO_MORE, 0, b""]
    left, stepped, found = _distance(clock, last), 0, 0
    head: bytes | None = None
    more = _NO_MORE
    while left and more == _NO_MORE:
        # One more than wanted tells whether there is more.
        clocks = _behind(clock, min(left, _CHUNK, limit - found + 1))
        clock = clocks[-1]
        left -= len(clocks)
        texts = [b"%d" % each for each in clocks]
        bodies = ks.get_strings([b"%bm.%b" % (prefix, text) for text in texts])
        for at, body in enumerate(bodies):
            if body is None or blind is not None:
                stepped += 1
                head = head if found else texts[at]
                blind = None if clocks[at] == blind else blind
            elif found == limit or (found and len(body) > room_bytes):
                more = _MORE
                break
            else:
                found += 1
                room_bytes -= len(body)
                reply += (texts[at], body)
        if more == _NO_MORE and left and stepped >= steps:
            more = _ASK_AGAIN
    reply[0], reply[2] = more, b"%d" % clock
    return reply, head


def _refresh(s: Session, clock_key: bytes, cursor_key: bytes, place: _Place, deadline_ms: int) -> None:
    """Renew both lives when a second of one has gone. (Not each time: reading alone should not write.)"""
    if min(place.clock_deadline_ms, place.cursor_deadline_ms) >= deadline_ms - _RENEWAL_MS:
        return
    s.engine.require_write()
    _prolong(s.ks, clock_key, place, deadline_ms)
    _expire(s.ks, cursor_key, deadline_ms)


def _paused_ms(ks: Keyspace, key: bytes, place: _Place) -> int:
    """For how long a nack holds the subscriber back; it may be left from an earlier one of this name."""
    record = None if place.cursor == place.last else ks.find(key)
    if record is None or not place.is_unread(_clock_in(key, record)):
        return 0
    return max((deadline_in(record) or 0) - ks.unit.now_ms, 1)


# ----------------------------------------------------------------------------- ack


@command("CHACK")
def chack(s: Session, argv: Argv) -> Reply:
    _, clock_key, cursor_key, nack_key, id_key, body_key, ttl, text = argv
    ks = s.ks
    clock, deadline_ms = integer(text), _deadline_ms(ks, ttl, "chack")
    place = _find_subscriber(ks, clock_key, cursor_key)
    if place is None:
        return -1
    if not place.is_unread(clock) or not _is_same(ks, id_key, body_key, text):
        return 0
    if 0 <= deadline_ms - place.cursor_deadline_ms <= _RENEWAL_MS:
        _move_cursor(ks, cursor_key, text)
    else:
        set_with_deadline(s, cursor_key, text, deadline_ms)
        _prolong(ks, clock_key, place, deadline_ms)
    if ks.delete(nack_key):
        ks.changed(nack_key, EVENT_GENERIC, b"del")
    return 1


def _is_same(ks: Keyspace, id_key: bytes, body_key: bytes, text: bytes) -> bool:
    """Whether a clock still belongs to the message that a receipt names.

    A channel that expired and was made again counts from the start: then the id knows another clock, or
    none while there is a body.
    """
    known = ks.get_string(id_key)
    return known == text if known is not None else not ks.exists(body_key)


# -------------------------------------------------------------- clocks and deadlines


class _Place(NamedTuple):
    """Where a subscriber is."""

    last: int
    cursor: int
    clock_record: bytes
    cursor_record: bytes

    @property
    def clock_deadline_ms(self) -> int:
        return _deadline_in(self.clock_record)

    @property
    def cursor_deadline_ms(self) -> int:
        return _deadline_in(self.cursor_record)

    def is_unread(self, clock: int) -> bool:
        return 0 < _distance(self.cursor, clock) <= _distance(self.cursor, self.last)


def _find_subscriber(ks: Keyspace, clock_key: bytes, cursor_key: bytes) -> _Place | None:
    """A cursor from which half of all clocks would be unread is left from a channel that is gone."""
    clock_record, cursor_record = ks.find(clock_key), ks.find(cursor_key)
    if clock_record is None or cursor_record is None:
        return None
    last, cursor = _clock_in(clock_key, clock_record), _clock_in(cursor_key, cursor_record)
    if _distance(cursor, last) > _MAX:
        return None
    return _Place(last, cursor, clock_record, cursor_record)


def _move_cursor(ks: Keyspace, key: bytes, text: bytes) -> None:
    """Its life stays as it is."""
    ks.update_string(key, text)
    ks.changed(key, EVENT_STRING, b"set")


def _clock_in(key: bytes, record: bytes) -> int:
    clock = parse_int(string_in(record)) if record[0] & TYPE_MASK == STRING else None
    if clock is None:
        raise CommandError(f"CORRUPTCLOCK the value of {key.decode('utf-8', 'replace')} is not a clock")
    return clock


def _clock_or_none(word: bytes) -> int | None:
    return integer(word) if word else None


def _following(clock: int) -> int:
    return -_MAX if clock == _MAX else clock + 1


def _behind(clock: int, count: int) -> list[int]:
    """The next clocks."""
    if clock + count <= _MAX:
        return list(range(clock + 1, clock + count + 1))
    clocks = []
    for _ in range(count):
        clock = _following(clock)
        clocks.append(clock)
    return clocks


def _distance(cursor: int, clock: int) -> int:
    """How many messages lie above ``cursor``, up to ``clock``."""
    return (clock - cursor) % _SPAN


def _deadline_ms(ks: Keyspace, ttl: bytes, name: str) -> int:
    ttl_s = integer(ttl)
    if not 0 < ttl_s < 2**31:
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    return ks.unit.now_ms + ttl_s * 1_000


def _deadline_in(record: bytes) -> int:
    """Until when it lives; -1 if for ever, as PTTL has it."""
    deadline_ms = deadline_in(record)
    return -1 if deadline_ms is None else deadline_ms


def _prolong(ks: Keyspace, clock_key: bytes, place: _Place, deadline_ms: int) -> None:
    """Never shorten the life of the clock: cursors may have been promised a longer one."""
    if place.clock_deadline_ms < deadline_ms:
        _expire(ks, clock_key, deadline_ms)


def _expire(ks: Keyspace, key: bytes, deadline_ms: int) -> None:
    ks.set_deadline(key, deadline_ms)
    ks.changed(key, EVENT_GENERIC, b"expire")
