"""Dropping inside the engine: nodes are written once, compactions begin anew; producers that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.engine.datatypes.stream import Stream
from penstock.engine.datatypes.stream.compaction import Run
from penstock.engine.datatypes.stream.dropping import drop
from penstock.engine.datatypes.stream.groups import pending_between
from penstock.engine.datatypes.stream.pending import Range
from penstock.engine.datatypes.stream.policies import Policy
from penstock.engine.datatypes.stream.producers import LIFE_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    with Engine.open(tmp_path / "store.pen", durability="relaxed", clock=clock) as engine:
        yield engine
        assert check_store(engine) == []


@pytest.fixture
def do(engine: Engine) -> Iterator[Callable[..., Any]]:
    with LocalSession(engine) as session:
        yield session.execute


def within(engine: Engine, work: Callable[[Stream], Any]) -> Any:
    """Work with the stream in a unit of its own."""
    box: list[Any] = []

    def task() -> None:
        stream = engine.keyspaces[0].load(b"k", Stream)
        assert stream is not None
        box.append(work(stream))
        stream.save()

    engine.run_task(task)
    return box[0]


def fill(do: Callable[..., Any], count: int, node_messages: int = 10) -> None:
    do("TPOLICY", "k", "NODE-MESSAGES", node_messages)
    for number in range(1, count + 1):
        do("TWRITE", "k", "t", str(number))


def present(do: Callable[..., Any]) -> list[int]:
    return [row[0] for row in do("TREAD", "k", 1, 1_000, "SKIPNULL")]


# ---------------------------------------------------------------------------------- dropping


def test_a_node_is_written_once_and_others_are_not_looked_at(
    do: Callable[..., Any], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(do, 60)
    thinned: list[tuple[int, int]] = []
    thin_out = Stream.thin_out

    def watched(self: Stream, node: Any, kept: Any) -> int:
        thinned.append((node.base, thin_out(self, node, kept)))
        return thinned[-1][1]

    monkeypatch.setattr(Stream, "thin_out", watched)
    ranges = [Range(2, 2), Range(5, 6), Range(9, 12), Range(35, 35), Range(48, 1 << 60)]
    assert within(engine, lambda stream: drop(stream, ranges)) == 21
    assert thinned == [(1, 5), (11, 2), (31, 1), (41, 3), (51, 10)]
    assert do("TINFO", "STREAM", "k")[b"nodes"] == 5, "a node without messages goes"


def test_holes_between_nodes(do: Callable[..., Any]) -> None:
    fill(do, 50)
    assert do("TDROP", "k", "11-30") == 20
    assert do("TDROP", "k", 12, "14-29", 31) == 1
    assert do("TDROP", "k", "9-32") == 3
    assert present(do) == [*range(1, 9), *range(33, 51)]


def test_a_node_that_was_evicted_in_part(do: Callable[..., Any]) -> None:
    fill(do, 20)
    do("TEVICT", "k", 4)
    assert do("TDROP", "k", "1-6") == 2
    assert do("TINFO", "STREAM", "k")[b"length"] == 14
    assert do("TDROP", "k", "5-10") == 4
    assert (do("TINFO", "STREAM", "k")[b"first"], present(do)[0]) == (5, 11)


def test_the_open_end_is_closed_first(do: Callable[..., Any], engine: Engine) -> None:
    fill(do, 4)
    assert do("TDROP", "k", 9) == 0
    assert within(engine, lambda stream: stream.open_from) == 1, "nothing of it was meant"
    assert do("TDROP", "k", 2) == 1
    assert within(engine, lambda stream: stream.open_from) == 5
    do("TWRITE", "k", "t", "5")
    assert do("TDROP", "k", 5) == 1
    assert do("TWRITE", "k", "t", "6") == 6
    assert present(do) == [1, 3, 4, 6]


def test_a_compaction_under_way_begins_anew(do: Callable[..., Any], engine: Engine) -> None:
    fill(do, 200, node_messages=1)
    run = Run(Policy(), pending_between)
    for _ in range(4):  # looked at 64 nodes a step, and a step further
        assert within(engine, run.step)
    assert do("TDROP", "k", 200) == 1
    while within(engine, run.step):
        pass
    assert present(do) == [199], "it took 200 for the newest one"


def test_events(do: Callable[..., Any], engine: Engine) -> None:
    do("CONFIG", "SET", "notify-keyspace-events", "KEA")
    fill(do, 2)
    with LocalSession(engine) as listener:
        listener.execute("SUBSCRIBE", "__keyspace@0__:k")
        do("TDROP", "k", 7)  # nothing goes: no event
        do("TDROP", "k", "1-2")
        do("TWRITE", "k", "t", "3")
        heard: list[Any] = []
        while heard[-1:] != [b"twrite"]:
            push = listener.wait(15_000)
            assert push is not None
            heard.append(push[-1])
    assert [event for event in heard if isinstance(event, bytes)] == [b"tdrop", b"twrite"]


def test_dropped_messages_follow_their_stream(do: Callable[..., Any]) -> None:
    fill(do, 25)
    do("TDROP", "k", 3, 25)
    do("COPY", "k", "copied")
    do("RESTORE", "restored", 0, do("DUMP", "copied"))
    do("RENAME", "k", "new")
    for key in ("new", "copied", "restored"):
        assert do("TREAD", key, 3, 1) == [None]
        assert do("TWRITE", key, "t", "e") == 26


# --------------------------------------------------------------------------------- producers


def pass_time(engine: Engine, clock: ManualClock, ms: int) -> None:
    clock.advance_ms(ms)
    while engine.duties.tick():
        pass


def test_a_kept_producer_is_remembered_as_long_as_the_stream(
    do: Callable[..., Any], engine: Engine, clock: ManualClock
) -> None:
    do("TWRITE", "k", "PRODUCER", "kept", 1, "KEEP", "ENTRIES", "t", "1")
    do("TWRITE", "k", "PRODUCER", "usual", 1, "ENTRIES", "t", "2")
    pass_time(engine, clock, 30 * LIFE_MS)
    assert do("TINFO", "STREAM", "k")[b"producers"] == 1
    assert do("TINFO", "PRODUCER", "k", "usual") is None
    assert do("TINFO", "PRODUCER", "k", "kept") == {
        b"sequence": 1, b"last": 1, b"kept": b"yes", b"idle-ms": 30 * LIFE_MS,
    }  # fmt: skip
    assert do("TWRITE", "k", "PRODUCER", "kept", 1, "KEEP", "ENTRIES", "t", "1") == 1
    assert do("TWRITE", "k", "PRODUCER", "usual", 1, "ENTRIES", "t", "2") == 3


def test_a_producer_that_is_kept_no_longer_lives_for_another_day(
    do: Callable[..., Any], engine: Engine, clock: ManualClock
) -> None:
    do("TWRITE", "k", "PRODUCER", "p", 1, "KEEP", "ENTRIES", "t", "1")
    pass_time(engine, clock, 30 * LIFE_MS)
    assert do("TWRITE", "k", "PRODUCER", "p", 1, "ENTRIES", "t", "1") == 1
    pass_time(engine, clock, LIFE_MS)
    assert do("TINFO", "PRODUCER", "k", "p")[b"kept"] == b"no"
    pass_time(engine, clock, 1)
    assert do("TINFO", "PRODUCER", "k", "p") is None
    pass_time(engine, clock, 60_000)
    assert do("TINFO", "STREAM", "k")[b"producers"] == 0
