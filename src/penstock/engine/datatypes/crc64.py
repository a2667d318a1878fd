"""The checksum at the end of a DUMP payload: CRC-64 of Jones, bits reflected, nothing inverted.

A loop over bytes costs some 60 ns each, too slow for a value of megabytes. So the bulk
of a long message is folded away first, with a few shifts of whole big integers.

A message is a polynomial over two elements; its remainder modulo P does not change when a
power of x is replaced by anything congruent to it. P divides the sparse polynomial of
``_DEGREE`` and ``_TERMS`` below, so that modulo P::

    x^11200  =  x^4093 + x^3878 + … + x^349

and, squaring both sides again and again (in two elements the square of a sum is the sum
of the squares), the same holds with all exponents times 2, 4, 8, … The first bits of a
message, its highest powers, are thereby moved onto later ones: XOR eight shifted copies.
Each step shortens the message by the distance that all eight copies move at least.

The relation was found by a search for four sums of two powers that cancel; a test proves
it again. Knows nothing of what it sums up.
"""

from __future__ import annotations

from typing import Final

#: P without its highest term, as the coefficients stand in Redis's documentation.
POLYNOMIAL: Final = 0xAD93D23594C935A9

_DEGREE: Final = 11200
_TERMS: Final = (349, 580, 1854, 2512, 2551, 3767, 3878, 4093)

# Little-endian integers put the first bit, the highest power, at the lowest place. A term's
# copy therefore moves up, by as much as its exponent is lower than the degree.
_SHIFTS: Final = tuple(_DEGREE - term for term in _TERMS)
#: What one step removes: no copy may fall into it. Whole bytes, for the way back.
_STEP_BITS: Final = min(_SHIFTS) // 8 * 8
#: A shorter message has nowhere to move its first bits.
_LEAST_BITS: Final = _DEGREE + _STEP_BITS
#: Folded at once: eight copies of it stay in the processor's cache.
_CHUNK_BYTES: Final = 64 * 1024


def _build_table() -> tuple[int, ...]:
    reflected = int(f"{POLYNOMIAL:064b}"[::-1], 2)
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (reflected if remainder & 1 else 0)
        table.append(remainder)
    return tuple(table)


_TABLE: Final = _build_table()


def crc64(data: bytes) -> int:
    if len(data) <= _CHUNK_BYTES:
        rest = _folded(data)
    else:
        rest = b""
        for start in range(0, len(data), _CHUNK_BYTES):
            rest = _folded(rest + data[start : start + _CHUNK_BYTES])
    table = _TABLE
    crc = 0
    for byte in rest:
        crc = table[crc & 0xFF ^ byte] ^ crc >> 8
    return crc


def _folded(data: bytes) -> bytes:
    """A message with the same checksum, shorter than ``_LEAST_BITS``."""
    bits = len(data) * 8
    if bits < _LEAST_BITS:
        return data
    message = int.from_bytes(data, "little")
    scale = 1 << (bits // _LEAST_BITS).bit_length() - 1
    while scale:
        step = _STEP_BITS * scale
        mask = (1 << step) - 1
        while bits >= _LEAST_BITS * scale:
            head = message & mask
            copies = 0
            for shift in _SHIFTS:
                copies ^= head << shift * scale - step
            message = message >> step ^ copies
            bits -= step
        scale >>= 1
    return message.to_bytes(bits // 8, "little")
