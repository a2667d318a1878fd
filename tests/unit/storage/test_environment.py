"""Opening stores: shared within a process, refused where they cannot be used, brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine import Engine, LocalSession
from penstock.engine.storage import upgrade
from penstock.engine.storage.layout import FORMAT_VERSION, U32
from penstock.engine.storage.transaction import Unit
from penstock.errors import ClosedError, ConfigError, StoreError, StoreFormatError


def _stamp(engine: Engine, version: int) -> None:
    def write() -> None:
        engine.unit.put(b"format", U32.pack(version), db=engine.unit.tables["system"])

    engine.run_task(write)


def test_a_directory_opened_twice_in_a_process_is_one_store(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen") as one, Engine.open(tmp_path / "s.pen") as other:
        assert one.env is other.env
        LocalSession(one).execute("SET", "k", "v")
        assert LocalSession(other).execute("GET", "k") == b"v"
        one.close()
        assert LocalSession(other).execute("GET", "k") == b"v"


def test_another_durability_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen"), pytest.raises(ConfigError, match="durability 'always'"):
        Engine.open(tmp_path / "s.pen", durability="relaxed")


def test_a_durability_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'sometimes'"):
        Engine.open(tmp_path / "s.pen", durability="sometimes")  # type: ignore[arg-type]


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="as a store directory"):
        Engine.open(tmp_path / "file")


def test_a_directory_with_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data.mdb"
    data.write_bytes(b"this is not LMDB" * 1000)
    with pytest.raises(StoreError):
        Engine.open(tmp_path)
    assert data.read_bytes() == b"this is not LMDB" * 1000


def test_use_after_close_is_a_clear_error(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "s.pen")
    session = LocalSession(engine)
    engine.close()
    engine.close()
    with pytest.raises(ClosedError, match="is closed"):
        session.execute("GET", "k")


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen") as engine:
        _stamp(engine, FORMAT_VERSION + 1)
    with pytest.raises(
        StoreFormatError, match=f"format {FORMAT_VERSION + 1}, this one reads {FORMAT_VERSION}"
    ):
        Engine.open(tmp_path / "s.pen")


def test_a_store_without_an_upgrade_path_is_refused(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "s.pen") as engine:
        _stamp(engine, 0)
    with pytest.raises(StoreFormatError, match="no upgrade path"):
        Engine.open(tmp_path / "s.pen")


def test_an_older_store_is_upgraded_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path / "s.pen") as engine:
        LocalSession(engine).execute("SET", "kept", "v")
        _stamp(engine, 0)

    def fail(unit: Unit) -> None:
        unit.put(b"half", b"done", db=unit.tables["system"])
        raise OSError("the machine went away")

    monkeypatch.setitem(upgrade.UPGRADES, 0, fail)
    with pytest.raises(StoreError):
        Engine.open(tmp_path / "s.pen")

    steps: list[bytes | None] = []
    monkeypatch.setitem(
        upgrade.UPGRADES, 0, lambda unit: steps.append(unit.get(b"half", None, unit.tables["system"]))
    )
    with Engine.open(tmp_path / "s.pen") as engine:
        assert LocalSession(engine).execute("GET", "kept") == b"v"
    assert steps == [None], "the failed attempt must have left nothing, and the step must run once"
    with Engine.open(tmp_path / "s.pen"):
        assert steps == [None]
