"""Scripts and several processes: one cache for all, and nothing of a failed script reaches another."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import Engine, LocalSession
from penstock.errors import CommandError
from tests.integration.peers import Peer

NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL."
_LONG_MS = 30_000

StartPeer = Callable[[], Peer]


def wait_for_waiter(engine: Engine) -> None:
    """Until a client of any process waits; the table tells."""
    found = [0]

    def look() -> None:
        found[0] = engine.unit.entries(engine.unit.tables["waiting"])

    while found[0] == 0:
        engine.run_task(look, write=False)


def sha1(source: str) -> str:
    return hashlib.sha1(source.encode()).hexdigest()


# -------------------------------------------------------------------------------- cache


def test_what_one_process_loads_the_other_knows(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    loaded_here = session.execute("SCRIPT", "LOAD", "return ARGV[1]")
    assert other.do("EVALSHA", loaded_here, "0", "there") == b"there"
    run_there = "return redis.call('INCR', KEYS[1])"
    assert other.do("EVAL", run_there, "1", "n") == 1
    assert session.execute("EVALSHA", sha1(run_there), "1", "n") == 2
    assert session.execute("SCRIPT", "EXISTS", loaded_here, sha1(run_there)) == [1, 1]


def test_a_flush_by_one_process_is_seen_by_the_other(session: LocalSession, start_peer: StartPeer) -> None:
    other = start_peer()
    digest = session.execute("SCRIPT", "LOAD", "return 1")
    # Both have run it, so both have it compiled.
    assert (session.execute("EVALSHA", digest, "0"), other.do("EVALSHA", digest, "0")) == (1, 1)
    assert other.do("SCRIPT", "FLUSH") == b"OK"
    assert session.execute("SCRIPT", "EXISTS", digest) == [0]
    with pytest.raises(CommandError) as refusal:
        session.execute("EVALSHA", digest, "0")
    assert str(refusal.value) == NO_SCRIPT
    assert session.execute("EVAL", "return 1", "0") == 1
    assert other.do("EVALSHA", digest, "0") == 1


def test_scripts_are_there_when_the_store_is_opened_again(store: Path) -> None:
    for times in (1, 2, 3):
        with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
            if times == 1:
                session.execute("SCRIPT", "LOAD", "return redis.call('INCR', 'n')")
            assert session.execute("EVALSHA", sha1("return redis.call('INCR', 'n')"), "0") == times


# ------------------------------------------------------------------------- other processes


def test_a_waiter_elsewhere_is_served_after_the_whole_script(
    engine: Engine, session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.send("BRPOP", "l", "0")
    wait_for_waiter(engine)
    with pytest.raises(CommandError, match="oops"):
        session.execute("EVAL", "redis.call('RPUSH', 'l', 'wrong') error('oops')", "0")
    source = "redis.call('RPUSH', 'l', 'a') redis.call('RPUSH', 'l', 'b') return redis.call('LLEN', 'l')"
    assert session.execute("EVAL", source, "0") == 2
    assert other.receive() == [b"l", b"b"]
    assert session.execute("LRANGE", "l", "0", "-1") == [b"a"]


def test_a_listener_elsewhere_hears_nothing_of_a_failed_script(
    session: LocalSession, start_peer: StartPeer
) -> None:
    other = start_peer()
    other.do("SUBSCRIBE", "news")
    assert other.do("wait", _LONG_MS) == [b"subscribe", b"news", 1]
    with pytest.raises(CommandError, match="oops"):
        session.execute("EVAL", "redis.call('PUBLISH', 'news', 'wrong') error('oops')", "0")
    assert session.execute("EVAL", "return redis.call('PUBLISH', 'news', 'right')", "0") == 1
    assert other.do("wait", _LONG_MS) == [b"message", b"news", b"right"]


def test_what_a_failed_script_took_from_the_mailbox_is_still_delivered(
    engine: Engine, start_peer: StartPeer
) -> None:
    """Publishing collects what other processes posted before; here that is the reply of a waiter."""
    other = start_peer()
    boxes: list[list[Any]] = [[], [], []]
    waiter, listener, caller = (engine.session(box.append) for box in boxes)
    engine.execute([(waiter, [b"BLPOP", b"l", b"0"]), (listener, [b"SUBSCRIBE", b"news"])])
    boxes[1].clear()
    assert other.do("RPUSH", "l", "precious") == 1

    failing = b"redis.call('PUBLISH', 'news', 'wrong') error('oops')"
    engine.execute([(caller, [b"EVAL", failing, b"0"])])
    assert boxes[:2] == [[], []]
    assert "oops" in str(boxes[2][0])
    assert waiter.blocked is not None

    engine.collect()
    assert boxes[0] == [[b"l", b"precious"]]
    assert waiter.blocked is None
