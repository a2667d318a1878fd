"""RESP replies as values that keep every difference: a status is not a string, a set not a list.

===========  ==============================  ===============================
on the wire  value                           remark
===========  ==============================  ===============================
``$``        ``bytes``
``:``        ``int``
``*``        ``list``
``_``        ``None``
``,``        ``float``                       how many digits it has is nobody's business
other        ``Typed(mark, value)``          ``$-1`` and ``*-1`` differ too
===========  ==============================  ===============================

A map is a list of pairs, since its order may matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Typed(NamedTuple):
    """A reply of a kind that plain Python values would blur."""

    mark: str
    value: Any


def is_error(reply: Any) -> bool:
    return isinstance(reply, Typed) and reply.mark == "-"


NULL_BULK = Typed("$-1", None)
NULL_ARRAY = Typed("*-1", None)


class IncompleteError(Exception):
    """The bytes end before the reply does."""


def parse(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The reply that begins at a position, and the position behind it."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise IncompleteError
    mark, rest = data[at : at + 1], data[at + 1 : end]
    at = end + 2
    match mark:
        case b"$" | b"=":
            length = int(rest)
            if length < 0:
                return NULL_BULK, at
            if len(data) < at + length + 2:
                raise IncompleteError
            text = data[at : at + length]
            return (text if mark == b"$" else Typed("=", text)), at + length + 2
        case b":":
            return int(rest), at
        case b"_":
            return None, at
        case b"*" | b"~" | b">" | b"%":
            return _parse_items(mark.decode(), data, int(rest), at)
        case b",":
            return float(rest), at
        case b"+" | b"-" | b"#" | b"(":
            return Typed(mark.decode(), rest), at
    raise AssertionError(f"not RESP: {data[:60]!r}")


def _parse_items(mark: str, data: bytes, length: int, at: int) -> tuple[Any, int]:
    if length < 0:
        return NULL_ARRAY, at
    items = []
    for _ in range(length * 2 if mark == "%" else length):
        item, at = parse(data, at)
        items.append(item)
    if mark == "%":
        return Typed("%", list(zip(items[::2], items[1::2], strict=True))), at
    return (items if mark == "*" else Typed(mark, items)), at


def parse_whole(data: bytes) -> Any:
    """The one reply that the bytes are."""
    reply, end = parse(data)
    assert end == len(data), f"bytes behind the reply: {data[end : end + 60]!r}"
    return reply
