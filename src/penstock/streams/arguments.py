"""Arguments of the stream API, judged before anything is sent: one sentence that names the argument.

Pure functions. What the server can judge better (whether a key is a stream, whether an offset
is there) is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from penstock.client.transports.base import Argument

#: What a tag or an entry may be given as; text is stored as UTF-8.
Data: TypeAlias = bytes | str | bytearray | memoryview
#: The name of a stream, a group, a consumer or a producer.
Name: TypeAlias = bytes | str
#: An offset, or the first and the last of several.
Item: TypeAlias = int | tuple[int, int]
#: Where a group begins: an offset (0: the first message there is) or "$": after the last one.
Start: TypeAlias = int | Literal["$"]

#: The last offset that there can be.
MAX_OFFSET: Final = (1 << 64) - 1
#: Milliseconds and counts: what every server reads without loss.
MAX_COUNT: Final = (1 << 53) - 1


class Execute(Protocol):
    """Runs a stream command, wherever the stream is; maps are answered as dicts."""

    async def execute(self, name: Argument, /, *arguments: Argument) -> Any: ...


class Missing:
    """The type of an argument that was not given, where None means something."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


def whole(name: str, value: object, least: int = 0, most: int = MAX_COUNT) -> int:
    """A whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r:.60}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")
    return value


def optional(name: str, value: object, least: int = 0, most: int = MAX_COUNT) -> int | None:
    """The same, or None for not given."""
    return None if value is None else whole(name, value, least, most)


def offset(name: str, value: object, least: int = 0) -> int:
    return whole(name, value, least, MAX_OFFSET)


def start(name: str, value: object) -> Start:
    """Where a group begins."""
    if value == "$":
        return "$"
    if isinstance(value, str):
        raise ValueError(f'{name} must be an offset or "$", not {value!r:.60}')
    return offset(name, value)


def switch(name: str, value: object) -> str:
    """True or False as the commands spell it."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r:.60}")
    return "yes" if value else "no"


def data(name: str, value: object) -> bytes | str | memoryview:
    """A tag or an entry."""
    if isinstance(value, bytes | str | memoryview):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}")


def named(name: str, value: object) -> Name:
    """The name of something; it cannot be empty."""
    if not isinstance(value, bytes | str):
        raise TypeError(f"{name} must be a str or bytes, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    return value


def line(name: str, value: object) -> str:
    """One line of text, such as a reason."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value or "\n" in value or "\r" in value:
        raise ValueError(f"{name} must be one line of text, not {value!r:.60}")
    return value


def delays(name: str, values: object) -> str:
    """A list of milliseconds as the commands spell it."""
    if isinstance(values, bytes | str) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a sequence of milliseconds, not {type(values).__name__}")
    return ",".join(str(whole(f"{name}[{at}]", value)) for at, value in enumerate(values))


def exactly_one(**given: object) -> None:
    """Refuse anything but one of these; None is not given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise ValueError(f"give exactly one of {', '.join(given)}, not {' and '.join(names) or 'none'}")


def span(name: str, item: Item) -> tuple[int, int]:
    """The first and the last offset of an item."""
    if not isinstance(item, tuple):
        return offset(name, item), item
    if len(item) != 2:
        raise TypeError(f"{name} must be offsets, or pairs of a first and a last one, not {item!r:.60}")
    first, last = offset(name, item[0]), offset(name, item[1])
    if last < first:
        raise ValueError(f"{name} must not run backwards, as from {first} to {last}")
    return first, last


def item_word(first: int, last: int) -> str:
    """An item as TACK and its kin take it."""
    return str(first) if first == last else f"{first}-{last}"


def items(offsets: Iterable[int]) -> list[str]:
    """Offsets as words: neighbours as one range, so that a thousand are few words."""
    return ranges((one, one) for one in offsets)


def ranges(spans: Iterable[tuple[int, int]]) -> list[str]:
    """The same of firsts and lasts; those that overlap or touch are one."""
    words: list[str] = []
    first = last = -1
    for low, high in sorted(spans):
        if first >= 0 and low <= last + 1:
            last = max(last, high)
            continue
        if first >= 0:
            words.append(item_word(first, last))
        first, last = low, high
    if first >= 0:
        words.append(item_word(first, last))
    return words
