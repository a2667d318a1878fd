"""Every byte that reaches the disk, tabulated beside its encoder. Pure functions, no I/O.

Tables (LMDB named databases; ``N`` is the SELECT database, 0–15)
-----------------------------------------------------------------

==============  =======================================  ==============================
table           key                                      value
==============  =======================================  ==============================
``keys:N``      physical key                             record (below)
``data:N``      version(8) space(1) rest                 element of a collection
``expiry:N``    deadline_ms(8) physical key              empty
``garbage``     db(1) version(8)                         empty: elements to be removed
``watched``     db(1) physical key                       revision(8) stamp_ms(8)
``scripts``     sha1, 40 hex digits                      source
``channels``    kind(1) fit(channel) mailbox(28)         channel
``subscribed``  mailbox(28) kind(1) fit(channel)         channel
``messages``    mailbox(28) sequence(8)                  RESP3 bytes of one item
``waiters``     db(1) physical key ticket(8)             mailbox(28)
``waiting``     mailbox(28)                              packed waiter
``tended``      db(1) physical key                       version(8): a stream to look after
``due``         due_ms(8) db(1) group(4) physical key    group: see ``datatypes.stream.timers``
``system``      name                                     see ``upgrade`` and ``transaction``
==============  =======================================  ==============================

A mailbox is endpoint id(20) session number(8). All integers are big-endian, so that
byte order is number order.

Physical key
------------
``xxh3_64(key) (8) + fit(key)``. The hash gives SCAN a stateless 64-bit cursor with
Redis's guarantees and RANDOMKEY a fair pick. LMDB keys end at 511 bytes, so ``fit``
keeps names shorter than 450 bytes as they are and turns longer ones into their first
418 bytes and a 32-byte digest: exactly 450 bytes, which no short name has. Whoever
stores a long name keeps the whole of it in the value.

Record of a key
---------------
======================  =====  =================================================
field                   bytes  present
======================  =====  =================================================
tag                     1      always: bits 0–3 type, bit 7 expires, bit 6 long
deadline_ms             8      when the expires bit is set
name length, name       4+n    when the long bit is set
body                    rest   string: the value; collection: version(8) size(8)
                               and what its type adds
======================  =====  =================================================
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from xxhash import xxh3_64_digest

FORMAT_VERSION: Final = 1
DATABASES: Final = 16

STRING: Final = 1
LIST: Final = 2
SET: Final = 3
ZSET: Final = 4
HASH: Final = 5
STREAM: Final = 6

TYPE_NAMES: Final = {STRING: b"string", LIST: b"list", SET: b"set", ZSET: b"zset", HASH: b"hash",
                     STREAM: b"stream"}  # fmt: skip

#: The last byte of a stream's record has this bit if the stream is in ``tended``.
TENDED: Final = 0x01
#: Where in a stream's record the number of its groups stands, as four bytes.
GROUPS_AT: Final = slice(-5, -1)

EXPIRES: Final = 0x80
LONG: Final = 0x40
TYPE_MASK: Final = 0x0F
#: Bits of a tag that mean nothing yet.
UNUSED: Final = 0x30
#: The tag of a string that expires and whose name is not long: the usual one in a cache.
EXPIRING_STRING: Final = STRING | EXPIRES

FIT_BYTES: Final = 450
_FIT_HEAD_BYTES: Final = FIT_BYTES - 32
#: A physical key of this length stands for a long name.
LONG_PHYSICAL_BYTES: Final = 8 + FIT_BYTES

U64: Final = struct.Struct(">Q")
U32: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct(">d")
_SIGN: Final = 1 << 63
#: for bytes.translate: every bit turned around
_INVERTED: Final = bytes(range(255, -1, -1))
_ZERO_SCORE: Final = b"\x80" + bytes(7)

#: tag and deadline
EXPIRING_HEAD: Final = struct.Struct(">BQ")

hash64 = xxh3_64_digest


class Head(NamedTuple):
    """The decoded front of a record; the body starts at ``body`` bytes into it."""

    type: int
    deadline_ms: int | None
    long_name: bytes | None
    body: int


def fit(name: bytes) -> bytes:
    """A name as it may stand in an LMDB key: itself, or 450 bytes that stand for it."""
    if len(name) < FIT_BYTES:
        return name
    return name[:_FIT_HEAD_BYTES] + blake2b(name, digest_size=32).digest()


def physical(key: bytes) -> bytes:
    """The LMDB key of a user's key, field or member."""
    if len(key) < FIT_BYTES:
        return xxh3_64_digest(key) + key
    return xxh3_64_digest(key) + fit(key)


def decode_head(record: bytes) -> Head:
    tag = record[0]
    offset = 1
    deadline: int | None = None
    name: bytes | None = None
    if tag & EXPIRES:
        deadline = int.from_bytes(record[1:9], "big")
        offset = 9
    if tag & LONG:
        length = int.from_bytes(record[offset : offset + 4], "big")
        offset += 4
        name = record[offset : offset + length]
        offset += length
    return Head(tag & TYPE_MASK, deadline, name, offset)


def encode_head(type_: int, deadline_ms: int | None, key: bytes) -> bytes:
    tag = type_
    name = b""
    if len(key) >= FIT_BYTES:
        tag |= LONG
        name = U32.pack(len(key)) + key
    if deadline_ms is None:
        return bytes((tag,)) + name
    return EXPIRING_HEAD.pack(tag | EXPIRES, deadline_ms) + name


def deadline_in(record: bytes) -> int | None:
    """When a record expires; None: never."""
    return int.from_bytes(record[1:9], "big") if record[0] & EXPIRES else None


def with_deadline(record: bytes, deadline: bytes) -> bytes:
    """The record with another deadline, as eight bytes; none if empty."""
    tag = record[0] | EXPIRES if deadline else record[0] & ~EXPIRES
    return bytes((tag,)) + deadline + (record[9:] if record[0] & EXPIRES else record[1:])


def string_in(record: bytes) -> bytes:
    """The value in a string's record."""
    tag = record[0]
    if tag == STRING:
        return record[1:]
    return record[9:] if tag == EXPIRING_STRING else record[decode_head(record).body :]


def name_of(physical_key: bytes, record: bytes) -> bytes:
    """The user's key behind a row of ``keys:N``."""
    if len(physical_key) == LONG_PHYSICAL_BYTES:
        name = decode_head(record).long_name
        assert name is not None
        return name
    return physical_key[8:]


def wrap_long(name: bytes, value: bytes) -> bytes:
    """The value of an element whose name is long: the whole name travels with it."""
    return U32.pack(len(name)) + name + value


def unwrap_long(stored: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(stored[:4], "big")
    return stored[4 : 4 + length], stored[4 + length :]


def encode_score(score: float) -> bytes:
    """Eight bytes that sort as the numbers do; -0.0 and 0.0 are one position.

    The bits of a positive double sort once its sign bit is flipped, which is the double of
    the other sign; those of a negative one once all are inverted.
    """
    if score > 0:
        return _DOUBLE.pack(-score)
    return _DOUBLE.pack(score).translate(_INVERTED) if score < 0 else _ZERO_SCORE


def decode_score(data: bytes) -> float:
    if data[0] & 0x80:
        return float(0.0 - _DOUBLE.unpack(data)[0])
    return float(_DOUBLE.unpack(data.translate(_INVERTED))[0])


def encode_index(index: int) -> bytes:
    """A signed list position as eight bytes that sort as the numbers do."""
    return (index + _SIGN).to_bytes(8, "big")


def decode_index(data: bytes) -> int:
    return int.from_bytes(data, "big") - _SIGN
