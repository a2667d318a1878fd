"""Payloads for RESTORE that are well sealed and hold anything: a checksum keeps out accidents, not people.

An input is a payload without its footer, which is added. RESTORE takes it or says that it is bad; what it
took can be read, written, dumped again and deleted without an internal error, in bounded time and memory.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.engine import Engine, LocalSession
from penstock.engine.datatypes.crc64 import crc64
from penstock.errors import CommandError
from tests.fuzz.running import Target

_FOOTER_BYTES: Final = 10
_MAX_GROWTH_KIB: Final = 256 * 1024
_CONTENT: Final = (
    ["SET", "string", "value" * 20], ["SET", "number", "17"], ["RPUSH", "list", *range(30), "x" * 100],
    ["SADD", "set", "a", "b", "c"], ["SADD", "numbers", *range(20)],
    ["HSET", "hash", "f", "v", "g" * 70, "w"], ["ZADD", "zset", 1, "a", -2.5, "b", "inf", "c"],
    ["TPOLICY", "log", "NODE-MESSAGES", 10],
    *(["TWRITE", "log", f"t{number % 4}", f"entry {number} " * 3] for number in range(25)),
    ["TGROUP", "CREATE", "log", "plain", 0], ["TREAD", "log", 0, 5, "GROUP", "plain", "RETRY", 1000, 5000],
)  # fmt: skip
_AFTER: Final = (
    ["GET"], ["APPEND", "x"], ["STRLEN"], ["LRANGE", 0, -1], ["LPUSH", "x"], ["LPOP"],
    ["LINSERT", "BEFORE", "1", "y"], ["LREM", 0, "2"], ["SMEMBERS"], ["SADD", "n"], ["SPOP"],
    ["SRANDMEMBER", 3], ["HGETALL"], ["HSET", "a", "b"], ["HDEL", "f"], ["ZRANGE", 0, -1, "WITHSCORES"],
    ["ZADD", 3, "z"], ["ZRANK", "a"], ["ZPOPMAX"], ["TREAD", 1, 100], ["TSCAN", 1, 100], ["TINFO"],
    ["TWRITE", "t", "e"], ["TREAD", 0, 9, "GROUP", "plain", "RETRY", 1000, 5000], ["TACK", "plain", 9],
    ["TCOMPACT"], ["TEVICT", 12], ["OBJECT", "ENCODING"], ["DUMP"], ["COPY", "copied", "REPLACE"],
)  # fmt: skip


class Dumps(Target):
    name = "dumps"
    tries = 1_200

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        self._engine = Engine.open(
            Path(self._folder.name) / "store.pen", durability="relaxed", max_size_bytes=64 << 20
        )
        self._session = LocalSession(self._engine)
        for command in _CONTENT:
            self._session.execute(*command)
        self._whole = [self._session.execute("DUMP", key) for key in self._session.execute("KEYS", "*")]

    def close(self) -> None:
        self._session.close()
        self._engine.close()
        self._folder.cleanup()

    def seeds(self) -> Sequence[bytes]:
        return [payload[:-_FOOTER_BYTES] for payload in self._whole]

    def words(self) -> Sequence[bytes]:
        return (
            b"\x00",
            b"\xff",
            b"\x80\x00\x00\x00\xff",
            b"\x81\xff",
            b"\x40\xff",
            b"\xc3",
            b"\xc8",
            b"\x12",
            b"\x05",
            b"\x28\xb5\x2f\xfd",
        )

    def check(self, data: bytes) -> None:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = data + self._whole[0][-_FOOTER_BYTES:-8]
        sealed = body + crc64(body).to_bytes(8, "little")
        self._session.execute("FLUSHALL")
        if self._ask("RESTORE", "k", 0, sealed) == b"OK":
            for name, *rest in _AFTER:
                words = [name, rest[0], "k"] if name == "OBJECT" else [name, "k", *rest]
                self._ask(*words)
            self._ask("DEL", "k", "copied")
            self._engine.duties.tick()
        growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert growth_kib < _MAX_GROWTH_KIB, f"memory grew by {growth_kib} KiB"

    def _ask(self, *words: Any) -> Any:
        try:
            return self._session.execute(*words)
        except CommandError as error:
            told = str(error)
        assert "internal error" not in told, f"{words[0]} answers {told}"
        return None
