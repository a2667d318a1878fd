"""``reconcile``: nothing is told of a lake that is right, and everything that was done to one that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.blocking import Client
from penstock.errors import ConfigError, DifferenceError
from penstock.lake import Lake
from penstock.spark.jobs import reconcile_messages
from penstock.spark.jobs.findings import Findings
from penstock.spark.jobs.reconcile import ReconcileJob, ReconcileOptions
from penstock.transactions import keys
from tests.spark.archiving import archive_all, run_shop
from tests.spark.exporting import context_of, export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reconcile(context: Any, **options: Any) -> Any:
    return ReconcileJob(ReconcileOptions(**options)).run_once(context)


def differences(context: Any, **options: Any) -> list[str]:
    with pytest.raises(DifferenceError) as found:
        reconcile(context, **options)
    return sorted(found.value.differences)


def tamper(lake: Lake, name: str, change: Callable[[Any], Any]) -> None:
    """Rewrite every file of a table as ``change`` says; readers are not told."""
    table = lake.table(name)
    old = table.files()
    folder = table.data_directory(f"tampered-{table.version()}")
    folder.mkdir()
    for number, file in enumerate(old):
        content = pq.read_table(table.root / file.path, partitioning=None)
        pq.write_table(change(content), folder / f"part-{number}.parquet")
    table.commit(
        table.written(folder.name), progress={}, removes=[file.path for file in old], is_rewrite=True
    )


def damaged(content: Any) -> Any:
    """A row is gone, a row is there twice, a byte is another one."""
    rows = [row for row in content.to_pylist() if row["offset"] != 230]
    rows += [row for row in rows if row["offset"] == 150]
    for row in rows:
        if row["offset"] == 250:
            row["message"] = row["message"][:-1] + b"!"
    return pa.Table.from_pylist(rows, content.schema)


def test_messages(
    spark: SparkSession, lake: Lake, ps: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile_messages, "RANGE", 100)
    orders, bills = ps.stream("orders"), ps.stream("bills")
    orders.policy(node_messages=10)
    orders.write_many([(f"tag {number % 3}", f"order {number}") for number in range(400)])
    bills.write_many([("a", "1"), ("b", b"\xff")])
    bills.write("a", None)
    context = context_of(spark, lake, ps, url)
    export(context, streams=("orders", "bills"))
    # What is not exported yet, or the store has given up, is no difference.
    orders.write("", "not exported yet")
    ps.stream("private").write("", "nobody wants it")
    orders.drop(150, (310, 319))
    orders.evict(upto=20)
    assert reconcile(context).notes == {
        "streams": 2,
        "ranges": 6,
        "messages": 383,
        "only_in_lake": 11,
        "not_exported": 1,
        "differences": 0,
    }
    # Everything that can go wrong, at once.
    tamper(lake, "messages", damaged)
    bills.delete()
    bills.write("b", "anew")
    assert differences(context) == [
        "stream bills: offset 1 is not the same in the lake and in the store",
        "stream bills: the lake has offset 3, the store ends at 1",
        "stream orders: offset 150 is in the lake 2 times",
        "stream orders: offset 230 is missing in the lake",
        "stream orders: offset 250 is not the same in the lake and in the store",
    ]


def test_transactions(spark: SparkSession, lake: Lake, ps: Client, url: str) -> None:
    run_shop(ps, 6)
    context = context_of(spark, lake, ps, url)
    archive_all(context)
    assert reconcile(context).notes == {"transactions": 6, "differences": 0}
    first, second, third, *_ = sorted(
        lake.table("transactions").dataset().to_table(columns=["id"]).column("id").to_pylist()
    )
    # A row twice; a step that is gone; one that is in both, to be handed out again; one that never is.
    field = pa.compute.field
    tamper(
        lake,
        "transactions",
        lambda content: pa.concat_tables([content, content.filter(field("id") == first)]),
    )
    tamper(lake, "steps", lambda content: content.filter((field("tx") != second) | (field("position") != 0)))
    for tx in (second, third):
        prefix = keys.prefix_of(keys.partition_of(tx))
        ps.hset(f"{prefix}stateH:{tx}", {"state": "ended", "run": "0"})
        ps.zadd(f"{prefix}indexZ", {tx: 1})
    ps.zadd(f"{keys.prefix_of(keys.partition_of(second))}toArchiveZ", {second: 1})
    partition = keys.partition_of(first)
    ps.set(f"{keys.prefix_of(partition)}archiveN", "0")
    heard: list[Any] = []
    found = differences(context_of(spark, lake, ps, url, listener=heard.append))
    assert len(found) == 5
    assert f"transaction {first}: run 0 is in the lake 2 times" in found
    assert any(
        one.startswith(f"transaction {second}: run 0 has ") and "the table steps has" in one for one in found
    )
    assert f"transaction {third}: run 0 is in the lake, and the store keeps it" in found
    assert f"partition {partition}: the lake has batch 1, the store gave 0: it is older" in found
    assert heard[-1]["unacknowledged"] == 1
    assert heard[-1]["differences"] == 5


def test_what_is_told() -> None:
    findings = Findings()
    findings.differ("missing", 250, [f"{number}" for number in range(100)])
    findings.differ("doubled", 3, ["more"])
    findings.count("streams")
    assert findings.told == [f"{number}" for number in range(100)]
    assert findings.notes() == {"missing": 250, "doubled": 3, "streams": 1}
    assert findings.differences == 253
    with pytest.raises(ConfigError, match="nothing is compared"):
        ReconcileOptions(streams=(), transactions=False)
