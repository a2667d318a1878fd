"""Stored rows with damaged bytes: what is read is right, or an error that says so and names the key.

An input is a list of edits of six bytes each: row (2), kind of change, place (2), byte. They are made to a
small store with a key of every type, a stream with sealed and open nodes, groups, producers and deadlines.
Then every key is read and written, duties are done, and the store is checked; nothing of that may raise
anything but an error of ours, or answer ``internal error``. What is covered by a checksum (the body of a
sealed node) must be answered rightly or not at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.datatypes.stream import nodes
from penstock.errors import PenstockError
from tests.fuzz.running import Target

_EDIT_BYTES: Final = 6
_LONG: Final = "long" * 130
#: Where a sealed node's body begins; what is before it has no checksum.
_NODE_HEAD_BYTES: Final = 30

_CONTENT: Final = (
    ["SET", "string", "value"],
    ["SET", "number", "17"],
    ["SET", "expiring", "v", "PX", 100_000_000],
    ["SET", _LONG, "v", "PX", 100_000_000],
    ["RPUSH", "list", "a", "b", "c"],
    ["LPUSH", "list", "z"],
    ["RPUSH", "longlist", *range(150)],
    ["SADD", "set", "a", "b", _LONG],
    ["SADD", "bigset", *range(140)],
    ["HSET", "hash", "f", "v", _LONG, "w"],
    ["PEXPIRE", "hash", 90_000_000],
    ["ZADD", "zset", 1, "a", -2, "b", 3, _LONG],
    ["PFADD", "hll", *range(50)],
    ["GEOADD", "geo", 13.4, 52.5, "berlin", 2.35, 48.85, "paris"],
    ["TPOLICY", "log", "NODE-MESSAGES", 10, "COMPACT", "yes"],
    *(["TWRITE", "log", f"t{number % 4}", f"entry {number} " * 3] for number in range(25)),
    ["TWRITE", "log", "PRODUCER", "p", 7, "TOMBSTONES", "t1", "t2"],
    ["TEVICT", "log", 3],
    ["TCOMPACT", "log"],
    ["TGROUP", "CREATE", "log", "plain", 0, "TTL", 10_000_000],
    ["TGROUP", "CREATE", "log", "tags", 0, "ORDERED", "yes"],
    ["TREAD", "log", 0, 5, "GROUP", "plain", "CONSUMER", "ann", "RETRY", 1000, 5000],
    ["TREAD", "log", 0, 100, "GROUP", "tags", "RETRY", 1000, 0],
    ["TACK", "log", "plain", 22],
)
_READS: Final = (
    ["MGET", "string", "number", "expiring"], ["GET", _LONG], ["STRLEN", "string"],
    ["GETRANGE", "string", 1, 3], ["PTTL", "expiring"], ["TYPE", "list"], ["OBJECT", "ENCODING", "hash"],
    ["BITCOUNT", "string"], ["LRANGE", "list", 0, -1], ["LINDEX", "list", 2], ["LPOS", "list", "c"],
    ["LLEN", "list"], ["LRANGE", "longlist", 100, 120], ["LINDEX", "longlist", -1], ["SMEMBERS", "set"],
    ["SISMEMBER", "set", "a"], ["SCARD", "bigset"], ["SINTER", "set", "set"], ["HGETALL", "hash"],
    ["HGET", "hash", "f"], ["HMGET", "hash", "f", _LONG], ["HVALS", "hash"],
    ["ZRANGE", "zset", 0, -1, "WITHSCORES"], ["ZSCORE", "zset", "a"], ["ZRANK", "zset", _LONG],
    ["ZRANGE", "zset", "-inf", "+inf", "BYSCORE"], ["ZCOUNT", "zset", 0, 5], ["ZRANGE", "zset", 0, 1, "REV"],
    ["PFCOUNT", "hll"], ["GEOPOS", "geo", "berlin"],
    ["GEOSEARCH", "geo", "FROMMEMBER", "paris", "BYRADIUS", 2000, "km"], ["TREAD", "log", 1, 100],
    ["TREAD", "log", 20, 3], ["TINFO", "log"], ["TGROUP", "LIST", "log"], ["TSCAN", "log", 1, 100],
    ["SORT", "list", "ALPHA"], ["DUMP", "list"], ["DUMP", "zset"], ["DUMP", "hash"], ["DUMP", "log"],
    ["DBSIZE"],
)  # fmt: skip
_DUMP: Final = ["DUMP", "log"]
#: Their answers depend on chance; that they answer is enough.
_RANDOM_READS: Final = (
    ["SRANDMEMBER", "set", 5], ["SRANDMEMBER", "bigset"], ["HRANDFIELD", "hash", -5, "WITHVALUES"],
    ["ZRANDMEMBER", "zset", 2, "WITHSCORES"], ["RANDOMKEY"], ["SCAN", 0, "COUNT", 100], ["KEYS", "*"],
    ["HSCAN", "hash", 0], ["SSCAN", "bigset", 0, "COUNT", 1000], ["ZSCAN", "zset", 0],
    ["MEMORY", "USAGE", "log"], ["TPENDING", "log", "plain"], ["TGROUP", "INFO", "log", "plain"],
    ["TGROUP", "INFO", "log", "tags"],
)  # fmt: skip
_WRITES: Final = (
    ["APPEND", "string", "x"], ["INCR", "number"], ["PEXPIRE", "expiring", 50_000_000], ["PERSIST", _LONG],
    ["LPUSH", "list", "y"], ["LPOP", "list"], ["RPOP", "list"], ["LREM", "list", 0, "b"],
    ["LSET", "list", 0, "q"], ["LINSERT", "list", "BEFORE", "b", "n"], ["LTRIM", "longlist", 2, 100],
    ["SADD", "set", "new"], ["SREM", "set", "a"], ["SPOP", "bigset"], ["SMOVE", "set", "bigset", "b"],
    ["HSET", "hash", "g", "1"], ["HDEL", "hash", "f"], ["HINCRBY", "hash", "g", 1],
    ["ZADD", "zset", 9, "new"], ["ZINCRBY", "zset", 1, "a"], ["ZREM", "zset", "b"], ["ZPOPMIN", "zset"],
    ["ZREMRANGEBYRANK", "zset", 0, 0], ["PFADD", "hll", "more"], ["PFMERGE", "merged", "hll"],
    ["TREAD", "log", 0, 5, "GROUP", "plain", "CONSUMER", "bob", "RETRY", 1000, 5000],
    ["TREAD", "log", 0, 5, "GROUP", "tags", "RETRY", 1000, 0], ["TACK", "log", "tags", 4],
    ["TWRITE", "log", "t9", "new"], ["TWRITE", "log", "PRODUCER", "p", 8, "ENTRIES", "t1", "x"],
    ["TCOMPACT", "log"], ["TEVICT", "log", 12], ["TGROUP", "DESTROY", "log", "plain"],
    ["COPY", "hash", "copy"], ["RENAME", "geo", "geo2"], ["GETDEL", "expiring"],
    ["DEL", "list", "zset", "hash", "set", "bigset", "longlist", "log", "string", "hll", _LONG],
)  # fmt: skip


class Records(Target):
    name = "records"
    tries = 150

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
        self._clock = ManualClock()
        self._engine = Engine.open(
            Path(self._folder.name) / "store.pen", durability="relaxed", clock=self._clock
        )
        self._session = LocalSession(self._engine)
        for command in _CONTENT:
            self._session.execute(*command)
        self._rows = dict(self._snapshot())
        #: (table, key) of every row that can be damaged
        self._places = sorted(place for place in self._rows if place[0] != "system")
        self._expected = [self._ask(command) for command in _READS]
        assert check_store(self._engine) == []

    def close(self) -> None:
        self._session.close()
        self._engine.close()
        self._folder.cleanup()

    # ---------------------------------------------------------------- inputs

    def seeds(self) -> Sequence[bytes]:
        """One bit of each row, and each whole row cut off."""
        flips = [_edit(row, 0, 7 * row, 1 << row % 8) for row in range(len(self._places))]
        return [*flips, *(_edit(row, 1, row, 0) for row in range(0, len(self._places), 3))]

    def make(self, dice: Random, seeds: Sequence[bytes]) -> bytes:
        if dice.random() < 0.3:
            return super().make(dice, seeds)
        count = dice.choice((1, 1, 1, 2, 4))
        return b"".join(self._draw(dice) for _ in range(count))

    def _draw(self, dice: Random) -> bytes:
        row = dice.randrange(len(self._places))
        kind = dice.choice((0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 6))
        return _edit(
            row, kind, dice.randrange(256), dice.choice((dice.randrange(256), 1 << dice.randrange(8)))
        )

    # ----------------------------------------------------------------- check

    def check(self, data: bytes) -> None:
        edits = [data[at : at + _EDIT_BYTES] for at in range(0, min(len(data), 48), _EDIT_BYTES)]
        checksummed = self._damage([edit for edit in edits if len(edit) == _EDIT_BYTES])
        try:
            self._look(checksummed)
        finally:
            self._restore()

    def _look(self, is_checksummed: bool) -> None:
        faults = check_store(self._engine)
        corrupt = 0
        for command, expected in zip(_READS, self._expected, strict=True):
            answer = self._ask(command)
            if isinstance(answer, str):
                corrupt += answer.startswith("CORRUPT")
            elif is_checksummed and answer != expected:
                # What is dumped travels as it is stored, and is looked at where it arrives.
                assert command == _DUMP, f"{command} answers {answer!r:.200} from a damaged node"
                assert isinstance(self._ask(["RESTORE", "restored", 0, answer]), str)
        for command in (*_RANDOM_READS, *_WRITES):
            answer = self._ask(command)
            corrupt += isinstance(answer, str) and answer.startswith("CORRUPT")
        assert faults or not corrupt, "a command says corrupt, and the check has found nothing"
        self._clock.advance_ms(200_000_000)
        self._engine.duties.tick()
        check_store(self._engine)

    def _ask(self, command: Sequence[Any]) -> Any:
        """The answer, or the text of an error of ours."""
        try:
            answer = self._session.execute(*command)
        except PenstockError as error:
            answer = str(error)
        if isinstance(answer, str):
            assert "internal error" not in answer, f"{command[:4]} answers {answer}"
            assert "key" in answer or not answer.startswith("CORRUPT"), f"{command[:4]} answers {answer}"
        assert len(repr(answer)) < 1 << 20, f"{command[:4]} answers more than there is"
        return answer

    # ---------------------------------------------------------------- damage

    def _damage(self, edits: Sequence[bytes]) -> bool:
        """Make the edits; whether all of them are where a checksum looks."""
        is_checksummed = bool(edits)

        def write() -> None:
            nonlocal is_checksummed
            for edit in edits:
                table, key = self._places[int.from_bytes(edit[:2], "big") % len(self._places)]
                old, database = self._rows[table, key], self._engine.unit.tables[table]
                if edit[2] % 7 >= 5:
                    self._move(key, old, edit, database)
                    is_checksummed = False
                    continue
                new = _changed(old, *edit[2:])
                is_node = table.startswith("data") and key[8:9] == b"n" and nodes.is_sealed(old)
                is_checksummed &= is_node and new[:_NODE_HEAD_BYTES] == old[:_NODE_HEAD_BYTES]
                self._engine.unit.put(key, new, db=database)

        self._engine.run_task(write)
        return is_checksummed

    def _move(self, key: bytes, value: bytes, edit: bytes, database: Any) -> None:
        """The row is not where it was: it is gone, or its own key is damaged."""
        unit = self._engine.unit
        unit.delete(key, db=database)
        if edit[2] % 7 == 5:
            unit.put(_changed(key, 0, *edit[3:]), value, db=database)

    def _restore(self) -> None:
        def write() -> None:
            unit = self._engine.unit
            for table in {place[0] for place in self._rows} | {"garbage", "watched"}:
                unit.empty(unit.tables[table])
            for (table, key), value in self._rows.items():
                unit.put(key, value, db=unit.tables[table])

        self._engine.run_task(write)
        self._clock.advance_ms(-200_000_000)

    def _snapshot(self) -> Iterator[tuple[tuple[str, bytes], bytes]]:
        found: list[tuple[tuple[str, bytes], bytes]] = []

        def read() -> None:
            unit = self._engine.unit
            for table in ("keys:0", "data:0", "expiry:0", "tended", "due", "system"):
                found.extend(((table, row), value) for row, value in unit.rows(unit.tables[table], b""))

        self._engine.run_task(read, write=False)
        return iter(found)


def _edit(row: int, kind: int, place: int, byte: int) -> bytes:
    return row.to_bytes(2, "big") + bytes((kind, place >> 8 & 255, place & 255, byte))


def _changed(value: bytes, kind: int, high: int, low: int, byte: int) -> bytes:
    """The value after one change of a kind."""
    place = (high << 8 | low) % max(len(value), 1)
    match kind % 7:
        case 1:
            return value[:place]
        case 2:
            return value + bytes((byte,)) * (1 + low % 9)
        case 3:
            return value[:place] + bytes((byte,)) * 4 + value[place + 4 :]
        case 4:
            return value[:place] + value[place + 1 + low % 8 :]
    return value[:place] + bytes((value[place] ^ (byte or 1),)) + value[place + 1 :] if value else value
