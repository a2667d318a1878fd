"""Side keys: in the slot of their stream, and nobody else's."""

from __future__ import annotations

from itertools import combinations

import pytest

from penstock.protocol.slots import key_slot
from penstock.streams.keys import SIDE_KEYS, stream_keys

KEYS = [
    b"orders", b"{orders}", b"{shop}orders", b"{shop}orders:", b"shop}orders", b"a{}b", b"{}", b"{", b"}",
    b"", b"a{b", b"{a}{b}", b"{shop}orders:meta", b"{shop}orders!", b"\xff\x00",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_all_keys_of_a_stream_share_its_slot(key: bytes) -> None:
    keys = stream_keys(key)
    assert keys[0] == key
    assert len(set(keys)) == 1 + len(SIDE_KEYS)
    assert {key_slot(each) for each in keys} == {key_slot(key)}


def test_two_streams_share_no_side_key() -> None:
    for one, other in combinations(KEYS, 2):
        assert not set(stream_keys(one)[1:]) & set(stream_keys(other)[1:]), (one, other)


def test_names_are_told_by_the_stream() -> None:
    assert stream_keys(b"orders")[1] == b"{orders}:meta"
    assert stream_keys(b"{shop}orders")[1] == b"{shop}orders::meta"
    assert stream_keys(b"a}b")[1].endswith(b"}a}b!:meta")
