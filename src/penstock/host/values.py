"""Replies of the engine as the values that a client reads from a socket.

The table in ``protocol.replies`` says what travels for each reply; this is what comes out
at the other end, without the journey:

===================================  ===================  ======================
reply                                RESP2                RESP3
===================================  ===================  ======================
``bytes``, ``Status``, ``Verbatim``  text                 text
``int``                              ``int``              ``int``
``bool``                             ``int``              ``bool``
``float``                            text, 17 digits      ``float``
``None``, ``NULL_ARRAY``             ``None``             ``None``
``list``, ``tuple``, ``SetReply``    ``list``             ``list``
``dict``                             flat ``list``        ``dict``
``Pairs``                            flat ``list``        ``list`` of ``list``
``Push``                             ``list``             ``Push``
``CommandError``                     ``CommandError``     ``CommandError``
===================================  ===================  ======================

Text is ``bytes``, or ``str`` where decoding was asked for. Containers are always new: what
a caller does to them is nobody else's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

from penstock.errors import CommandError
from penstock.protocol.encoder import format_double
from penstock.protocol.replies import NULL_ARRAY, Pairs, Push, Reply, SetReply, Status, Verbatim


class Values:
    """Converts for one protocol and one kind of text."""

    def __init__(self, protocol: int, encoding: str | None) -> None:
        text: Callable[[Any], Any] = bytes if encoding is None else _decoder(encoding)
        is_resp3 = protocol == 3
        plain: set[type] = {int, type(None)}
        if encoding is None:
            plain.add(bytes)
        if is_resp3:
            plain |= {bool, float}
        #: types of replies that are the caller's value already
        self.plain = frozenset(plain)
        self._by_type = _ByType(
            {
                bytes: text,
                Status: text,
                Verbatim: text,
                int: _same,
                bool: _same if is_resp3 else int,
                float: _same if is_resp3 else lambda value: text(format_double(value)),
                type(None): _same,
                type(NULL_ARRAY): _sentinel,
                list: self._array,
                tuple: self._array,
                SetReply: self._array,
                dict: self._dict if is_resp3 else lambda pairs: self._array(_flat(pairs.items())),
                Pairs: self._array if is_resp3 else lambda pairs: self._array(_flat(pairs)),
                Push: (lambda items: Push(self._array(items))) if is_resp3 else self._array,
                CommandError: _error,
            }
        )

    def of(self, reply: Reply) -> Any:
        """The value of a reply; TypeError for what is none, a bug of whoever answered it."""
        return self._by_type[type(reply)](reply)

    def _array(self, items: Iterable[Any]) -> list[Any]:
        plain, by_type = self.plain, self._by_type
        return [item if type(item) in plain else by_type[type(item)](item) for item in items]

    def _dict(self, pairs: dict[Any, Any]) -> dict[Any, Any]:
        return {self.of(key): self.of(value) for key, value in pairs.items()}


@cache
def values_of(protocol: int, encoding: str | None) -> Values:
    """The converter, made once."""
    return Values(protocol, encoding)


class _ByType(dict[type, Callable[[Any], Any]]):
    """Converters by exact type; a subclass met for the first time inherits its base's."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        for base in kind.__mro__[1:]:
            if base in self:
                self[kind] = self[base]
                return self[kind]
        raise TypeError(f"{kind.__name__} is not a reply value")


def _decoder(encoding: str) -> Callable[[bytes], str]:
    return lambda value: value.decode(encoding, "surrogateescape")


def _same(value: Any) -> Any:
    return value


def _sentinel(value: object) -> None:
    if value is not NULL_ARRAY:
        raise TypeError(f"{value!r} has no place inside a reply")


def _flat(pairs: Iterable[Iterable[Any]]) -> Iterable[Any]:
    return chain.from_iterable(pairs)


def _error(error: CommandError) -> CommandError:
    """As it would travel in one line of UTF-8; a new one, since the engine's own knows its stack."""
    text = str(error).replace("\r", " ").replace("\n", " ")
    return CommandError(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
