"""What producers have written, so that a write that is repeated is not written twice.

Row ``version(8) d fit(id)``:

===========  =====  ===================================================
last_ms      8      when the producer wrote last; bit 63: it is kept
calls        24 n   the last calls, oldest first: number of its first
                    message, number of its last one, offset of its last
===========  =====  ===================================================

Numbers are the producer's own count and only grow. Rules: at most ``MAX_CALLS`` are remembered, and
nothing of a producer that has been silent for ``LIFE_MS``, unless it is *kept*: as its newest call
says, be that new or a repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.storage.layout import U64, fit
from penstock.errors import CommandError

MAX_CALLS: Final = 100
LIFE_MS: Final = 24 * 3_600_000

_SPACE: Final = b"d"
_CALL: Final = Struct(">QQQ")
#: Above every time: a producer that is kept is silent at no horizon.
_KEPT: Final = 1 << 63


class Known(NamedTuple):
    """What is remembered of a producer."""

    last_ms: int
    is_kept: bool
    #: (number of its first message, number of its last one, offset of its last one), oldest first
    calls: list[tuple[int, int, int]]


def find_producer(stream: Stream, producer: bytes) -> Known | None:
    """None if it never wrote, or has been silent for too long."""
    value = stream.unit.get(stream.row(_SPACE, fit(producer)), None, stream.table)
    return None if value is None or _is_silent(value, stream.unit.now_ms) else _decode(value)


def _decode(value: bytes) -> Known:
    last_ms = int.from_bytes(value[:8], "big")
    return Known(last_ms & ~_KEPT, bool(last_ms & _KEPT), list(_CALL.iter_unpack(value[8:])))


def all_known(stream: Stream) -> Iterator[tuple[bytes, Known]]:
    """Producers that are not silent, by the rest of their row, which is the name if that is not long."""
    prefix, now_ms = stream.row(_SPACE), stream.unit.now_ms
    for row, value in stream.unit.rows(stream.table, prefix):
        if not _is_silent(value, now_ms):
            yield row[len(prefix) :], _decode(value)


def forget_all(stream: Stream) -> None:
    for row in [row for row, _ in stream.unit.rows(stream.table, stream.row(_SPACE))]:
        stream.unit.delete(row, db=stream.table)


def offset_of_repeated(stream: Stream, producer: bytes, number: int, count: int, is_kept: bool) -> int | None:
    """The offset that a call answered when it was made before; None if it is new.

    Raises for one that was written in part, or too long ago to be remembered.
    """
    known = find_producer(stream, producer)
    if known is None or number > known.calls[-1][1]:
        return None
    for first, last, offset in reversed(known.calls):
        if first <= number and number + count - 1 <= last:
            if known.is_kept != is_kept:
                _store(stream, producer, known.calls, is_kept)
            return offset - (last - (number + count - 1))
    raise CommandError(
        f"SEQUENCE producer {producer.decode('utf-8', 'backslashreplace')} is at {known.calls[-1][1]}"
    )


def remember(stream: Stream, producer: bytes, number: int, count: int, offset: int, is_kept: bool) -> None:
    """A call was written, its last message at an offset."""
    known = find_producer(stream, producer)
    calls = [] if known is None else known.calls
    _store(stream, producer, [*calls, (number, number + count - 1, offset)][-MAX_CALLS:], is_kept)


def _store(stream: Stream, producer: bytes, calls: list[tuple[int, int, int]], is_kept: bool) -> None:
    put_known(stream, producer, Known(stream.unit.now_ms, is_kept, calls))


def put_known(stream: Stream, producer: bytes, known: Known) -> None:
    """Remember of a producer what is known."""
    last_ms = U64.pack(known.last_ms | (_KEPT if known.is_kept else 0))
    packed = b"".join(_CALL.pack(*call) for call in known.calls)
    stream.unit.put(stream.row(_SPACE, fit(producer)), last_ms + packed, db=stream.table)


def has_silent(stream: Stream) -> bool:
    """Whether a producer wrote nothing for long."""
    now_ms = stream.unit.now_ms
    rows = stream.unit.rows(stream.table, stream.row(_SPACE))
    return any(_is_silent(value, now_ms) for _, value in rows)


def forget_silent(stream: Stream, limit: int) -> int:
    """Remove up to ``limit`` producers that wrote nothing for long; answers how many."""
    now_ms = stream.unit.now_ms
    rows = stream.unit.rows(stream.table, stream.row(_SPACE))
    silent = [row for row, value in rows if _is_silent(value, now_ms)][:limit]
    for row in silent:
        stream.unit.delete(row, db=stream.table)
    return len(silent)


def all_calls(stream: Stream) -> Iterator[tuple[bytes, list[tuple[int, int, int]]]]:
    """What is remembered: the rest of each row, and its calls."""
    prefix = stream.row(_SPACE)
    for row, value in stream.unit.rows(stream.table, prefix):
        yield row[len(prefix) :], list(_CALL.iter_unpack(value[8:]))


def count_producers(stream: Stream) -> int:
    return sum(1 for _ in stream.unit.rows(stream.table, stream.row(_SPACE)))


def _is_silent(value: bytes, now_ms: int) -> bool:
    return int.from_bytes(value[:8], "big") < now_ms - LIFE_MS
