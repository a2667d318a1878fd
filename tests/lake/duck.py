"""What DuckDB sees of a table, asked in a process of its own.

    by_duckdb(table, "SELECT count(*) AS n FROM dataset").to_pylist()

``dataset`` is the table through delta-rs and Arrow, ``files`` its Parquet files alone. A process of its own,
because DuckDB writes pages about leaks to stderr when an interpreter ends that has frozen its garbage
collector, as the one of the tests does.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa

from penstock.lake import LakeTable

_SCRIPT = """
import os, sys
import duckdb, pyarrow as pa
from deltalake import DeltaTable
root, sql = sys.argv[1:3]
dataset = DeltaTable(root).to_pyarrow_dataset()
files = duckdb.read_parquet(sys.argv[3:])
found = duckdb.sql(sql).to_arrow_table()
with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as out:
    out.write_table(found)
"""


def by_duckdb(table: LakeTable, sql: str) -> Any:
    """A ``pyarrow.Table`` with the answer."""
    command = [sys.executable, "-c", _SCRIPT, str(table.root), sql, *table.paths()]
    ran = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return pa.ipc.open_stream(ran.stdout).read_all()
