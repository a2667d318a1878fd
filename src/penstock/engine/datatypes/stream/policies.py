"""How long a stream keeps what: retention and compaction, as its owner wants them.

Row ``version(8) o``: the numbers of ``Policy`` in their order, eight bytes each. Node sizes are in the
head of the stream, since every append looks at them.

A stream that has a policy, or producers, is *tended*: bit 0 of its flags, and a row in the
table ``tended`` (``db(1) physical key`` → version), by which the engine finds it.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from struct import Struct
from typing import Final

from penstock.engine.datatypes.stream.log import Stream
from penstock.engine.storage.layout import TENDED, physical

_SPACE: Final = b"o"


@dataclass(frozen=True, slots=True)
class Policy:
    """What TPOLICY sets, besides node sizes. Zero means no limit."""

    retain_ms: int = 0
    retain_count: int = 0
    retain_bytes: int = 0
    retain_acked: int = 0
    compact: int = 0
    dirty_ratio: int = 50
    min_lag_ms: int = 0
    max_lag_ms: int = 0
    tombstone_ms: int = 86_400_000


_PACKED: Final = Struct(f">{len(fields(Policy))}Q")


def load_policy(stream: Stream) -> Policy:
    return find_policy(stream) or Policy()


def find_policy(stream: Stream) -> Policy | None:
    """None if nobody has set one."""
    value = stream.unit.get(stream.row(_SPACE), None, stream.table)
    return None if value is None else Policy(*_PACKED.unpack(value))


def forget_policy(stream: Stream) -> None:
    stream.unit.delete(stream.row(_SPACE), db=stream.table)


def store_policy(stream: Stream, policy: Policy) -> None:
    stream.unit.put(stream.row(_SPACE), _PACKED.pack(*astuple(policy)), db=stream.table)
    tend(stream)


def tend(stream: Stream) -> None:
    """Have the engine look after a stream from now on; the caller saves it."""
    if not stream.flags & TENDED:
        stream.flags |= TENDED
        row = bytes((stream.database,)) + physical(stream.key)
        stream.unit.put(row, stream.row(b""), db=stream.unit.tables["tended"])
