"""``compact``: the newest message of each tag stays, whatever was killed, on every store."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.blocking import Client
from penstock.clock import ManualClock, SystemClock
from penstock.errors import ConfigError
from penstock.lake import Lake
from penstock.spark.jobs import compacting
from penstock.spark.jobs.compact import CompactJob, CompactOptions
from tests.spark.exporting import context_of
from tests.spark.places import EVERYWHERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Message = tuple[int, bytes, bytes | None]


def messages(ps: Client, name: str) -> list[Message]:
    return [(one.offset, one.tag, one.entry) for one in ps.stream(name).read()]


def newest_of(found: list[Message], spared: set[int] = frozenset()) -> list[Message]:  # type: ignore[assignment]
    """The rule, naively."""
    newest = {tag: offset for offset, tag, _ in found}
    return [one for one in found if not one[1] or one[0] == newest[one[1]] or one[0] in spared]


def fill(ps: Client, name: str, seed: int) -> None:
    chance = random.Random(seed)
    stream = ps.stream(name)
    for _ in range(12):
        entries = [(f"k{chance.randrange(40)}" if chance.random() < 0.95 else "", "x") for _ in range(50)]
        stream.write_many(entries)
        stream.write(f"k{chance.randrange(40)}", None)
    stream.drop(*(chance.randrange(1, 600) for _ in range(20)))


@EVERYWHERE
def test_the_newest_of_each_tag_stays(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "_ITEMS", 50)
    fill(ps, "profiles", 1)
    before = messages(ps, "profiles")
    group = ps.stream("profiles").group("readers")
    group.create(at=0)
    _read(group, 5)
    held = {one.offset for one in group.pending()}
    assert held
    context = context_of(spark, lake, ps, url)
    report = CompactJob(CompactOptions(streams=["prof*"])).run_once(context)
    after = newest_of(before, held)
    assert messages(ps, "profiles") == after
    assert report.rows == len(before) - len(after)
    assert report.batches > 1
    info = ps.stream("profiles").info()
    assert info.last == 612
    assert CompactJob(CompactOptions(streams=["profiles", "absent"])).run_once(context).rows == 0


def _read(group: Any, count: int) -> None:
    """Messages that nobody acknowledges, and some that were read ahead."""
    for place, _ in enumerate(group.consume(retry_ms=600_000, prefetch=count), 1):
        if place == count:
            return


def test_killed_between_two_calls(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ps, "profiles", 2)
    before = messages(ps, "profiles")
    monkeypatch.setattr(compacting, "_ITEMS", 20)
    context = context_of(spark, lake, ps, url)
    calls = compacting.compact(context, "profiles", CompactOptions(streams=["profiles"]))
    assert next(calls) > 0
    calls.close()
    assert len(messages(ps, "profiles")) < len(before)
    assert newest_of(messages(ps, "profiles")) == newest_of(before)
    ps.stream("profiles").write("k1", "new")  # above the boundary
    CompactJob(CompactOptions(streams=["profiles"])).run_once(context)
    assert messages(ps, "profiles") == newest_of([*before, (613, b"k1", b"new")])


def test_what_is_young_is_left(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    """Messages by their age; tombstones by theirs, and when nothing of their tag is left."""
    stream = ps.stream("s")
    stream.write_many([("a", "1"), ("a", "2"), ("b", "1")])
    stream.write("b", None, backlog=100)
    hour = CompactOptions(streams=["s"], min_lag_ms=3_600_000)
    assert CompactJob(hour).run_once(context_of(spark, lake, ps, url)).rows == 0
    job = CompactJob(CompactOptions(streams=["s"], tombstone_ms=3_600_000))
    assert job.run_once(context_of(spark, lake, ps, url)).rows == 2
    assert messages(ps, "s") == [(2, b"a", b"2"), (4, b"b", None)]
    assert job.run_once(context_of(spark, lake, ps, url)).rows == 0
    later = ManualClock(SystemClock().now_ms() + 7_200_000)
    assert job.run_once(context_of(spark, lake, ps, url, clock=later)).rows == 1
    assert messages(ps, "s") == [(2, b"a", b"2")]


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match="streams has an empty name: write one, or leave it out"):
        CompactOptions(streams=[""])
    with pytest.raises(ConfigError, match="min_lag_ms must be at least 0, not -1"):
        CompactOptions(streams=["a"], min_lag_ms=-1)
