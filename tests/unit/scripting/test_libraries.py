"""cjson, cmsgpack, struct and bit on values that nobody chose."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.scripting.harness import Scripts

SCRIPTS = Scripts()
ANY_TEXT = st.text(max_size=30)
# cjson writes 14 digits: whole numbers and eighths that need no more.
NUMBERS = st.integers(-(10**13), 10**13) | st.integers(-(10**9), 10**9).map(lambda number: number / 8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=5),
    max_leaves=20,
)
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def without_empty_lists(value: Any) -> Any:
    """Lua has one kind of table: an empty list comes back as an object."""
    if isinstance(value, list):
        return [without_empty_lists(item) for item in value] or {}
    if isinstance(value, dict):
        return {key: without_empty_lists(item) for key, item in value.items()}
    return value


@quick
@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_json_there_and_back(
    value: Any, indent: Any, ensure_ascii: bool, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators)
    result = SCRIPTS.run("return cjson.encode(cjson.decode(ARGV[1]))", text.encode())
    assert json.loads(result) == without_empty_lists(value)


@quick
@given(st.binary(max_size=40))
def test_json_survives_anything(data: bytes) -> None:
    reply = SCRIPTS.run("local ok, e = pcall(cjson.decode, ARGV[1]) return {tostring(ok), type(e)}", data)
    assert reply[0] in (b"true", b"false")
    assert SCRIPTS.run("return cjson.decode(cjson.encode(ARGV[1]))", data) == data


@quick
@given(VALUES)
def test_messagepack_there_and_back(value: Any) -> None:
    # Null is nil in Lua, which tables do not hold: it stays out of this.
    text = json.dumps(value).replace("null", "0").encode()
    source = """
    local value = cjson.decode(ARGV[1])
    return {cjson.encode(value), cjson.encode(cmsgpack.unpack(cmsgpack.pack(value)))}
    """
    there, back = SCRIPTS.run(source, text)
    assert json.loads(back) == json.loads(there)


@quick
@given(st.binary(max_size=40))
def test_messagepack_survives_anything(data: bytes) -> None:
    assert SCRIPTS.run("return tostring((pcall(cmsgpack.unpack, ARGV[1])))", data) in (b"true", b"false")


@quick
@given(st.text("bBhHlLiIfdscx<>! 0123456789", max_size=12), st.binary(max_size=60))
def test_struct_survives_anything(layout: str, data: bytes) -> None:
    source = """
    local ok, e = pcall(struct.unpack, ARGV[1], ARGV[2])
    local ok2, e2 = pcall(struct.pack, ARGV[1], 1, 2, 3, 4, 5, 6, 7, 8)
    local ok3, e3 = pcall(struct.size, ARGV[1])
    return {tostring(ok), tostring(ok2), tostring(ok3)}
    """
    assert set(SCRIPTS.run(source, layout.encode(), data)) <= {b"true", b"false"}


@quick
@given(st.integers(-(2**31), 2**31 - 1), st.floats(allow_nan=False, width=32), st.sampled_from("<>"))
def test_struct_agrees_with_python(number: int, real: float, order: str) -> None:
    source = f"return struct.pack('{order}hiIfd', ARGV[1] % 32768, ARGV[1], ARGV[1], ARGV[2], ARGV[2])"
    expected = struct.pack(f"{order}hiIfd", number % 32768, number, number % 2**32, real, real)
    assert SCRIPTS.run(source, b"%d" % number, b"%.17g" % real) == expected


@quick
@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(0, 40))
def test_bit_agrees_with_python(a: int, b: int, count: int) -> None:
    def signed(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    source = """
    local a, b, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
    return {bit.band(a, b), bit.bor(a, b), bit.bxor(a, b), bit.bnot(a), bit.lshift(a, n), bit.arshift(a, n)}
    """
    shift = count % 32
    assert SCRIPTS.run(source, b"%d" % a, b"%d" % b, b"%d" % count) == [
        *(signed(a & b), signed(a | b), signed(a ^ b), signed(~a)),
        *(signed(a << shift), signed(a) >> shift),
    ]
