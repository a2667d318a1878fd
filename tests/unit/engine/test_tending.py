"""Looking after streams in the background: retention, compaction, silent producers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store

DAY_MS = 24 * 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def session(engine: Engine) -> Iterator[LocalSession]:
    with LocalSession(engine) as session:
        yield session


def write(session: LocalSession, *tags: str, key: str = "k") -> None:
    for tag in tags:
        session.execute("TWRITE", key, tag, "entry")


def info(session: LocalSession, key: str = "k") -> Any:
    return session.execute("TINFO", "STREAM", key)


def pass_time(engine: Engine, clock: ManualClock, ms: int) -> None:
    clock.advance_ms(ms)
    while engine.duties.tick():
        pass


def test_retention_by_age(engine: Engine, session: LocalSession, clock: ManualClock) -> None:
    session.execute("TPOLICY", "k", "RETAIN-MS", 10_000, "NODE-MESSAGES", 2)
    write(session, *"abcd")
    pass_time(engine, clock, 6_000)
    write(session, "e")
    assert info(session)[b"first"] == 1
    pass_time(engine, clock, 6_000)
    assert info(session)[b"first"] == 5
    assert check_store(engine) == []


def test_compaction_and_its_end(engine: Engine, session: LocalSession, clock: ManualClock) -> None:
    session.execute("TPOLICY", "k", "COMPACT", "yes", "NODE-MESSAGES", 4, "DIRTY-RATIO", 10)
    write(session, *"aabbaabb")
    pass_time(engine, clock, 2_000)
    assert info(session)[b"length"] == 2
    session.execute("TPOLICY", "k", "COMPACT", "no")
    write(session, *"aabbaabb")
    pass_time(engine, clock, 2_000)
    assert info(session)[b"length"] == 10
    assert check_store(engine) == []


def test_silent_producers_are_forgotten(engine: Engine, session: LocalSession, clock: ManualClock) -> None:
    session.execute("TWRITE", "k", "PRODUCER", "p", 1, "ENTRIES", "t", "e")
    assert info(session)[b"producers"] == 1
    pass_time(engine, clock, DAY_MS + 1)
    assert info(session)[b"producers"] == 0


def test_a_renamed_stream_is_still_tended(engine: Engine, session: LocalSession, clock: ManualClock) -> None:
    session.execute("TPOLICY", "k", "RETAIN-COUNT", 2, "NODE-MESSAGES", 1)
    session.execute("RENAME", "k", "moved")
    session.execute("COPY", "moved", "copied")
    write(session, *"abcd", key="moved")
    write(session, *"abcd", key="copied")
    pass_time(engine, clock, 2_000)
    assert [info(session, key)[b"length"] for key in ("moved", "copied")] == [2, 2]
    session.execute("DEL", "moved")
    pass_time(engine, clock, 2_000)
    assert check_store(engine) == []
