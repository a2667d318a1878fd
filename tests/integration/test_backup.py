"""``penstock backup``, ``restore`` and ``check``: stores in use, killed in the middle, damaged, full ones."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.engine import Engine, LocalSession
from penstock.engine.check import check_store
from penstock.errors import StoreCorruptError, StoreError, UsageError
from penstock.server.keeping import backup, check, is_open, restore
from tests.integration.backup_writers import Writer
from tests.places import wait_until

LIMIT_S = 60.0


@pytest.fixture
def filled(store: Path) -> Path:
    """A closed store of about 500 KB."""
    with Engine.open(store, durability="relaxed") as engine, LocalSession(engine) as session:
        for number in range(100):
            session.execute("SET", f"string:{number}", os.urandom(4_000))
        session.execute("RPUSH", "list", *range(200))
        session.execute(
            "TWRITE", "stream", "ENTRIES", *(word for n in range(500) for word in ("tag", f"entry {n}"))
        )
        session.execute("SELECT", 3)
        session.execute("SET", "elsewhere", "yes")
    return store


def penstock(*words: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.cli.main", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


# --------------------------------------------------------------------------- in use


def test_a_store_is_copied_as_it_was_at_one_moment_while_two_processes_write(
    store: Path, tmp_path: Path
) -> None:
    writers = [Writer(store, name) for name in ("one", "two")]
    for writer in writers:
        writer.wait_for(20)
    before = [writer.look() for writer in writers]
    made = backup(store, tmp_path / "copy")
    for writer, count in zip(writers, before, strict=True):
        writer.wait_for(count + 1)  # nobody was held up for good
        writer.stop()
    restored = tmp_path / "restored.pen"
    assert restore(tmp_path / "copy", restored) == made.manifest
    assert (restored / "data.mdb").read_bytes() == (tmp_path / "copy" / "data.mdb").read_bytes()
    with Engine.open(restored) as engine, LocalSession(engine) as session:
        assert check_store(engine) == []
        for writer, count in zip(writers, before, strict=True):
            written = int(session.execute("GET", f"{writer.name}:count"))
            assert count <= written
            # Three keys of one transaction: all of it, or nothing.
            assert session.execute("LRANGE", f"{writer.name}:list", 0, -1) == [
                b"%d" % n for n in range(1, written + 1)
            ]
            assert session.execute("TREAD", f"{writer.name}:stream", written, 5) == [
                [written, writer.name.encode(), b"%d" % written]
            ]
    assert made.manifest.keys == {"0": 6}


def test_an_archive_holds_the_same_and_is_read_by_tar(filled: Path, tmp_path: Path) -> None:
    archive = tmp_path / "copy.tar.zst"
    made = backup(filled, None, archive)
    assert names(tmp_path) == {filled.name, archive.name}
    assert made.manifest.keys == {"0": 102, "3": 1}
    assert archive.stat().st_mode & 0o077 == 0
    restore(archive, tmp_path / "restored.pen")
    with Engine.open(tmp_path / "restored.pen") as engine, LocalSession(engine) as session:
        assert session.execute("LLEN", "list") == 200
        session.execute("SELECT", 3)
        assert session.execute("GET", "elsewhere") == b"yes"
    damaged = tmp_path / "damaged.tar.zst"
    damaged.write_bytes(archive.read_bytes()[:-2_000])
    with pytest.raises(
        StoreCorruptError, match=r"damaged\.tar\.zst is damaged or is no \.tar\.zst of a backup"
    ):
        restore(damaged, tmp_path / "other.pen")
    assert not (tmp_path / "other.pen").exists()


# --------------------------------------------------------------------------- killed


def test_a_backup_that_is_killed_leaves_nothing_under_its_name(filled: Path, tmp_path: Path) -> None:
    place = tmp_path / "places"
    with Engine.open(filled) as engine:
        # Whoever opens the store waits for our transaction: so it is killed in the middle, however fast.
        transaction = engine.env.begin(write=True)
        process = penstock("backup", filled, place / "copy", "--archive", place / "copy.tar.zst")
        wait_until(lambda: (place / ".copy.partial").exists())
        with pytest.raises(UsageError, match="another process is making"):
            backup(filled, place / "copy")
        process.kill()
        process.communicate()
        transaction.abort()
        assert names(place) == {".copy.partial"}

        def is_made() -> bool:
            """A process that it was about to start may hold its lock for a moment longer."""
            with contextlib.suppress(UsageError):
                backup(filled, place / "copy", place / "copy.tar.zst")
            return (place / "copy").exists()

        wait_until(is_made)
    assert names(place) == {"copy", "copy.tar.zst"}
    assert check(place / "copy").faults == []


def test_a_backup_that_is_interrupted_cleans_up(filled: Path, tmp_path: Path) -> None:
    place = tmp_path / "places"
    with Engine.open(filled) as engine:
        transaction = engine.env.begin(write=True)
        process = penstock("backup", filled, place / "copy")
        wait_until(lambda: (place / ".copy.partial").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        process.communicate()
        transaction.abort()
    assert names(place) == set()


# ------------------------------------------------------------------------- damaged


def test_a_byte_that_was_changed_is_found(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup(filled, tmp_path / "copy")
    data = tmp_path / "copy" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    assert check(tmp_path / "copy").faults[0].rule == "R2"
    with pytest.raises(StoreCorruptError, match="copy is damaged or was changed since it was made"):
        restore(tmp_path / "copy", tmp_path / "restored.pen")
    assert names(tmp_path) == {filled.name, "copy"}
    assert main(["check", str(tmp_path / "copy"), "--json"]) == 1
    out, errors = capsys.readouterr()
    assert json.loads(out)["faults"][0]["rule"] == "R2"
    assert "copy has" in errors


def test_a_fault_is_told_with_the_name_of_its_key(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Engine.open(filled) as engine:
        table = engine.unit.tables["data:0"]

        def lose_an_element() -> None:
            row = next(row for row, _ in engine.unit.rows(table, b"") if row[8:9] == b"i")
            engine.unit.delete(row, db=table)

        engine.run_task(lose_an_element)
    assert main(["check", str(filled)]) == 1
    out, errors = capsys.readouterr()
    assert "D2: keys:0 b'list' has size 200 and 0 elements" in out
    assert errors.startswith("penstock: ")
    with pytest.raises(StoreCorruptError, match=r"has faults, so it was not backed up \(D2: keys:0 b'list'"):
        backup(filled, tmp_path / "copy")
    assert names(tmp_path) == {filled.name}


def test_what_cannot_be_read_at_all_is_a_fault_and_not_a_crash(filled: Path, tmp_path: Path) -> None:
    data = filled / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2 // 4096 * 4096)
    assert [fault.rule for fault in check(filled).faults] == ["R1"]
    with pytest.raises(StoreError):
        backup(filled, tmp_path / "copy")
    assert names(tmp_path) == {filled.name}


def test_a_full_disk_is_one_sentence_and_leaves_nothing(filled: Path, tmp_path: Path) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (128 << 10, 128 << 10))

    process = penstock("backup", filled, tmp_path / "copy", preexec_fn=small_files_only)
    out, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (1, "")
    assert errors == f"penstock: no space left on the disk of {tmp_path}\n"
    assert names(tmp_path) == {filled.name}


# ------------------------------------------------------------------------- refused


def test_nothing_is_overwritten_unless_it_is_a_backup_and_asked_for(filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(UsageError, match="exists and is no backup"):
        backup(filled, target, replaces=True)
    shutil.rmtree(target)
    backup(filled, target, tmp_path / "copy.tar.zst")
    with pytest.raises(UsageError, match="copy exists: choose another name, or say --force"):
        backup(filled, target)
    with pytest.raises(UsageError, match=r"copy\.tar\.zst exists"):
        backup(filled, None, tmp_path / "copy.tar.zst")
    with Engine.open(filled) as engine, LocalSession(engine) as session:
        session.execute("SET", "newer", "1")
    assert backup(filled, target, replaces=True).manifest.keys["0"] == 103
    assert names(target) == {"data.mdb", "manifest.json"}
    assert names(tmp_path) == {filled.name, "copy", "copy.tar.zst"}


def test_an_open_store_is_neither_replaced_nor_restored_over(filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    backup(filled, target)
    assert not is_open(filled)
    writer = Writer(filled, "w")
    try:
        writer.wait_for(1)
        assert is_open(filled)
        with pytest.raises(UsageError, match="is a store that is open"):
            restore(target, filled)
    finally:
        writer.stop()
    with pytest.raises(UsageError, match="exists: choose another directory"):
        restore(target, filled)
    with Engine.open(target), pytest.raises(UsageError, match="copy is open as a store"):
        backup(filled, target, replaces=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("backup", "nowhere", "copy"), "nowhere does not exist: name the directory of a store"),
        (("check", "here"), "here has no store"),
        (("backup", "redis://host:1", "copy"), "`penstock migrate redis://host:1 DIRECTORY` copies it"),
        (("check", "redis-cluster://host:1"), "cannot check redis-cluster://host:1, which is a server"),
        (("restore", "nowhere", "new"), "nowhere does not exist: name a backup"),
        (("restore", "here", "new"), "here is no backup: it lacks manifest.json or data.mdb"),
        (("restore", "here/file", "new"), "here/file is no backup: name a directory or a .tar.zst"),
        (("backup", "store.pen"), "say where to: a directory, --archive FILE.tar.zst, or both"),
        (("backup", "store.pen", "--archive", "x.zip"), "the archive must end in .tar.zst"),
        (("backup", "store.pen", "here/file/copy"), "cannot write to"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Engine.open(store, durability="relaxed").close()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    assert main(list(words)) == 1
    out, errors = capsys.readouterr()
    assert out == ""
    assert sentence in errors
    assert errors.count("\n") == 1
