"""Key tracking inside one engine: what units that are undone or done again leave behind, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import Engine, Session
from penstock.engine import tracking as module
from penstock.protocol.replies import Push

TOLD = Push([b"invalidate", [b"k"]])


class Caller:
    """A session that speaks RESP3; ``got`` is everything it was sent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.got: list[Any] = []
        self.session: Session = engine.session(self.got.append)
        self.session.protocol = 3
        self.session.is_remote = True

    def call(self, words: str) -> tuple[Session, list[bytes]]:
        return self.session, [word.encode() for word in words.split()]

    def do(self, words: str) -> list[Any]:
        self._engine.execute([self.call(words)])
        return self.take()

    def take(self) -> list[Any]:
        got, self.got[:] = list(self.got), []
        return got


@pytest.fixture
def reader(engine: Engine) -> Caller:
    caller = Caller(engine)
    caller.do("CLIENT TRACKING ON")
    caller.do("GET k")
    return caller


@pytest.fixture
def writer(engine: Engine) -> Caller:
    return Caller(engine)


def fail_once(engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The next commit fails, after everything was done."""
    commit = engine.unit.commit

    def failing() -> None:
        monkeypatch.setattr(engine.unit, "commit", commit)
        raise error

    monkeypatch.setattr(engine.unit, "commit", failing)


def test_nobody_tracks_and_nothing_is_noted(engine, writer):
    writer.do("SET k 1")
    assert not engine.changes.tracked
    assert not engine.changes.observed
    assert not writer.session.gated


def test_a_unit_that_is_done_again_tells_once(engine, reader, writer, monkeypatch):
    fail_once(engine, monkeypatch, RuntimeError("a bug"))
    engine.execute([writer.call("SET k 1"), writer.call("SET k 2")])
    assert writer.take() == [b"OK", b"OK"]
    assert reader.take() == [TOLD]
    writer.do("SET k 3")
    assert reader.take() == []


def test_a_flush_that_is_done_again_tells_once(engine, reader, writer, monkeypatch):
    fail_once(engine, monkeypatch, RuntimeError("a bug"))
    assert writer.do("FLUSHALL") == [b"OK"]
    assert reader.take() == [Push([b"invalidate", None])]
    assert engine.tracking.key_count == 0


def test_turning_on_and_off_is_taken_back_with_the_unit(engine, reader, writer, monkeypatch):
    for words, count in (("CLIENT TRACKING ON", 2), ("CLIENT TRACKING OFF", 1)):
        fail_once(engine, monkeypatch, RuntimeError("a bug"))
        assert writer.do(words) == [b"OK"]
        assert engine.tracking.session_count == count
    fail_once(engine, monkeypatch, RuntimeError("a bug"))
    reader.do("CLIENT TRACKING OFF")
    assert engine.tracking.session_count == engine.tracking.key_count == 0


def test_a_script_that_is_rolled_back_has_changed_nothing(engine, reader, writer):
    script = b"redis.call('SET', KEYS[1], 1) redis.call('GET', KEYS[1]) error('no')"
    engine.execute([(writer.session, [b"EVAL", script, b"1", b"k"])])
    assert reader.take() == []
    own = [b"EVAL", script, b"1", b"k"]
    engine.execute([(reader.session, own)])
    assert len(reader.take()) == 1
    writer.do("SET k 2")
    assert reader.take() == [TOLD]


def test_a_script_that_flushes_and_is_rolled_back(engine, reader, writer):
    script = b"redis.call('FLUSHALL') error('no')"
    engine.execute([(writer.session, [b"EVAL", script, b"0"])])
    assert reader.take() == []
    writer.do("SET k 1")
    assert reader.take() == [TOLD]


def test_scripts_track_what_they_read_declared_or_not(engine, reader, writer):
    engine.execute(
        [(reader.session, [b"EVAL", b"return redis.call('GET', 'undeclared')", b"1", b"declared"])]
    )
    reader.take()
    writer.do("MSET undeclared 1 declared 1")
    assert reader.take() == [Push([b"invalidate", [b"undeclared"]])]


def test_swapdb_may_change_everything(reader, writer):
    writer.do("SWAPDB 0 1")
    assert reader.take() == [Push([b"invalidate", None])]


def test_expiry_in_the_background(engine, reader, writer, clock):
    writer.do("SET k 1 PX 100")
    reader.take()
    reader.do("GET k")
    clock.advance_ms(1000)
    engine.duties.tick()
    assert reader.take() == [TOLD]


def test_expiry_found_by_the_reader_itself(engine, writer, clock):
    """With NOLOOP it is not told of what it removed, so what it read must count from then on."""
    reader = Caller(engine)
    reader.do("CLIENT TRACKING ON NOLOOP")
    writer.do("SET k 1 PX 100")
    reader.do("GET k")
    clock.advance_ms(1000)
    engine.execute([reader.call("GET k"), writer.call("SET other 1")])
    assert reader.take() == [None]
    writer.do("SET k 2")
    assert reader.take() == [TOLD]


def test_a_paused_reader_keeps_its_caching(engine, writer):
    reader = Caller(engine)
    reader.do("CLIENT TRACKING ON OPTIN")
    reader.do("CLIENT CACHING YES")
    writer.session.is_remote = False  # or it would be held back, too
    writer.do("CLIENT PAUSE 10000")
    assert reader.do("GET k") == []
    writer.do("CLIENT UNPAUSE")
    deferred = [(reader.session, argv) for argv in reader.session.deferred]
    reader.session.deferred.clear()
    engine.execute(deferred)
    assert reader.take() == [None]
    writer.do("SET k 1")
    assert reader.take() == [TOLD]


def test_the_oldest_key_goes_first(engine, reader):
    engine.config.tracking_max_keys = 2
    reader.do("GET l")
    assert reader.do("GET m") == [None, TOLD]
    assert reader.do("MGET n o") == [
        [None, None], Push([b"invalidate", [b"l"]]), Push([b"invalidate", [b"m"]]),
    ]  # fmt: skip
    assert engine.tracking.key_count == 2


def test_readers_that_are_gone_cost_nothing(engine, reader, writer):
    other = Caller(engine)
    other.do("CLIENT TRACKING ON")
    other.do("GET k")
    engine.end_session(other.session)
    writer.do("SET k 1")
    assert reader.take() == [TOLD]
    assert other.take() == []


def test_too_many_keys_for_other_processes_are_all_keys(tmp_path, engine, reader, monkeypatch):
    monkeypatch.setattr(module, "_MOST_KEYS_POSTED", 3)
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as elsewhere:
        writer = Caller(elsewhere)
        writer.do("MSET a 1 b 1 c 1")
        engine.collect()
        assert reader.take() == []
        writer.do("MSET a 1 b 1 c 1 d 1")
        engine.collect()
        assert reader.take() == [Push([b"invalidate", None])]


def test_messages_of_a_transaction_that_unsubscribes(tmp_path, engine, reader):
    """What another process changed must not take the place of a confirmation inside EXEC."""
    reader.do("SUBSCRIBE c")
    with Engine.open(tmp_path / "store.pen", durability="relaxed") as elsewhere:
        Caller(elsewhere).do("SET k 1")
    engine.execute([reader.call("MULTI"), reader.call("UNSUBSCRIBE c"), reader.call("EXEC")])
    assert reader.take()[2:] == [[Push([b"unsubscribe", b"c", 0])], TOLD]
