"""Where reading begins and ends: as an option says it, and as an offset of a stream.

==================================  ==========================================================
``earliest``                        the first message there is
``latest``                          after the last one
``17``                              an offset; 0 is the first message there is
``2026-03-01T12:00:00+01:00``       the first message that was written then or later; without a
                                    zone it is UTC
``@1772362800000``                  the same in ms since 1970
``{"orders": 17, "bills": "@0"}``   any of these by stream; one that is not named gets the default
==================================  ==========================================================

Parsing asks nobody. Finding a time in a stream takes a read of one message for each halving: times never go
down from one message to the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from penstock.errors import CommandError, ConfigError, UsageError
from penstock.streams.infos import text as spelled

if TYPE_CHECKING:
    from penstock.blocking import Stream

#: What a column of Spark can hold: a signed number of 64 bits.
MAX_OFFSET: Final = (1 << 63) - 1
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_FORMS: Final = "an offset, earliest, latest, a time as 2026-03-01T12:00:00Z, or @ and the ms since 1970"


class Position(NamedTuple):
    """One place in a stream."""

    kind: Literal["earliest", "latest", "offset", "time"]
    #: the offset, or the time in ms since 1970
    value: int = 0


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


@dataclass(frozen=True, slots=True)
class Positions:
    """One for each stream."""

    default: Position
    by_stream: Mapping[str, Position] = field(default_factory=dict, hash=False)

    def of(self, stream: str) -> Position:
        return self.by_stream.get(stream, self.default)

    def all(self) -> list[Position]:
        return [self.default, *self.by_stream.values()]


class Bounds(NamedTuple):
    """What a stream has: the first offset, and the one that the next message will get."""

    first: int
    end: int


#: Of a stream that nobody has written yet.
NOTHING: Final = Bounds(1, 1)


# ------------------------------------------------------------------------------ parsing


def parse_positions(option: str, text: str, streams: Sequence[str], default: Position) -> Positions:
    """The value of an option; a wrong one is a ``ConfigError`` that names it."""
    if not text.lstrip().startswith("{"):
        return Positions(_parse(option, text.strip()))
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option} is not JSON ({error}): write {{'stream': offset}}") from None
    for stream in given:
        if stream not in streams:
            raise ConfigError(
                f"{option} names {stream!r}, which is not read: name one of {', '.join(streams)}"
            )
    return Positions(default, {name: _parse(f"{option} of {name}", value) for name, value in given.items()})


def _parse(option: str, value: Any) -> Position:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ConfigError(f"{option} must be {_FORMS}, not {value!r:.60}")
    match text.lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    if _DIGITS.fullmatch(text) and int(text) <= MAX_OFFSET:
        return Position("offset", int(text))
    if text.startswith("@") and _DIGITS.fullmatch(text[1:]):
        return Position("time", int(text[1:]))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} must be {_FORMS}, not {text!r:.60}") from None
    zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
    return Position("time", max(0, round(zoned.timestamp() * 1000)))


# ------------------------------------------------------------------------------ finding


def find_bounds(stream: Stream) -> Bounds | None:
    """What the stream has now; None if there is none."""
    try:
        info = stream.info()
    except CommandError as error:
        if "no such key" in str(error):
            return None
        if error.code == "WRONGTYPE":
            raise UsageError(f"the key {spelled(stream.name)} is no stream: it holds another type") from error
        raise
    return Bounds(info.first, info.last + 1)


def find_offset(option: str, position: Position, stream: Stream, bounds: Bounds) -> int:
    """The offset of a place; one that is not there yet is a ``ConfigError`` that names the option."""
    match position.kind:
        case "earliest":
            return bounds.first
        case "latest":
            return bounds.end
        case "time":
            return first_since(stream, bounds, position.value)
    if position.value > bounds.end:
        raise ConfigError(
            f"{option} {position.value} is beyond the end of the stream {spelled(stream.name)},"
            f" whose last offset is {bounds.end - 1}: use at most {bounds.end}, or latest"
        )
    return position.value or bounds.first


def first_since(stream: Stream, bounds: Bounds, time_ms: int) -> int:
    """Halve until it is found; a message that was compacted away is as old as the one after it."""
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        message = next(stream.read(middle, bounds.end - 1, page=1), None)
        if message is None or message.time_ms >= time_ms:
            high = middle
        else:
            low = message.offset + 1
    return low
