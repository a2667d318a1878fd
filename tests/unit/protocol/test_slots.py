"""Key slots, against known values and another implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot as reference_slot

from penstock.protocol.slots import SLOT_COUNT, hash_tag, key_for_slot, key_slot


@pytest.mark.parametrize(
    ("key", "slot"),
    [(b"123456789", 0x31C3 % 16384), (b"foo", 12182), (b"bar", 5061), (b"", 0), (b"{foo}.x", 12182)],
)
def test_known_slots(key: bytes, slot: int) -> None:
    assert key_slot(key) == slot


@pytest.mark.parametrize(
    ("key", "tag"),
    [
        (b"user:7", b"user:7"),
        (b"{user:7}.cart", b"user:7"),
        (b"a{b}c{d}e", b"b"),
        (b"a{}b{c}", b"a{}b{c}"),
        (b"a{{b}}c", b"{b"),
        (b"a{b", b"a{b"),
        (b"a}b{c", b"a}b{c"),
        (b"}{a}", b"a"),
        (b"", b""),
    ],
)
def test_hash_tag(key: bytes, tag: bytes) -> None:
    assert hash_tag(key) == tag


@given(st.one_of(st.binary(), st.lists(st.sampled_from([b"{", b"}", b"a", b"\xff"])).map(b"".join)))
def test_slots_agree_with_another_implementation(key: bytes) -> None:
    assert key_slot(key) == reference_slot(key)
    assert 0 <= key_slot(key) < SLOT_COUNT


def test_every_slot_has_a_key() -> None:
    assert all(key_slot(key_for_slot(slot)) == slot for slot in range(SLOT_COUNT))
    with pytest.raises(ValueError, match="slot must be from 0 to 16383, not 16384"):
        key_for_slot(SLOT_COUNT)
