"""Transactions of the lake: each run once, its steps with it, and forgotten by the store.

===================  =====================================================================================
``tx_doubled``       a run is in ``transactions`` more than once
``steps_wrong``      ``steps`` has more or fewer rows of a run than its trail has steps
``still_in_store``   the store has an ended transaction that is archived, and does not intend to give it away
``batches_ahead``    the lake has batches that the store has not handed out: it is older than the lake
===================  =====================================================================================

All of these are differences. ``unacknowledged`` are in both and will be handed out again: that is no fault.

Rules: runs that ``steps`` has not taken in yet are left out, and those that ended before the first one that
both tables still have, since each may be kept for another time. The store is asked for ids, a page at a time.

Nothing here writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from penstock.blocking.portal import PORTAL
from penstock.lake.archive import archive_app
from penstock.spark.jobs.findings import MOST_TOLD, Findings
from penstock.spark.lake_writing import read
from penstock.spark.stores import store_id
from penstock.transactions import keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.snapshots import Snapshot
    from penstock.spark.jobs.job import JobContext
    from penstock.transactions.store import TransactionStore

_TABLE: Final = "transactions"
_STEPS: Final = "steps"
_RUN: Final = ("id", "run")


def compare_transactions(context: JobContext, findings: Findings) -> None:
    """Everything that the tables above tell."""
    if _TABLE not in context.lake.names():
        return
    _compare_steps(context, findings)
    _compare_runs(context, findings)
    _compare_store(context, findings)
    _compare_batches(context, findings)


def _compare_runs(context: JobContext, findings: Findings) -> None:
    runs = read(context.spark, context.lake.table(_TABLE)).groupBy(*_RUN).count()
    total, doubled = runs.agg(F.sum("count"), F.count_if(F.col("count") > 1)).collect()[0]
    findings.count("transactions", total or 0)
    if doubled:
        first = runs.where("count > 1").sort(*_RUN).limit(MOST_TOLD).collect()
        findings.differ(
            "tx_doubled",
            doubled,
            [f"transaction {tx}: run {run} is in the lake {n} times" for tx, run, n in first],
        )


# --------------------------------------------------------------------------------------- steps


def _compare_steps(context: JobContext, findings: Findings) -> None:
    if _STEPS not in context.lake.names():
        return
    spark, source, table = context.spark, context.lake.table(_TABLE), context.lake.table(_STEPS)
    # In this order: what joins between is in the changes.
    steps_now = table.snapshot()
    now = source.snapshot()
    taken, begin = steps_now.progress(table.spec.app), _both_begin(now, steps_now)
    if taken is None or begin is None:
        return
    new = [path for change in source.changes(taken, now.version) for path in change.files]
    pending = read(spark, source, new).select(*_RUN)
    wanted = (
        read(spark, source, [file.path for file in now.files])
        .where(F.col("ended").isNull() | (F.col("ended") >= begin))
        .select(*_RUN, F.size(F.filter("trail", lambda entry: entry["kind"] == "step")).alias("wanted"))
    )
    found = (
        read(spark, table, [file.path for file in steps_now.files])
        .where(F.col("tx_ended").isNull() | (F.col("tx_ended") >= begin))
        .select(F.col("tx").alias("id"), "run")
    )
    odd = (
        wanted.groupBy(*_RUN).agg(F.sum("wanted").alias("wanted"))
        .join(found.groupBy(*_RUN).agg(F.count("*").alias("found")), list(_RUN), "full")
        .join(pending, list(_RUN), "left_anti")
        .select(*_RUN, *(F.coalesce(name, F.lit(0)).alias(name) for name in ("wanted", "found")))
        .where("wanted != found")
    )  # fmt: skip
    _tell_steps(odd, findings)


def _both_begin(now: Snapshot, steps_now: Snapshot) -> Any:
    """The moment from which on both tables have what has ended; None if one of them has nothing."""
    firsts = []
    for snapshot, column in ((now, "ended"), (steps_now, "tx_ended")):
        bounds = [file.bounds(column) for file in snapshot.files]
        told = [each[0] for each in bounds if each is not None]
        if not told:
            return None
        firsts.append(min(told))
    return F.lit(max(firsts)).cast("timestamp")


def _tell_steps(odd: DataFrame, findings: Findings) -> None:
    number = odd.count()
    if number:
        first = odd.sort(*_RUN).limit(MOST_TOLD).collect()
        findings.differ(
            "steps_wrong",
            number,
            [
                f"transaction {tx}: run {run} has {wanted} steps in its trail, the table steps has {found}"
                for tx, run, wanted, found in first
            ],
        )


# ------------------------------------------------------------------------------------ the store


def _compare_store(context: JobContext, findings: Findings) -> None:
    store = context.store.transactions.store
    ids = PORTAL.run(_ids(store))
    if not ids:
        return
    here = context.spark.createDataFrame(pa.table({"id": pa.array(ids, pa.string())}))
    archived = read(context.spark, context.lake.table(_TABLE)).select(*_RUN)
    runs = {(row[0], row[1]) for row in archived.join(F.broadcast(here), "id").collect()}
    kept: list[str] = []
    for tx in sorted({tx for tx, _ in runs}):
        state, run, waits = PORTAL.run(_state(store, tx))
        if state == b"ended" and (tx, run) in runs:
            if waits:
                findings.count("unacknowledged")
            else:
                kept.append(f"transaction {tx}: run {run} is in the lake, and the store keeps it")
    findings.differ("still_in_store", len(kept), kept)


async def _ids(store: TransactionStore) -> list[str]:
    """Of every transaction that the store has."""
    found: set[str] = set()
    for partition in range(await store.partitions()):
        async for member, _ in store.client.zscan_iter(f"{keys.prefix_of(partition)}indexZ", count=1_000):
            found.add(bytes(member).decode("utf-8", "replace"))
    return sorted(found)


async def _state(store: TransactionStore, tx: str) -> tuple[bytes | None, int, bool]:
    """Its state, its run, and whether it is to be handed out."""
    prefix = keys.prefix_of(keys.partition_of(tx))
    waits: Any = await store.client.execute("ZSCORE", f"{prefix}toArchiveZ", tx)
    fields: Any = await store.client.execute("HMGET", f"{prefix}stateH:{tx}", "state", "run")
    return fields[0], int(fields[1] or 0), waits is not None


def _compare_batches(context: JobContext, findings: Findings) -> None:
    store, source = context.store.transactions.store, store_id(context.store)
    snapshot = context.lake.table(_TABLE).snapshot()
    ahead: list[str] = []
    for partition in range(PORTAL.run(store.partitions())):
        number: Any = context.store.execute("GET", f"{keys.prefix_of(partition)}archiveN")
        given = int(number or 0)
        have = snapshot.progress(archive_app(source, partition)) or 0
        if have > given:
            ahead.append(
                f"partition {partition}: the lake has batch {have}, the store gave {given}: it is older"
            )
    findings.differ("batches_ahead", len(ahead), ahead)
