"""Reading the arguments of stream commands: offsets, counts, milliseconds, items, with their error texts.

Every function raises :class:`CommandError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.engine.commands.arguments import MAX_INT64, integer_in
from penstock.engine.datatypes.stream.log import LARGEST_OFFSET
from penstock.engine.datatypes.stream.pending import Range
from penstock.errors import CommandError

INVALID_OFFSET: Final = "ERR invalid offset"
EMPTY_GROUP: Final = "ERR the name of a group cannot be empty"
RETRY_TOO_SHORT: Final = "ERR retry-ms must be at least 1"

#: As many digits as the largest offset has.
_MOST_DIGITS: Final = 20


def parse_offset(value: bytes) -> int:
    """From 0 to 2^64−1, digits only."""
    if value.isdigit() and len(value) <= _MOST_DIGITS and (offset := int(value)) <= LARGEST_OFFSET:
        return offset
    raise CommandError(INVALID_OFFSET)


def parse_beginning(value: bytes) -> int | None:
    """Where a group begins; None (``$`` or nothing): after the last message."""
    return None if value in (b"$", b"") else parse_offset(value)


def parse_count(value: bytes) -> int:
    """A number of things that is not negative."""
    return integer_in(value, 0, MAX_INT64)


def parse_ms(value: bytes) -> int:
    """A length of time that is not negative."""
    return integer_in(value, 0, MAX_INT64)


def parse_retry_ms(value: bytes) -> int:
    """As ``parse_ms``; zero would deliver without end."""
    retry_ms = parse_ms(value)
    if retry_ms < 1:
        raise CommandError(RETRY_TOO_SHORT)
    return retry_ms


def parse_items(values: Sequence[bytes]) -> list[Range]:
    """Offsets and ranges ``first-last``, as ranges in order that neither overlap nor touch."""
    merged: list[Range] = []
    first = last = -2  # before everything, and not touching it
    for start, end in sorted(map(_parse_item, values)):
        if start > last + 1:
            if last >= 0:
                merged.append(Range(first, last))
            first, last = start, end
        elif end > last:
            last = end
    merged.append(Range(first, last))
    return merged


def _parse_item(value: bytes) -> tuple[int, int]:
    if value.isdigit():
        first = last = parse_offset(value)
    else:
        start, _, end = value.partition(b"-")
        first, last = parse_offset(start), parse_offset(end)
    if last < first:
        raise CommandError(INVALID_OFFSET)
    return first, last


def check_group_name(name: bytes) -> bytes:
    if not name:
        raise CommandError(EMPTY_GROUP)
    return name
