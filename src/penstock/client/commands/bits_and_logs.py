"""Commands on bits of strings, and on HyperLogLogs, which are strings too."""

from __future__ import annotations

from typing import Literal, TypeAlias

from penstock.client.commands.arguments import joined, only_with, optional
from penstock.client.commands.base import Coming, Key, Runner, Value
from penstock.client.transports.base import Arguments

#: What ``start`` and ``end`` count.
BitUnit: TypeAlias = Literal["BYTE", "BIT"]
#: DIFF, DIFF1, ANDOR and ONE need Redis 8.2.
BitOperation: TypeAlias = Literal["AND", "OR", "XOR", "NOT", "DIFF", "DIFF1", "ANDOR", "ONE"]


class BitsAndLogs(Runner):
    """Commands on bits of strings, and on HyperLogLogs."""

    __slots__ = ()

    # ------------------------------------------------------------ bits

    def getbit(self, key: Key, offset: int) -> Coming[int]:
        """Read one bit."""
        return self._call(("GETBIT", key, offset))

    def setbit(self, key: Key, offset: int, value: int) -> Coming[int]:
        """Change one bit, answering what it was."""
        return self._call(("SETBIT", key, offset, value))

    def bitcount(
        self, key: Key, start: int | None = None, end: int | None = None, *, unit: BitUnit | None = None
    ) -> Coming[int]:
        """How many bits are one, in the whole string or from ``start`` to ``end``."""
        if (start is None) != (end is None):
            raise ValueError("start and end belong together; give both or none")
        return self._call(("BITCOUNT", key, *_slice(start, end, unit)))

    def bitpos(
        self,
        key: Key,
        bit: int,
        start: int | None = None,
        end: int | None = None,
        *,
        unit: BitUnit | None = None,
    ) -> Coming[int]:
        """Where the first one or zero bit is; -1 if there is none."""
        return self._call(("BITPOS", key, bit, *_slice(start, end, unit)))

    def bitop(self, operation: BitOperation, destkey: Key, key: Key, *keys: Key) -> Coming[int]:
        """Combine strings bit by bit into another key; how long the result is in bytes."""
        return self._call(("BITOP", operation, destkey, key, *keys))

    def bitfield(self, key: Key, *operations: tuple[Value, ...]) -> Coming[list[int | None]]:
        """Packed integers: ("GET", "u8", 0), ("SET", "i5", "#1", 7), ("INCRBY", …), ("OVERFLOW", "SAT")."""
        return self._call(("BITFIELD", key, *joined(operations)))

    def bitfield_ro(self, key: Key, *fields: tuple[Value, Value]) -> Coming[list[int]]:
        """Read packed integers, each given as ("u8", offset); a replica may answer."""
        return self._call(("BITFIELD_RO", key, *joined(("GET", *field) for field in fields)))

    # ------------------------------------------------------------ HyperLogLogs

    def pfadd(self, key: Key, *elements: Value) -> Coming[bool]:
        """Count elements into a HyperLogLog; whether that changed it."""
        return self._call(("PFADD", key, *elements), bool)

    def pfcount(self, key: Key, *keys: Key) -> Coming[int]:
        """Estimate of the distinct elements counted, in all of them together."""
        return self._call(("PFCOUNT", key, *keys))

    def pfmerge(self, destkey: Key, *sourcekeys: Key) -> Coming[bytes]:
        """Unite HyperLogLogs into one."""
        return self._call(("PFMERGE", destkey, *sourcekeys))


def _slice(start: int | None, end: int | None, unit: BitUnit | None) -> Arguments:
    only_with("start", start, end=end)
    only_with("end", end, unit=unit)
    return (*optional(start), *optional(end), *optional(unit))
