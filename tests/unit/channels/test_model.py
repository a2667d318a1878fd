"""JSON text: what is allowed, how it is stored, what is found again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.model import Message, compact, parse_body, to_json
from penstock.errors import ContentError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a<\u2028é", max_size=3), inner),
    max_leaves=15,
)
MALFORMED = [
    b"", b" ", b"\xef\xbb\xbf1", b"01", b"-", b"1.", b".5", b"+1", b"1e", b"--1", b"0x10", b"NaN",
    b"Infinity",
    b"nul", b"True", b"1 2", b"1x", b"1\x00", b"\x00", b"[", b"[1,]", b"[,1]", b"[1 2]", b"[1}", b"{", b"{,}",
    b'{"a":1,}', b'{"a"}', b'{"a":}', b'{"a" 1}', b"{a:1}", b"{1:2}", b"{'a':1}", b'"', b'"a', b'"\\"',
    b'"\\x"',
    b'"\\u12"', b'"\\ud80"', b'"\\ud800', b"\\ud800", b'"\n"', b'"\x1f"', b"//\n1", b"\xc2\xa01", b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(ContentError, match=r"the content of a message must be JSON \("):
        compact(text)


def test_what_is_too_deep() -> None:
    with pytest.raises(ContentError, match="recursion"):
        compact(b"[" * 100_000 + b"]" * 100_000)
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ContentError, match="recursion"):
        to_json(nested)
    while nested:  # a list that deep cannot even be freed at once
        nested = nested.pop()


@given(VALUES)
def test_every_value_survives(value: Any) -> None:
    text = to_json(value)
    assert json.loads(text) == value
    assert compact(text) == text
    assert not set(b"<>&") & set(text)
    assert "\u2028" not in text.decode()
    assert parse_body(7, b'{"id":"m1","content":' + text + b"}") == Message("m1", text, 7)


@given(VALUES, st.sampled_from([None, 1, "\t"]))
def test_only_white_space_goes(value: Any, indent: int | str | None) -> None:
    spaced = json.dumps(value, indent=indent, ensure_ascii=True, separators=(" , ", " : "))
    safe = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for letter in "<>&":
        safe = safe.replace(letter, f"\\u{ord(letter):04x}")
    assert compact(spaced.encode()) == safe.encode()


HALVES = st.lists(
    st.sampled_from(["\\ud800", "\\uDBFF", "\\udc00", "\\uDfFf", "\\\\", "\\\\ud800", "\\n", "u", "d8", "<"])
).map("".join)


@given(HALVES)
def test_halves_of_surrogate_pairs(text: str) -> None:
    """JSON allows them; some programs write them when they cut text."""
    stored = compact(f' "{text}" '.encode())
    assert stored == f'"{text}"'.replace("<", "\\u003c").encode()
    found = parse_body(1, b'{"id":"m1","content":' + stored + b"}")
    assert found == Message("m1", stored, 1)
    assert found.content == json.loads(f'"{text}"')


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"null", b"[]", b"{}", b'{"id":"m1"}', b'{"content":1}', b'{"id":1,"content":1}',
        b'{"id":"m1","content":}', b'{"id":"m1","content":1', b'{"id":"m1","content":1}x',
        b'{"id":"m1","content":[1}',
        b'{"id":"M1","content":1}', b'{"id":"","content":1}', b'{"id":"a\\"b","content":1}',
        b'{"id":"\xff","content":1}',
        b'{"id":"M1","content":"\\ud800"}', b'{"id":"m1","content":"\\ud800}', b'{"id":"m1',
    ],
)  # fmt: skip
def test_what_is_no_body(body: bytes) -> None:
    assert parse_body(1, body) is None


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda raw: b'{"id":"m1","content":' + raw + b"}"))
def test_whatever_is_found_can_be_read(body: bytes) -> None:
    found = parse_body(1, body)
    if found is not None:
        assert found.id
        found.content


def test_bodies_with_other_spaces_and_fields() -> None:
    assert parse_body(1, b'{ "content" : [1, 2], "id":"m1", "more": 3 }') == Message("m1", b"[1, 2]", 1)
