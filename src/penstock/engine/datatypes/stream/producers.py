"""What producers have written, so that a write that is repeated is not written twice.

Row ``version(8) d fit(id)``:

===========  =====  ===================================================
last_ms      8      when the producer wrote last
calls        24 n   the last calls, oldest first: number of its first
                    message, number of its last one, offset of its last
===========  =====  ===================================================

Numbers are the producer's own count and only grow. Rules: at most ``MAX_CALLS`` are kept, and
nothing of a producer that has been silent for ``LIFE_MS``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.storage.layout import U64, fit
from penstock.errors import CommandError

MAX_CALLS: Final = 100
LIFE_MS: Final = 24 * 3_600_000

_SPACE: Final = b"d"
_CALL: Final = Struct(">QQQ")


def offset_of_repeated(stream: Stream, producer: bytes, number: int, count: int) -> int | None:
    """The offset that a call answered when it was made before; None if it is new.

    Raises for one that was written in part, or too long ago to be remembered.
    """
    calls = _calls(stream, producer)
    if not calls or number > calls[-1][1]:
        return None
    for first, last, offset in reversed(calls):
        if first <= number and number + count - 1 <= last:
            return offset - (last - (number + count - 1))
    raise CommandError(
        f"SEQUENCE producer {producer.decode('utf-8', 'backslashreplace')} is at {calls[-1][1]}"
    )


def remember(stream: Stream, producer: bytes, number: int, count: int, offset: int) -> None:
    """A call was written, its last message at an offset."""
    calls = [*_calls(stream, producer), (number, number + count - 1, offset)][-MAX_CALLS:]
    row = stream.row(_SPACE, fit(producer))
    packed = b"".join(_CALL.pack(*call) for call in calls)
    stream.unit.put(row, U64.pack(stream.unit.now_ms) + packed, db=stream.table)


def has_silent(stream: Stream) -> bool:
    """Whether a producer wrote nothing for long."""
    horizon_ms = stream.unit.now_ms - LIFE_MS
    rows = stream.unit.rows(stream.table, stream.row(_SPACE))
    return any(int.from_bytes(value[:8], "big") < horizon_ms for _, value in rows)


def forget_silent(stream: Stream, limit: int) -> int:
    """Remove up to ``limit`` producers that wrote nothing for long; answers how many."""
    horizon_ms = stream.unit.now_ms - LIFE_MS
    rows = stream.unit.rows(stream.table, stream.row(_SPACE))
    silent = [row for row, value in rows if int.from_bytes(value[:8], "big") < horizon_ms][:limit]
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


def _calls(stream: Stream, producer: bytes) -> list[tuple[int, int, int]]:
    value = stream.unit.get(stream.row(_SPACE, fit(producer)), None, stream.table)
    if value is None or int.from_bytes(value[:8], "big") < stream.unit.now_ms - LIFE_MS:
        return []
    return list(_CALL.iter_unpack(value[8:]))
