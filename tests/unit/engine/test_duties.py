"""Background duties and the ends of the world: garbage, the dead, a small map, a full store, a full disk."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.bus.endpoint import Endpoint
from penstock.engine.check import check_store, find_leftovers
from penstock.engine.storage import environment
from penstock.errors import ClosedError, CommandError, StoreFullError

_FULL = "the store reached its size limit; delete keys or raise max_size_bytes"
_SMALL_BYTES = 2 << 20
_LONG_S = 60.0


@pytest.fixture
def session(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        yield session


def _rows(engine: Engine, table: str) -> int:
    counts = []
    engine.run_task(lambda: counts.append(engine.unit.entries(engine.unit.tables[table])), write=False)
    return counts[-1]


# ------------------------------------------------------------------------------- garbage


def test_a_large_collection_goes_at_once_and_its_elements_bit_by_bit(
    engine: Engine, session: LocalSession
) -> None:
    for start in range(0, 5000, 1000):
        session.execute("RPUSH", "l", *range(start, start + 1000))
    session.execute("HSET", "h", *range(200))
    session.execute("DEL", "l", "h")
    assert session.execute("EXISTS", "l", "h") == 0
    assert _rows(engine, "garbage") == 2
    left = [_rows(engine, "data:0")]
    while engine.duties.tick():
        left.append(_rows(engine, "data:0"))
        assert check_store(engine) == []
    assert len(left) >= 3, "it went in one step"
    assert sorted(left, reverse=True) == left
    assert _rows(engine, "data:0") == _rows(engine, "garbage") == 0


def test_a_name_used_again_keeps_its_new_elements(engine: Engine, session: LocalSession) -> None:
    session.execute("SADD", "s", *range(1000))
    session.execute("DEL", "s")
    session.execute("SADD", "s", "new")
    while engine.duties.tick():
        pass
    assert session.execute("SMEMBERS", "s") == [b"new"]
    assert check_store(engine) == []


def test_callers_without_a_loop_do_the_duties_on_the_way(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    session.execute("SADD", "s", *range(1000))
    session.execute("DEL", "s")
    session.execute("SET", "k", "v", "PX", 500)
    assert _rows(engine, "garbage") == 1
    clock.advance_ms(1000)
    session.execute("PING")
    assert _rows(engine, "garbage") == _rows(engine, "data:0") == 0
    assert _rows(engine, "keys:0") == 0
    assert engine.statistics.keys_expired == 1


def test_expiry_can_be_left_to_those_who_look(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    engine.duties.active_expire = False
    session.execute("SET", "k", "v", "PX", 500)
    clock.advance_ms(1000)
    engine.duties.tick()
    assert _rows(engine, "keys:0") == 1
    assert session.execute("GET", "k") is None


def test_many_deadlines_at_once_take_several_ticks(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    session.execute_many([[b"SET", b"k%d" % n, b"v", b"PX", b"10"] for n in range(1200)])
    clock.advance_ms(10)
    ticks = 1
    while engine.duties.tick():
        ticks += 1
    assert ticks >= 3
    assert _rows(engine, "keys:0") == _rows(engine, "expiry:0") == 0


# ------------------------------------------------------------------------------- watches


def test_a_watch_that_nobody_renews_is_dropped_and_refuses(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    with LocalSession(engine) as other:
        session.execute("WATCH", "old")
        clock.advance_ms(1_800_000)
        other.execute("WATCH", "young")
        clock.advance_ms(1_800_001)
        engine.duties.tick()
        assert _rows(engine, "watched") == 1
        for watcher, expected in ((session, None), (other, [b"OK"])):
            watcher.execute("MULTI")
            watcher.execute("SET", "k", "v")
            assert watcher.execute("EXEC") == expected


# -------------------------------------------------------------------------- dead processes


def _forsake(directory: Path, number: int) -> Path:
    """The lock file of a process that died before it did anything."""
    path = directory / f"{number:040x}.lock"
    path.touch()
    return path


def test_files_without_rows_are_removed_once_they_are_old(
    engine: Engine, session: LocalSession, clock: ManualClock
) -> None:
    directory = engine.path / "signals"
    directory.mkdir()
    young, old = _forsake(directory, 1), _forsake(directory, 2)
    now_s = clock.now_ms() / 1000
    os.utime(young, (now_s - 30, now_s - 30))
    os.utime(old, (now_s - 90, now_s - 90))
    engine.duties.tick()
    assert young.exists()
    assert not old.exists()
    engine.duties.sweep_dead(0.0)
    assert not young.exists()


def test_a_sweep_takes_a_bounded_number(engine: Engine) -> None:
    directory = engine.path / "signals"
    directory.mkdir()
    for number in range(300):
        _forsake(directory, number)
    engine.duties.sweep_dead(0.0)
    assert 0 < len(list(directory.iterdir())) < 300
    engine.duties.sweep_dead(0.0)
    assert list(directory.iterdir()) == []


def test_the_living_are_spared(engine: Engine, session: LocalSession) -> None:
    endpoint = Endpoint.create(engine.path / "signals")
    session.execute("SUBSCRIBE", "c")
    engine.duties.sweep_dead(0.0)
    assert len(list((engine.path / "signals").iterdir())) == 4
    assert session.execute("PUBSUB", "NUMSUB", "c") == [b"c", 1]
    endpoint.close()


def test_a_session_that_could_not_be_ended_is_ended_later(
    engine: Engine, session: LocalSession, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    other = LocalSession(engine)
    other.execute("SUBSCRIBE", "c")

    def fail(*_: Any) -> None:
        raise StoreFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run_task", fail)
        with pytest.raises(StoreFullError):
            other.close()
    assert session.execute("PUBLISH", "c", "m") == 0
    clock.advance_ms(1000)
    engine.duties.tick()
    assert session.execute("PUBSUB", "NUMSUB", "c") == [b"c", 0]


def test_duties_of_a_closed_engine_disturb_nobody(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "other.pen", durability="relaxed")
    engine.close()
    engine.duties.tick_lazily()
    with pytest.raises(ClosedError):
        engine.duties.tick()


# --------------------------------------------------------------------------------- the map


def _fill(session: LocalSession, write: Callable[[int], list[Any]]) -> tuple[int, str]:
    """Write until it is refused; how often it was not, and the refusal."""
    number = 0
    while True:
        try:
            session.execute(*write(number))
        except CommandError as error:
            return number, str(error)
        number += 1


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "small.pen", durability="relaxed", max_size_bytes=_SMALL_BYTES) as engine:
        yield engine


_WAYS_TO_FILL: list[tuple[str, Callable[[int], list[Any]]]] = [
    ("strings", lambda number: ["SET", f"k{number}", "x" * 500]),
    ("large strings", lambda number: ["SET", f"k{number}", "x" * 50_000]),
    ("tiny strings", lambda number: ["MSET", *(w for n in range(50) for w in (f"k{number}:{n}", n))]),
    ("a hash", lambda number: ["HSET", "h", number, "x" * 500]),
    ("lists", lambda number: ["RPUSH", f"l{number // 100}", "x" * 500]),
    ("a sorted set", lambda number: ["ZADD", "z", number, f"{number:0400}"]),
    ("keys that expire", lambda number: ["SET", f"k{number}", "x" * 500, "EX", 1000]),
]


@pytest.mark.parametrize("write", [way for _, way in _WAYS_TO_FILL], ids=[name for name, _ in _WAYS_TO_FILL])
def test_a_full_store_refuses_reads_on_and_can_be_emptied(
    small: Engine, write: Callable[[int], list[Any]]
) -> None:
    with LocalSession(small) as session:
        session.execute("SET", "witness", "seen")
        written, refusal = _fill(session, write)
        assert written > 10
        assert refusal == f"MISCONF {_FULL}"
        assert check_store(small) == []
        assert session.execute("GET", "witness") == b"seen"
        keys = session.execute("KEYS", "*")
        for start in range(0, len(keys), 20):
            some = keys[start : start + 20]
            assert session.execute("DEL", *some) == len(some)
        while small.duties.tick():
            pass
        assert check_store(small) == []
        assert session.execute("DBSIZE") == 0
        again, _ = _fill(session, write)
        assert again > written // 2
    assert small.env.used_bytes() <= _SMALL_BYTES + (1 << 20)


def test_what_frees_room_works_in_a_full_store(small: Engine) -> None:
    with LocalSession(small) as session:
        session.execute("RPUSH", "l", *range(100))
        session.execute("HSET", "h", *range(100))
        session.execute("SADD", "s", *range(100))
        _fill(session, lambda number: ["SET", f"k{number}", "x" * 500])
        _fill(session, lambda number: ["SET", f"t{number}", "x"])
        assert session.execute("LPOP", "l") == b"0"
        assert session.execute("HDEL", "h", "0") == 1
        assert session.execute("SREM", "s", "0") == 1
        assert session.execute("PEXPIRE", "h", "100000") == 1
        assert session.execute("RENAME", "s", "r") == b"OK"
        assert session.execute("BLPOP", "l", "0") == [b"l", b"1"]
        assert session.execute("FLUSHALL") == b"OK"
        assert check_store(small) == []
        assert session.execute("SET", "k", "x" * 10_000) == b"OK"


def test_a_full_store_refuses_one_and_serves_others_of_a_batch(small: Engine) -> None:
    with LocalSession(small) as session:
        session.execute("SET", "k", "v")
        _fill(session, lambda number: ["SET", f"k{number}", "x" * 50_000])
        large = b"x" * 100_000
        replies = session.execute_many(
            [[b"SET", b"a", large], [b"GET", b"k"], [b"DEL", b"k"], [b"GET", b"k"], [b"NOSUCH"], [b"PING"]]
        )
        assert str(replies[0]) == f"MISCONF {_FULL}"
        assert replies[1:4] == [b"v", 1, None]
        assert str(replies[4]).startswith("ERR unknown command")
        assert replies[5] == b"PONG"


def test_a_transaction_in_a_full_store_is_refused_as_a_whole(small: Engine) -> None:
    with LocalSession(small) as session:
        _fill(session, lambda number: ["SET", f"k{number}", "x" * 50_000])
        large = b"x" * 100_000
        batch = [[b"MULTI"], [b"DEL", b"k0"], [b"SET", b"a", large], [b"EXEC"], [b"EXISTS", b"k0"]]
        replies = session.execute_many(batch)
        assert replies[:3] == [b"OK", b"QUEUED", b"QUEUED"]
        assert str(replies[3]) == f"EXECABORT Transaction discarded because of: MISCONF {_FULL}"
        assert replies[4] == 1
        # And it is over: the next command is not queued.
        assert session.execute("GET", "a") is None
        session.execute("MULTI")
        session.execute("DEL", "k0")
        assert session.execute("EXEC") == [1]


def test_pushes_to_a_full_store_reach_nobody_and_waiters_go_on_waiting(small: Engine) -> None:
    with LocalSession(small) as session, LocalSession(small) as other:
        other.execute("SUBSCRIBE", "c")
        assert other.poll() == [b"subscribe", b"c", 1]
        _fill(session, lambda number: ["SET", f"k{number}", "x" * 500])
        _fill(session, lambda number: ["SET", f"t{number}", "x"])
        # Nobody else's process listens, so this needs no room.
        assert session.execute("PUBLISH", "c", "m") == 1
        assert other.poll() == [b"message", b"c", b"m"]
        assert session.execute("BLPOP", "l", "0.01") is None
        assert _rows(small, "waiters") == _rows(small, "waiting") == 0
        assert check_store(small) == []


def test_the_reserve_is_not_for_ordinary_work(tmp_path: Path) -> None:
    """Neither for this process after it was used, nor for one that opens the store later."""
    for _ in range(3):
        with (
            Engine.open(tmp_path / "s", durability="relaxed", max_size_bytes=_SMALL_BYTES) as engine,
            LocalSession(engine) as session,
        ):
            size = session.execute("DBSIZE")
            _fill(session, lambda number, size=size: ["SET", f"k{size + number}", "x" * 500])
            for key in range(20):
                session.execute("DEL", f"k{key}")
            _fill(session, lambda number, size=size: ["SET", f"r{size + number}", "x" * 500])
            assert engine.env.map_bytes() <= _SMALL_BYTES + (128 << 10)


def test_a_limit_below_what_is_there_still_lets_it_shrink(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s", durability="relaxed") as engine, LocalSession(engine) as session:
        for number in range(300):
            session.execute("SET", f"k{number}", "x" * 10_000)
    with (
        Engine.open(tmp_path / "s", durability="relaxed", max_size_bytes=1 << 20) as engine,
        LocalSession(engine) as session,
    ):
        assert session.execute("GET", "k7") == b"x" * 10_000
        refused, text = _fill(session, lambda number: ["SET", f"n{number}", "x" * 10_000])
        assert refused < 10
        assert text == f"MISCONF {_FULL}"
        assert session.execute("DEL", *(f"k{number}" for number in range(300))) == 300
        assert session.execute("SET", "k", "x" * 10_000) == b"OK"
        assert check_store(engine) == []


# ----------------------------------------------------------------------- two processes

_CONTEXT = multiprocessing.get_context("spawn")


def _serve_pipe(path: str, pipe: Connection) -> None:
    """Another process with a small map: runs what it is told."""
    environment.INITIAL_MAP_BYTES = 1 << 20  # type: ignore[misc]
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        pipe.send(engine.env.map_bytes())
        for command in iter(pipe.recv, None):
            pipe.send(session.execute(*command))
        pipe.send((engine.env.map_bytes(), check_store(engine)))


def test_a_map_that_begins_small_grows_in_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(environment, "INITIAL_MAP_BYTES", 1 << 20)
    pipe, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve_pipe, args=(str(path), theirs), daemon=True)
    process.start()

    def ask(command: list[Any] | None) -> Any:
        pipe.send(command)
        assert pipe.poll(_LONG_S), "the other process does not answer"
        return pipe.recv()

    assert pipe.poll(_LONG_S)
    assert pipe.recv() == 1 << 20
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        assert engine.env.map_bytes() == 1 << 20
        text = "x" * 20_000
        # In turns, so that each meets a map that the other has grown, for reading and for writing.
        for number in range(0, 300, 2):
            assert session.execute("SET", f"k{number}", text) == b"OK"
            assert ask(["STRLEN", f"k{number}"]) == len(text)
            assert ask(["SET", f"k{number + 1}", text]) == b"OK"
            assert session.execute("STRLEN", f"k{number + 1}") == len(text)
        assert engine.env.map_bytes() >= 6 << 20
        map_bytes, faults = ask(None)
        assert map_bytes >= 6 << 20
        assert faults == check_store(engine) == []
        assert session.execute("DBSIZE") == 300
    process.join(_LONG_S)


def test_the_limit_of_one_process_holds_whatever_another_maps(tmp_path: Path) -> None:
    path = tmp_path / "s"
    pipe, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve_pipe, args=(str(path), theirs), daemon=True)
    process.start()
    with (
        Engine.open(path, durability="relaxed", max_size_bytes=_SMALL_BYTES) as engine,
        LocalSession(engine) as session,
    ):
        assert pipe.poll(_LONG_S)
        pipe.recv()
        pipe.send(["SET", "k", "x" * (3 << 20)])
        assert pipe.poll(_LONG_S)
        assert pipe.recv() == b"OK"
        assert session.execute("STRLEN", "k") == 3 << 20
        assert _fill(session, lambda number: ["SET", f"k{number}", "x" * 100_000])[0] < 10
        assert engine.env.map_bytes() < 3.5 * (1 << 20)
        pipe.send(None)
        assert pipe.poll(_LONG_S)
        assert pipe.recv()[1] == check_store(engine) == []
    process.join(_LONG_S)


def test_a_map_grows_ahead_of_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(environment, "INITIAL_MAP_BYTES", 1 << 20)
    with (
        Engine.open(tmp_path / "s", durability="relaxed", clock=clock) as engine,
        LocalSession(engine) as session,
    ):
        while engine.env.used_bytes() * 4 <= engine.env.map_bytes() * 3:
            session.execute("RPUSH", "l", "x" * 5_000)
        assert engine.env.map_bytes() == 1 << 20
        clock.advance_ms(1000)
        engine.duties.tick()
        assert engine.env.map_bytes() == 2 << 20


# ------------------------------------------------------------------------------ a full disk


def _meet_the_end_of_the_disk(path: str, durability: Any, pipe: Connection) -> None:
    """A process whose files may not grow: what happens, as sentences that should not be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    wrong: list[str] = []

    def expect(is_so: bool, what: str) -> None:
        if not is_so:
            wrong.append(what)

    with Engine.open(path, durability=durability) as engine, LocalSession(engine) as session:
        session.execute("MSET", *(word for n in range(50) for word in (f"k{n}", "x" * 1000)))
        size = (Path(path) / "data.mdb").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
        pushed, refusal = _fill(session, lambda number: ["RPUSH", "l", f"{number}:" + "y" * 3000])
        expect(refusal.startswith("MISCONF ") and "disk" in refusal, f"it said {refusal!r}")
        expect(pushed > 5, f"only {pushed} fitted")
        expect(session.execute("LLEN", "l") == pushed, "a refused push counts")
        expect(session.execute("GET", "k7") == b"x" * 1000, "reading does not work")
        session.execute("MULTI")
        session.execute("SET", "one", "1")
        session.execute("SET", "two", "z" * 500_000)
        try:
            session.execute("EXEC")
            wrong.append("a transaction that did not fit was accepted")
        except CommandError as error:
            expect("because of: MISCONF" in str(error), f"EXEC said {error}")
        expect(session.execute("MGET", "one", "two") == [None, None], "a transaction was written by half")
        expect(session.execute("DEL", "k1", "k2") == 2, "deleting does not work")
        expect(check_store(engine) == [], f"{check_store(engine)}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        expect(session.execute("SET", "two", "z" * 500_000) == b"OK", "no write afterwards")
        expect(session.execute("RPUSH", "l", "last") == pushed + 1, "no push afterwards")
        expect(check_store(engine) == [], f"{check_store(engine)}")
    pipe.send(wrong)


@pytest.mark.parametrize("durability", ["relaxed", "always"])
def test_a_full_disk_refuses_and_harms_nothing(tmp_path: Path, durability: str) -> None:
    path = tmp_path / "s"
    pipe, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(
        target=_meet_the_end_of_the_disk, args=(str(path), durability, theirs), daemon=True
    )
    process.start()
    assert pipe.poll(_LONG_S), "the other process does not answer"
    assert pipe.recv() == []
    process.join(_LONG_S)
    # Another process finds what was acknowledged, and nothing else.
    with Engine.open(path, durability="relaxed") as engine, LocalSession(engine) as session:
        assert check_store(engine) == []
        assert session.execute("STRLEN", "two") == 500_000
        assert session.execute("LINDEX", "l", "-1") == b"last"
        assert session.execute("EXISTS", "one", "k1", "k2") == 0
        assert find_leftovers(engine) == []
