"""Small requests that ask for much: each ends soon, in an answer or a refusal, and takes little memory."""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.datatypes.packed import DamagedError
from penstock.engine.datatypes.stream import nodes
from penstock.engine.datatypes.stream.compression import ZstdError, deflate
from penstock.engine.datatypes.stream.log import check_export
from penstock.errors import CommandError
from tests.fuzz.targets.http_bytes import HttpBytes

MOST_KIB = 128 * 1024
HUGE = (1 << 63) - 1

CONTENT = (
    ["SET", "s", "abc"],
    ["SET", "a" * 60, "x"],
    ["SET", "ab", "ab" * 20_000],
    ["SET", "ba", "ba" * 20_000],
    ["RPUSH", "l", *range(1000)],
    ["SADD", "set", *range(1000)],
    ["HSET", "h", *range(1000)],
    ["ZADD", "z", *range(1000)],
    ["TWRITE", "log", "a", "b"],
)
BOMBS: list[list[Any]] = [
    ["SRANDMEMBER", "set", -(1 << 31)], ["SRANDMEMBER", "set", -HUGE], ["SRANDMEMBER", "set", HUGE],
    ["HRANDFIELD", "h", -(1 << 40), "WITHVALUES"], ["ZRANDMEMBER", "z", -(1 << 31), "WITHSCORES"],
    ["SETRANGE", "x", HUGE, "a"], ["SETRANGE", "x", 1 << 29, "a"], ["SETBIT", "x", 1 << 32, 1],
    ["BITFIELD", "x", "SET", "u8", "#9999999999", 1], ["LRANGE", "l", -HUGE, HUGE],
    ["LPOS", "l", "5", "RANK", HUGE, "COUNT", 0, "MAXLEN", HUGE], ["LPOS", "l", "5", "RANK", -HUGE],
    ["GETRANGE", "s", -HUGE, HUGE], ["SCAN", 0, "COUNT", HUGE], ["SSCAN", "set", 0, "COUNT", HUGE],
    ["HSCAN", "h", 1 << 63, "COUNT", HUGE], ["KEYS", "a*" * 60 + "b"], ["KEYS", "*a" * 40 + "b"],
    ["KEYS", "*?" * 2000], ["KEYS", "[" * 5000], ["SCAN", 0, "MATCH", "*a" * 100 + "b"],
    ["PSUBSCRIBE", "*a" * 5000], ["PUBLISH", "a" * 5000, "x"],
    ["ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", HUGE, HUGE], ["LCS", "ab", "ba"],
    ["SORT", "l", "BY", "*" * 1000, "LIMIT", 0, HUGE], ["BITPOS", "s", 1, -HUGE, HUGE], ["LPOP", "l", HUGE],
    ["TREAD", "log", 0, HUGE], ["TSCAN", "log", 0, (1 << 64) - 1], ["TPOLICY", "log", "NODE-MESSAGES", HUGE],
    ["DEBUG", "SLEEP", "inf"], ["DEBUG", "SLEEP", "-inf"], ["DEBUG", "SLEEP", "nan"],
    ["DEBUG", "SLEEP", HUGE], ["SLOWLOG", "GET", HUGE], ["EVAL", "return 1", HUGE], ["ZUNION", HUGE, "z"],
    ["COMMAND", "GETKEYS", "EVAL", "x", HUGE], ["EVAL", "return cjson.decode(string.rep('[', 1e6))", 0],
    ["EVAL", "return #string.rep('x', 2^31)", 0],
]  # fmt: skip


def _word(word: Any) -> bytes:
    return str(word).encode()


@contextmanager
def little_memory() -> Iterator[None]:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert growth_kib < MOST_KIB, f"memory grew by {growth_kib} KiB"


@pytest.mark.timeout(60)
def test_commands(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        for bomb in BOMBS:
            for command in CONTENT:
                session.execute("DEL", command[1])
                session.execute(*command)
            with little_memory():
                told = session.execute_many([[_word(word) for word in bomb]])
            assert "internal error" not in str(told)[:1000], f"{bomb[:3]} answers {told}"


def test_repeated_picks_have_a_limit(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        session.execute("SADD", "set", "a")
        assert session.execute("SRANDMEMBER", "set", -1000) == [b"a"] * 1000
        with pytest.raises(CommandError, match="at most 1000000 elements are drawn at a time"):
            session.execute("SRANDMEMBER", "set", -1_000_001)


def _post(path: str, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


BEARER = b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b.W1tb.x\r\n\r\n"
MANY_KEYS = json.dumps(dict.fromkeys(map(str, range(20_000)), 0)).encode()
HTTP_BOMBS = {
    "deep list": _post("/v1/channels/room/messages?id=m", b"[" * 500_000),
    "deep list that ends": _post("/v1/channels/room/messages?id=m", b"[" * 50_000 + b"]" * 50_000),
    "deep object": _post("/v1/channels/room/batch", b'{"messages":' * 50_000),
    "long number": _post("/v1/channels/room/messages?id=m", b"1" * 100_000),
    "many keys": _post("/v1/channels/room/messages?id=m", MANY_KEYS),
    "long query": b"GET /v1/channels?" + b"a=1&" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "huge page": b"GET /v1/streams?limit=99999999999999999999 HTTP/1.1\r\nHost: x\r\n\r\n",
    "number beyond text": b"GET /v1/streams?limit=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "glob": b"GET /v1/streams?match=" + b"*a" * 100 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "broken glob": b"GET /v1/streams?match=%5B%5B%21-%5D%5Bz-a%5D HTTP/1.1\r\nHost: x\r\n\r\n",
    "deep cursor": b"GET /v1/streams?cursor=" + b"kZGR" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "deep token": b"GET /v1/streams" + BEARER % (b"W1tb" * 3000),
    "many ranges": b"GET /console/ HTTP/1.1\r\nHost: x\r\nIf-None-Match: " + b'"a",' * 10_000 + b"\r\n\r\n",
}  # fmt: skip


@pytest.mark.timeout(60)
def test_requests() -> None:
    with HttpBytes() as target:
        for data in HTTP_BOMBS.values():
            with little_memory():
                target.check(data)


def test_a_node_that_unpacks_to_gigabytes_is_not_unpacked() -> None:
    """A few kilobytes stand for as much as their sender likes; the head of the node has to say how much."""
    frame = deflate(bytes(16 << 20))
    assert len(frame) < 10_000
    for said_bytes in (100, (16 << 20) - 1, (16 << 20) + 1):
        with pytest.raises(ZstdError):
            nodes.decode(1, _node(said_bytes, frame))
    with pytest.raises(DamagedError):
        check_export(bytes(8) + bytes(93), [(b"n" + bytes(8), _node(2 << 30, frame))])


def _node(raw_bytes: int, frame: bytes) -> bytes:
    return struct.pack(">BBIIQQI", 2, 0, 1, 1, 0, 0, raw_bytes) + frame
