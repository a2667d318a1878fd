"""The counter: a string that is a number, as INCR and its relatives see it.

The bytes are those of any string; that it counts is known only while it is at hand
(``kept``). Whoever reads the string otherwise gets its digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.datatypes.kept import Kept
from penstock.engine.datatypes.numbers import parse_int
from penstock.engine.storage.layout import STRING, decode_head

if TYPE_CHECKING:
    from penstock.engine.keyspace import Keyspace


class Counter(Kept):
    TYPE = STRING

    __slots__ = ("_head", "number")

    def __init__(self, ks: Keyspace, key: bytes, record: bytes) -> None:
        super().__init__(ks, key, record)
        body = 1 if record[0] == STRING else decode_head(record).body
        self._head = record[:body]
        #: None: the string is no number
        self.number = parse_int(record[body:])

    def _record(self) -> bytes:
        assert self.number is not None
        return self._head + b"%d" % self.number
