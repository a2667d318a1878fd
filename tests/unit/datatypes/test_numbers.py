"""Numbers: fixed spellings, and ZADD, ZCOUNT, XADD, INCRBY and INCRBYFLOAT of a real server."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from penstock.engine.datatypes.numbers import (
    LongDouble,
    add_long_doubles,
    format_long_double,
    parse_float,
    parse_int,
    parse_long_double,
    parse_score_limit,
)
from tests.unit.datatypes.realserver import Peer, peer


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"-1", -1),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        *((text, None) for text in (b"", b"-", b"+1", b" 1", b"1 ", b"01", b"-0", b"-01", b"1_0", b"1.0")),
        *((text, None) for text in (b"9223372036854775808", b"-9223372036854775809", b"1" * 5000, b"\xb2")),
    ],
)
def test_parse_int(text: bytes, number: int | None) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"3.25", 3.25),
        (b"+.5e1", 5.0),
        (b"5.", 5.0),
        (b"0x1P-2", 0.25),
        (b"inf", math.inf),
        (b"-Infinity", -math.inf),
        (b"4e-320", 4e-320),
        (b"0e-999", 0.0),
        *((text, None) for text in (b"", b"nan", b"-nan", b" 1", b"1 ", b"1_0", b"0x", b"1e", b".", b"1\0")),
        *((text, None) for text in (b"1e400", b"1e-400", b"0x1p2000", b"0x1p-1080", b"infin")),
    ],
)
def test_parse_float(text: bytes, number: float | None) -> None:
    assert parse_float(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [(b"", 0.0), (b" 1", 1.0), (b"1e400", math.inf), (b"1\0junk", 1.0), (b" ", None), (b"nan", None)],
)
def test_parse_score_limit(text: bytes, number: float | None) -> None:
    assert parse_score_limit(text) == number


def _sum(one: bytes, other: bytes) -> bytes | None:
    """What INCRBYFLOAT answers, None for an error."""
    first, second = parse_long_double(one), parse_long_double(other)
    if first is None or second is None:
        return None
    total = add_long_doubles(first, second)
    return None if total is None else format_long_double(total)


#: Answers of Redis on x86, where a decimal fraction has 64 significant bits.
LONG_DOUBLE_SUMS = [
    (b"3.0", b"1.000000000000000005", b"4.00000000000000001"),
    (b"10.50", b"0.1", b"10.6"),
    (b"0.1", b"0.2", b"0.3"),
    (b"5.0e3", b"200", b"5200"),
    (b"1e20", b"0.5", b"100000000000000000000"),
    (b"9223372036854775807", b"0.5", b"9223372036854775807.5"),
    (b"18446744073709551615", b"0.5", b"18446744073709551616"),
    (b"-1e-20", b"0", b"0"),
    (b"1", b"-1", b"0"),
    (b"0x1.8p1", b".5", b"3.5"),
    (b"inf", b"1", None),
    (b"1e4933", b"1", None),
    (b"1e-4952", b"1", None),
    (b"1e99999999999999999999", b"1", None),
    (b"0e99999999999999999999", b"1", b"1"),
    (b"1" + b"0" * 5000 + b"e-5000", b"1", b"2"),
    (b"0" * 5118 + b"1", b"1", b"2"),
    (b"0" * 5119 + b"1", b"1", None),
    (b"0x1.fffffffffffffffep16383", b"0x1p16319", None),
    (b"nan", b"1", None),
    (b"", b"1", None),
]


@pytest.mark.parametrize(("one", "other", "total"), LONG_DOUBLE_SUMS)
def test_long_double_sums(one: bytes, other: bytes, total: bytes | None) -> None:
    assert _sum(one, other) == total


def test_the_largest_and_the_smallest_long_double() -> None:
    largest = parse_long_double(b"0x1.fffffffffffffffep16383")
    assert largest == LongDouble((1 << 64) - 1, 16320)
    assert format_long_double(largest) == b"118973149535723176502" + format_long_double(largest)[21:]
    assert len(format_long_double(largest)) == 4933
    assert parse_long_double(b"0x1p-16445") == LongDouble(1, -16445)
    assert parse_long_double(b"0x1p-16446") is None  # half of it: the tie goes to the even zero
    assert parse_long_double(b"-inf") == LongDouble(-1, None)
    assert not LongDouble(-1, None).is_finite


# --- Against a real server ----------------------------------------------------------------------


def _random_number(chance: random.Random) -> str:
    kind = chance.randrange(8)
    if kind == 0:
        return f"{chance.randint(-1000, 1000)}.{chance.randint(0, 10 ** chance.randint(1, 20))}"
    if kind == 1:
        return repr(chance.uniform(-1, 1) * 10 ** chance.randint(-25, 25))
    if kind == 2:
        return str(chance.randint(-(2**63), 2**63 - 1))
    if kind == 3:
        return str(chance.randint(-(10**30), 10**30))
    if kind == 4:
        sign = chance.choice(["", "-", "+"])
        return f"{sign}{chance.randint(0, 10**5)}.{chance.randint(0, 10**8)}e{chance.randint(-5000, 5000)}"
    if kind == 5:
        power = chance.choice([chance.randint(-100, 100), chance.randint(-16600, 16600)])
        return f"0x{chance.getrandbits(40):x}.{chance.getrandbits(70):x}p{power}"
    if kind == 6:
        return f"{chance.randint(-(2**64), 2**64)}.5"
    return str(chance.randint(-(10**6), 10**6) / 64)


def test_incrbyfloat_same_as_a_real_server(server: Peer) -> None:
    chance = random.Random(2)
    pairs = [(one, other) for one, other, _ in LONG_DOUBLE_SUMS]
    pairs += [(_random_number(chance).encode(), _random_number(chance).encode()) for _ in range(5000)]
    commands = [words for one, other in pairs for words in (("SET", "n", one), ("INCRBYFLOAT", "n", other))]
    replies = server.batch(commands)[1::2]
    for (one, other), reply in zip(pairs, replies, strict=True):
        assert _sum(one, other) == (reply if isinstance(reply, bytes) else None), (one, other, reply)


def test_spellings_same_as_a_real_server(server: Peer) -> None:
    if not server.label.startswith("redis-7."):
        pytest.skip(f"{server.label} reads fewer spellings of doubles than Redis 7")
    chance = random.Random(3)
    letters = "0123456789" * 2 + "..eE+-xXpPinfatyabc _\0"
    texts = ["".join(chance.choices(letters, k=chance.randint(0, 6))) for _ in range(5000)]
    texts += [_random_number(chance) for _ in range(2000)]
    texts += [
        f"{chance.randint(0, 9)}.{chance.randint(0, 9999)}e{chance.randint(-330, -300)}" for _ in range(500)
    ]
    for text, replies in zip(texts, _read_by_server(server, texts), strict=True):
        raw = text.encode()
        assert (parse_float(raw), parse_score_limit(raw) is not None, parse_int(raw)) == replies, text


def _read_by_server(server: Peer, texts: list[str]) -> Iterator[tuple[float | None, bool, int | None]]:
    """Each text read as a score, as the end of a range and as an integer."""
    commands = [
        words
        for text in texts
        for words in (
            ("ZADD", "scores", text, "member"),
            ("ZSCORE", "scores", "member"),
            ("ZCOUNT", "scores", text, "+inf"),
            ("INCRBY", "counter", text),
            ("DEL", "counter", "scores"),
        )
    ]
    replies = iter(server.batch(commands))
    for added, score, counted, integer, _ in zip(*[replies] * 5, strict=True):
        yield (
            float(score) if added == 1 else None,
            isinstance(counted, int),
            integer if isinstance(integer, int) else None,
        )
