"""Commits: all or nothing, each batch once, whoever else is at it and whatever breaks on the way."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from penstock.errors import LakeError, StoreBusyError, UsageError
from penstock.lake import Lake, LakeTable, committing
from penstock.lake.committing import Committer
from penstock.lake.snapshots import Snapshots
from tests.lake.rows import numbers, put, windows

ROOT = Path(__file__).parents[2]


def add(table: LakeTable, batch: int, **options: Any) -> Any:
    """Batch b has the windows 10*b to 10*b+9."""
    return table.commit(put(table, windows(table, 10 * batch, 10)), progress={"test": batch}, **options)


def rows_of(*batches: int) -> list[int]:
    return [number for batch in batches for number in range(10 * batch, 10 * batch + 10)]


def test_a_batch_is_seen_when_it_is_committed_and_once(table: LakeTable) -> None:
    files = put(table, windows(table, 10, 10))
    # A crash here: files lie there, and nobody sees them.
    assert (table.version(), table.paths(), numbers(table), table.progress("test")) == (0, [], [], None)
    result = table.commit(files, progress={"test": 1})
    assert (result.version, result.is_new, result.files, result.rows) == (1, True, 1, 10)
    assert (numbers(table), table.progress("test")) == (rows_of(1), 1)
    # The writer died before it heard: it writes and commits again, elsewhere.
    again = table.commit(put(table, windows(table, 10, 10)), progress={"test": 1})
    assert (again.version, again.is_new, again.files, again.rows) == (1, False, 0, 0)
    older = table.commit(put(table, windows(table, 0, 10)), progress={"test": 0})
    assert not older.is_new
    assert numbers(table) == numbers(Lake.open(table.root.parent).table(table.name)) == rows_of(1)
    assert table.paths() == [str(table.root / files[0].path)]


def test_progress_alone_is_a_commit_and_zero_is_progress(table: LakeTable) -> None:
    assert table.commit([], progress={"a": 0, "b": 7}).is_new
    assert not table.commit([], progress={"a": 0}).is_new
    assert (table.progress("a"), table.progress("b"), table.progress("c")) == (0, 7, None)


def test_a_batch_that_is_half_known_is_refused(table: LakeTable) -> None:
    table.commit([], progress={"a": 3})
    files = put(table, windows(table, 0, 1))
    with pytest.raises(
        LakeError, match=r"table stream_stats_5s: 1 files of a=3, b=1 not committed: a is at 3 already"
    ):
        table.commit(files, progress={"a": 3, "b": 1})
    assert (table.version(), table.progress("b")) == (1, None)


def test_who_began_elsewhere_is_refused(table: LakeTable) -> None:
    assert add(table, 1, expected={"test": None}).is_new
    with pytest.raises(LakeError, match=r"not committed: test is at 1, .*begin again"):
        add(table, 2, expected={"test": None})
    assert add(table, 2, expected={"test": 1}).is_new
    # What is there already is no error: this is how a batch is tried again.
    assert not add(table, 2, expected={"test": 1}).is_new
    assert numbers(table) == rows_of(1, 2)


def test_a_rewrite_replaces_files_at_once(table: LakeTable) -> None:
    for batch in (1, 2):
        add(table, batch)
    before = [file.path for file in table.files()]
    result = table.commit(put(table, windows(table, 10, 20)), progress={}, removes=before, is_rewrite=True)
    assert (result.version, result.rows) == (3, 20)
    assert numbers(table) == rows_of(1, 2)
    assert len(table.files()) == 1
    assert table.progress("test") == 2
    # Somebody else who had begun with the same files: delta-rs would take it, and all rows be there twice.
    late = put(table, windows(table, 10, 20))
    with pytest.raises(LakeError, match="does not belong to the table any more, somebody else rewrote it"):
        table.commit(late, progress={}, removes=before, is_rewrite=True)
    assert numbers(table) == rows_of(1, 2)


def test_what_makes_no_sense_is_refused(table: LakeTable) -> None:
    (file,) = put(table, windows(table, 0, 5))
    with pytest.raises(UsageError, match="there is nothing to do"):
        table.commit([], progress={})
    with pytest.raises(UsageError, match="progress of 'x' must be at least 0, not -1"):
        table.commit([file], progress={"x": -1})
    table.commit([file], progress={"x": 1})
    with pytest.raises(LakeError, match="belongs to the table already"):
        table.commit([file], progress={"x": 2})
    (other,) = put(table, windows(table, 0, 5))
    (table.root / other.path).write_bytes(b"shorter")
    with pytest.raises(LakeError, match="has 7 bytes, it was written with"):
        table.commit([other], progress={"x": 2})
    (table.root / other.path).unlink()
    with pytest.raises(LakeError, match="1 files of x=2 not committed: No such file"):
        table.commit([other], progress={"x": 2})
    assert (table.version(), numbers(table)) == (1, list(range(5)))


# ------------------------------------------------------------------------------------------ others at it


def test_programs_that_do_not_know_our_lock(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """They commit between our look and our commit: ours comes after, as if they had been first."""
    add(table, 1)
    sync = Committer._sync
    theirs = windows(table, 900, 1)

    def interfering(self: Committer, commit: Any) -> None:
        sync(self, commit)
        if numbers(table)[-1] != 900:
            write_deltalake(str(table.root), theirs, mode="append")

    monkeypatch.setattr(Committer, "_sync", interfering)
    result = add(table, 2)
    assert (result.version, result.is_new) == (3, True)
    assert numbers(table) == [*rows_of(1, 2), 900]


def test_a_rewrite_that_another_program_was_faster_with(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, 1)
    add(table, 2)
    files = put(table, windows(table, 10, 20))
    removes = [file.path for file in table.files()]
    sync = Committer._sync

    def interfering(self: Committer, commit: Any) -> None:
        sync(self, commit)
        hooks = PostCommitHookProperties(create_checkpoint=False)
        DeltaTable(str(table.root)).optimize.compact(post_commithook_properties=hooks)

    monkeypatch.setattr(Committer, "_sync", interfering)
    with pytest.raises(LakeError, match="somebody else rewrote it"):
        table.commit(files, progress={}, removes=removes, is_rewrite=True)
    assert numbers(table) == rows_of(1, 2)


def test_a_lock_that_somebody_keeps_is_an_error(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "LOCK_WAIT_MS", 0)
    with (table.root / "_penstock.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreBusyError, match=r"_penstock\.lock"):
            add(table, 1)
    assert add(table, 1).is_new


@contextmanager
def committers(lake: Lake, count: int, batches: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that commit the same batches; they begin together."""
    go = lake.root.parent / "go"
    command = [sys.executable, "-m", "tests.lake.committing_process", str(lake.root), str(batches), str(go)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        go.touch()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_processes_that_commit_the_same_batches(lake: Lake, table: LakeTable) -> None:
    with committers(lake, 3, 12) as started:
        said = [process.communicate(timeout=100)[0].splitlines() for process in started]
    assert [len(lines) for lines in said] == [12] * 3
    for batch in range(1, 13):
        assert sum(f"{batch} new" in lines for lines in said) == 1
    assert (table.version(), table.progress("test")) == (12, 12)
    assert numbers(table) == rows_of(*range(1, 13))


@pytest.mark.crash
def test_a_killed_writer_leaves_a_whole_table(lake: Lake, table: LakeTable) -> None:
    """Killed in the middle of its work, three times; each time a new one does everything again."""
    told = 0
    for stop_at in (3, 9, 17):
        with committers(lake, 1, 1_000) as (process,):
            assert process.stdout is not None
            while told < stop_at:
                told = int(process.stdout.readline().split()[0])
            process.kill()
        progress = table.progress("test")
        assert progress is not None
        assert progress >= told
        assert numbers(table) == rows_of(*range(1, progress + 1))
        assert DeltaTable(str(table.root)).count() == progress * 10


# ---------------------------------------------------------------------------------------- what can break


@contextmanager
def disk_that_refuses(size_bytes: int = 50) -> Iterator[None]:
    """No file may become larger: what a full disk looks like to a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_refuses_leaves_the_table_as_it_was(table: LakeTable) -> None:
    add(table, 1)
    files = put(table, windows(table, 20, 10))
    with (
        pytest.raises(
            LakeError, match=r"^table stream_stats_5s: 1 files of test=2 not committed: .*File too large"
        ),
        disk_that_refuses(),
    ):
        table.commit(files, progress={"test": 2})
    assert (table.version(), numbers(table), table.progress("test")) == (1, rows_of(1), 1)
    assert sorted(path.name for path in (table.root / "_delta_log").iterdir()) == [
        f"{version:020d}.json" for version in (0, 1)
    ]
    assert table.commit(files, progress={"test": 2}).is_new
    assert numbers(table) == rows_of(1, 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_lake_that_may_not_be_written_is_read(table: LakeTable) -> None:
    add(table, 1)
    files = put(table, windows(table, 20, 10))
    log = table.root / "_delta_log"
    log.chmod(0o500)
    try:
        with pytest.raises(LakeError, match=r"1 files of test=2 not committed: .*Permission denied"):
            table.commit(files, progress={"test": 2})
        assert numbers(Lake.open(table.root.parent).table(table.name)) == rows_of(1)
    finally:
        log.chmod(0o700)


def test_an_error_after_the_log_was_written_is_no_error(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is found by its mark, so that nobody is told that nothing happened."""
    write = DeltaTable.create_write_transaction

    def failing(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        write(self, *arguments, **options)
        raise OSError("the line broke")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", failing)
        assert add(table, 1).is_new

    def broken(self: DeltaTable, *arguments: Any, **options: Any) -> None:
        raise OSError("the line broke before")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", broken)
        with pytest.raises(LakeError, match="the line broke before"):
            add(table, 2)
    assert numbers(table) == rows_of(1)


def test_checkpoints_are_made_now_and_then_and_change_nothing(
    table: LakeTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(committing, "CHECKPOINT_EVERY", 4)
    for batch in range(1, 10):
        add(table, batch)
    log = table.root / "_delta_log"
    assert sorted(path.name[:20] for path in log.glob("*.checkpoint.parquet")) == [f"{4:020d}", f"{8:020d}"]
    fresh = Lake.open(table.root.parent).table(table.name)
    assert (fresh.progress("test"), numbers(fresh)) == (9, rows_of(*range(1, 10)))
    assert [file.bounds("window") for file in fresh.files()] == [
        file.bounds("window") for file in table.files()
    ]

    def failing(_: Snapshots) -> None:
        raise LakeError("no room")

    monkeypatch.setattr(Snapshots, "checkpoint", failing)
    for batch in (10, 11, 12):
        assert add(table, batch).is_new
    assert "the commit stands, a later one makes the checkpoint: no room" in caplog.text
    assert table.version() == 12
