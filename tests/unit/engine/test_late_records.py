"""Records that are written late (``datatypes.kept``): nobody may be able to tell.

The measure of most tests is a second store that does the same commands one at a time, each
in a unit of its own, so that nothing is ever late there. What a batch answers and what it
leaves behind must be the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.commands.registry import Argv
from penstock.engine.datatypes.counter import Counter
from penstock.engine.datatypes.list import List
from penstock.engine.datatypes.stream import Stream
from penstock.engine.keyspace import MOST_HELD, Keyspace
from penstock.engine.storage import environment
from penstock.errors import CommandError

#: As the host sets it: scripts run without a savepoint at first.
_LIMIT_S = 60.0


def plain(reply: Any) -> Any:
    """A reply that can be compared: errors as their text, those of EXEC as well."""
    if isinstance(reply, CommandError):
        return str(reply)
    return [plain(item) for item in reply] if type(reply) is list else reply


class Store:
    """An engine and one caller of it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._got: list[Any] = []
        self.session = engine.session(self._got.append)
        self.session.protocol = 3

    def execute(self, commands: list[Argv], limit_s: float | None = _LIMIT_S) -> list[Any]:
        """One batch; errors as their text."""
        self.engine.execute([(self.session, command) for command in commands], limit_s)
        got, self._got[:] = list(self._got), []
        return [plain(item) for item in got]

    def execute_singly(self, commands: list[Argv]) -> list[Any]:
        return [reply for command in commands for reply in self.execute([command])]

    def everything(self) -> list[Any]:
        """All keys of two databases with their deadlines and values."""
        found = []
        for index in (b"1", b"0"):
            self.execute([[b"SELECT", index]])
            (keys,) = self.execute([[b"KEYS", b"*"]])
            found += [self.execute([[b"PEXPIRETIME", key], [b"DUMP", key]]) for key in sorted(keys)]
        return found


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with Engine.open(tmp_path / "batches.pen", durability="relaxed", clock=clock) as engine:
        yield Store(engine)
        assert check_store(engine) == []


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with Engine.open(tmp_path / "singly.pen", durability="relaxed", clock=clock) as engine:
        yield Store(engine)
        assert check_store(engine) == []


@pytest.fixture
def records_written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys whose records were written late, one by one."""
    written: list[bytes] = []
    store_late = Keyspace.store_late

    def note(self: Keyspace, key: bytes, record: bytes) -> None:
        written.append(key)
        store_late(self, key, record)

    monkeypatch.setattr(Keyspace, "store_late", note)
    return written


def words(*lines: str) -> list[Argv]:
    return [line.encode().split() for line in lines]


#: What makes a key of each kind, and what changes it.
WRITES = {
    "list": ("RPUSH k a", "RPUSH k b{n} c"),
    "hash": ("HSET k a 1", "HSET k f{n} 2"),
    "set": ("SADD k a", "SADD k m{n}"),
    "zset": ("ZADD k 1 a", "ZADD k {n} m{n}"),
    "stream": ("TWRITE k t one", "TWRITE k t e{n}"),
    "counter": ("SET k 41 EX 100", "INCRBY k {n}"),
}


def changes(kind: str, count: int) -> list[str]:
    """Changes of one key, the last of them late."""
    return [WRITES[kind][1].format(n=n + 1) for n in range(count)]


#: Everything that reads or replaces the record of k, or walks over records.
READS = (
    "TYPE k", "DUMP k", "MEMORY USAGE k", "OBJECT ENCODING k", "OBJECT REFCOUNT k", "TTL k", "EXISTS k",
    "DBSIZE", "KEYS *", "SCAN 0 TYPE list", "MGET k other", "GET k", "STRLEN k",
    "LLEN k", "LRANGE k 0 -1", "LPOP k 9", "RPOPLPUSH k k", "LMOVE k l LEFT RIGHT", "LTRIM k 5 9",
    "HLEN k", "HGETALL k", "HSCAN k 0", "SCARD k", "SMEMBERS k", "SMOVE k l a", "SUNIONSTORE k k k",
    "ZCARD k", "ZRANGE k 0 -1 WITHSCORES", "ZPOPMAX k", "ZRANGESTORE k k 0 0", "SORT k ALPHA",
    "TINFO STREAM k", "TREAD COUNT 9 STREAMS k 0", "TSCAN k 1 9", "TGROUP CREATE k g", "TEVICT k 1",
    "TCOMPACT k", "EXPIRE k 50", "PEXPIREAT k 1", "PERSIST k", "RENAME k l", "COPY k l", "COPY k k DB 1",
    "MOVE k 1", "DEL k", "UNLINK k", "SET k v", "SET k 7 KEEPTTL", "GETDEL k", "GETEX k PERSIST",
    "APPEND k 1", "SETRANGE k 1 5", "INCRBYFLOAT k 0.5", "DECRBY k 5", "SETBIT k 1 1", "PFADD k a",
    "SWAPDB 0 1", "FLUSHDB", "FLUSHALL", "RESTORE k 0 nonsense",
)  # fmt: skip


@pytest.mark.parametrize("kind", WRITES)
def test_whoever_looks_sees_it_written(store: Store, other: Store, kind: str) -> None:
    for read in READS:
        # Twice: what was at hand before somebody looked must be so, or not, afterwards.
        looked = [*changes(kind, 3), read]
        batch = words("FLUSHALL", "SELECT 0", WRITES[kind][0], *looked, *looked, "TYPE k", "DUMP k", "TYPE l")
        assert store.execute(batch) == other.execute_singly(batch), read
        assert store.everything() == other.everything(), read
        assert check_store(store.engine) == [], read


@pytest.mark.parametrize("kind", WRITES)
def test_a_record_is_written_at_first_and_in_the_end(
    store: Store, kind: str, records_written: list[bytes]
) -> None:
    store.execute(words(WRITES[kind][0]))
    store.execute(words(*changes(kind, 50)))
    # Before that, a counter is not kept at hand when it comes for the first time.
    assert records_written == [b"k", b"k"]


def test_nothing_is_written_where_nothing_changed(store: Store, records_written: list[bytes]) -> None:
    store.execute(words("HSET k a 1", "ZADD z 1 a", "SADD s a"))
    store.execute(words("HSET k a 2", "ZADD z 2 a", "SADD s a", "HSET k a 3"))
    assert records_written == []


def test_keys_in_turn_are_all_kept_at_hand(store: Store, records_written: list[bytes]) -> None:
    store.execute(words("RPUSH a 1", "RPUSH b 1", "SET c 1", "TWRITE d t 1"))
    turn = words("RPUSH a 2", "RPUSH b 2", "INCR c", "INCR c", "SET x y", "TWRITE d t 2", "GET x")
    store.execute(turn * 20)
    assert sorted(records_written) == [b"a", b"a", b"b", b"b", b"c", b"c", b"d", b"d"]
    assert store.execute(words("LLEN a", "LLEN b", "GET c", "EXISTS d")) == [21, 21, b"41", 1]


def test_more_keys_than_are_kept_at_hand(store: Store) -> None:
    keys = [b"k%d" % n for n in range(MOST_HELD * 2 + 3)]
    store.execute([[b"RPUSH", key, b"a"] for key in keys])
    store.execute([[b"RPUSH", key, b"b"] for key in keys + keys])
    assert store.execute([[b"LLEN", key] for key in keys]) == [3] * len(keys)


def test_a_command_that_fails_takes_nothing_with_it(store: Store, other: Store) -> None:
    changes = ["RPUSH k b", "INCR c", "INCR c"] * 3
    batch = words(
        "RPUSH k a", *changes, "HSET k f v", "HSET c f v", "LSET k 99 x", *changes, "GET c", "LLEN k"
    )
    assert store.execute(batch) == other.execute_singly(batch)
    assert store.everything() == other.everything()


def test_in_multi(store: Store, other: Store) -> None:
    batch = words(
        "RPUSH k a", "MULTI", "RPUSH k b", "INCR k", "RPUSH k c", "RENAME k l", "RPUSH k d", "EXEC",
        "RPUSH l e", "LRANGE l 0 -1", "LRANGE k 0 -1",
    )  # fmt: skip
    assert store.execute(batch) == other.execute_singly(batch)
    assert store.everything() == other.everything()


_COUNTS = """
    for _ = 1, 3 do redis.call('RPUSH', KEYS[1], 'x') end
    for _ = 1, 3 do redis.call('INCR', KEYS[2]) end
    return redis.call('LLEN', KEYS[1])
"""
_COUNTS_AND_FAILS = _COUNTS.replace("return", "error('oops')")


@pytest.mark.parametrize("limit_s", [_LIMIT_S, None], ids=["hopeful", "careful"])
def test_a_script_that_fails_is_undone_alone(store: Store, limit_s: float | None) -> None:
    counts, fails = ([b"EVAL", text.encode(), b"2", b"k", b"c"] for text in (_COUNTS, _COUNTS_AND_FAILS))
    changed = words("RPUSH k a", "RPUSH k b", "RPUSH k c", "INCR c", "INCR c", "INCR c")
    replies = store.execute([*changed, fails, *changed, counts, fails, *changed], limit_s)
    assert replies[:6] == [1, 2, 3, 1, 2, 3]
    assert replies[7:14] == [4, 5, 6, 4, 5, 6, 9]
    assert replies[15:] == [10, 11, 12, 10, 11, 12]
    every = [b"a", b"b", b"c"]
    expected = [*every, *every, *[b"x"] * 3, *every]
    assert store.execute(words("LRANGE k 0 -1", "GET c")) == [expected, b"12"]


def test_a_savepoint_that_is_undone_forgets_what_was_put_off_in_it(store: Store) -> None:
    ks, unit = store.engine.keyspaces[0], store.engine.unit
    store.execute(words("RPUSH k a", "SET c 1"))

    def push(value: bytes) -> None:
        items = ks.load(b"k", List)
        assert items is not None
        items.save()
        items.push_right([value])
        items.save()
        assert items in unit.late

    def work() -> None:
        push(b"before")
        unit.enter_savepoint()
        push(b"undone")
        unit.enter_savepoint()
        push(b"undone, too")
        unit.leave_savepoint(keep=True)
        unit.leave_savepoint(keep=False)
        push(b"after")
        unit.enter_savepoint()
        push(b"inside")
        unit.leave_savepoint(keep=True)

    store.engine.run_task(work)
    assert store.execute(words("LRANGE k 0 -1")) == [[b"a", b"before", b"after", b"inside"]]


def test_what_is_not_at_hand_any_more_is_written_at_once(store: Store) -> None:
    ks, unit = store.engine.keyspaces[0], store.engine.unit
    store.execute(words("TWRITE k t one"))

    def work() -> None:
        stream = ks.load(b"k", Stream)
        assert stream is not None
        stream.save()
        unit.enter_savepoint()
        stream.append([b"t"], [b"two"])
        stream.save()
        assert not unit.late
        fresh = ks.load(b"k", Stream)
        assert fresh is not None
        assert fresh.last == 2
        unit.leave_savepoint(keep=True)

    store.engine.run_task(work)


def test_of_two_objects_of_one_key_the_one_that_was_saved_last_counts(store: Store) -> None:
    ks, unit = store.engine.keyspaces[0], store.engine.unit

    def work() -> None:
        made = ks.load_or_new(b"k", List)  # not at hand: it is new
        made.push_right([b"a"])
        made.save()
        loaded = ks.load(b"k", List)
        assert loaded is not None
        assert loaded is not made
        loaded.save()
        made.push_right([b"b"])
        made.save()
        again = ks.load(b"k", List)
        assert again is not None
        assert list(again) == [b"a", b"b"]
        made.push_right([b"c"])
        made.save()
        assert list(unit.late) == [made]

    store.engine.run_task(work)
    assert store.execute(words("LRANGE k 0 -1")) == [[b"a", b"b", b"c"]]


def test_an_object_that_was_let_go_of_does_not_overwrite_its_follower(store: Store) -> None:
    ks = store.engine.keyspaces[0]
    store.execute(words("SET k 1"))

    def work() -> None:
        old = ks.load(b"k", Counter)
        assert old is not None
        ks.set_string(b"k", b"7")
        new = ks.load(b"k", Counter)
        assert new is not None
        for number in (8, 9):
            new.number = number
            new.save()
        old.save()  # it did not change
        old.save()
        assert list(ks.unit.late) == [new]
        assert ks.get_string(b"k") == b"9"

    store.engine.run_task(work)


def test_rows_are_read_as_if_nothing_were_late(store: Store) -> None:
    """By whatever walks over a table: a cursor opened by anybody."""
    unit, engine = store.engine.unit, store.engine
    store.execute(words("RPUSH k a"))

    def size_in_row() -> int:
        ((_, record),) = unit.rows(unit.tables["keys:0"], b"")
        return int.from_bytes(record[9:17], "big")

    def push() -> None:
        argv = [b"RPUSH", b"k", b"b"]
        engine.dispatcher.call(store.session, argv, engine.dispatcher.resolve(argv))

    def work() -> None:
        for expected in (3, 5):
            push()
            push()
            assert unit.late
            assert size_in_row() == expected
            assert not unit.late

    engine.run_task(work)


def test_a_batch_that_is_done_again_counts_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was late in the first attempt is forgotten with it."""
    store.execute(words("RPUSH k a", "SET c 1"))
    changed = words("RPUSH k b", "RPUSH k c", "INCR c", "INCR c", "INCR c")
    entry = store.engine.dispatcher.resolve([b"STRLEN", b"c"])

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(entry, "handler", fail)
    replies = store.execute([*changed, *words("STRLEN c"), *changed])
    assert replies[:5] == [2, 3, 2, 3, 4]
    assert replies[6:] == [4, 5, 5, 6, 7]
    assert store.execute(words("LRANGE k 0 -1", "GET c")) == [[b"a", b"b", b"c", b"b", b"c"], b"7"]


def test_the_map_grows_in_the_middle_of_a_batch(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "INITIAL_MAP_BYTES", 1 << 20)
    with Engine.open(tmp_path / "small.pen", durability="relaxed", clock=clock) as engine:
        store = Store(engine)
        store.execute(words("RPUSH k a", "SET c 0"))
        for _ in range(4):
            store.execute([[b"RPUSH", b"k", b"x" * 1000], [b"INCR", b"c"]] * 500)
        assert store.execute(words("LLEN k", "GET c")) == [2001, b"2000"]
        assert check_store(engine) == []


def test_a_list_that_was_filled_and_emptied_in_one_batch(store: Store) -> None:
    for emptied in ("DEL k", "LTRIM k 1 0", "LPOP k 1000", "SET k v", "RENAME k l"):
        store.execute([*words("FLUSHALL", "RPUSH k a"), [b"RPUSH", b"k", *[b"x"] * 500], *words(emptied)])
        store.execute([*words("DEL k", "RPUSH k a"), *words("RPUSH k b") * 200, *words("LPOP k") * 201])
        assert store.execute(words("EXISTS k")) == [0]
        store.engine.duties.tick()
        assert check_store(store.engine) == []


def test_a_long_list_that_is_emptied_is_left_to_the_sweeper(store: Store) -> None:
    unit = store.engine.unit
    store.execute([[b"RPUSH", b"k", *[b"x"] * 500]])
    store.execute(words("RPUSH k y", "RPUSH k y", "LTRIM k 1 0"))
    left: list[int] = []
    store.engine.run_task(lambda: left.append(unit.entries(unit.tables["garbage"])), write=False)
    assert left == [1]


def test_another_process_sees_it_with_the_reply(store: Store, clock: ManualClock) -> None:
    with (
        Engine.open(store.engine.path, durability="relaxed", clock=clock) as engine,
        LocalSession(engine) as there,
    ):
        store.execute(words("RPUSH k a", "RPUSH k b", "SET c 1", "INCR c"))
        assert there.execute("LLEN", "k") == 2
        assert there.execute("INCR", "c") == 3
        assert store.execute(words("INCR c", "INCR c")) == [4, 5]
        assert there.execute("GET", "c") == b"5"


_CHANCES = (
    "RPUSH {k} a b", "LPUSH {k} c", "LPOP {k}", "RPOP {k} 2", "LMOVE {k} {l} LEFT RIGHT", "LTRIM {k} 0 3",
    "LINSERT {k} BEFORE a z", "LREM {k} 0 a", "LRANGE {k} 0 -1", "HSET {k} f{n} {n}", "HDEL {k} f{n}",
    "HINCRBY {k} f{n} {n}", "HGETALL {k}", "SADD {k} {n} a", "SREM {k} {n}", "SMOVE {k} {l} {n}",
    "SUNIONSTORE {k} {k} {l}", "ZADD {k} {n} m{n} 1 a", "ZREM {k} m{n}", "ZPOPMIN {k}", "ZINCRBY {k} {n} a",
    "ZUNIONSTORE {k} 2 {k} {l}", "TWRITE {k} t{n} e{n}", "TWRITE {k} ENTRIES a 1 b 2", "TEVICT {k} {n}",
    "TREAD COUNT 3 GROUP g w STREAMS {k} 0", "TINFO STREAM {k}", "INCR {k}", "INCRBY {k} {n}", "DECR {k}",
    "APPEND {k} {n}", "SET {k} {n}", "SET {k} {n} EX 100", "GET {k}", "GETDEL {k}", "DEL {k}",
    "UNLINK {k} {l}", "RENAME {k} {l}", "COPY {k} {l} REPLACE", "MOVE {k} 1", "SWAPDB 0 1", "EXPIRE {k} {n}",
    "PERSIST {k}", "TYPE {k}", "MGET {k} {l}", "SCAN 0 COUNT 50", "DUMP {k}", "SORT {k} ALPHA", "MULTI",
    "EXEC", "DISCARD", "SELECT 0", "SELECT 1",
)  # fmt: skip


def _by_chance(chance: random.Random) -> Argv:
    if chance.random() < 0.08:
        text = chance.choice((_COUNTS, _COUNTS_AND_FAILS)).encode()
        return [b"EVAL", text, b"2", chance.choice((b"a", b"b", b"c")), b"d"]
    # Few keys of each kind, so that most commands find what they want and some do not.
    line = chance.choice(_CHANCES)
    kind = line[0] if chance.random() < 0.6 else chance.choice("RHSZTI")
    keys = (f"{kind}{chance.randrange(2)}", f"{kind}{chance.randrange(3)}")
    return line.format(k=keys[0], l=keys[1], n=chance.randrange(9)).encode().split()


@pytest.mark.parametrize("seed", range(12))
def test_batches_answer_as_one_command_at_a_time(store: Store, other: Store, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        batch = [_by_chance(chance) for _ in range(chance.randrange(1, 60))]
        assert store.execute(batch) == other.execute_singly(batch)
    for one in (store, other):
        one.execute(words("DISCARD", "SELECT 0"))
    assert store.everything() == other.everything()
