"""Damage to what is stored: what is told of it, by commands and by the check of a store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.storage.layout import U64, physical
from penstock.errors import CommandError, PenstockError
from penstock.server.keeping.examining import check
from tests.effort import scaled, seed_of

ZSTD = b"\x28\xb5\x2f\xfd"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        yield engine


@pytest.fixture
def session(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        session.execute("RPUSH", "list", "a", "b", "c")
        session.execute("RPUSH", "neighbour", *range(300))
        session.execute("SADD", "set", "a", "b", "c")
        session.execute("HSET", "hash", "f", "v")
        session.execute("ZADD", "zset", 1, "a", 2, "b")
        session.execute("TPOLICY", "log", "NODE-MESSAGES", 10)
        for number in range(25):
            session.execute("TWRITE", "log", "ENTRIES", f"t{number}", f"entry {number}")
        yield session


def change(engine: Engine, table: str, key: bytes, value: bytes | None) -> None:
    def write() -> None:
        unit = engine.unit
        if value is None:
            unit.delete(key, db=unit.tables[table])
        else:
            unit.put(key, value, db=unit.tables[table])

    engine.run_task(write)


def rows(engine: Engine, table: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    engine.run_task(lambda: found.update(engine.unit.rows(engine.unit.tables[table], b"")), write=False)
    return found


def set_size(engine: Engine, name: bytes, size: int) -> None:
    record = rows(engine, "keys:0")[physical(name)]
    change(engine, "keys:0", physical(name), record[:9] + U64.pack(size) + record[17:])


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("list", ["LRANGE", "list", 0, -1]),
        ("list", ["LINDEX", "list", -1]),
        ("list", ["LTRIM", "list", 0, 1]),
        ("list", ["RPOP", "list"]),
        ("set", ["SMEMBERS", "set"]),
        ("hash", ["HGETALL", "hash"]),
        ("zset", ["ZRANGE", "zset", 0, -1]),
        ("zset", ["ZRANGE", "zset", 0, 5, "REV"]),
        ("set", ["SPOP", "set", 100]),
    ],
)
@pytest.mark.parametrize("size", [20, 1 << 60])
def test_a_size_that_is_too_large_gives_nobody_the_elements_of_others(
    engine: Engine, session: LocalSession, name: str, command: list[Any], size: int
) -> None:
    set_size(engine, name.encode(), size)
    before = rows(engine, "data:0")
    with pytest.raises(
        CommandError, match=rf"^CORRUPT a stored key is damaged, .* keys:0 b'{name}'"
    ) as refused:
        session.execute(*command)
    assert refused.value.code == "CORRUPT"
    assert rows(engine, "data:0") == before
    assert any("D2" in fault and name in fault for fault in check_store(engine))
    assert session.execute("LLEN", "neighbour") == 300


def test_the_body_of_a_sealed_node_has_a_checksum(engine: Engine, session: LocalSession) -> None:
    """Every single byte of it: the answer is right, or there is none."""
    node, value = next((row, value) for row, value in rows(engine, "data:0").items() if ZSTD in value)
    right = session.execute("TREAD", "log", 1, 10)
    assert len(right) == 10
    for at in range(value.index(ZSTD), len(value)):
        change(engine, "data:0", node, value[:at] + bytes((value[at] ^ 0x10,)) + value[at + 1 :])
        (told,) = session.execute_many([[b"TREAD", b"log", b"1", b"10"]])
        if isinstance(told, CommandError):
            assert str(told).startswith("CORRUPT a stored key is damaged")
            assert "keys:0 b'log' has a node at 1 that does not decode" in str(told)
            assert any(fault.startswith("L1") for fault in check_store(engine))
        else:
            assert told == right
    change(engine, "data:0", node, value)
    assert session.execute("TREAD", "log", 1, 10) == right
    assert check_store(engine) == []


def test_nodes_of_before_there_was_a_checksum_are_read() -> None:
    from penstock.engine.datatypes.stream import compression

    body = b"as it was written by the version before " * 3
    assert compression.inflate(compression.compress(body, 1), len(body)) == body


def test_inside_of_a_transaction_the_key_is_named_too(engine: Engine, session: LocalSession) -> None:
    set_size(engine, b"list", 1 << 60)
    session.execute("MULTI")
    session.execute("SET", "other", "v")
    session.execute("LRANGE", "list", 0, -1)
    with pytest.raises(CommandError, match=r"CORRUPT .* b'list'"):
        session.execute("EXEC")
    assert session.execute("GET", "other") is None


def test_commands_without_keys_find_the_damaged_one(engine: Engine, session: LocalSession) -> None:
    change(engine, "keys:0", physical(b"empty"), b"")
    with pytest.raises(CommandError, match=r"CORRUPT .* b'empty' does not decode"):
        session.execute("SCAN", 0, "COUNT", 100)
    assert session.execute("LLEN", "list") == 3


def test_a_failure_without_damage_is_still_called_internal(
    engine: Engine, session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine.dispatcher.table.simple[b"LLEN"], "handler", fail)
    with pytest.raises(CommandError, match=r"^ERR internal error: RuntimeError: a bug"):
        session.execute("LLEN", "list")


# ------------------------------------------------------------------------------- duties


def test_a_row_of_expiry_without_its_key_does_not_stop_the_sweep(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    session.execute("SET", "early", "v", "PX", 1000)
    session.execute("SET", "late", "v", "PX", 2000)
    change(engine, "keys:0", physical(b"early"), None)
    clock.advance_ms(5000)
    engine.duties.tick()
    assert rows(engine, "expiry:0") == {}
    assert physical(b"late") not in rows(engine, "keys:0")


def test_a_damaged_group_does_not_stop_the_others(
    engine: Engine, session: LocalSession, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    session.execute("TWRITE", "sound", "ENTRIES", "t", "e")
    for name in ("log", "sound"):
        session.execute("TGROUP", "CREATE", name, "g", 0, "TTL", 1000)
    group = next(row for row, value in rows(engine, "data:0").items() if row[8:13] == b"g" + bytes(4))
    change(engine, "data:0", group, b"\xff")
    clock.advance_ms(10_000)
    with caplog.at_level(logging.CRITICAL, "penstock.engine"):
        engine.duties.tick()
    assert rows(engine, "due") == {}, "every timer was looked at"


def test_a_damaged_policy_does_not_stop_the_others(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    session.execute("TPOLICY", "sound", "RETAIN-COUNT", 10, "NODE-MESSAGES", 10)
    session.execute("TPOLICY", "log", "RETAIN-COUNT", 10)
    for number in range(50):
        session.execute("TWRITE", "sound", "ENTRIES", "t", str(number))
    version = rows(engine, "keys:0")[physical(b"log")][1:9]
    change(engine, "data:0", version + b"o", b"\xff")
    clock.advance_ms(60_000)
    for _ in range(3):
        engine.duties.tick()
        clock.advance_ms(2_000)
    assert None in session.execute("TREAD", "sound", 1, 100), "nothing was evicted"


# --------------------------------------------------------------------------------- file


def test_damage_to_the_file_itself_is_found_or_harmless(tmp_path: Path) -> None:
    """A process of its own reads the damaged file; whatever becomes of that one, this one is told."""
    path = tmp_path / "store.pen"
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        session.execute("TPOLICY", "log", "NODE-MESSAGES", 100)
        for number in range(500):
            session.execute("TWRITE", "log", "ENTRIES", f"t{number}", f"entry {number}")
        session.execute("RPUSH", "list", *range(500))
        node = next(value for value in rows(engine, "data:0").values() if ZSTD in value)
    data = path / "data.mdb"
    whole = data.read_bytes()
    dice = Random(seed_of("PENSTOCK_FUZZ_SEED"))
    # In a node it must be found (its old pages are still in the file, hence all of them).
    data.write_bytes(whole.replace(node, node[:60] + bytes((node[60] ^ 1,)) + node[61:]))
    assert [fault.rule for fault in check(path).faults][:1] == ["L1"]
    for _ in range(scaled(4)):
        at = dice.randrange(len(whole))
        data.write_bytes(whole[:at] + bytes((whole[at] ^ 1 << dice.randrange(8),)) + whole[at + 1 :])
        with suppress(PenstockError):
            assert all(fault.text for fault in check(path).faults)
