"""TEXPORT and TIMPORT: a stream leaves for another place, and comes to one, with everything it has.

    TEXPORT key                              first last compacted-to node-messages node-bytes lost word…
    TIMPORT key BEGIN first node-messages node-bytes
    TIMPORT key ADD upto compacted-to [offset time-ms kind tag entry …]
    TIMPORT key END word…

``TSCAN`` has the messages. ``kind`` is ``e`` for an entry and ``t`` for a tombstone. Words are those of
``datatypes.stream.copying``, and mean nothing to whoever carries them. ``lost``: producers that cannot be
told.

BEGIN replaces whatever the key holds. ADD ignores messages up to the last offset, so that it may be
repeated; END may be, too. Until END a stream is a stream with messages, and nothing else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from penstock.engine.changes import EVENT_STREAM
from penstock.engine.commands.arguments import syntax_error
from penstock.engine.commands.registry import Argv, command
from penstock.engine.commands.stream_arguments import INVALID_OFFSET, parse_count, parse_offset
from penstock.engine.datatypes.stream import Message, Stream, copying
from penstock.engine.session import Session
from penstock.errors import CommandError
from penstock.protocol.replies import OK, Reply

_WORDS_OF_A_MESSAGE: Final = 5
_NOT_BEGUN: Final = "ERR the stream is not there: TIMPORT BEGIN comes first"


@command("TEXPORT")
def texport(s: Session, argv: Argv) -> Reply:
    stream = s.ks.load(argv[1], Stream)
    if stream is None:
        return None
    lost = copying.nameless_producers(stream)
    numbers = (
        stream.first, stream.last, stream.compacted_to, stream.node_messages, stream.node_bytes, lost,
    )  # fmt: skip
    return [*numbers, *copying.state_of(stream)]


@command("TIMPORT")
def timport(s: Session, argv: Argv) -> Reply:
    action = {b"BEGIN": _begin, b"ADD": _add, b"END": _end}.get(argv[2].upper())
    if action is None:
        raise syntax_error()
    stream = action(s, argv[1], argv[3:])
    stream.save()
    s.ks.changed(stream.key, EVENT_STREAM, b"timport")
    s.ks.ready(stream.key)
    return OK


def _begin(s: Session, key: bytes, words: Argv) -> Stream:
    if len(words) != 3:
        raise syntax_error()
    first, node_messages, node_bytes = parse_offset(words[0]), parse_count(words[1]), parse_count(words[2])
    if not first or not 1 <= node_messages <= 1 << 20 or not 1 <= node_bytes <= 1 << 30:
        raise syntax_error()
    s.ks.delete(key)
    stream = Stream(s.ks, key, None)
    copying.begin(stream, first, node_messages, node_bytes)
    return stream


def _add(s: Session, key: bytes, words: Argv) -> Stream:
    if len(words) < 2 or len(words[2:]) % _WORDS_OF_A_MESSAGE:
        raise syntax_error()
    upto, compacted_to = parse_offset(words[0]), parse_offset(words[1])
    messages = [
        Message(parse_offset(offset), tag, None if kind == b"t" else entry, parse_count(time_ms))
        for offset, time_ms, kind, tag, entry in zip(*[iter(words[2:])] * _WORDS_OF_A_MESSAGE, strict=True)
    ]
    stream = _begun(s, key)
    messages = [message for message in messages if message.offset > stream.last]
    offsets = [stream.last, *(message.offset for message in messages), upto + 1]
    times_ms = [stream.last_ms, *(message.time_ms for message in messages)]
    if upto < stream.last:
        return stream
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        raise CommandError(INVALID_OFFSET)
    if times_ms != sorted(times_ms):
        raise CommandError("ERR times of messages run backwards")
    copying.add_messages(stream, messages, upto, compacted_to)
    return stream


def _end(s: Session, key: bytes, words: Argv) -> Stream:
    stream = _begun(s, key)
    try:
        copying.take_state(stream, words)
    except ValueError:
        raise syntax_error() from None
    return stream


def _begun(s: Session, key: bytes) -> Stream:
    stream = s.ks.load(key, Stream)
    if stream is None:
        raise CommandError(_NOT_BEGUN)
    return stream
