"""HyperLogLog: fixed bytes and counts, and byte equality with the values of a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from penstock.engine.datatypes.hyperloglog import (
    CORRUPTED,
    add,
    cached_count,
    count,
    create,
    is_valid,
    merge,
    with_cached_count,
)
from penstock.errors import CommandError
from tests.unit.datatypes.realserver import Peer, peer

DENSE_BYTES = 16 + 12288


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    yield from peer()


def _numbers(first: int, after: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, after)]


def _of(elements: list[bytes]) -> bytes:
    return add(create(), elements)[0]


# --- Fixed vectors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "body"),
    [
        (b"", "57318468cc"),
        (b"a", "71a6844e57"),
        (b"12345678", "69528856ab"),
        (b"hello world", "64b68c5b47"),
        (b"\xff" * 31, "5468806b95"),
    ],
)
def test_one_element_raises_the_register_redis_raises(element: bytes, body: str) -> None:
    assert _of([element])[16:].hex() == body  # XZERO, VAL, XZERO


def test_an_empty_value() -> None:
    assert create() == b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff"
    assert count([create()]) == 0
    assert count([]) == 0


def test_three_elements_byte_for_byte() -> None:
    value, changed = add(create(), [b"a", b"b", b"c"])
    assert changed
    assert value.hex() == "48594c4c01000000000000000000008060f38050b1844bfb80425a"
    assert count([value]) == 3
    assert add(value, [b"a", b"c"]) == (value, False)


def test_counts_of_many() -> None:
    # The estimates are Redis's own for these elements, not the exact numbers.
    assert [count([_of(_numbers(0, size))]) for size in (1, 10, 100, 1000, 10_000)] == [
        1,
        10,
        100,
        1001,
        9987,
    ]


def test_sparse_turns_dense_and_keeps_its_registers() -> None:
    value = create()
    for element in _numbers(0, 3000):
        before = value
        value, _ = add(value, [element])
        assert len(value) <= 3000 or len(value) == DENSE_BYTES
        if len(value) == DENSE_BYTES:
            break
    assert value[4] == 0
    assert len(before) > 2990
    assert merge([create(), before, value]) == merge([value, before])
    assert is_valid(value)


def test_the_cached_count_is_used_until_something_changes() -> None:
    value = with_cached_count(_of(_numbers(0, 100)), 77)
    assert cached_count(value) == 77
    assert count([value]) == 77
    assert count([value, create()]) == 100
    assert cached_count(add(value, [b"5"])[0]) == 77  # already seen
    assert cached_count(add(value, [b"new"])[0]) is None
    assert cached_count(merge([value])) is None


def test_what_is_no_hyperloglog() -> None:
    dense = _of(_numbers(0, 5000))
    assert is_valid(create())
    assert is_valid(dense)
    for value in (b"", b"HYLL", b"hyll" + create()[4:], create()[:4] + b"\x02" + create()[5:], dense[:-1]):
        assert not is_valid(value)


@pytest.mark.parametrize("body", [b"", b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00", b"\x80\x40"])
def test_a_corrupted_body_is_not_read(body: bytes) -> None:
    value = create()[:16] + body
    with pytest.raises(CommandError, match=CORRUPTED):
        count([value])
    with pytest.raises(CommandError, match=CORRUPTED):
        merge([create(), value])


@pytest.mark.parametrize("body", [b"", b"\x7f", b"\x80\x40", b"\x00\x00\x00\x00"])
def test_a_corrupted_body_is_not_written(body: bytes) -> None:
    with pytest.raises(CommandError, match=CORRUPTED):
        add(create()[:16] + body, [b"a"])


def test_merging_is_the_union() -> None:
    one, other = _numbers(0, 4000), _numbers(3000, 9000)
    union = _of([*one, *other])
    merged = merge([_of(one), _of(other)])
    assert merged == union
    assert count([_of(one), _of(other)]) == count([union])


# --- Against a real server ----------------------------------------------------------------------


def test_additions_byte_for_byte_as_a_real_server(server: Peer) -> None:
    chance = random.Random(7)
    for _ in range(6):
        server("DEL", "h")
        value = create()
        created = True
        for _ in range(120):
            elements = [
                chance.randbytes(chance.choice([0, 1, 7, 8, 9, 100]))
                if chance.random() < 0.1
                else b"%d" % chance.randrange(10**6)
                for _ in range(chance.choice([0, 1, 1, 2, 40]))
            ]
            value, changed = add(value, elements)
            assert server("PFADD", "h", *elements) == (changed or created)
            created = False
            if chance.random() < 0.2:
                number = count([value])
                assert server("PFCOUNT", "h") == number
                value = with_cached_count(value, number)
            assert server("GET", "h") == value


def test_merges_byte_for_byte_as_a_real_server(server: Peer) -> None:
    chance = random.Random(8)
    for _ in range(12):
        server("FLUSHALL")
        keys = [f"h{index}" for index in range(chance.randint(2, 4))]
        values = []
        for key in keys:
            size = chance.choice([0, 1, 10, 100, 500, 900, 2500])
            elements = [b"%d" % chance.randrange(10**4) for _ in range(size)]
            values.append(_of(elements))
            server("PFADD", key, *elements)
            assert server("GET", key) == values[-1]
        assert server("PFCOUNT", *keys) == count(values)
        server("PFMERGE", "new", *keys)
        assert server("GET", "new") == merge([create(), *values])
        server("PFMERGE", *keys)
        assert server("GET", keys[0]) == merge(values)


def test_a_large_count_as_a_real_server(server: Peer) -> None:
    server("DEL", "large")
    elements = _numbers(0, 100_000)
    server.batch([("PFADD", "large", *elements[start : start + 500]) for start in range(0, 100_000, 500)])
    value = _of(elements)
    assert server("PFCOUNT", "large") == count([value])
    assert server("GET", "large")[16:] == value[16:]


def test_the_server_reads_our_values(server: Peer) -> None:
    for size in (0, 1, 500, 20_000):
        value = _of(_numbers(0, size))
        server("SET", "ours", value)
        assert server("PFCOUNT", "ours") == count([value])
