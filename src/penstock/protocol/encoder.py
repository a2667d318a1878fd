"""Reply values to RESP2 or RESP3 bytes. ``replies`` has the table of what becomes what.

How it is built, since every answer of the server passes here:

- The replies that dominate (bulk strings, small integers, ``OK``, null) are recognised
  first and cost one or two checks.
- Everything else goes through one table a protocol, keyed by type. An entry returns the
  finished bytes, or a header and the items that follow it; ``_encode_tree`` walks those
  with its own stack, so that no depth of nesting exhausts Python's.
- An array of nothing but bulk strings is packed by hiredis in one call.

A type that is not in the table is a bug of the caller: ``TypeError``, nothing is sent.
This module knows nothing of commands, connections or what the values mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Any, Final, TypeAlias, cast

from hiredis import pack_command

from penstock.errors import CommandError
from penstock.protocol.replies import (
    NO_REPLY,
    NULL_ARRAY,
    OK,
    Pairs,
    Push,
    Reply,
    SetReply,
    Status,
    Verbatim,
)

#: Finished bytes, or a header and the items that follow it.
_Encoded: TypeAlias = bytes | tuple[bytes, Iterable[Any]]

#: ``:0`` to ``:1024`` ready made: counts, flags and lengths are nearly all of them.
_SMALL_INTS: Final = tuple(b":%d\r\n" % number for number in range(1025))
_SMALL_INT_LIMIT: Final = len(_SMALL_INTS)

_OK_LINE: Final = b"+OK\r\n"
_NULL_BULK: Final = b"$-1\r\n"
_NULL: Final = b"_\r\n"
_ONLY_BYTES: Final = {bytes}


class _ByType(dict[type, Callable[[Any], _Encoded]]):
    """Encoders by exact type; a subclass met for the first time inherits its base's."""

    def __missing__(self, kind: type) -> Callable[[Any], _Encoded]:
        for base in kind.__mro__[1:]:
            if base in self:
                self[kind] = self[base]
                return self[kind]
        raise TypeError(f"{kind.__name__} is not a reply value")


# ---------------------------------------------------------------- both protocols


def format_double(value: float) -> bytes:
    """A double as Redis 7.0 prints it: 17 significant digits, ``inf``, ``-inf``, ``nan``."""
    return b"%.17g" % value


def _integer(value: int) -> bytes:
    return b":%d\r\n" % value


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def _status(value: Status) -> bytes:
    return b"+%b\r\n" % value


def _error(value: CommandError) -> bytes:
    # Texts can quote what the client sent: a line break in it would forge a second reply,
    # and bytes that are not UTF-8 travel through the text as lone surrogates.
    text = str(value).encode("utf-8", "surrogateescape")
    return b"-%b\r\n" % text.replace(b"\r", b" ").replace(b"\n", b" ")


def _array(items: Collection[Any]) -> _Encoded:
    if set(map(type, items)) == _ONLY_BYTES:
        return cast(bytes, pack_command(tuple(items)))
    return b"*%d\r\n" % len(items), items


# ---------------------------------------------------------------- RESP2


def _boolean2(value: bool) -> bytes:
    return b":1\r\n" if value else b":0\r\n"


def _double2(value: float) -> bytes:
    return _bulk(format_double(value))


def _null2(_: None) -> bytes:
    return _NULL_BULK


def _sentinel2(value: object) -> bytes:
    if value is NULL_ARRAY:
        return b"*-1\r\n"
    raise TypeError(f"{value!r} has no place inside a reply")


def _map2(pairs: dict[Any, Any]) -> _Encoded:
    return _array(tuple(chain.from_iterable(pairs.items())))


def _pairs2(pairs: Pairs) -> _Encoded:
    return _array(tuple(chain.from_iterable(pairs)))


# ---------------------------------------------------------------- RESP3


def _boolean3(value: bool) -> bytes:
    return b"#t\r\n" if value else b"#f\r\n"


def _double3(value: float) -> bytes:
    return b",%b\r\n" % format_double(value)


def _null3(_: None) -> bytes:
    return _NULL


def _sentinel3(value: object) -> bytes:
    if value is NULL_ARRAY:
        return _NULL
    raise TypeError(f"{value!r} has no place inside a reply")


def _map3(pairs: dict[Any, Any]) -> _Encoded:
    return _reheaded(b"%%%d\r\n" % len(pairs), tuple(chain.from_iterable(pairs.items())))


def _set3(members: SetReply) -> _Encoded:
    return _reheaded(b"~%d\r\n" % len(members), members)


def _push3(items: Push) -> _Encoded:
    return _reheaded(b">%d\r\n" % len(items), items)


def _pairs3(pairs: Pairs) -> _Encoded:
    return b"*%d\r\n" % len(pairs), pairs


def _verbatim3(text: Verbatim) -> bytes:
    return b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text)


def _reheaded(header: bytes, items: Collection[Any]) -> _Encoded:
    """The array of ``items`` under another header."""
    encoded = _array(items)
    if isinstance(encoded, bytes):
        return header + encoded[encoded.index(b"\n") + 1 :]
    return header, items


# ---------------------------------------------------------------- the tables

_RESP2: Final = _ByType(
    {
        bytes: _bulk,
        Status: _status,
        Verbatim: _bulk,
        int: _integer,
        bool: _boolean2,
        float: _double2,
        type(None): _null2,
        type(NULL_ARRAY): _sentinel2,
        list: _array,
        tuple: _array,
        dict: _map2,
        SetReply: _array,
        Pairs: _pairs2,
        Push: _array,
        CommandError: _error,
    }
)

_RESP3: Final = _ByType(
    {
        bytes: _bulk,
        Status: _status,
        Verbatim: _verbatim3,
        int: _integer,
        bool: _boolean3,
        float: _double3,
        type(None): _null3,
        type(NULL_ARRAY): _sentinel3,
        list: _array,
        tuple: _array,
        dict: _map3,
        SetReply: _set3,
        Pairs: _pairs3,
        Push: _push3,
        CommandError: _error,
    }
)


def _encode_tree(reply: Reply, table: _ByType) -> bytes:
    encoded = table[type(reply)](reply)
    if isinstance(encoded, bytes):
        return encoded
    header, items = encoded
    parts = [header]
    append = parts.append
    stack = [iter(items)]
    while stack:
        for item in stack[-1]:
            if type(item) is bytes:
                append(b"$%d\r\n%b\r\n" % (len(item), item))
                continue
            encoded = table[type(item)](item)
            if isinstance(encoded, bytes):
                append(encoded)
                continue
            header, items = encoded
            append(header)
            stack.append(iter(items))
            break
        else:
            stack.pop()
    return b"".join(parts)


# ---------------------------------------------------------------- the two doors


def encode2(reply: Reply) -> bytes:
    """The bytes of a reply in RESP2; none for ``NO_REPLY``."""
    kind = type(reply)
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if kind is int:
        return _SMALL_INTS[reply] if 0 <= reply < _SMALL_INT_LIMIT else b":%d\r\n" % reply
    if reply is OK:
        return _OK_LINE
    if reply is None:
        return _NULL_BULK
    if reply is NO_REPLY:
        return b""
    return _encode_tree(reply, _RESP2)


def encode3(reply: Reply) -> bytes:
    """The bytes of a reply in RESP3; none for ``NO_REPLY``."""
    kind = type(reply)
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if kind is int:
        return _SMALL_INTS[reply] if 0 <= reply < _SMALL_INT_LIMIT else b":%d\r\n" % reply
    if reply is OK:
        return _OK_LINE
    if reply is None:
        return _NULL
    if reply is NO_REPLY:
        return b""
    return _encode_tree(reply, _RESP3)


#: The encoder of each protocol version that HELLO can choose.
ENCODERS: Final[dict[int, Callable[[Reply], bytes]]] = {2: encode2, 3: encode3}
