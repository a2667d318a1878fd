"""Which of the 16,384 cluster slots a key belongs to.

A slot is CRC-16/XMODEM of the key modulo 16,384. When the key holds a hash tag,
only the tag counts, so that keys which must change together can share a slot:

====================  ================  =========================================
key                   what is hashed    why
====================  ================  =========================================
``user:7``            the whole key     no tag
``{user:7}.cart``     ``user:7``        first ``{`` to the first ``}`` after it
``a{}b{c}``           the whole key     the first tag is empty
``a{{b}}c``           ``{b``            the first ``}`` ends the tag
``a{b``               the whole key     the tag is not closed
====================  ================  =========================================

This module knows nothing of nodes: who serves a slot is the router's business.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache
from typing import Final

SLOT_COUNT: Final = 16384


def hash_tag(key: bytes) -> bytes:
    """The part of the key that decides its slot: its hash tag, or the whole key."""
    start = key.find(b"{") + 1
    if start == 0:
        return key
    end = key.find(b"}", start)
    return key[start:end] if end > start else key


def key_slot(key: bytes) -> int:
    """The slot of a key, 0 to 16,383."""
    return crc_hqx(hash_tag(key), 0) % SLOT_COUNT


def key_for_slot(slot: int) -> bytes:
    """Some key of that slot, to find its server by."""
    if not 0 <= slot < SLOT_COUNT:
        raise ValueError(f"slot must be from 0 to {SLOT_COUNT - 1}, not {slot}")
    return _keys_by_slot()[slot]


@cache
def _keys_by_slot() -> dict[int, bytes]:
    """CRC-16 maps the two-byte keys one to one, so each slot has four of them."""
    return {key_slot(key): key for key in (number.to_bytes(2, "big") for number in range(1 << 16))}
