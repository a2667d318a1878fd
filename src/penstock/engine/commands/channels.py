"""CHPUBLISH: appending to a durable channel, which everybody waits for.

The same as ``lua/publish.lua`` of ``penstock.channels``, argument for argument, without Lua: the script costs
three times as much here as all that it does. One suite holds both to the same behaviour.

    CHPUBLISH clock prefix ttl-s topic outbox id content [id content …]

``clock`` is the key of the channel's clock, ``prefix`` what its other keys begin with, ``topic`` who is
woken; ``outbox`` is the name of the channel if its webhooks want the new messages, else empty. The reply
has a 1 for each message that is new, a 0 for a duplicate.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.commands.arguments import integer, syntax_error
from penstock.engine.commands.lists import rpush
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.strings import set_with_deadline
from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.keyspace import EVENT_STRING, Keyspace
from penstock.engine.session import Session
from penstock.engine.storage.layout import STRING, TYPE_MASK, deadline_in, string_in
from penstock.errors import CommandError
from penstock.protocol.replies import Reply

#: The largest clock; the next one is its negative.
_MAX: Final = 2**53 - 1
#: How old the deadline of a clock may get before it is renewed.
_RENEWAL_MS: Final = 1_000
_NEWS: Final = b"new message"
_OUTBOXES: Final = b"channels.outboxes"


@command("CHPUBLISH")
def chpublish(s: Session, argv: Argv) -> Reply:
    _, clock_key, prefix, ttl, topic, outbox, *pairs = argv
    if len(pairs) % 2:
        raise syntax_error()
    ks = s.ks
    ttl_s = integer(ttl)
    if not 0 < ttl_s < 2**31:
        raise CommandError("ERR invalid expire time in 'chpublish' command")
    deadline_ms = ks.unit.now_ms + ttl_s * 1_000
    record = ks.find(clock_key)
    clock = _clock(clock_key, record)
    reply: list[Reply] = []
    entries: list[bytes] = []
    for at in range(0, len(pairs), 2):
        key = prefix + b"mid." + pairs[at]
        if ks.exists(key):
            reply.append(0)
            continue
        clock = -_MAX if clock == _MAX else clock + 1
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


def _clock(key: bytes, record: bytes | None) -> int:
    if record is None:
        return 0
    clock = parse_int(string_in(record)) if record[0] & TYPE_MASK == STRING else None
    if clock is None:
        raise CommandError(f"CORRUPTCLOCK the value of {key.decode('utf-8', 'replace')} is not a clock")
    return clock


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
