"""Replies to Lua values and back, as far as Python has a part in it.

Both directions use the token language of ``lua/redis.lua``, which is tabulated there:
Python flattens a reply into tokens that Lua builds tables from, and the other way
round. Neither side ever holds the other's tables, hence no references that somebody
would have to give back.

===================  ==========================  =================================
reply                with RESP2                  with RESP3 (``redis.setresp(3)``)
===================  ==========================  =================================
``bytes``            string                      string
``int``              number                      number
``Status``           table ``{ok=…}``            same
``CommandError``     table ``{err=…}``           same
``None``             false                       nil
``list``             array                       array
``dict``, ``Pairs``  flat array                  ``{map={…}}``, array of arrays
``SetReply``         array                       ``{set={member=true}}``
``float``            string                      ``{double=…}``
``bool``             number 1 or 0               boolean
``Verbatim``         string                      ``{verbatim_string={format,string}}``
===================  ==========================  =================================

This module knows neither the interpreter nor commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from penstock.errors import CommandError
from penstock.protocol.replies import NULL_ARRAY, Pairs, Reply, SetReply, Status, Verbatim

(_ARRAY, _STATUS, _ERROR, _MAP, _SET, _DOUBLE, _TRUE, _FALSE, _NIL, _VERBATIM, _BIG_NUMBER,
 _PLAIN_ARRAY) = range(1, 13)  # fmt: skip

_ONLY_BYTES: Final = frozenset({bytes})
_PLAIN_TYPES: Final = frozenset({bytes, int})
_PLAIN_OR_NULL: Final = _PLAIN_TYPES | {type(None)}
_MIN_INTEGER: Final = -(2**63)
_LIMIT: Final = 2.0**63


# ---------------------------------------------------------------- replies to Lua


def plain_array(reply: Reply, resp3: bool) -> list[Any] | None:
    """A reply that is an array of strings, integers and nulls in Lua, as most are; None if it is not."""
    kind = type(reply)
    if kind is dict and not resp3:
        reply = list(chain.from_iterable(reply.items()))
    elif kind is not list and (resp3 or kind is not SetReply):
        return None
    kinds = set(map(type, reply))
    if kinds <= _PLAIN_TYPES:
        values: list[Any] = reply
        return values
    if resp3 or not kinds <= _PLAIN_OR_NULL:
        return None
    return [False if item is None else item for item in reply]


def tokens_of(reply: Reply, resp3: bool) -> list[Any]:
    """A reply of any shape as tokens."""
    tokens: list[Any] = []
    _append(reply, resp3, tokens)
    return tokens


def _append(reply: Reply, resp3: bool, out: list[Any]) -> None:
    kind = type(reply)
    if kind is bytes or kind is int:
        out.append(reply)
    elif reply is None or reply is NULL_ARRAY:
        out.extend((True, _NIL) if resp3 else (False,))
    elif isinstance(reply, list):
        _append_list(reply, resp3, out)
    elif isinstance(reply, dict):
        _append_dict(reply, resp3, out)
    elif isinstance(reply, Status):
        out.extend((True, _STATUS, reply))
    elif isinstance(reply, CommandError):
        out.extend((True, _ERROR, error_bytes(reply)))
    elif isinstance(reply, bool):
        out.extend((True, _TRUE if reply else _FALSE) if resp3 else (int(reply),))
    elif isinstance(reply, float):
        out.extend((True, _DOUBLE, reply) if resp3 else (b"%.17g" % reply,))
    elif isinstance(reply, Verbatim) and resp3:
        out.extend((True, _VERBATIM, b"txt", reply))
    elif isinstance(reply, (bytes, int)):
        out.append(reply)
    else:
        raise TypeError(f"{type(reply).__name__} is not a reply a script can be given")


def _append_list(reply: list[Any], resp3: bool, out: list[Any]) -> None:
    items: list[Any] | tuple[Any, ...] = reply
    code = _ARRAY
    if isinstance(reply, Pairs):
        items = [list(pair) for pair in reply] if resp3 else [item for pair in reply for item in pair]
    elif isinstance(reply, SetReply) and resp3:
        code = _SET
    out.extend((True, code, len(items)))
    for item in items:
        _append(item, resp3, out)


def _append_dict(reply: dict[Any, Any], resp3: bool, out: list[Any]) -> None:
    out.extend((True, _MAP, len(reply)) if resp3 else (True, _ARRAY, 2 * len(reply)))
    for key, value in reply.items():
        _append(key, resp3, out)
        _append(value, resp3, out)


def error_bytes(error: CommandError) -> bytes:
    return str(error).encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------- Lua values to replies


def integer_of(number: float) -> int:
    """A number of Lua as C converts it to a 64-bit integer."""
    if type(number) is int:
        return number
    return int(number) if -_LIMIT <= number < _LIMIT else _MIN_INTEGER


def scalar_reply(value: Any) -> Reply:
    """A string, number or nil that a script returned."""
    return value if value is None or type(value) is bytes else integer_of(value)


def plain_reply(values: list[Any]) -> Reply:
    """An array of strings, numbers and false that a script returned."""
    if _ONLY_BYTES.issuperset(map(type, values)):
        return values
    return [None if value is False else scalar_reply(value) for value in values]


def status_reply(text: bytes) -> Status:
    return Status(_line(text))


def error_text(text: bytes) -> str:
    """The text of an error as one line of a reply: C strings, without line breaks."""
    return _line(text.rstrip(b"\r\n")).decode("utf-8", "surrogateescape")


def _line(text: bytes) -> bytes:
    return text.partition(b"\0")[0].replace(b"\r", b" ").replace(b"\n", b" ")


def reply_of(tokens: Iterator[Any]) -> Reply:
    """The reply that the next tokens describe."""
    token = next(tokens)
    if token is not True:
        return None if token is False else scalar_reply(token)
    code = next(tokens)
    if code == _PLAIN_ARRAY:
        return plain_reply(list(islice(tokens, next(tokens))))
    if code == _ARRAY:
        return [reply_of(tokens) for _ in range(next(tokens))]
    if code == _MAP:
        return _map_reply([(reply_of(tokens), reply_of(tokens)) for _ in range(next(tokens))])
    if code == _SET:
        return SetReply(reply_of(tokens) for _ in range(next(tokens)))
    if code == _STATUS:
        return status_reply(next(tokens))
    if code == _ERROR:
        return CommandError(error_text(next(tokens)))
    if code == _DOUBLE:
        return float(next(tokens))
    if code == _VERBATIM:
        next(tokens)  # its format: there is but one
        return Verbatim(next(tokens))
    if code == _BIG_NUMBER:
        return _line(next(tokens))
    return code == _TRUE


def _map_reply(pairs: list[tuple[Reply, Reply]]) -> Reply:
    try:
        return dict(pairs)
    except TypeError:
        # Lua takes tables for keys, Python has no place for them.
        return [item for pair in pairs for item in pair]
