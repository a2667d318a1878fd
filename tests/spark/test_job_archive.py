"""The job ``archive``: whatever has ended is in the lake once, as it was, whoever dies on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn

import penstock.blocking
from penstock.blocking import Client
from penstock.blocking.portal import PORTAL
from penstock.errors import ConfigError, LakeError
from penstock.lake import Lake, LakeTable
from penstock.lake.alone import alone
from penstock.lake.archive import LakeArchive, archive_app
from penstock.spark.jobs import archive_intake
from penstock.spark.jobs.archive import ArchiveJob, ArchiveOptions
from penstock.spark.jobs.archive_intake import Intake
from penstock.spark.jobs.derive import derive
from penstock.transactions.archive import ArchiveReader
from penstock.transactions.archive.handing_out import HandingOut
from tests.spark.archiving import (
    CrashError,
    archive_all,
    archived,
    context_of,
    job,
    left,
    leftovers,
    recorded,
    run_shop,
    steps_in,
    steps_of,
    work_off,
)
from tests.spark.places import EVERYWHERE
from tests.unit.transactions.archive.samples import batch, id_of, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@EVERYWHERE
def test_what_has_ended_moves_to_the_lake(spark: SparkSession, url: str, ps: Client, lake: Lake) -> None:
    ids = run_shop(ps, 24)
    before = recorded(ps, ids)
    context = context_of(spark, lake, ps)
    one = job("node-1", lock1_ms=60_000, lock2_ms=70_000)
    report = one.run_once(context)
    assert archived(lake) == before
    assert (report.rows, report.lag, left(ps)) == (24, 0, 0)
    assert all(content == ({}, []) for content in recorded(ps, ids).values())
    # Whatever partitions they came from, readers saw them come at once.
    transactions = lake.table("transactions")
    assert len(transactions.changes(0)) == 1
    source = PORTAL.run(HandingOut(ps.transactions.store, node="x").source())
    partitions = {int(tx.split("-")[1]) for tx in ids}
    assert {transactions.progress(archive_app(source, partition)) for partition in partitions} == {1}
    # What is told apart from them.
    assert steps_of(lake) == steps_in(before)
    hooks = lake.table("webhooks").dataset().to_table().to_pylist()
    assert {hook["tx"] for hook in hooks} == {tx for number, tx in enumerate(ids) if number % 7 == 3}
    assert {hook["status"] for hook in hooks} == {"cancelled"}
    # There is nothing more to do.
    version = transactions.version()
    assert (one.run_once(context).rows, transactions.version(), derive(context)) == (0, version, {})


class Crashes:
    """Lets jobs die at a point of a round, once for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def run(self, point: str, work: Callable[[], object]) -> None:
        told = {"damaged": "or others than these", "changed": "does not hold what was written"}
        with self._monkeypatch.context() as patch:
            getattr(self, f"_{point}")(patch)
            with pytest.raises(LakeError if point in told else CrashError, match=told.get(point, "killed")):
                work()

    @staticmethod
    def _die(*arguments: Any, **options: Any) -> Any:
        raise CrashError("killed")

    def _handed(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Intake, "take_in", self._die)

    def _written(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Intake, "_verify", self._die)

    def _damaged(self, patch: pytest.MonkeyPatch) -> None:
        write = archive_intake.write

        def damaged(df: Any, *arguments: Any, **options: Any) -> Any:
            return write(df.withColumn("id", df.id.substr(1, 35)), *arguments, **options)

        patch.setattr(archive_intake, "write", damaged)

    def _changed(self, patch: pytest.MonkeyPatch) -> None:
        write = archive_intake.write

        def changed(df: Any, *arguments: Any, **options: Any) -> Any:
            return write(df.withColumn("trail", fn.slice("trail", 1, 1)), *arguments, **options)

        patch.setattr(archive_intake, "write", changed)

    def _verified(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(LakeTable, "commit", self._die)

    def _committed(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(HandingOut, "note_safe", self._die)

    def _acknowledged(self, patch: pytest.MonkeyPatch) -> None:
        acknowledge = HandingOut.acknowledge

        async def dying(handing_out: HandingOut, partition: int) -> None:
            await acknowledge(handing_out, partition)
            raise CrashError("killed")

        patch.setattr(HandingOut, "acknowledge", dying)


def test_nodes_die_at_every_point_one_after_another(
    spark: SparkSession, url: str, ps: Client, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also twice behind the commit: then the mark names a batch that wrote nothing itself."""
    ids = run_shop(ps, 12)
    before = recorded(ps, ids)
    context = context_of(spark, lake, ps)
    crashes = Crashes(monkeypatch)
    points = ("handed", "written", "damaged", "changed", "verified", "committed", "handed", "committed")

    def work() -> None:
        # It has the role, whoever had it before: that is what a pass waits for.
        archive_all(context, batch=5)

    for point in points:
        crashes.run(point, work)
        assert set(archived(lake)) <= set(before)
    assert len(archived(lake)) == 5
    assert left(ps) == 12
    crashes.run("acknowledged", work)
    archive_all(context, batch=5)
    assert archived(lake) == before
    assert steps_of(lake) == steps_in(before)
    assert leftovers(lake)  # of those that died; no reader sees them


@pytest.mark.parametrize("url", ["server"], indirect=True)
def test_two_archivers_share_the_work_and_nothing_is_twice(
    spark: SparkSession, url: str, ps: Client, lake: Lake
) -> None:
    before = recorded(ps, run_shop(ps, 30))
    failures: list[BaseException] = []

    def work(node: str) -> None:
        try:
            archive_all(context_of(spark, Lake.open(lake.root), ps), node, batch=6)
        except BaseException as error:  # noqa: BLE001 - the test tells
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"node-{number}",)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert archived(lake) == before
    # Who left a table to the other takes in what that one had not seen yet.
    derive(context_of(spark, lake, ps))
    assert steps_of(lake) == steps_in(before)


def test_a_node_that_was_away_writes_nothing(spark: SparkSession, url: str, ps: Client, lake: Lake) -> None:
    before = recorded(ps, run_shop(ps, 4))
    late = HandingOut(ps.transactions.store, node="node-1", lock1_ms=20, lock2_ms=30)
    held = PORTAL.run(late.ask(0, 10))
    assert held is not None
    context, intake = context_of(spark, lake, ps), Intake(spark, lake)
    # It is at the lake: others leave its partition to it.
    with alone(lake, f"archive-{held.source}-0") as is_mine:
        assert is_mine
        notes: dict[str, int | str] = {}
        while "busy" not in notes:
            notes = job("node-2").run_once(context).notes
        assert left(ps) == 4
    archive_all(context, "node-3")
    taken = intake.take_in([held])
    assert (taken.refused, taken.safe, taken.rows) == (1, [], 0)
    assert archived(lake) == before
    # A store that came back from a backup goes on with greater numbers than the lake has.
    ps.set("{p0}.archiveN", 1)
    more = recorded(ps, run_shop(ps, 3))
    archive_all(context, "node-4")
    assert archived(lake) == before | more


def test_one_partition_that_cannot_be_asked_does_not_stop_the_others(
    spark: SparkSession, url: str, ps: Client, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.set("tx.partitions", 3)
    before = recorded(ps, run_shop(ps, 9))
    ask = HandingOut.ask

    async def asked(handing_out: HandingOut, partition: int, most: int) -> Any:
        if partition == 1:
            raise CrashError("not now")
        return await ask(handing_out, partition, most)

    context = context_of(spark, lake, ps)
    with monkeypatch.context() as patch:
        patch.setattr(HandingOut, "ask", asked)
        with pytest.raises(CrashError, match="not now"):
            job("node-1").run_once(context)
    assert {tx for tx, _ in archived(lake)} == {tx for tx, _ in before if not tx.startswith("tx-1-")}
    # Rounds are bounded: here one partition each, with a row.
    archive_all(context, batch=1, max_rows=1)
    assert archived(lake) == before


def test_users_find_what_is_archived_and_can_have_it_back(
    spark: SparkSession, url: str, ps: Client, lake: Lake
) -> None:
    tx, other = run_shop(ps, 2)
    before = recorded(ps, [tx, other])
    context = context_of(spark, lake, ps)
    archive_all(context)
    with penstock.blocking.open(url).with_archive(LakeArchive(lake)) as later:
        shown = later.transactions.get(tx)
        assert (shown.is_archived, shown.status, shown.owner, shown.input["n"]) == (
            True,
            "success",
            "owner-0",
            0,
        )
        # Nobody needs it again: it is not archived twice.
        assert PORTAL.run(ArchiveReader(LakeArchive(lake)).restore(ps.transactions.store, other))
        archive_all(context)
        assert archived(lake) == before
        # This one runs again, and both runs are kept.
        later.transactions.replay(tx)
        PORTAL.run(work_off(ps, tx))
        again = recorded(ps, [tx])
        archive_all(context)
        assert [run for _, run in again] == [1]
        assert archived(lake) == before | again
        assert later.transactions.get(tx).run == 1
    assert steps_of(lake) == steps_in(before | again)


def test_a_batch_that_comes_again_is_looked_up_by_id_and_run(spark: SparkSession, lake: Lake) -> None:
    intake = Intake(spark, lake)
    first = [record(id_of(number), run=run) for number, run in ((1, 0), (2, 1), (3, 0))]
    intake.take_in([batch(1, first), batch(7, [record(id_of(9, partition=4))], partition=4)])
    later = [record(id_of(1)), record(id_of(2), run=2), record(id_of(3), run=0), record(id_of(4))]
    again = {id_of(1): 1, id_of(2): 1, id_of(3): 5, id_of(4): 6}
    taken = intake.take_in([batch(8, later, again=again)])
    assert (taken.rows, taken.held, len(taken.safe)) == (2, 2, 1)
    rows = [(1, 0, 1), (2, 1, 1), (2, 2, 8), (3, 0, 1), (4, 0, 8), (9, 0, 7)]
    found = lake.table("transactions").dataset().to_table(columns=["id", "run", "batch"]).to_pylist()
    assert sorted((int(row["id"][-20:], 16), row["run"], row["batch"]) for row in found) == rows
    # Nothing is new in it: nothing is written, and it may be acknowledged.
    version = lake.table("transactions").version()
    taken = intake.take_in([batch(9, later, again=dict.fromkeys(again, 8))])
    assert (taken.rows, taken.held, len(taken.safe), lake.table("transactions").version()) == (
        0,
        4,
        1,
        version,
    )


def test_settings_that_make_no_sense_are_refused() -> None:
    for options, text in [
        ({"batch": 0}, "batch must be 1 to 10000"),
        ({"max_rows": 0}, "max_rows must be at least 1"),
        ({"lock1_ms": 10, "lock2_ms": 10}, "lock2_ms must be more than lock1_ms"),
    ]:
        with pytest.raises(ConfigError, match=text):
            ArchiveOptions(**options)
    assert ArchiveJob().node != ArchiveJob().node
