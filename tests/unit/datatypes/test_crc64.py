"""The checksum against a plain division, and the relation that its folding stands on."""

from __future__ import annotations

import random

import pytest

from penstock.engine.datatypes import crc64 as module
from penstock.engine.datatypes.crc64 import POLYNOMIAL, crc64

#: The shortest message that is folded, in bytes.
LEAST = -(-module._LEAST_BITS // 8)
CHUNK = module._CHUNK_BYTES


def remainder(message: int) -> int:
    """A polynomial modulo P, bit by bit."""
    divisor = 1 << 64 | POLYNOMIAL
    while (excess := message.bit_length() - 65) >= 0:
        message ^= divisor << excess
    return message


def by_division(data: bytes) -> int:
    """The definition: bits of each byte reversed, sixty-four zeros behind, the remainder reversed."""
    bits = "".join(f"{byte:08b}"[::-1] for byte in data)
    return int(f"{remainder(int(bits or '0', 2) << 64):064b}"[::-1], 2)


def by_table(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc = module._TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc


def test_known_values() -> None:
    assert crc64(b"") == 0
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


def test_the_folding_relation_holds() -> None:
    assert remainder(1 << module._DEGREE) == remainder(sum(1 << term for term in module._TERMS))


def test_table_and_definition_agree() -> None:
    data = random.Random(1).randbytes(300)
    assert by_table(data) == by_division(data) == crc64(data)


@pytest.mark.parametrize(
    "size",
    [1, LEAST - 1, LEAST, LEAST + 1, 2 * LEAST, 3 * LEAST + 5, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17],
)
def test_folding_changes_nothing(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc64(data) == by_table(data)
    assert crc64(bytes(size)) == 0
    assert crc64(b"\xff" * size) == by_table(b"\xff" * size)
