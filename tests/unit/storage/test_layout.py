"""Byte layout: what sorts must sort, what is long must come back whole."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.storage import layout

_SCORES = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 5e-324, -5e-324])


@given(_SCORES, _SCORES)
def test_encoded_scores_sort_as_the_numbers_do(one: float, other: float) -> None:
    a, b = layout.encode_score(one), layout.encode_score(other)
    assert (a < b) == (one < other)
    assert (a == b) == (one == other)


@given(_SCORES)
def test_scores_come_back(score: float) -> None:
    back = layout.decode_score(layout.encode_score(score))
    assert back == score
    assert not (back == 0 and math.copysign(1, back) < 0)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_encoded_indexes_sort_and_come_back(one: int, other: int) -> None:
    assert (layout.encode_index(one) < layout.encode_index(other)) == (one < other)
    assert layout.decode_index(layout.encode_index(one)) == one


@given(st.binary(max_size=1200))
def test_names_fit_into_lmdb_keys_and_only_long_ones_have_the_long_length(name: bytes) -> None:
    fitted = layout.fit(name)
    assert len(fitted) <= layout.FIT_BYTES
    assert (len(fitted) == layout.FIT_BYTES) == (len(name) >= layout.FIT_BYTES)
    if len(name) < layout.FIT_BYTES:
        assert fitted == name


@given(
    st.sampled_from([layout.STRING, layout.HASH]),
    st.none() | st.integers(0, 2**63),
    st.binary(max_size=1000),
)
def test_heads_come_back(type_: int, deadline_ms: int | None, key: bytes) -> None:
    record = layout.encode_head(type_, deadline_ms, key) + b"body"
    head = layout.decode_head(record)
    assert (head.type, head.deadline_ms) == (type_, deadline_ms)
    assert record[head.body :] == b"body"
    assert layout.name_of(layout.physical(key), record) == key


@given(
    st.sampled_from([layout.STRING, layout.HASH]),
    st.none() | st.integers(0, 2**63),
    st.none() | st.integers(0, 2**63),
    st.binary(max_size=1000),
)
def test_a_record_with_another_deadline_is_the_same_otherwise(
    type_: int, before_ms: int | None, after_ms: int | None, key: bytes
) -> None:
    record = layout.encode_head(type_, before_ms, key) + b"body"
    assert layout.deadline_in(record) == before_ms
    packed = b"" if after_ms is None else layout.U64.pack(after_ms)
    assert layout.with_deadline(record, packed) == layout.encode_head(type_, after_ms, key) + b"body"


@given(st.none() | st.integers(0, 2**63), st.binary(max_size=1000), st.binary(max_size=20))
def test_strings_come_back(deadline_ms: int | None, key: bytes, value: bytes) -> None:
    record = layout.encode_head(layout.STRING, deadline_ms, key) + value
    assert layout.string_in(record) == value
