"""CLIENT TRACKING when keys are changed by another process on the same directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from tests.integration.peers import LONG_S, Peer

StartPeer = Callable[[], Peer]
LONG_MS = int(LONG_S * 1000)


def rows(engine: Engine, table: str) -> int:
    found = [0]

    def look() -> None:
        found[0] = engine.unit.entries(engine.unit.tables[table])

    engine.run_task(look, write=False)
    return found[0]


def test_who_read_a_key_is_told_of_changes_elsewhere(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    session.execute("CLIENT", "TRACKING", "ON")
    assert session.execute("GET", "k") is None
    other.do("SET", "unrelated", "1")
    other.do("SET", "k", "1")
    assert session.wait(LONG_MS) == [b"invalidate", [b"k"]]
    other.do("SET", "k", "2")
    assert session.poll() is None
    session.execute("GET", "k")
    other.do("EVAL", "redis.call('DEL', KEYS[1])", 1, "k")
    assert session.wait(LONG_MS) == [b"invalidate", [b"k"]]


def test_broadcast_and_flush_elsewhere(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    session.execute("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "p:")
    other.do("MSET", "p:b", "1", "x", "1", "p:a", "1")
    assert session.wait(LONG_MS) == [b"invalidate", [b"p:a", b"p:b"]]
    other.do("FLUSHALL")
    assert session.wait(LONG_MS) == [b"invalidate", None]


def test_noloop_spares_changes_of_the_session_not_of_other_processes(
    session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    session.execute("CLIENT", "TRACKING", "ON", "NOLOOP")
    session.execute("GET", "k")
    other.do("SET", "k", "1")
    assert session.wait(LONG_MS) == [b"invalidate", [b"k"]]


def test_expiry_by_another_process(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    session.execute("SET", "k", "1", "PX", "30")
    session.execute("CLIENT", "TRACKING", "ON")
    session.execute("GET", "k")
    while other.do("EXISTS", "k"):
        pass
    other.do("SET", "k", "2")
    assert session.wait(LONG_MS) == [b"invalidate", [b"k"]]


def test_nothing_is_posted_once_nobody_tracks(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    session.execute("CLIENT", "TRACKING", "ON")
    session.execute("GET", "k")
    other.do("SET", "k", "1")
    session.execute("CLIENT", "TRACKING", "OFF")
    assert rows(engine, "channels") == rows(engine, "subscribed") == rows(engine, "messages") == 0
    other.do("SET", "k", "2")
    assert rows(engine, "messages") == 0


def test_a_session_that_ends_tracks_no_more(engine: Engine) -> None:
    with LocalSession(engine) as one, LocalSession(engine) as other:
        one.execute("CLIENT", "TRACKING", "ON")
        other.execute("CLIENT", "TRACKING", "ON", "BCAST")
        one.close()
        assert rows(engine, "channels") == 1
        other.close()
        assert rows(engine, "channels") == rows(engine, "subscribed") == 0


def test_a_killed_process_is_cleaned_up_by_whoever_writes(
    engine: Engine, session: LocalSession, start_peer: StartPeer, store: Path
) -> None:
    other = start_peer()
    other.do("CLIENT", "TRACKING", "ON")
    other.do("GET", "k")
    session.execute("SET", "k", "1")
    assert rows(engine, "messages") == 1
    other.kill()
    session.execute("SET", "k", "2")
    assert rows(engine, "channels") == rows(engine, "subscribed") == rows(engine, "messages") == 0
    assert session.execute("GET", "k") == b"2"


def test_who_lost_messages_is_told_that_everything_changed(store: Path, start_peer: StartPeer) -> None:
    other = start_peer()
    other.do("CLIENT", "TRACKING", "ON")
    other.do("GET", "k")
    with (
        Engine.open(store, durability="relaxed", queue_limit=5) as engine,
        LocalSession(engine) as session,
    ):
        other.do("GET", "first")
        for number in range(50):
            session.execute("SET", f"k{number}", "1")
    assert other.do("wait", LONG_MS) == [b"invalidate", None]


@pytest.mark.parametrize("batch", [1, 7])
def test_a_cache_that_drops_what_is_invalidated_never_stays_stale(
    session: LocalSession, start_peer: StartPeer, batch: int
) -> None:
    """Another process counts up; whoever believes its copies until told must end at the last number."""
    other = start_peer()
    session.execute("CLIENT", "TRACKING", "ON")
    copies: dict[bytes, Any] = {}
    keys = [b"a", b"b", b"c"]
    last = 300
    script = "for i = 1, ARGV[1] do for _, key in ipairs(KEYS) do redis.call('INCR', key) end end"
    for _ in range(0, last, batch):
        other.send("EVAL", script, len(keys), *keys, batch)
        for key in keys:
            if key not in copies:
                copies[key] = session.execute("GET", key)
        while (push := session.poll()) is not None:
            for key in push[1] or list(copies):
                copies.pop(key, None)
        other.receive()
    total = b"%d" % (-(-last // batch) * batch)
    while any(copies.get(key) != total for key in keys):
        for key in keys:
            if key not in copies:
                copies[key] = session.execute("GET", key)
                assert copies[key] == total
        if any(copies[key] != total for key in keys):
            push = session.wait(LONG_MS)
            assert push is not None, f"never told of the last changes: {copies}"
            for key in push[1] or list(copies):
                copies.pop(key, None)


def test_the_rows_are_sound_meanwhile(engine: Engine, start_peer: StartPeer, session: LocalSession) -> None:
    session.execute("CLIENT", "TRACKING", "ON")
    start_peer().do("SET", "k", "1")
    assert rows(engine, "messages") == 1
    assert check_store(engine) == []
