"""The directory of a lake: made once, told apart from others, readable by programs that do not know it."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.errors import ConfigError, LakeError, StoreFormatError, UsageError
from penstock.lake import Lake
from penstock.lake.tables import ENDINGS, TABLES, derived_from
from penstock.transactions.archive.schema import SCHEMA
from penstock.transactions.model import Ending
from tests.lake.duck import by_duckdb
from tests.lake.rows import DAY, messages, put


def test_a_lake_keeps_its_id(tmp_path: Path) -> None:
    lake = Lake.open(tmp_path / "lake")
    assert Lake.open(tmp_path / "lake", create=False).id == lake.id
    assert Lake.open(tmp_path / "other").id != lake.id
    assert lake.names() == []
    lake.table("messages")
    lake.table("steps")
    assert Lake.open(lake.root).names() == ["steps", "messages"]
    assert lake.checkpoint("export") == lake.root / "_checkpoints" / "export"


def test_who_makes_it_at_the_same_time_gets_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = {lake.id for lake in pool.map(lambda _: Lake.open(tmp_path / "lake"), range(16))}
        lakes = [Lake.open(tmp_path / "lake") for _ in range(8)]
        versions = [table.version() for table in pool.map(lambda lake: lake.table("webhooks"), lakes)]
    assert len(ids) == 1
    assert versions == [0] * 8
    assert [path.name for path in (tmp_path / "lake" / "_penstock").iterdir()] == ["lake.json"]


def test_what_is_no_lake_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no lake at"):
        Lake.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="has files and is no lake"):
        Lake.open(tmp_path / "full")
    with pytest.raises(ConfigError, match=r"the path of a lake must be without %, not"):
        Lake.open(tmp_path / "a%20b")
    lake = Lake.open(tmp_path / "lake")
    with pytest.raises(UsageError, match="a lake has no table 'orders': there are transactions, steps,"):
        lake.table("orders")
    with pytest.raises(UsageError, match="job must be"):
        lake.checkpoint("../x")
    about = lake.root / "_penstock" / "lake.json"
    about.write_text(json.dumps({"id": lake.id, "layout": 2}))
    with pytest.raises(StoreFormatError, match="has layout 2"):
        Lake.open(lake.root)
    about.write_text("nonsense")
    with pytest.raises(LakeError, match=r"lake\.json must tell the id"):
        Lake.open(lake.root)


def test_a_table_that_lacks_a_column_is_told(tmp_path: Path, lake: Lake) -> None:
    DeltaTable.create(str(lake.root / "webhooks"), lake.table("steps").schema)
    with pytest.raises(LakeError, match=r"table webhooks at .* has no column 'webhook' of type string"):
        lake.table("webhooks")
    (lake.root / "messages" / "_delta_log").mkdir(parents=True)
    (lake.root / "messages" / "_delta_log" / f"{0:020d}.json").write_text("nonsense")
    with pytest.raises(LakeError, match=r"^table messages cannot be read: .*[^\n]*$"):
        lake.table("messages")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_each_table_is_what_delta_says(lake: Lake, name: str) -> None:
    table = lake.table(name)
    delta = DeltaTable(str(table.root))
    assert [field.name for field in delta.schema().fields] == table.schema.names
    assert tuple(delta.metadata().partition_columns) == table.partition_by
    assert table.dataset().schema.equals(table.schema)
    assert set(table.spec.stats) <= set(table.schema.names)
    assert (table.files(), table.paths(), table.changes(0), table.version()) == ([], [], [], 0)
    assert repr(table) == f"<LakeTable {name} version 0, 0 files>"


def test_columns_follow_what_they_are_made_from() -> None:
    assert TABLES["transactions"].schema.names == SCHEMA.names
    assert str(TABLES["transactions"].schema.field("ended").type) == "timestamp[us, tz=UTC]"
    assert tuple(ending.value.replace("-", "_") for ending in Ending) == ENDINGS
    assert set(ENDINGS) < set(TABLES["stats_60s"].schema.names)
    assert {spec.app for spec in derived_from("transactions")} >= {
        "steps:from-transactions",
        "webhooks:from-transactions",
        "stats_5s:from-transactions",
    }


ODD = "a/b c%41ü+=:*"


def test_other_programs_read_the_same_rows(lake: Lake) -> None:
    """delta-rs, DuckDB over Arrow, DuckDB over files: row by row what was written; odd names too."""
    table = lake.table("messages")
    written = [messages(table, 0, 100), messages(table, 0, 50, ODD)]
    for number, rows in enumerate(written):
        table.commit(put(table, rows), progress={"messages": number})
    expected = sorted((row for rows in written for row in rows.to_pylist()), key=_key)
    by_delta = DeltaTable(str(table.root)).to_pyarrow_table().to_pylist()
    assert sorted(by_delta, key=_key) == expected
    asked = "SELECT 'delta' AS via, * FROM dataset UNION ALL SELECT 'files' AS via, * FROM files"
    found = by_duckdb(table, f'{asked} ORDER BY via, stream, "offset"').to_pylist()
    assert [row.pop("via") for row in found] == ["delta"] * 150 + ["files"] * 150
    assert [_plain(row) for row in found] == [_plain(row) for row in expected] * 2
    assert sorted((file.partition for file in table.files()), key=str) == [
        {"stream": ODD, "day": DAY.isoformat()},
        {"stream": "orders", "day": DAY.isoformat()},
    ]


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["stream"], row["offset"]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """DuckDB gives moments in the zone of this machine."""
    return {**row, "time": row["time"].timestamp()}


@pytest.mark.parametrize("missing", ["deltalake", "pyarrow"])
def test_who_lacks_a_package_is_told_in_one_sentence(missing: str, tmp_path: Path) -> None:
    (tmp_path / "_penstock").mkdir()
    (tmp_path / "_penstock" / "lake.json").write_text('{"id": "x", "layout": 1}')
    script = f"""
import sys
sys.modules[{missing!r}] = None
from penstock.errors import ConfigError
from penstock.lake import archives
for ask in (lambda: archives.open({str(tmp_path)!r}), lambda: __import__("penstock.lake").lake.Lake):
    try:
        ask()
    except ConfigError as error:
        print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == ["a lake needs delta-rs and Arrow: pip install 'penstock[lake]'"] * 2
