"""The values a command can answer with, independent of how they travel.

=============  ======================================  ====================
value          RESP2                                   RESP3
=============  ======================================  ====================
``bytes``      bulk string                             bulk string
``Status``     simple string                           simple string
``int``        integer                                 integer
``bool``       integer 1 or 0                          boolean
``float``      bulk string, 17 significant digits      double
``None``       null bulk string                        null
``NULL_ARRAY`` null array                              null
``list``       array                                   array
``dict``       flat array of keys and values           map
``SetReply``   array                                   set
``Pairs``      flat array                              array of 2-element arrays
``Push``       array                                   push
``Verbatim``   bulk string                             verbatim string (txt)
``CommandError``  error                                error
=============  ======================================  ====================

``NO_REPLY`` is not a value: it says that nothing is sent for this command now
(it blocked, or its answer is pushes). This module knows nothing of encoding.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias


class Status(bytes):
    """A simple string such as ``+OK``."""

    __slots__ = ()


class Verbatim(bytes):
    """Text for humans: a verbatim string of format ``txt`` in RESP3."""

    __slots__ = ()


class SetReply(list[Any]):
    """Members of a set, in the order they are sent."""

    __slots__ = ()


class Pairs(list[Any]):
    """Two-element tuples: nested in RESP3, flat in RESP2 (ZRANGE WITHSCORES, HRANDFIELD WITHVALUES)."""

    __slots__ = ()


class Push(list[Any]):
    """An out-of-band message: first item is its kind (``message``, ``subscribe``, …)."""

    __slots__ = ()


class _Sentinel:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


OK: Final = Status(b"OK")
PONG: Final = Status(b"PONG")
QUEUED: Final = Status(b"QUEUED")
NULL_ARRAY: Final = _Sentinel("NULL_ARRAY")
NO_REPLY: Final = _Sentinel("NO_REPLY")

#: Any value of the table above. (A recursive union would say no more to a reader
#: and costs the type checker dearly in every handler.)
Reply: TypeAlias = Any
