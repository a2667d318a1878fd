"""HyperLogLog values, byte for byte as Redis keeps them in a string.

=========  ======  =============================================================
bytes      field   meaning
=========  ======  =============================================================
0 … 3      magic   ``HYLL``
4          form    0 dense, 1 sparse
5 … 7              zero
8 … 15     cached  the last count, little endian; its highest bit set: out of date
16 …       body    16384 registers of 0 … 51, see below
=========  ======  =============================================================

Dense: 12288 bytes, six bits a register, lowest bits first. Sparse: runs of equal
registers, one after the other, until all registers are told:

===================  =========================================================
``00nnnnnn``         ZERO: n + 1 registers are 0
``01nnnnnn n×8``     XZERO: n + 1 registers are 0, n of 14 bits
``1vvvvvnn``         VAL: n + 1 registers are v + 1
===================  =========================================================

Rules:

1. An element touches the register named by the low 14 bits of its hash and raises it
   to 1 + the number of zeros that end the other bits (51 if all are zero).
2. A value stays sparse until a register exceeds 32 or the string 3000 bytes; it never
   goes back.
3. Runs of VAL are joined only next to where something changed, as Redis does, so that
   the same additions in the same order give the same bytes.
4. Functions take and return ``bytes``; an unchanged value comes back as the same object.

Counting follows O. Ertl, "New cardinality estimation algorithms for HyperLogLog
sketches", arXiv:1702.01284. Knows nothing of keys or commands.
"""

from __future__ import annotations

import math
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import length_hint
from struct import unpack_from
from typing import Final

from penstock.errors import CommandError

NOT_A_HYPERLOGLOG: Final = "WRONGTYPE Key is not a valid HyperLogLog string value."
CORRUPTED: Final = "INVALIDOBJ Corrupted HLL object detected"

_MAGIC: Final = b"HYLL"
_DENSE, _SPARSE = 0, 1
_HEADER_BYTES: Final = 16
_INDEX_BITS: Final = 14
_REGISTERS: Final = 1 << _INDEX_BITS
_HASH_BITS: Final = 64 - _INDEX_BITS
_DENSE_BYTES: Final = _HEADER_BYTES + _REGISTERS * 6 // 8
#: Redis's default hll-sparse-max-bytes, header included.
_SPARSE_MAX_BYTES: Final = 3000

_ZERO_MAX_RUN: Final = 64
_VAL_MAX_RUN: Final = 4
_VAL_MAX: Final = 32
#: Opcodes looked at, from the one before a change, when joining runs.
_JOIN_WINDOW: Final = 5

_EMPTY: Final = _MAGIC + bytes((_SPARSE, 0, 0, 0)) + bytes(7) + b"\x80" + b"\x7f\xff"


# --- The functions commands call ----------------------------------------------------------------


def create() -> bytes:
    """The value of a new key: sparse, empty, not counted yet."""
    return _EMPTY


def is_valid(value: bytes) -> bool:
    """Whether a string may be treated as a HyperLogLog; its sparse body is checked when read."""
    if len(value) < _HEADER_BYTES or value[:4] != _MAGIC:
        return False
    return len(value) == _DENSE_BYTES if value[4] == _DENSE else value[4] == _SPARSE


def check(values: Iterable[bytes]) -> None:
    """Refuse values whose body cannot be read."""
    for value in values:
        _registers(value)


def add(value: bytes, elements: Iterable[bytes]) -> tuple[bytes, bool]:
    """The value with these elements in it, and whether any register changed."""
    body = _open(value)
    changed = False
    for element in elements:
        index, rank = _index_and_rank(element)
        if body.raise_to(index, rank):
            changed = True
        elif isinstance(body, _Sparse) and body.is_outgrown:
            body = _Dense.of(body.header, _read_sparse(body.code))
            changed = body.raise_to(index, rank)
    return (body.to_bytes(), True) if changed else (value, False)


def count(values: Sequence[bytes], *, may_use_cache: bool = True) -> int:
    """How many different elements all values together have seen, about."""
    if may_use_cache and len(values) == 1 and (cached := cached_count(values[0])) is not None:
        return cached
    return _estimate(reduce(_maximum, map(_registers, values), bytes(_REGISTERS)))


def cached_count(value: bytes) -> int | None:
    """The count kept in the value, or None if something was added since."""
    return None if value[15] & 0x80 else int.from_bytes(value[8:16], "little")


def with_cached_count(value: bytes, number: int) -> bytes:
    """The value that remembers its count. PFCOUNT of one key stores it."""
    return value[:8] + number.to_bytes(8, "little") + value[_HEADER_BYTES:]


def merge(values: Sequence[bytes]) -> bytes:
    """The union of all values, written into the first (``create()`` where the target is missing).

    It is dense if any of them is, or if it outgrows the sparse form.
    """
    target = _open(values[0])
    registers = reduce(_maximum, map(_registers, values))
    if isinstance(target, _Sparse) and all(value[4] == _SPARSE for value in values):
        present = _registers(values[0])
        for index in range(_REGISTERS):
            if registers[index] > present[index] and not target.raise_to(index, registers[index]):
                break  # outgrown
        else:
            return target.to_bytes()
    return _Dense.of(target.header, registers).to_bytes()


# --- Hashing and estimating ---------------------------------------------------------------------

_MASK: Final = (1 << 64) - 1
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SEED: Final = 0xADC83B19
_ALPHA: Final = 0.721347520444481703680  # 1 / (2 ln 2)


def _murmur_hash(data: bytes) -> int:
    """MurmurHash64A with Redis's seed, reading little endian."""
    size = len(data)
    words = size >> 3
    mixed = _SEED ^ (size * _MULTIPLIER & _MASK)
    if words:
        for word in unpack_from(f"<{words}Q", data):
            word = word * _MULTIPLIER & _MASK
            word = (word ^ word >> 47) * _MULTIPLIER & _MASK
            mixed = (mixed ^ word) * _MULTIPLIER & _MASK
    if size & 7:
        mixed = (mixed ^ int.from_bytes(data[words << 3 :], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 47) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 47


def _index_and_rank(element: bytes) -> tuple[int, int]:
    hashed = _murmur_hash(element)
    rest = hashed >> _INDEX_BITS | 1 << _HASH_BITS
    return hashed & _REGISTERS - 1, (rest & -rest).bit_length()


def _estimate(registers: bytes) -> int:
    size = float(_REGISTERS)
    often = [registers.count(rank) for rank in range(_HASH_BITS + 2)]
    total = size * _tau((size - often[_HASH_BITS + 1]) / size)
    for rank in range(_HASH_BITS, 0, -1):
        total = (total + often[rank]) * 0.5
    total += size * _sigma(often[0] / size)
    estimate = _ALPHA * size * size / total
    whole = math.floor(estimate)
    return whole + (estimate - whole >= 0.5)


def _sigma(x: float) -> float:
    """Sum of x**(2**k) * 2**(k-1) beyond x itself: the share of registers never touched."""
    if x == 1.0:
        return math.inf
    weight, total, previous = 1.0, x, -1.0
    while total != previous:
        x *= x
        previous = total
        total += x * weight
        weight += weight
    return total


def _tau(x: float) -> float:
    """The counterpart of ``_sigma`` for registers that are full."""
    if x in (0.0, 1.0):
        return 0.0
    weight, total, previous = 1.0, 1.0 - x, -1.0
    while total != previous:
        x = math.sqrt(x)
        previous = total
        weight *= 0.5
        total -= (1.0 - x) ** 2 * weight
    return total / 3


# --- Registers as one byte each -----------------------------------------------------------------

# Base64 is a machine for six-bit groups, written in C. It puts the highest bits first, we
# the lowest: so everything goes in and comes out backwards.
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FROM_BASE64: Final = bytes(max(_BASE64.find(letter), 0) for letter in range(256))
_TO_BASE64: Final = _BASE64.ljust(256, b"A")

_OPCODE: Final = re.compile(rb"[\x00-\x3f\x80-\xff]|[\x40-\x7f].", re.DOTALL)
_HIGH_BITS: Final = int.from_bytes(b"\x80" * _REGISTERS, "little")


def _span(opcode: int) -> int:
    return (opcode & 3) + 1 if opcode & 0x80 else opcode + 1


def _rank(opcode: int) -> int:
    return (opcode >> 2 & 31) + 1 if opcode & 0x80 else 0


#: Registers told by each opcode of one byte; 0 stands for XZERO, which has two.
_SPANS: Final = bytes(0 if opcode & 0xC0 == 0x40 else _span(opcode) for opcode in range(256))
_RUNS: Final = {bytes((op,)): bytes((_rank(op),)) * _SPANS[op] for op in range(256) if _SPANS[op]}


def _registers(value: bytes) -> bytes:
    if value[4] == _DENSE:
        return b2a_base64(value[: _HEADER_BYTES - 1 : -1], newline=False)[::-1].translate(_FROM_BASE64)
    return _read_sparse(value[_HEADER_BYTES:])


def _read_sparse(code: bytes | bytearray) -> bytes:
    runs: list[bytes] = []
    opcodes = _OPCODE.findall(code)
    for opcode in opcodes:
        run = _RUNS.get(opcode)
        runs.append(bytes(((opcode[0] & 0x3F) << 8 | opcode[1]) + 1) if run is None else run)
    registers = b"".join(runs)
    # The first half of an XZERO at the end is no opcode.
    if len(registers) != _REGISTERS or sum(map(len, opcodes)) != len(code):
        raise CommandError(CORRUPTED)
    return registers


def _maximum(one: bytes, other: bytes) -> bytes:
    """The larger of each two registers, all at once.

    With the high bit of every byte lent to it, a byte-wise subtraction never borrows
    from its neighbour, and the high bit that is left tells which was larger.
    """
    x, y = int.from_bytes(one, "little"), int.from_bytes(other, "little")
    at_least = ((x | _HIGH_BITS) - y) & _HIGH_BITS
    chosen = at_least - (at_least >> 7)
    return (y ^ (x ^ y) & chosen).to_bytes(_REGISTERS, "little")


# --- The two forms, opened for writing ----------------------------------------------------------


def _open(value: bytes) -> _Dense | _Sparse:
    header = value[:_HEADER_BYTES]
    if value[4] == _DENSE:
        return _Dense(header, bytearray(value[_HEADER_BYTES:]))
    return _Sparse(header, bytearray(value[_HEADER_BYTES:]))


def _changed_header(header: bytes, form: int) -> bytes:
    """The header after a change: of this form, its cached count out of date."""
    return header[:4] + bytes((form,)) + header[5:15] + bytes((header[15] | 0x80,))


class _Dense:
    """Six bits a register, in place."""

    def __init__(self, header: bytes, code: bytearray) -> None:
        self.header = header
        self._code = code

    @classmethod
    def of(cls, header: bytes, registers: bytes) -> _Dense:
        return cls(header, bytearray(a2b_base64(registers.translate(_TO_BASE64)[::-1]))[::-1])

    def raise_to(self, index: int, rank: int) -> bool:
        at, shift = index * 6 >> 3, index * 6 & 7
        code = self._code
        # Two bytes hold any register; the last one ends with the body, and lies in one byte.
        pair = code[at] | (code[at + 1] << 8 if at + 1 < len(code) else 0)
        if pair >> shift & 63 >= rank:
            return False
        pair = pair & ~(63 << shift) | rank << shift
        code[at] = pair & 0xFF
        if at + 1 < len(code):
            code[at + 1] = pair >> 8
        return True

    def to_bytes(self) -> bytes:
        return _changed_header(self.header, _DENSE) + bytes(self._code)


class _Sparse:
    """Opcodes, edited in place.

    ``raise_to`` walks from the start, or from the opcode it remembers: the one two
    before its last change, which joining cannot have moved (see ``merge``, which goes
    through the registers in order).
    """

    def __init__(self, header: bytes, code: bytearray) -> None:
        self.header = header
        self.code = code
        self.is_outgrown = False
        self._hint = (0, 0)  # an opcode's place and its first register

    def to_bytes(self) -> bytes:
        return _changed_header(self.header, _SPARSE) + bytes(self.code)

    def raise_to(self, index: int, rank: int) -> bool:
        """Raise a register; false if nothing was done, as it is so high or ``is_outgrown``."""
        code = self.code
        if rank > _VAL_MAX:
            self.is_outgrown = True
            return False
        before, at, first, span = self._find(index)
        old = _rank(code[at])
        if old >= rank:
            return False
        width = _width(code[at])
        after = first + span - 1 - index
        replacement = _run(old, index - first) + _run(rank, 1) + _run(old, after)
        growth = len(replacement) - width
        if growth > 0 and _HEADER_BYTES + len(code) + growth > _SPARSE_MAX_BYTES:
            self.is_outgrown = True
            return False
        code[at : at + width] = replacement
        self._join_runs(before)
        return True

    def _find(self, index: int) -> tuple[int, int, int, int]:
        """The opcode of a register: place of the one before it (or its own), place, first register, span."""
        code, spans = self.code, _SPANS
        start, first = self._hint
        if first + self._span_at(start) > index:
            start = first = 0  # the remembered opcode lies behind, or its predecessor is needed
        walk = iter(code[start:])
        end, span, older, old, opcode = first, 0, -1, -1, -1
        # The one hot loop: it keeps the last opcodes only, their places are found afterwards.
        for opcode in walk:
            span = spans[opcode] or ((opcode & 0x3F) << 8 | next(walk, -1)) + 1
            end += span
            if end > index:
                break
            older, old = old, opcode
        else:
            raise CommandError(CORRUPTED)
        at = before = len(code) - length_hint(walk) - _width(opcode)
        first = end - span
        if old >= 0:
            before = at - _width(old)
        if older >= 0:
            hint = before - _width(older)
            self._hint = hint, first - self._span_at(before) - self._span_at(hint)
        elif start == 0:
            self._hint = 0, 0
        return before, at, first, span

    def _span_at(self, at: int) -> int:
        code = self.code
        if len(code) < at + 2:
            raise CommandError(CORRUPTED)
        return _SPANS[code[at]] or ((code[at] & 0x3F) << 8 | code[at + 1]) + 1

    def _join_runs(self, at: int) -> None:
        """Join neighbouring VAL opcodes of one value, near a change (rule 3)."""
        code = self.code
        for _ in range(_JOIN_WINDOW):
            if at >= len(code):
                return
            opcode = code[at]
            if not opcode & 0x80:
                at += _width(opcode)
                continue
            following = code[at + 1] if at + 1 < len(code) else 0
            run = (opcode & 3) + (following & 3) + 2
            if following & 0xFC == opcode & 0xFC and run <= _VAL_MAX_RUN:
                # Not past it yet: what was joined may be joined with the next one too.
                code[at : at + 2] = bytes((opcode & 0xFC | run - 1,))
            else:
                at += 1


def _width(opcode: int) -> int:
    """Bytes of an opcode that begins with this one."""
    return 1 if _SPANS[opcode] else 2


def _run(rank: int, length: int) -> bytes:
    """The opcode for this many registers of one rank; nothing for none."""
    if length == 0:
        return b""
    if rank:
        return bytes((0x80 | rank - 1 << 2 | length - 1,))
    if length > _ZERO_MAX_RUN:
        return bytes((0x40 | length - 1 >> 8, length - 1 & 0xFF))
    return bytes((length - 1,))
