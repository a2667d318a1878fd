"""The checker of stores: silent about a sound one, and able to see each kind of damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.bus.endpoint import Endpoint
from penstock.engine.check import check_store, find_leftovers
from penstock.engine.storage.layout import U64, encode_index, encode_score, physical

_LONG = "long" * 200
_NOBODY = bytes(range(20)) + U64.pack(1)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as engine, LocalSession(engine) as session:
        for command in (
            ["SET", "string", "v"],
            ["SET", "expiring", "v", "EX", 1000],
            ["SET", _LONG, "v", "EX", 1000],
            ["RPUSH", "list", "a", "b", "c"],
            ["LPUSH", "list", "z"],
            ["SADD", "set", "a", "b", _LONG],
            ["HSET", "hash", "f", "v", _LONG, "w"],
            ["ZADD", "zset", 1, "a", -2, "b", 3, _LONG],
            ["ZADD", "zset", 5, "a"],
            ["SELECT", 3],
            ["RPUSH", "list", *range(200)],
            ["PEXPIRE", "list", 1_000_000],
            ["RPUSH", "dropped", *range(200)],
            ["DEL", "dropped"],
            ["SUBSCRIBE", "channel", _LONG],
            ["PSUBSCRIBE", "pattern*"],
        ):
            session.execute(*command)
        yield engine


def test_a_sound_store_has_no_faults(engine: Engine) -> None:
    assert check_store(engine) == []
    assert find_leftovers(engine) == []


def test_a_new_store_has_no_faults(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "empty.pen", durability="relaxed") as empty:
        assert check_store(empty) == []
        assert find_leftovers(empty) == []


Damage = Callable[[Engine], None]


def _put(table: str, key: bytes, value: bytes) -> Damage:
    return lambda engine: engine.unit.put(key, value, db=engine.unit.tables[table])


def _delete(table: str, key: bytes) -> Damage:
    return lambda engine: engine.unit.delete(key, db=engine.unit.tables[table])


def _record(engine: Engine, key: str) -> bytes:
    record = engine.unit.get(physical(key.encode()), None, engine.unit.tables["keys:0"])
    assert record is not None
    return record


def _delete_element(key: str, rest: bytes) -> Damage:
    def damage(engine: Engine) -> None:
        row = _record(engine, key)[1:9] + rest
        assert engine.unit.delete(row, db=engine.unit.tables["data:0"]), "the test is out of date"

    return damage


def _add_element(key: str, rest: bytes, value: bytes = b"") -> Damage:
    def damage(engine: Engine) -> None:
        engine.unit.put(_record(engine, key)[1:9] + rest, value, db=engine.unit.tables["data:0"])

    return damage


def _resize(key: str, size: int) -> Damage:
    def damage(engine: Engine) -> None:
        record = _record(engine, key)
        engine.keyspaces[0].store(key.encode(), record[:9] + U64.pack(size) + record[17:])

    return damage


def _delete_first(table: str) -> Damage:
    def damage(engine: Engine) -> None:
        cursor = engine.unit.cursor(engine.unit.tables[table])
        assert cursor.first()
        cursor.delete()

    return damage


def _twin(engine: Engine) -> None:
    """A second key with the version of the first."""
    engine.keyspaces[0].store(b"twin", _record(engine, "set"))


def _make_garbage_of_living(engine: Engine) -> None:
    engine.unit.put(b"\0" + _record(engine, "hash")[1:9], b"", db=engine.unit.tables["garbage"])


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_put("keys:0", b"12345678name", b"\x01v"), "K1: keys:0 b'name' is not where its name"),
        (_put("keys:0", physical(b"odd"), b"\x0fv"), "K1: keys:0 b'odd' does not decode"),
        (_put("keys:0", physical(b"odd"), b""), "K1: keys:0 b'odd' does not decode"),
        (_put("keys:0", physical(b"odd"), b"\x02short"), "K1: keys:0 b'odd' is a collection without"),
        (_put("expiry:0", U64.pack(5) + physical(b"string"), b""), "K2: expiry:0 has a row for b'string'"),
        (_delete("keys:0", physical(b"expiring")), "K2: expiry:0 has a row for b'expiring'"),
        (_delete_first("expiry:3"), "K2: keys:3 b'list' expires, yet expiry:3 does not know"),
        (_twin, "K3: "),
        (_make_garbage_of_living, "K3: keys:0 b'hash' has the version of garbage"),
        (_put("system", b"version", U64.pack(2)), "K4: version"),
        (_put("data:0", U64.pack(999) + b"m", b""), "D1: data:0 has rows of version 00000000000003e7"),
        (_delete("keys:0", physical(b"set")), "D1: data:0 has rows"),
        (_delete_first("garbage"), "D1: data:3 has rows"),
        (_resize("set", 0), "D2: keys:0 b'set' is an empty collection"),
        (_resize("set", 4), "D2: keys:0 b'set' has size 4 and 3 elements"),
        (_delete_element("hash", b"m" + physical(b"f")), "D2: keys:0 b'hash' has size 2 and 1 elements"),
        (_delete_element("list", b"i" + encode_index(1)), "D3: keys:0 b'list' has"),
        (_resize("list", 3), "D2: keys:0 b'list' has size 3 and 4 elements"),
        (_add_element("set", b"x"), "D3: keys:0 b'set' has a row b'x' that is no element"),
        (_add_element("set", b"m12345678x"), "D3: keys:0 b'set' has a row"),
        (_delete_element("zset", b"s" + encode_score(5) + b"a"), "D3: keys:0 b'zset' has a member b'a'"),
        (_delete_element("zset", b"m" + physical(b"a")), "D3: keys:0 b'zset' has a score row"),
        (_add_element("zset", b"s" + encode_score(1) + b"a"), "D3: keys:0 b'zset' has a score row"),
        (_delete_first("channels"), "S1: channels lacks"),
        (_delete_first("subscribed"), "S1: subscribed lacks"),
        (_put("waiters", b"\0" + physical(b"k") + U64.pack(1), _NOBODY), "S2: waiting lacks b'k'"),
        (_put("waiting", _NOBODY, b"*4\r\n:0\r\n*0\r\n*1\r\n$1\r\nk\r\n:1\r\n"), "S2: waiters lacks b'k'"),
        (_put("waiting", _NOBODY, b"nonsense"), "S2: waiting"),
        (_put("messages", _NOBODY + U64.pack(1), b"p$1\r\nx\r\n"), "S3: the queue of"),
        (_put("system", b"q" + _NOBODY, U64.pack(7) + U64.pack(0)), "S3: the queue of"),
        (_put("messages", _NOBODY + U64.pack(1 << 40), b"r"), "K4: ticket"),
    ],
)
def test_damage_is_seen(engine: Engine, damage: Damage, complaint: str) -> None:
    engine.run_task(lambda: damage(engine))
    faults = check_store(engine)
    assert any(fault.startswith(complaint) for fault in faults), faults


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_put("subscribed", _NOBODY + b"cx", b"x"), "subscribed: a row of"),
        (_put("channels", b"cx" + _NOBODY, b"x"), "channels: a row of"),
        (_put("messages", _NOBODY + U64.pack(1), b"p$1\r\nx\r\n"), "messages: a row of"),
        (_put("waiters", b"\0" + physical(b"k") + U64.pack(1), _NOBODY), "waiters: a row of"),
        (_put("waiting", _NOBODY, b"*4\r\n:0\r\n*0\r\n*1\r\n$1\r\nk\r\n:1\r\n"), "waiting: a row of"),
        (_put("system", b"q" + _NOBODY, bytes(16)), "system: a queue of"),
    ],
)
def test_rows_of_the_dead_are_found(engine: Engine, damage: Damage, complaint: str) -> None:
    engine.run_task(lambda: damage(engine))
    found = find_leftovers(engine)
    assert [line for line in found if line.startswith(complaint)] == found
    assert len(found) == 1


def test_files_of_the_dead_are_found_and_swept(engine: Engine) -> None:
    directory = engine.path / "signals"
    living = Endpoint.create(directory)
    abandoned = directory / f"{_NOBODY[:20].hex()}.lock"
    abandoned.touch()
    stranger = directory / "stranger"
    stranger.touch()
    assert sorted(find_leftovers(engine)) == [
        f"signals: {abandoned.name}",
        "signals: stranger is no file of ours",
    ]
    engine.duties.sweep_dead(0.0)
    stranger.unlink()
    assert find_leftovers(engine) == []
    assert (directory / f"{living.id.hex()}.lock").exists()
    living.close()
