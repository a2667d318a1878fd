"""Every reply value in both protocols, byte for byte."""

from __future__ import annotations

import math
from typing import Any

import hiredis
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import CommandError, WrongTypeError
from penstock.protocol.encoder import ENCODERS, encode2, encode3, format_double
from penstock.protocol.replies import (
    NO_REPLY,
    NULL_ARRAY,
    OK,
    PONG,
    Pairs,
    Push,
    SetReply,
    Status,
    Verbatim,
)

SCALARS: list[tuple[Any, bytes, bytes]] = [
    (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
    (b"a\r\nb", b"$4\r\na\r\nb\r\n", b"$4\r\na\r\nb\r\n"),
    (OK, b"+OK\r\n", b"+OK\r\n"),
    (Status(b"OK"), b"+OK\r\n", b"+OK\r\n"),
    (PONG, b"+PONG\r\n", b"+PONG\r\n"),
    (0, b":0\r\n", b":0\r\n"),
    (1024, b":1024\r\n", b":1024\r\n"),
    (1025, b":1025\r\n", b":1025\r\n"),
    (-1, b":-1\r\n", b":-1\r\n"),
    (2**63 - 1, b":9223372036854775807\r\n", b":9223372036854775807\r\n"),
    (True, b":1\r\n", b"#t\r\n"),
    (False, b":0\r\n", b"#f\r\n"),
    (1.5, b"$3\r\n1.5\r\n", b",1.5\r\n"),
    (3.0, b"$1\r\n3\r\n", b",3\r\n"),
    (math.inf, b"$3\r\ninf\r\n", b",inf\r\n"),
    (-math.inf, b"$4\r\n-inf\r\n", b",-inf\r\n"),
    (math.nan, b"$3\r\nnan\r\n", b",nan\r\n"),
    (None, b"$-1\r\n", b"_\r\n"),
    (NULL_ARRAY, b"*-1\r\n", b"_\r\n"),
    (Verbatim(b"hello"), b"$5\r\nhello\r\n", b"=9\r\ntxt:hello\r\n"),
    (CommandError("ERR no"), b"-ERR no\r\n", b"-ERR no\r\n"),
]

AGGREGATES: list[tuple[Any, bytes, bytes]] = [
    ([], b"*0\r\n", b"*0\r\n"),
    ([b"a", b"bc"], b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n", b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n"),
    ((b"a", 1), b"*2\r\n$1\r\na\r\n:1\r\n", b"*2\r\n$1\r\na\r\n:1\r\n"),
    ([OK, b"a"], b"*2\r\n+OK\r\n$1\r\na\r\n", b"*2\r\n+OK\r\n$1\r\na\r\n"),
    ([b"0", [b"a"]], b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n", b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n"),
    (
        [[b"a", [1]], None, [NULL_ARRAY], b"z"],
        b"*4\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n$-1\r\n*1\r\n*-1\r\n$1\r\nz\r\n",
        b"*4\r\n*2\r\n$1\r\na\r\n*1\r\n:1\r\n_\r\n*1\r\n_\r\n$1\r\nz\r\n",
    ),
    ({}, b"*0\r\n", b"%0\r\n"),
    ({b"f": b"v"}, b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n", b"%1\r\n$1\r\nf\r\n$1\r\nv\r\n"),
    ({b"f": 1}, b"*2\r\n$1\r\nf\r\n:1\r\n", b"%1\r\n$1\r\nf\r\n:1\r\n"),
    (
        {b"f": {b"g": []}},
        b"*2\r\n$1\r\nf\r\n*2\r\n$1\r\ng\r\n*0\r\n",
        b"%1\r\n$1\r\nf\r\n%1\r\n$1\r\ng\r\n*0\r\n",
    ),
    (SetReply(), b"*0\r\n", b"~0\r\n"),
    (SetReply([b"a"]), b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n"),
    (SetReply([b"a", 1]), b"*2\r\n$1\r\na\r\n:1\r\n", b"~2\r\n$1\r\na\r\n:1\r\n"),
    (Pairs(), b"*0\r\n", b"*0\r\n"),
    (Pairs([(b"m", 1.5)]), b"*2\r\n$1\r\nm\r\n$3\r\n1.5\r\n", b"*1\r\n*2\r\n$1\r\nm\r\n,1.5\r\n"),
    (Pairs([(b"f", b"v")]), b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n", b"*1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"),
    (
        Push([b"subscribe", b"c", 1]),
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
        b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
    ),
    (
        Push([b"message", b"c", b"m"]),
        b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
    ),
]


@pytest.mark.parametrize(("reply", "resp2", "resp3"), SCALARS + AGGREGATES, ids=repr)
def test_encoding(reply: Any, resp2: bytes, resp3: bytes) -> None:
    assert encode2(reply) == resp2
    assert encode3(reply) == resp3


@pytest.mark.parametrize(("reply", "resp2", "resp3"), SCALARS + AGGREGATES, ids=repr)
def test_nested_values_are_encoded_like_lone_ones(reply: Any, resp2: bytes, resp3: bytes) -> None:
    assert encode2([reply, 1]) == b"*2\r\n" + resp2 + b":1\r\n"
    assert encode3([reply, 1]) == b"*2\r\n" + resp3 + b":1\r\n"


def test_encoders_by_version() -> None:
    assert ENCODERS[2](None) == b"$-1\r\n"
    assert ENCODERS[3](None) == b"_\r\n"


@pytest.mark.parametrize(
    ("value", "printed"),
    [  # what redis-server 7.0.15 answers to ZSCORE, in either protocol
        (0.1, b"0.10000000000000001"),
        (3.3, b"3.2999999999999998"),
        (1e16, b"10000000000000000"),
        (1e17, b"1e+17"),
        (1e20, b"1e+20"),
        (123456789012345678.0, b"1.2345678901234568e+17"),
        (1e-4, b"0.0001"),
        (1e-5, b"1.0000000000000001e-05"),
        (1.5e300, b"1.5000000000000001e+300"),
        (5e-324, b"4.9406564584124654e-324"),
        (100000.0, b"100000"),
        (math.inf, b"inf"),
        (-math.inf, b"-inf"),
    ],
)
def test_doubles_are_printed_like_redis(value: float, printed: bytes) -> None:
    assert format_double(value) == printed


@given(st.floats(allow_nan=False))
def test_doubles_survive(value: float) -> None:
    assert float(format_double(value)) == value


@pytest.mark.parametrize("encode", [encode2, encode3])
class TestBothProtocols:
    def test_errors_cannot_forge_a_second_reply(self, encode: Any) -> None:
        assert encode(CommandError("ERR a\r\n+OK\nb")) == b"-ERR a  +OK b\r\n"

    def test_errors_may_quote_any_bytes(self, encode: Any) -> None:
        quoted = b"\xff\xc3\xa9".decode("utf-8", "surrogateescape")
        assert encode(CommandError(f"ERR '{quoted}'")) == b"-ERR '\xff\xc3\xa9'\r\n"

    def test_subclasses_are_encoded_like_their_base(self, encode: Any) -> None:
        assert encode(WrongTypeError()).startswith(b"-WRONGTYPE Operation")
        assert encode([WrongTypeError()]).startswith(b"*1\r\n-WRONGTYPE")

    def test_no_reply_sends_nothing(self, encode: Any) -> None:
        assert encode(NO_REPLY) == b""

    def test_no_reply_inside_a_reply_is_refused(self, encode: Any) -> None:
        with pytest.raises(TypeError, match="NO_REPLY"):
            encode([NO_REPLY])

    @pytest.mark.parametrize("value", ["text", object(), [b"a", "text"], {b"f": object()}])
    def test_other_types_are_refused(self, encode: Any, value: Any) -> None:
        with pytest.raises(TypeError, match="is not a reply value"):
            encode(value)

    def test_depth_is_not_limited_by_the_stack(self, encode: Any) -> None:
        reply: list[Any] = []
        for _ in range(50_000):
            reply = [reply]
        assert encode(reply) == b"*1\r\n" * 50_000 + b"*0\r\n"


_VALUES = st.recursive(
    st.one_of(st.binary(), st.integers(-(2**63), 2**63 - 1), st.none()),
    lambda values: st.lists(values) | st.dictionaries(st.binary(), values),
)


def _flat(value: Any) -> Any:
    """What RESP2 leaves of a value: maps become flat arrays."""
    if isinstance(value, dict):
        return [_flat(item) for pair in value.items() for item in pair]
    return [_flat(item) for item in value] if isinstance(value, list) else value


@given(_VALUES)
def test_hiredis_reads_back_what_was_encoded(value: Any) -> None:
    assume(_depth(value) < 9)  # hiredis refuses more
    reader = hiredis.Reader()
    for encoded, expected in ((encode2(value), _flat(value)), (encode3(value), value)):
        reader.feed(encoded)
        assert reader.gets() == expected
        assert not reader.has_data()


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, items), default=0) if isinstance(value, list | dict) else 0
