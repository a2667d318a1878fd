"""The archive of transactions in a lake: written without Spark too, found fresh and compacted."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from penstock.errors import LakeError, StoreBusyError, StoreError, UsageError
from penstock.lake import Lake, LakeArchive, LakeTable, archives, searching
from penstock.lake.alone import alone
from penstock.lake.files import unique_name
from penstock.transactions.archive import ArchivedRecord, ArchiveQuery
from penstock.transactions.archive.parquet import ParquetArchive
from penstock.transactions.archive.schema import SCHEMA, records_of, table_of
from tests.lake.rows import put_file, put_records
from tests.lake.test_committing import disk_that_refuses
from tests.unit.transactions.archive.samples import DAY_MS, NOON_MS, batch, id_of, record
from tests.unit.transactions.archive.searches import Fact, all_pages, expected, fill, ids


@pytest.fixture
def archive(lake: Lake) -> LakeArchive:
    return LakeArchive(lake)


def rows_of(archive: LakeArchive) -> list[tuple[str, int]]:
    """Every row that any reader of Delta sees."""
    table = archive.table.dataset().to_table(columns=["id", "run"])
    return sorted((row["id"], row["run"]) for row in table.to_pylist())


def compact(table: LakeTable) -> None:
    """As the job ``maintain`` does: by the last digit of the root's id, sorted, in small groups of rows."""
    records = records_of(table.dataset().to_table(columns=["id", "fields", "trail"]))
    name = unique_name("by-id-1")
    for digit in "0123456789abcdef":
        here = sorted((one for one in records if one.id.partition(".")[0][-1] == digit), key=_by_id)
        if here:
            rows = table_of(here).cast(table.schema)
            put_file(table, f"{name}/digit={digit}/part-0.parquet", rows, row_group_size=20)
    removes = [file.path for file in table.files()]
    table.commit(table.written(name), progress={}, removes=removes, is_rewrite=True)


def _by_id(one: ArchivedRecord) -> tuple[str, int]:
    return one.id, one.run


# ------------------------------------------------------------------------------------------- writing


def test_what_was_written_is_found_fresh_and_compacted(archive: LakeArchive) -> None:
    odd = record(f"{id_of(7)}.1.0", **{"d:1": '{"ü":1}'})
    odd.fields[b"\xff\x00 odd"] = b"\x00\xff"
    written = batch(1, [record(id_of(number)) for number in range(300)] + [odd])
    archive.write(written)
    missing = [id_of(301), id_of(1, NOON_MS + DAY_MS), id_of(1, partition=3), f"{id_of(7)}.1.1"]
    for _ in range(2):
        assert [archive.find(one.id) for one in written.records] == list(written.records)
        assert [archive.find(tx) for tx in missing] == [None] * 4
        assert archive.newest_batch("store1", 0) == 1
        compact(archive.table)
    # Both: some were compacted, others are fresh.
    archive.write(batch(2, [record(id_of(400))]))
    assert archive.find(id_of(400)) is not None
    assert archive.find(id_of(299)) == written.records[299]
    assert archive.table.dataset().schema.names == SCHEMA.names


def test_what_was_handed_out_before_is_there_once(archive: LakeArchive) -> None:
    records = [record(id_of(number)) for number in range(4)]
    archive.write(batch(5, records[:3]))
    compact(archive.table)
    archive.write(batch(6, records, again=dict.fromkeys([one.id for one in records], 5)))
    # Whoever got batch 6 died before the acknowledgement, and another one gets them again.
    archive.write(batch(7, records, again=dict.fromkeys([one.id for one in records], 6)))
    assert rows_of(archive) == [(one.id, 0) for one in records]
    # The same batch again: its writer died after the commit.
    archive.write(batch(7, records, again=dict.fromkeys([one.id for one in records], 6)))
    assert rows_of(archive) == [(one.id, 0) for one in records]
    assert archive.newest_batch("store1", 0) == 7


def test_a_replayed_one_is_a_new_row_and_the_highest_run_counts(archive: LakeArchive) -> None:
    archive.write(batch(1, [record(id_of(1), status="failed"), record(id_of(2))]))
    archive.write(batch(2, [record(id_of(1), run=1)]))
    for _ in range(2):
        found = archive.find(id_of(1))
        assert found is not None
        assert (found.run, found.batch) == (1, 2)
        assert ids(archive.search(ArchiveQuery())) == [id_of(2), id_of(1)]
        # The run that failed is history.
        assert ids(archive.search(ArchiveQuery(status="failed"))) == []
        assert archive.lookup.runs([id_of(1), id_of(2), id_of(3)]) == {id_of(1): {0, 1}, id_of(2): {0}}
        compact(archive.table)
    # The same run again, after a crash: once. A higher one: another row.
    archive.write(batch(3, [record(id_of(1), run=1)], again={id_of(1): 2}))
    archive.write(batch(4, [record(id_of(1), run=2)], again={id_of(1): 3}))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(1), 1), (id_of(1), 2), (id_of(2), 0)]


def test_a_writer_that_was_away_is_refused(archive: LakeArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.write(batch(6, [record(id_of(1))], again={id_of(1): 5}))
    with pytest.raises(
        StoreError, match="batch 5 of partition 0 is not archived: batch 6 was written meanwhile"
    ):
        archive.write(batch(5, [record(id_of(1))]))
    with alone(archive.lake, "archive-store1-0"), pytest.raises(StoreBusyError, match="archive-store1-0"):
        archive.write(batch(7, [record(id_of(2))]))
    # One that had no lock went on after the look at what is there: what was looked up is not true any more.
    held = LakeArchive._held

    def slow(self: LakeArchive, one: Any) -> set[str]:
        found = held(self, one)
        if one.number == 8:
            again = put_records(self.table, batch(7, [record(id_of(2))]).records)
            self.table.commit(again, progress={"archive:store1:0": 7})
        return found

    monkeypatch.setattr(LakeArchive, "_held", slow)
    with pytest.raises(LakeError, match="archive:store1:0 is at 7"):
        archive.write(batch(8, [record(id_of(2))], again={id_of(2): 7}))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(2), 0)]
    # Other partitions and other stores count for themselves.
    archive.write(batch(1, [record(id_of(3, partition=1))], partition=1))
    archive.write(batch(1, [record(id_of(4))], source="store2"))
    assert len(rows_of(archive)) == 4


def test_two_writers_at_once(lake: Lake) -> None:
    """The same transactions, handed out twice: there once, whoever was first."""
    records = [record(id_of(number)) for number in range(20)]
    barrier = Barrier(2)
    refused: list[Exception] = []

    def work(number: int) -> None:
        archive = LakeArchive(Lake.open(lake.root))
        again = dict.fromkeys([one.id for one in records], 1) if number == 2 else {}
        barrier.wait(30)
        while True:
            try:
                return archive.write(batch(number, records, again=again))
            except StoreBusyError:
                continue
            except StoreError as error:
                refused.append(error)
                return None

    threads = [Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert rows_of(LakeArchive(lake)) == [(one.id, 0) for one in records]
    assert all("batch 2 was written meanwhile" in str(error) for error in refused)


def test_a_disk_that_refuses_leaves_nothing_visible(archive: LakeArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    with (
        pytest.raises(
            LakeError, match=r"table transactions: fresh-store1-0-2-.* is not written: .*File too large"
        ),
        disk_that_refuses(),
    ):
        archive.write(batch(2, [record(id_of(2))]))
    assert (rows_of(archive), archive.newest_batch("store1", 0)) == ([(id_of(1), 0)], 1)
    archive.write(batch(2, [record(id_of(2))]))
    assert len(rows_of(archive)) == 2


# ----------------------------------------------------------------------------------------- searching


@pytest.fixture(params=["fresh", "compacted"])
def filled(archive: LakeArchive, request: pytest.FixtureRequest) -> tuple[LakeArchive, list[Fact]]:
    facts = fill(archive)
    if request.param == "compacted":
        compact(archive.table)
    return archive, facts


def test_searches(filled: tuple[LakeArchive, list[Fact]]) -> None:
    archive, facts = filled
    for limit in (1_000, 599, 100):
        assert all_pages(archive, limit) == expected(facts)
    for wanted in (
        {"owner": "owner1"},
        {"status": "failed"},
        {"owner": "owner2", "status": "failed", "pipeline": "p1"},
        {"owner": "nobody"},
    ):
        assert all_pages(archive, 30, **wanted) == expected(facts, **wanted)


def test_periods(filled: tuple[LakeArchive, list[Fact]]) -> None:
    archive, facts = filled
    everything = expected(facts)
    starts = {tx: int(tx.split("-")[2][:11], 16) for tx in everything}
    for since_ms, until_ms in [
        (NOON_MS - 3 * DAY_MS - 1, NOON_MS - DAY_MS + 1),
        (None, NOON_MS - 2 * DAY_MS),
        (NOON_MS, None),
        (NOON_MS + 1, None),
    ]:
        within = [tx for tx in everything if (since_ms or 0) <= starts[tx] < (until_ms or 2**60)]
        assert all_pages(archive, 70, since_ms=since_ms, until_ms=until_ms) == within


def test_external_ids(filled: tuple[LakeArchive, list[Fact]]) -> None:
    archive, facts = filled
    tx, owner, _, _ = facts[123]
    found = archive.find_external(owner, "order-123")
    assert found is not None
    assert found.id == tx
    assert archive.find_external("nobody", "order-123") is None
    assert archive.find_external(owner, "order-124") is None
    # It was taken again after its period: the newest is found.
    newer = id_of(9_999, NOON_MS + 5)
    archive.write(batch(99, [record(newer, owner=owner, external_id="order-123")]))
    found = archive.find_external(owner, "order-123")
    assert found is not None
    assert found.id == newer
    assert ids(archive.search(ArchiveQuery(external_id="order-123"))) == [newer, tx]


def test_work_is_bounded_and_pages_go_on(
    filled: tuple[LakeArchive, list[Fact]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, facts = filled
    monkeypatch.setattr(searching, "_MOST_GROUPS", 8)
    monkeypatch.setattr(searching, "_TOGETHER", 1)
    assert all_pages(archive, 1_000) == expected(facts)
    assert all_pages(archive, 40, owner="owner1") == expected(facts, owner="owner1")
    assert all_pages(archive, 40, owner="nobody") == []


def test_many_that_failed_and_were_replayed(archive: LakeArchive) -> None:
    """A search for what failed is full of outdated runs: they are passed over, page by page."""
    failed = [id_of(number) for number in range(50)]
    left = failed[::10]
    archive.write(batch(1, [record(tx, status="failed") for tx in failed]))
    archive.write(batch(2, [record(tx, run=1) for tx in failed if tx not in left]))
    for _ in range(2):
        assert all_pages(archive, 3, status="failed") == left[::-1]
        assert len(all_pages(archive, 7)) == 50
        compact(archive.table)


# ------------------------------------------------------------------------------------------- opening


def test_a_file_that_vacuum_removed_is_not_missed(archive: LakeArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    other = LakeArchive(Lake.open(archive.lake.root))
    assert other.find(id_of(1)) is not None
    (old,) = archive.table.files()
    index = other.lookup._index
    compact(archive.table)
    (archive.table.root / old.path).unlink()
    # It looked at the table a moment before the rewrite.
    assert index is not None
    other.lookup._index = index._replace(version=archive.table.version())
    assert other.find(id_of(1)) is not None
    (gone,) = archive.table.files()
    (archive.table.root / gone.path).unlink()
    with pytest.raises(StoreError, match="No such file"):
        LakeArchive(Lake.open(archive.lake.root)).find(id_of(1))


def test_a_path_tells_which_archive_it_has(tmp_path: Path, archive: LakeArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    opened = archives.open(archive.lake.root)
    assert isinstance(opened, LakeArchive)
    assert opened.find(id_of(1)) is not None
    plain = archives.open(tmp_path / "plain")
    assert isinstance(plain, ParquetArchive)
    plain.write(batch(1, [record(id_of(2))]))
    again = archives.open(tmp_path / "plain")
    assert isinstance(again, ParquetArchive)
    assert again.find(id_of(2)) is not None
    with pytest.raises(UsageError, match="is not the id of a transaction"):
        opened.find("order-42")
