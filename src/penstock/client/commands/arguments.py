"""From Python values to the words of a command.

Deadlines and durations are rounded up: nothing expires earlier than the caller said. A
datetime must know its time zone; guessing one would move the deadline by hours.

Rules: what cannot be right is refused with a ``ValueError`` or ``TypeError`` that names the
arguments. What the server can judge better (ranges, syntax of bounds) is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

from penstock.client.commands.base import KeyT, Limit, ValueT
from penstock.client.transports.base import Argument, Arguments

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)

# ---------------------------------------------------------------- combinations


def at_most_one(**given: object) -> None:
    """Refuse arguments that exclude one another; None and False are not given."""
    names = _given(given)
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} exclude one another; give one of them")


def exactly_one(**given: object) -> None:
    """Refuse anything but one of these arguments."""
    names = _given(given)
    if len(names) != 1:
        found = " and ".join(names) or "none"
        raise ValueError(f"give exactly one of {', '.join(given)}, not {found}")


def only_with(needed: str, present: object, **given: object) -> None:
    """Refuse arguments that mean nothing without another one."""
    if present is None or present is False:
        for name in _given(given):
            raise ValueError(f"{name} means nothing without {needed}")


def _given(arguments: dict[str, object]) -> list[str]:
    return [name for name, value in arguments.items() if value is not None and value is not False]


# ---------------------------------------------------------------- options


def flag(word: str, is_on: bool) -> Arguments:
    """An option without an argument."""
    return (word,) if is_on else ()


def option(word: str, value: Argument | None) -> Arguments:
    """An option with one argument; None leaves it out."""
    return () if value is None else (word, value)


def optional(value: Argument | None) -> Arguments:
    """A last argument that may be left out."""
    return () if value is None else (value,)


def limited(limit: Limit | None) -> Arguments:
    return () if limit is None else ("LIMIT", *limit)


def several(name: str, values: Sequence[ValueT]) -> Sequence[ValueT]:
    """A sequence of arguments; a single text would be taken apart into its letters."""
    if isinstance(values, bytes | str | memoryview):
        raise TypeError(f"{name} must be a sequence of arguments, not {type(values).__name__}")
    return values


def counted(name: str, values: Sequence[Argument]) -> Arguments:
    """How many, then each."""
    return (len(several(name, values)), *values)


def flat(name: str, mapping: Mapping[KeyT, Argument]) -> Arguments:
    """Keys and values of a mapping in turn."""
    if not mapping:
        raise ValueError(f"{name} must not be empty")
    return tuple(chain.from_iterable(mapping.items()))


def flat_swapped(name: str, mapping: Mapping[KeyT, Argument]) -> Arguments:
    """Values and keys of a mapping in turn: a score stands before its member."""
    if not mapping:
        raise ValueError(f"{name} must not be empty")
    words: list[Argument] = []
    for key, value in mapping.items():
        words += (value, key)
    return tuple(words)


def joined(parts: Iterable[Iterable[Argument]]) -> Arguments:
    return tuple(chain.from_iterable(parts))


# ---------------------------------------------------------------- time


def seconds(duration: int | timedelta) -> int:
    return _units(duration, _SECOND)


def milliseconds(duration: int | timedelta) -> int:
    return _units(duration, _MILLISECOND)


def unix_seconds(name: str, time: int | datetime) -> int:
    return _units(_since_epoch(name, time), _SECOND)


def unix_milliseconds(name: str, time: int | datetime) -> int:
    return _units(_since_epoch(name, time), _MILLISECOND)


def expiry(
    *,
    ex: int | timedelta | None = None,
    px: int | timedelta | None = None,
    exat: int | datetime | None = None,
    pxat: int | datetime | None = None,
    **instead: Any,
) -> Arguments:
    """The options that say how long a key lives; ``instead`` are flags that exclude them."""
    at_most_one(ex=ex, px=px, exat=exat, pxat=pxat, **instead)
    if ex is not None:
        return ("EX", seconds(ex))
    if px is not None:
        return ("PX", milliseconds(px))
    if exat is not None:
        return ("EXAT", unix_seconds("exat", exat))
    if pxat is not None:
        return ("PXAT", unix_milliseconds("pxat", pxat))
    return tuple(name.upper() for name, is_on in instead.items() if is_on)


def _units(duration: int | timedelta, unit: timedelta) -> int:
    return -(-duration // unit) if isinstance(duration, timedelta) else duration


def _since_epoch(name: str, time: int | datetime) -> int | timedelta:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{name} must be a datetime with a time zone, such as datetime.now(UTC)")
    return time - _EPOCH
