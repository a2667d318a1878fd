"""Vacuum: what a reader within the horizon needs stays, whoever reads; all else goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.clock import ManualClock, SystemClock
from penstock.errors import UsageError
from penstock.lake import Lake, LakeTable
from penstock.lake.deltalog import DeltaLog
from tests.lake.rows import numbers, put, put_records, windows
from tests.unit.transactions.archive.samples import id_of, record

WEEK_MS = 7 * 86_400_000


def later() -> None:
    """Until the clock of commits, and that of the disk, have moved on."""
    end_ms = SystemClock().now_ms() + 20
    while SystemClock().now_ms() < end_ms:
        time.sleep(0.002)


def add(table: LakeTable, batch: int) -> None:
    later()
    table.commit(put(table, windows(table, 10 * batch, 10)), progress={"test": batch})


def rewrite(table: LakeTable) -> None:
    later()
    files = put(table, table.dataset().to_table())
    table.commit(files, progress={}, removes=[file.path for file in table.files()], is_rewrite=True)


def committed_ms(table: LakeTable, version: int) -> int:
    """When it was made: the clock of files is a little behind that of commits, or writing took a while."""
    log = DeltaLog(table.root)
    commit = log.commit(version)
    assert commit is not None
    return max(commit.at_ms, log.file(version).stat().st_mtime_ns // 1_000_000)


def at_horizon(table: LakeTable, start_ms: int) -> LakeTable:
    """The table a week after: the horizon begins at ``start_ms``."""
    lake = Lake.open(table.root.parent, clock=ManualClock(start_ms + WEEK_MS))
    return lake.table(table.name)


def vacuumed(table: LakeTable, start_ms: int) -> list[str]:
    return at_horizon(table, start_ms).vacuum(older_than_ms=WEEK_MS)


def files_on_disk(table: LakeTable) -> set[str]:
    return {path.relative_to(table.root).as_posix() for path in (table.root / "data").rglob("*.parquet")}


def test_a_version_within_the_horizon_stays_whole(table: LakeTable) -> None:
    add(table, 1)
    add(table, 2)
    rewrite(table)  # version 3 removes both
    add(table, 4)
    rewrite(table)  # version 5 removes those of 3 and 4
    rows_of = {version: DeltaTable(str(table.root), version=version).count() for version in range(6)}
    for horizon in range(1, 6):
        # A moment at which version `horizon` was the newest: it and all later ones are needed.
        start_ms = committed_ms(table, horizon) + 1
        removed = vacuumed(table, start_ms)
        assert bool(removed) is (horizon in (3, 5))
        for version in range(horizon, 6):
            old = DeltaTable(str(table.root), version=version)
            assert old.to_pyarrow_table().num_rows == rows_of[version]
    assert files_on_disk(table) == {file.path for file in table.files()}
    assert numbers(table) == [*range(10, 30), *range(40, 50)]
    # Directories of what went are gone as well.
    assert len(list((table.root / "data").iterdir())) == 1


def test_leftovers_go_when_they_are_old(table: LakeTable) -> None:
    add(table, 1)
    (old,) = put(table, windows(table, 900, 10), "left-behind")
    stray = table.root / "data" / "left-behind" / "_temporary" / "0" / "part-0.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"")
    staged = table.root / "_delta_log" / "00000000000000000007.json#1"
    staged.write_bytes(b"")
    start_ms = SystemClock().now_ms() + 60_000
    (young,) = put(table, windows(table, 950, 10), "about-to-commit")
    os.utime(table.root / young.path, (start_ms / 1_000 + 1,) * 2)
    expected = sorted([old.path, stray.relative_to(table.root).as_posix()])
    dry = at_horizon(table, start_ms).vacuum(older_than_ms=WEEK_MS, dry_run=True)
    assert sorted(dry) == expected
    assert (table.root / old.path).exists()
    assert sorted(vacuumed(table, start_ms)) == expected
    assert files_on_disk(table) == {table.files()[0].path, young.path}
    assert not staged.exists()
    assert not (table.root / "data" / "left-behind").exists()
    assert table.commit([young], progress={"test": 2}).is_new
    assert len(numbers(table)) == 20


def test_what_is_committed_while_vacuum_looks_stays(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that waited for longer than the horizon, and is committed in the last moment."""
    from penstock.lake.vacuuming import Vacuum

    add(table, 1)
    (slow,) = put(table, windows(table, 20, 10), "slow")
    find = Vacuum._old_files

    def committing(self: Vacuum) -> list[str]:
        found = list(find(self))
        assert slow.path in found
        table.commit([slow], progress={"test": 2})
        return found

    monkeypatch.setattr(Vacuum, "_old_files", committing)
    assert vacuumed(table, SystemClock().now_ms() + 60_000) == []
    assert numbers(table) == list(range(10, 30))


def test_the_log_is_cleaned_up_to_a_checkpoint(table: LakeTable) -> None:
    for batch in (1, 2, 3):
        add(table, batch)
    table.checkpoint_log()
    add(table, 4)
    table.checkpoint_log()
    add(table, 5)
    log = DeltaLog(table.root)
    # At the beginning of the horizon version 3 was the newest; its checkpoint makes it readable.
    vacuumed(table, committed_ms(table, 3) + 1)
    assert (log.versions(), log.checkpoints()) == ([3, 4, 5], [3, 4])
    vacuumed(table, SystemClock().now_ms() + 60_000)
    assert (log.versions(), log.checkpoints()) == ([4, 5], [4])
    fresh = Lake.open(table.root.parent).table(table.name)
    assert (fresh.version(), fresh.progress("test")) == (5, 5)
    assert numbers(fresh) == list(range(10, 60))
    # A process that had the table open all the time sees what comes as well.
    add(fresh, 6)
    assert (table.version(), table.progress("test")) == (6, 6)


def test_what_a_derived_table_has_yet_to_take_in_stays(lake: Lake) -> None:
    """Files and log, however old: ``steps`` is at version 1 of ``transactions``."""
    transactions, steps = lake.table("transactions"), lake.table("steps")
    for batch in (1, 2, 3):
        later()
        transactions.commit(put_records(transactions, [record(id_of(batch))]), progress={"archive": batch})
    later()
    merged = put(transactions, transactions.dataset().to_table(), "by-id")
    removes = [file.path for file in transactions.files()]
    transactions.commit(merged, progress={}, removes=removes, is_rewrite=True)
    transactions.checkpoint_log()
    steps.commit([], progress={steps.spec.app: 1})
    far_ms = SystemClock().now_ms() + 60_000
    first, second, third = (change.files[0] for change in transactions.changes(0))
    assert vacuumed(transactions, far_ms) == [first]
    assert DeltaLog(transactions.root).versions() == [2, 3, 4]
    assert [change.files for change in transactions.changes(1)] == [[second], [third]]
    steps.commit([], progress={steps.spec.app: 4})
    assert sorted(vacuumed(transactions, far_ms)) == sorted([second, third])
    assert DeltaLog(transactions.root).versions() == [4]
    # One that begins now gets all of it.
    assert [change.files for change in transactions.changes(0)] == [[merged[0].path]]


def test_a_horizon_in_the_future_is_refused(table: LakeTable, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="older_than_ms must be at least 0, not -1"):
        table.vacuum(older_than_ms=-1)
