"""``export``: every message is in the lake once, whatever was killed, lost, restored, or done by two."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.blocking import Client
from penstock.errors import ConfigError, DataLossError, LakeError
from penstock.lake import Lake, LakeTable
from penstock.lake.alone import alone
from penstock.spark.jobs import export_landing, export_plan
from penstock.spark.jobs.export import ExportJob, ExportOptions, _Export
from penstock.spark.jobs.exported import begin_app, progress_app
from penstock.spark.stores import store_id
from tests.places import wait_until
from tests.spark.exporting import context_of, export, in_lake, in_store
from tests.spark.places import EVERYWHERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KilledError(Exception):
    """The process went here."""


def fill(ps: Client) -> None:
    """Tags, a tombstone, bytes, an open node and holes, in two streams; a third one is not asked for."""
    ps.stream("orders").policy(node_messages=50)
    ps.stream("orders").write_many([(f"tag {number % 7}", f"order {number}") for number in range(300)])
    ps.stream("orders").write("tag 1", None)
    ps.stream("orders").drop((100, 119))
    ps.stream("orders").write_many([("x", "gone"), ("x", "gone")])
    ps.stream("orders").drop((302, 303))
    ps.stream("audit/ü").write_many([("", b"\xff\x00"), (b"\xfe", ""), ("a", "b")])
    ps.stream("private").write("", "secret")


def cursor(ps: Client, stream: str) -> int:
    info = ps.stream(stream).group("lake").info()
    assert info is not None
    return info.cursor


@EVERYWHERE
def test_the_lake_has_every_message_once(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    fill(ps)
    context = context_of(spark, lake, ps, url)
    report = export(context, streams=("orders", "audit*", "later"), max_messages_per_batch=200)
    assert (report.rows, report.lag, report.notes) == (284, 0, {"absent": 1})
    assert report.batches >= 2
    assert in_lake(lake) == in_store(ps, "orders", "audit/ü")
    assert (cursor(ps, "orders"), cursor(ps, "audit/ü")) == (304, 4)
    assert lake.table("messages").progress(begin_app(store_id(ps), "orders")) == 1
    # What came since, what is new, and nothing of what was there.
    ps.stream("orders").write_many([("x", "1"), ("y", "2")])
    ps.stream("later").write("", "at last")
    report = export(context, streams=("orders", "audit*", "later"))
    assert (report.batches, report.rows, report.notes) == (1, 3, {})
    assert in_lake(lake) == in_store(ps, "orders", "audit/ü", "later")
    version = lake.table("messages").version()
    assert export(context, streams=("orders", "audit*", "later")).batches == 0
    assert lake.table("messages").version() == version


def test_killed_anywhere(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between writing and committing, after committing, before the store is told: the lake alone decides."""
    fill(ps)
    context = context_of(spark, lake, ps, url)
    real_commit = LakeTable.commit

    def killed_before(*_: Any, **__: Any) -> Any:
        raise KilledError("before")

    def killed_after(*arguments: Any, **named: Any) -> Any:
        real_commit(*arguments, **named)
        raise KilledError("after")

    progress = []
    for fault in (killed_before, killed_after):
        monkeypatch.setattr(LakeTable, "commit", fault)
        with pytest.raises(KilledError):
            export(context, streams=("orders",), max_messages_per_batch=90)
        monkeypatch.undo()
        progress.append(lake.table("messages").progress(progress_app(store_id(ps), "orders")))
    assert progress == [None, 91]
    assert cursor(ps, "orders") == 1, "nobody came to tell it"
    ps.stream("orders").evict(upto=300, acked=True)
    assert export(context, streams=("orders",)).rows == 191
    assert in_lake(lake) == in_store(ps, "orders")
    # Told too late: nothing new is there, and the store learns it all the same.
    ps.stream("orders").write("a", "b")
    monkeypatch.setattr(export_landing.Landing, "publish", lambda *_: None)
    export(context, streams=("orders",))
    monkeypatch.undo()
    assert cursor(ps, "orders") == 304
    assert export(context, streams=("orders",)).batches == 0
    assert cursor(ps, "orders") == 305


def test_a_lake_from_a_backup(spark: SparkSession, lake: Lake, ps: Client, url: str, tmp_path: Path) -> None:
    """It is behind the store's cursor: what it has not got is taken again, if it is there."""
    orders = ps.stream("orders")
    orders.write_many([("a", f"{number}") for number in range(50)])
    export(context_of(spark, lake, ps, url), streams=("orders",))
    shutil.copytree(lake.root, tmp_path / "backup")
    orders.write_many([("b", f"{number}") for number in range(50)])
    export(context_of(spark, lake, ps, url), streams=("orders",))
    restored = Lake.open(tmp_path / "backup")
    assert len(in_lake(restored)) == 50
    export(context_of(spark, restored, ps, url), streams=("orders",))
    assert in_lake(restored) == in_lake(lake) == in_store(ps, "orders")
    # A stream that begins anew is not mixed with what is there; the others go on.
    orders.delete()
    orders.write("a", "anew")
    ps.stream("audit").write("a", "b")
    with pytest.raises(
        DataLossError, match="the lake has the stream orders up to offset 100 and it ends at 1"
    ):
        export(context_of(spark, lake, ps, url), streams=("orders", "audit"))
    assert [row[0] for row in in_lake(lake) if row[4] in (b"anew", b"b")] == ["audit"]


def test_what_was_evicted_too_early(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    orders = ps.stream("orders")
    orders.write_many([("a", f"{number}") for number in range(10)])
    orders.evict(upto=2)
    context = context_of(spark, lake, ps, url)
    assert export(context, streams=("orders",)).rows == 8, "what was gone before anybody asked is not lost"
    orders.write_many([("a", f"{number}") for number in range(10)])
    orders.evict(upto=15)
    with pytest.raises(DataLossError, match="offsets 11 to 15 of the stream orders were evicted"):
        export(context, streams=("orders",))
    report = export(context, streams=("orders",), fail_on_data_loss=False)
    assert (report.rows, report.notes) == (5, {"lost": 5})
    assert [row[1] for row in in_lake(lake)] == [*range(3, 11), *range(16, 21)]
    with pytest.raises(ConfigError, match="streams is empty"):
        ExportOptions(streams=())


def test_from_now_on(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    """ "Now" is when the stream was first seen, not each time anew."""
    orders = ps.stream("orders")
    orders.write_many([("a", f"{number}") for number in range(10)])
    context = context_of(spark, lake, ps, url)
    assert export(context, streams=("orders",), starting="latest", group="").rows == 0
    orders.write("a", "new")
    assert export(context, streams=("orders",), starting="latest", group="").rows == 1
    assert in_lake(lake) == in_store(ps, "orders")[-1:]
    assert orders.group("lake").info() is None


def test_two_at_once(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them works. If another one did without being allowed to, the lake would not take it."""
    orders = ps.stream("orders")
    orders.write("a", "1")
    context = context_of(spark, lake, ps, url)
    options = ExportOptions(streams=("orders",))
    with alone(lake, _Export(options, context).lock):
        report = export(context, streams=("orders",))
        assert (report.rows, report.notes) == (0, {"busy": 1})
    assert export(context, streams=("orders",)).rows == 1
    orders.write("a", "2")
    stale = export_plan.make_plan(context, options, store_id(ps))
    late = export_landing.Landing(context, store_id(ps), stale, group="lake")
    assert export(context, streams=("orders",)).rows == 1
    columns = "stream STRING, offset BIGINT, time TIMESTAMP, tag BINARY, message BINARY"
    source = (
        spark.read.format("penstock").schema(columns).options(url=url, streams="orders", startingOffset="2")
    )
    with pytest.raises(LakeError, match="another process has exported orders; begin again"):
        late(source.load(), 0)
    orders.write("a", "3")
    with pytest.raises(LakeError, match=r"is at 3, .* 2; somebody else went on"):
        late(source.load(), 1)
    assert in_lake(lake) == in_store(ps, "orders")[:2]
    monkeypatch.setattr("penstock.spark.jobs.export.store_id", lambda _: "another")
    with pytest.raises(LakeError, match="has a stream orders of another store"):
        export(context, streams=("orders",))


def test_kept_running(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New messages and new streams arrive by themselves; it ends when it is told to, whole."""
    monkeypatch.setattr("penstock.spark.jobs.export._LOOK_S", 0.5)
    ps.stream("orders").write("a", "1")
    reports: list[Any] = []
    heard: list[Any] = []
    context = context_of(spark, lake, ps, url, every_ms=50, listener=heard.append)
    job = ExportJob(ExportOptions(streams=("*",)))
    thread = threading.Thread(target=lambda: reports.append(job.run_until_stopped(context)))
    thread.start()
    try:
        wait_until(lambda: len(in_lake(lake)) == 1)
        ps.stream("orders").write("a", "2")
        wait_until(lambda: len(in_lake(lake)) == 2)
        ps.stream("bills").write("a", "3")
        wait_until(lambda: len(in_lake(lake)) == 3)
    finally:
        context.stopping.set()
        thread.join(60)
    assert in_lake(lake) == in_store(ps, "bills", "orders")
    assert [(report.rows, report.lag) for report in reports] == [(3, 0)]
    assert {"batches", "rows"} == set(heard[-1])
