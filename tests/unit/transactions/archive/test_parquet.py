"""The archive in a directory: each transaction once, whoever writes; found again; clear errors."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from penstock.errors import (
    ConfigError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    UsageError,
)
from penstock.transactions.archive import ArchiveBatch, ArchivePage, ArchiveQuery, open_archive, searching
from penstock.transactions.archive.parquet import ParquetArchive
from tests.unit.transactions.archive.samples import DAY_MS, NOON_MS, batch, id_of, record
from tests.unit.transactions.archive.searches import Fact, all_pages, expected, fill, ids


@pytest.fixture
def archive(tmp_path: Path) -> ParquetArchive:
    return ParquetArchive(tmp_path / "archive", lock_wait_ms=0)


def files_of(archive: ParquetArchive) -> list[Path]:
    return sorted(archive.root.glob("day=*/*.parquet"))


def rows_of(archive: ParquetArchive) -> list[tuple[str, int]]:
    """Every row that any reader of the directory sees."""
    tables = [pq.read_table(path, columns=["id", "run"], partitioning=None) for path in files_of(archive)]
    return sorted((row["id"], row["run"]) for table in tables for row in table.to_pylist())


def leftovers(archive: ParquetArchive) -> list[Path]:
    return [
        path
        for path in archive.root.rglob("*")
        if path.is_file() and path.suffix not in (".parquet", ".lock")
    ]


# ------------------------------------------------------------------------------------------ writing


def test_what_was_written_is_found(archive: ParquetArchive) -> None:
    records = [record(id_of(number)) for number in range(600)]
    written = batch(1, records)
    archive.write(written)
    (path,) = files_of(archive)
    assert path.parent.name == "day=2026-11-15"
    assert path.name.startswith("p0-000001-")
    assert [archive.find(id_of(number)) for number in (0, 255, 256, 599)] == [
        written.records[number] for number in (0, 255, 256, 599)
    ]
    assert archive.find(id_of(600)) is None
    assert archive.find(id_of(1, NOON_MS + DAY_MS)) is None
    assert leftovers(archive) == []


def test_a_file_is_sorted_and_tells_what_is_in_it(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(number)) for number in reversed(range(600))]))
    metadata = pq.read_metadata(files_of(archive)[0])
    assert metadata.num_row_groups == 3
    bounds = [metadata.row_group(place).column(0).statistics for place in range(3)]
    assert [(told.min, told.max) for told in bounds] == [
        (id_of(0), id_of(255)),
        (id_of(256), id_of(511)),
        (id_of(512), id_of(599)),
    ]
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_files_are_by_day_of_the_start(archive: ParquetArchive) -> None:
    root = id_of(1, NOON_MS - DAY_MS)
    archive.write(batch(1, [record(root), record(f"{root}.1.0"), record(id_of(2))]))
    assert [path.parent.name for path in files_of(archive)] == ["day=2026-11-14", "day=2026-11-15"]
    assert archive.find(f"{root}.1.0") is not None


def test_what_was_handed_out_before_and_written_is_not_written_again(archive: ParquetArchive) -> None:
    records = [record(id_of(number)) for number in range(4)]
    archive.write(batch(5, records[:3]))
    archive.write(batch(6, records, again=dict.fromkeys([one.id for one in records], 5)))
    assert rows_of(archive) == [(one.id, 0) for one in records]
    # Whoever got batch 6 died before the acknowledgement: now the mark says 6, where the first three are not.
    archive.write(batch(7, records, again=dict.fromkeys([one.id for one in records], 6)))
    # … and one was handed out with a batch of which nothing is here.
    archive.write(batch(9, records[:1], again={records[0].id: 8}))
    assert rows_of(archive) == [(one.id, 0) for one in records]
    assert not any(path.name.startswith("p0-000007-") for path in files_of(archive))


def test_what_was_handed_out_before_and_not_written_is_written(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    archive.write(batch(3, [record(id_of(2))], again={id_of(2): 2}))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(2), 0)]


def test_one_that_was_merged_into_a_file_of_somebody_else_is_recognised(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1)), record(id_of(2))]))
    (path,) = files_of(archive)
    pq.write_table(pq.read_table(path, partitioning=None), path.parent / "part-00000.parquet")
    path.unlink()
    archive.write(batch(2, [record(id_of(1)), record(id_of(3))], again={id_of(1): 1}))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(2), 0), (id_of(3), 0)]
    assert [archive.find(id_of(number)) is not None for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert ids(archive.search(ArchiveQuery())) == [id_of(3), id_of(2), id_of(1)]


def test_a_replayed_one_is_a_new_row_and_the_highest_run_counts(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1), status="failed"), record(id_of(2))]))
    archive.write(batch(2, [record(id_of(1), run=1)]))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(1), 1), (id_of(2), 0)]
    found = archive.find(id_of(1))
    assert found is not None
    assert (found.run, found.batch) == (1, 2)
    assert ids(archive.search(ArchiveQuery())) == [id_of(2), id_of(1)]
    # The run that failed is history.
    assert ids(archive.search(ArchiveQuery(status="failed"))) == []
    # The same run again, after a crash: once.
    archive.write(batch(3, [record(id_of(1), run=1)], again={id_of(1): 2}))
    assert rows_of(archive) == [(id_of(1), 0), (id_of(1), 1), (id_of(2), 0)]


def test_a_writer_that_was_away_is_refused(archive: ParquetArchive) -> None:
    archive.write(batch(6, [record(id_of(1))], again={id_of(1): 5}))
    with pytest.raises(
        StoreError, match="batch 5 of partition 0 is not archived: batch 6 was begun meanwhile"
    ):
        archive.write(batch(5, [record(id_of(1))]))
    assert rows_of(archive) == [(id_of(1), 0)]
    assert archive.newest_batch("store1", 0) == 6
    # Other partitions and other stores count for themselves.
    assert archive.newest_batch("store1", 1) == archive.newest_batch("store2", 0) == 0
    archive.write(batch(1, [record(id_of(2, partition=1))], partition=1))
    archive.write(batch(1, [record(id_of(3))], source="store2"))
    assert len(rows_of(archive)) == 3


def test_a_lock_that_somebody_keeps_is_an_error_not_a_wait_for_ever(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    with (archive.root / "_penstock" / "p0-store1.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreBusyError, match=r"p0-store1\.lock"):
            archive.write(batch(2, [record(id_of(2))]))
    archive.write(batch(2, [record(id_of(2))]))
    assert len(rows_of(archive)) == 2


def test_the_same_batch_may_be_tried_again(archive: ParquetArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two days the first was published, then the disk was full: the first stays as it is."""
    both = batch(1, [record(id_of(1, NOON_MS - DAY_MS)), record(id_of(2))])
    publish = ParquetArchive._publish

    def full(self: ParquetArchive, staged: Path, path: Path) -> None:
        if "day=2026-11-15" in str(path):
            raise OSError(errno.ENOSPC, "no room")
        publish(self, staged, path)

    with monkeypatch.context() as patched:
        patched.setattr(ParquetArchive, "_publish", full)
        with pytest.raises(StoreFullError):
            archive.write(both)
    archive.write(both)
    assert [tx for tx, _ in rows_of(archive)] == [both.records[0].id, both.records[1].id]


# ------------------------------------------------------------------------------------------- errors


class FullFile:
    """A file on a disk that fills up after some bytes."""

    def __init__(self, file: BinaryIO, code: int) -> None:
        self._file = file
        self._code = code

    def write(self, content: Any) -> int:
        self._file.write(bytes(content)[:100])
        raise OSError(self._code, os.strerror(self._code))

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (errno.ENOSPC, StoreFullError, "no room for the archive"),
        (errno.EDQUOT, StoreFullError, "no room for the archive"),
        (errno.EROFS, StoreError, "Read-only file system"),
        (errno.EIO, StoreError, "Input/output error"),
    ],
)
def test_a_disk_that_refuses_leaves_nothing_behind(
    archive: ParquetArchive, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], text: str
) -> None:
    opening = Path.open

    def broken(path: Path, mode: str = "r", **options: Any) -> Any:
        file = opening(path, mode, **options)
        return FullFile(file, code) if path.suffix == ".tmp" and "w" in mode else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", broken)
        with pytest.raises(kind, match=text) as caught:
            archive.write(batch(1, [record(id_of(1))]))
    assert type(caught.value) is kind
    assert files_of(archive) == []
    assert leftovers(archive) == []
    archive.write(batch(2, [record(id_of(1))], again={id_of(1): 1}))
    assert rows_of(archive) == [(id_of(1), 0)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match=r"archive cannot use .*Permission denied"):
            ParquetArchive(tmp_path / "archive").write(batch(1, [record(id_of(1))]))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("damage", ["flip", "truncate", "lose a row"])
def test_a_file_that_is_not_what_was_written_never_counts(
    archive: ParquetArchive, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    stage = ParquetArchive._stage

    def damaged(self: ParquetArchive, staged: Path, content: Any) -> None:
        stage(self, staged, content)
        held = bytearray(staged.read_bytes())
        if damage == "flip":
            held[len(held) // 4] ^= 0x10
            staged.write_bytes(held)
        elif damage == "truncate":
            staged.write_bytes(held[: len(held) // 2])
        else:
            pq.write_table(pq.read_table(staged).slice(1), staged)

    monkeypatch.setattr(ParquetArchive, "_stage", damaged)
    with pytest.raises(StoreCorruptError, match=r"p0-store1\.tmp"):
        archive.write(batch(1, [record(id_of(number)) for number in range(50)]))
    assert files_of(archive) == []
    assert leftovers(archive) == []


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_a_corrupt_file_is_named(archive: ParquetArchive, content: bytes) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    (path,) = files_of(archive)
    path.write_bytes(content)
    fresh = ParquetArchive(archive.root)
    for look in (
        lambda: fresh.find(id_of(1)),
        lambda: fresh.search(ArchiveQuery()),
        lambda: fresh.write(batch(2, [record(id_of(1))], again={id_of(1): 1})),
    ):
        with pytest.raises(StoreCorruptError, match=path.name):
            look()


def test_a_file_without_ids_is_named(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    other = files_of(archive)[0].with_name("other.parquet")
    pq.write_table(pq.read_table(files_of(archive)[0], partitioning=None).drop_columns(["id"]), other)
    with pytest.raises(StoreCorruptError, match=r"other\.parquet cannot be read.*no column id"):
        archive.find(id_of(9))


def test_a_lock_file_with_nonsense_is_named(archive: ParquetArchive) -> None:
    archive.write(batch(1, [record(id_of(1))]))
    (archive.root / "_penstock" / "p0-store1.lock").write_bytes(b"nonsense")
    with pytest.raises(StoreCorruptError, match="must hold the number of a batch"):
        archive.write(batch(2, [record(id_of(2))]))


def test_what_makes_no_sense_is_refused(archive: ParquetArchive) -> None:
    with pytest.raises(ConfigError, match="lock_wait_ms"):
        ParquetArchive(archive.root, lock_wait_ms=-1)
    with pytest.raises(ConfigError, match="source"):
        archive.write(ArchiveBatch("../x", 0, 1, []))
    with pytest.raises(UsageError, match="is not the id of a transaction"):
        archive.find("order-42")


def test_an_archive_that_is_not_there_is_empty(archive: ParquetArchive) -> None:
    assert archive.find(id_of(1)) is None
    assert archive.search(ArchiveQuery()) == ArchivePage([], None)
    assert archive.find_external("acme", "x") is None
    assert isinstance(open_archive(archive.root), ParquetArchive)


# ---------------------------------------------------------------------------------------- searching


@pytest.fixture
def filled(archive: ParquetArchive) -> tuple[ParquetArchive, list[Fact]]:
    return archive, fill(archive)


@pytest.mark.parametrize("limit", [1_000, 600, 599, 37])
def test_everything_comes_once_newest_first(filled: Any, limit: int) -> None:
    archive, facts = filled
    assert all_pages(archive, limit) == expected(facts)


@pytest.mark.parametrize(
    "wanted",
    [
        {"owner": "owner1"},
        {"status": "failed"},
        {"pipeline": "p3"},
        {"owner": "owner2", "status": "failed"},
        {"owner": "owner2", "status": "failed", "pipeline": "p1"},
        {"owner": "nobody"},
    ],
)
def test_each_filter(filled: Any, wanted: dict[str, str]) -> None:
    archive, facts = filled
    assert all_pages(archive, 7, **wanted) == expected(facts, **wanted)


def test_periods(filled: Any) -> None:
    archive, facts = filled
    everything = expected(facts)
    for since_ms, until_ms in [
        (NOON_MS - DAY_MS, NOON_MS),
        (NOON_MS - 3 * DAY_MS - 1, NOON_MS - DAY_MS + 1),
        (None, NOON_MS - 2 * DAY_MS),
        (NOON_MS, None),
        (NOON_MS + 1, None),
        (None, 5),
    ]:
        starts = {tx: int(tx.split("-")[2][:11], 16) for tx in everything}
        within = [tx for tx in everything if (since_ms or 0) <= starts[tx] < (until_ms or 2**60)]
        assert all_pages(archive, 11, since_ms=since_ms, until_ms=until_ms) == within


def test_external_ids(filled: Any) -> None:
    archive, facts = filled
    tx, owner, _, _ = facts[123]
    found = archive.find_external(owner, "order-123")
    assert found is not None
    assert found.id == tx
    assert archive.find_external("nobody", "order-123") is None
    assert archive.find_external(owner, "order-124") is None
    assert ids(archive.search(ArchiveQuery(external_id="order-123"))) == [tx]


def test_the_newest_of_an_external_id_is_found(archive: ParquetArchive) -> None:
    """It may be taken again after its period."""
    older, newer = id_of(1, NOON_MS - DAY_MS), id_of(2)
    archive.write(batch(1, [record(newer, external_id="x")]))
    archive.write(batch(2, [record(older, external_id="x")]))
    found = archive.find_external("acme", "x")
    assert found is not None
    assert found.id == newer


def test_work_is_bounded_and_pages_go_on(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, facts = filled
    monkeypatch.setattr(searching, "_MOST_FILES", 5)
    page = archive.search(ArchiveQuery(owner="nobody"))
    assert page.items == []
    assert page.cursor is not None
    assert all_pages(archive, 1_000) == expected(facts)
    found = archive.find_external(facts[599][1], "order-599")
    assert found is not None
    assert found.id == facts[599][0]


def test_what_others_write_is_seen_at_once(archive: ParquetArchive) -> None:
    other = ParquetArchive(archive.root)
    for number in range(1, 20):
        archive.write(batch(number, [record(id_of(number))]))
        assert other.find(id_of(number)) is not None
        assert len(ids(other.search(ArchiveQuery()))) == number
