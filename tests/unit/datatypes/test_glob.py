"""Glob patterns: fixed corners, a naive reference, and KEYS of a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.datatypes.glob import matcher
from tests.unit.datatypes.realserver import Peer, peer


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (b"", [b""], [b"a"]),
        (b"plain", [b"plain"], [b"plain ", b"Plain", b""]),
        (b"*", [b"", b"a", b"\n\0"], []),
        (b"**", [b"a", b"ab"], [b""]),
        (b"user:*", [b"user:", b"user:1"], [b"user", b"xuser:1"]),
        (b"*:end", [b":end", b"the:end"], [b":end "]),
        (b"*mid*", [b"mid", b"amidst"], [b"mi"]),
        (b"a*b*c", [b"abc", b"axxbyyc", b"abcbc"], [b"ab", b"acb", b"abcd"]),
        (b"h?llo", [b"hello", b"h\nllo"], [b"hllo", b"heello"]),
        (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo"]),
        (b"h[^e]llo", [b"hallo", b"h^llo"], [b"hello"]),
        (b"h[a-b]llo", [b"hallo", b"hbllo"], [b"hcllo", b"h-llo"]),
        (b"[z-a]", [b"m"], [b"A"]),
        (b"[a\\-z]", [b"a", b"-", b"z"], [b"m", b"\\"]),
        (b"[\\]]", [b"]"], [b"\\", b"\\]"]),
        (b"\\*\\?\\[", [b"*?["], [b"abc"]),
        (b"end\\", [b"end\\"], [b"end"]),
        (b"[ab", [b"a", b"b"], [b"c", b"[ab"]),
        (b"[", [], [b"[", b""]),
        (b"[^", [b"x", b"^"], [b"", b"xx"]),
        (b"[]", [], [b"", b"]", b"a"]),
        (b"[^]", [b"a", b"]"], [b""]),
        (b"[a-]", [b"]", b"_", b"a"], [b"b", b"-"]),
        (b"[a-", [b"a", b"-"], [b"b"]),
        (b"[\x01-\xff]", [b"\x00", b"\x01", b"\xff"], [b"\x02", b"\x80"]),
    ],
)
def test_corners(pattern: bytes, matching: list[bytes], others: list[bytes]) -> None:
    match = matcher(pattern)
    assert [string for string in matching if not match(string)] == []
    assert [string for string in others if match(string)] == []


def _naive(pattern: bytes, string: bytes) -> bool:
    """The definition of ``*``, ``?`` and plain bytes, by trying everything."""
    if not pattern:
        return not string
    head, rest = pattern[:1], pattern[1:]
    if head == b"*":
        return any(_naive(rest, string[start:]) for start in range(len(string) + 1))
    return string != b"" and head in (b"?", string[:1]) and _naive(rest, string[1:])


@given(
    st.lists(st.sampled_from([b"*", b"?", b"a", b"b"]), max_size=8).map(b"".join),
    st.lists(st.sampled_from([b"a", b"b", b"."]), min_size=1, max_size=10).map(b"".join),
)
def test_same_as_the_naive_definition(pattern: bytes, string: bytes) -> None:
    assert matcher(pattern)(string) is _naive(pattern, string)


@pytest.mark.parametrize(
    "pattern", [b"*a" * 30 + b"*b", b"*[ab]?" * 30 + b"*c", b"*" * 5000 + b"b", (b"*" + b"?" * 9) * 9 + b"b"]
)
def test_many_stars_do_not_explode(pattern: bytes) -> None:
    # Trying every split of the string would take longer than the universe has.
    assert not matcher(pattern)(b"a" * 20_000)
    assert matcher(pattern)(b"a" * 20_000 + b"cb") is (not pattern.endswith(b"c"))


def test_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(1)
    alphabet = [bytes((byte,)) for byte in b"*?[]^-\\abcz\0\xff\x80\n"]
    patterns = [b"".join(chance.choices(alphabet, k=chance.randint(0, 9))) for _ in range(3000)]
    keys = {b"".join(chance.choices(alphabet[4:], k=chance.randint(0, 5))) for _ in range(300)} | {b""}
    server("MSET", *(word for key in keys for word in (key, b"")))
    replies = server.batch([("KEYS", pattern) for pattern in patterns])
    for pattern, found in zip(patterns, replies, strict=True):
        match = matcher(pattern)
        assert {key for key in keys if match(key)} == set(found), pattern
