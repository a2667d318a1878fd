"""The checker of streams: silent about sound ones whatever was done to them, and able to see damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.groups import Group, find_group
from penstock.engine.datatypes.stream.pending import Run
from penstock.engine.storage.layout import U32, U64, hash64


@pytest.fixture
def do(engine: Engine) -> Iterator[Callable[..., Any]]:
    with LocalSession(engine) as session:
        yield session.execute


def _pairs(*tags: str) -> list[str]:
    return [word for tag in tags for word in (tag, "x")]


@pytest.fixture
def rich(do: Callable[..., Any], engine: Engine) -> Engine:
    """A stream with everything: sealed nodes, holes, open ones, groups, producers, what is passed over."""
    do("TPOLICY", "k", "NODE-MESSAGES", 10, "COMPACT", "yes")
    for number in range(25):
        do("TWRITE", "k", f"t{number % 4}", f"e{number}")
    do("TWRITE", "k", "PRODUCER", "p", 7, "TOMBSTONES", "t1", "t2")
    do("TEVICT", "k", 3)
    do("TCOMPACT", "k")
    do("TGROUP", "CREATE", "k", "plain", 0, "TTL", 10_000)
    do("TGROUP", "CREATE", "k", "tags", 0, "ORDERED", "yes")
    do("TREAD", "k", 0, 5, "GROUP", "plain", "CONSUMER", "ann", "RETRY", 1000, 5000)
    do("TREAD", "k", 0, 100, "GROUP", "tags", "RETRY", 1000, 0)
    do("TACK", "k", "plain", 22)
    do("TWRITE", "empty", "a", "b")
    do("TEVICT", "empty", 1)
    return engine


def test_a_sound_stream_has_no_faults(rich: Engine) -> None:
    assert check_store(rich) == []


def test_streams_stay_sound_wherever_they_go(
    rich: Engine, do: Callable[..., Any], clock: ManualClock
) -> None:
    do("RENAME", "k", "renamed")
    do("COPY", "renamed", "copied")
    do("RESTORE", "restored", 0, do("DUMP", "copied"))
    do("TGROUP", "SET", "copied", "plain", "ORDERED", "yes")
    do("TGROUP", "SET", "copied", "tags", "ORDERED", "no")
    assert check_store(rich) == []
    do("MOVE", "restored", 5)
    do("SWAPDB", 0, 1)
    do("SELECT", 1)
    assert check_store(rich) == []
    do("PEXPIRE", "copied", 10)
    for _ in range(3):
        clock.advance_ms(2_000)
        while rich.duties.tick():
            pass
        assert check_store(rich) == []
    assert do("EXISTS", "renamed", "copied") == 1


def test_policies_go_with_the_database(rich: Engine, do: Callable[..., Any], clock: ManualClock) -> None:
    do("TPOLICY", "k", "RETAIN-MS", 500)
    do("SWAPDB", 0, 1)
    clock.advance_ms(2_000)
    while rich.duties.tick():
        pass
    do("SELECT", 1)
    assert do("TINFO", "STREAM", "k")[b"length"] == 0
    assert check_store(rich) == []


def _stream(engine: Engine) -> Stream:
    stream = engine.keyspaces[0].load(b"k", Stream)
    assert stream is not None
    return stream


def _group(engine: Engine, name: bytes) -> Group:
    group = find_group(_stream(engine), name)
    assert group is not None
    return group


def _set(name: str, change: int) -> Callable[[Engine], None]:
    """A field of the stream's head is not what it was."""

    def damage(engine: Engine) -> None:
        stream = _stream(engine)
        setattr(stream, name, getattr(stream, name) + change)
        stream.save()

    return damage


def _set_group(group: bytes, name: str, value: int) -> Callable[[Engine], None]:
    def damage(engine: Engine) -> None:
        found = _group(engine, group)
        setattr(found, name, value)
        found.save()

    return damage


def _put(space: bytes, rest: bytes, value: bytes) -> Callable[[Engine], None]:
    def damage(engine: Engine) -> None:
        stream = _stream(engine)
        engine.unit.put(stream.row(space, rest), value, db=stream.table)

    return damage


def _put_group(group: bytes, letter: bytes, rest: bytes, value: bytes = b"") -> Callable[[Engine], None]:
    def damage(engine: Engine) -> None:
        found = _group(engine, group)
        engine.unit.put(found.row(letter, rest), value, db=found.table)

    return damage


def _delete_all(group: bytes, letter: bytes) -> Callable[[Engine], None]:
    def damage(engine: Engine) -> None:
        found = _group(engine, group)
        rows = [row for row, _ in engine.unit.rows(found.table, found.row(letter))]
        assert rows, "the test is out of date"
        for row in rows:
            engine.unit.delete(row, db=found.table)

    return damage


def _empty(table: str) -> Callable[[Engine], None]:
    return lambda engine: engine.unit.empty(engine.unit.tables[table])


def _overlap(engine: Engine) -> None:
    """A run inside of another one, with all its rows."""
    group = _group(engine, b"tags")
    run = next(group.runs.all())
    group.runs.add(Run(run.base + 1, 0b11, run.due_ms, 0, run.first_ms))


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (_put(b"n", U64.pack(5), b"\2junk"), "L1"),
        (_put(b"?", b"", b""), "L1"),
        (_put(b"o", b"", b"short"), "L1"),
        (_set("first", -4), "L2"),
        (_set("last", -1), "L2"),
        (_set("size", 1), "L3"),
        (_set("bytes", 1), "L3"),
        (_set("raw_bytes", -1), "L3"),
        (_set("open_from", 1), "L4"),
        (_set("open_bytes", 1), "L4"),
        (_set("last", 1), "L4"),
        (_set("dirty_bytes", 1), "L5"),
        (_set("dirty_since_ms", 1), "L5"),
        (_set("last_ms", -1), "L6"),
        (_put(b"d", b"p", bytes(8) + U64.pack(9) + U64.pack(8) + U64.pack(1)), "L7"),
        (_put(b"d", b"p", bytes(8) + U64.pack(9) + U64.pack(9) + U64.pack(1_000)), "L7"),
        (_set("groups", 1), "G1"),
        (_put(b"g", U32.pack(77) + b"p" + U64.pack(1), b""), "G1"),
        (_put_group(b"plain", b"?", b""), "G1"),
        (_overlap, "G2"),
        (_delete_all(b"plain", b"d"), "G2"),
        (_delete_all(b"plain", b"x"), "G2"),
        (_put_group(b"tags", b"d", bytes(16)), "G2"),
        (_put_group(b"tags", b"x", bytes(16)), "G2"),
        (_set_group(b"plain", "pending", 7), "G3"),
        (_set_group(b"tags", "passed", 0), "G3"),
        (_set_group(b"plain", "reached", 6), "G3"),
        (_delete_all(b"tags", b"t"), "G4"),
        (_delete_all(b"tags", b"o"), "G4"),
        (_put_group(b"tags", b"o", U64.pack(999), hash64(b"t1")), "G4"),
        (_put_group(b"plain", b"t", hash64(b"t1"), U32.pack(1)), "G4"),
        (_delete_all(b"plain", b"k"), "G5"),
        (_delete_all(b"plain", b"c"), "G5"),
        (_set_group(b"plain", "timer_ms", 0), "G6"),
        (_empty("due"), "G6"),
        (_empty("tended"), "T1"),
        (_set("flags", -1), "T1"),
    ],
)  # fmt: skip
def test_damage_is_seen(rich: Engine, damage: Callable[[Engine], None], rule: str) -> None:
    rich.run_task(lambda: damage(rich))
    faults = check_store(rich)
    assert any(fault.startswith(f"{rule}:") for fault in faults), faults


# ------------------------------------------------------------- what the checker has found


def test_the_open_end_is_not_compacted_after_an_eviction_into_it(
    do: Callable[..., Any], engine: Engine
) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 20)
    do("TWRITE", "k", "ENTRIES", *_pairs(*"aaaaaaaaaa"))
    do("TEVICT", "k", 5)
    assert do("TCOMPACT", "k") == 0
    for number in range(11, 30):
        assert do("TWRITE", "k", "b", str(number)) == number
        assert check_store(engine) == []
    assert do("TREAD", "k", 6, 2) == [[6, b"a", b"x"], [7, b"a", b"x"]]
    assert do("TREAD", "k", 11, 1) == [[11, b"b", b"11"]]


def test_counts_stay_right_when_only_holes_are_evicted(do: Callable[..., Any], engine: Engine) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    do("TWRITE", "k", "ENTRIES", *_pairs("", "a", "a", "a"))
    do("TWRITE", "k", "ENTRIES", *_pairs("a", "b", "c", "d"))
    assert do("TCOMPACT", "k") == 3
    assert do("TEVICT", "k", 1) == 1
    assert do("TEVICT", "k", 4) == 0
    assert check_store(engine) == []
    assert do("TREAD", "k", 0, 1, "WITHINFO")[0] == [5, 8]


def test_evicted_bytes_are_neither_dirty_nor_open(do: Callable[..., Any], engine: Engine) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 4)
    for upto in (2, 4, 9, 10, 11, 12):
        do("TWRITE", "k", "ENTRIES", *_pairs("a", "b", "c"))
        do("TEVICT", "k", upto)
        assert check_store(engine) == []
    assert do("TEVICT", "k", 1_000) > 0
    assert check_store(engine) == []
    info = do("TINFO", "STREAM", "k")
    assert (info[b"bytes"], info[b"dirty-bytes"]) == (0, 0)


def test_a_run_with_more_tags_than_it_may_remember_ends(do: Callable[..., Any], engine: Engine) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", 1)
    tags = [f"t{number}" for number in range(1_500)]
    do("TWRITE", "k", "ENTRIES", *_pairs(*tags))
    do("TWRITE", "k", "ENTRIES", *_pairs(*tags))
    assert do("TCOMPACT", "k") == 1_500
    assert check_store(engine) == []


def test_a_backlog_never_takes_the_node_that_is_being_written(do: Callable[..., Any], engine: Engine) -> None:
    do("TWRITE", "k", "ENTRIES", *_pairs(*"aaaaaaaaaa"))
    do("TEVICT", "k", 5)
    do("TWRITE", "k", "BACKLOG", 0, "ENTRIES", "b", "x")
    assert do("TREAD", "k", 0, 0, "WITHINFO") == [[6, 11]]
    assert check_store(engine) == []
