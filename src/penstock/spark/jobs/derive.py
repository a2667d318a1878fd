"""Tables that are told apart from ``transactions``: ``steps`` and ``webhooks``, by what was added since.

    numbers = derive(context)                      # {"steps": 1200, "webhooks": 3}: rows that joined them

Each takes in the commits of ``transactions`` that it does not have (``changes``; rewrites add nothing), some
at a time, and says with its own commit how far it has come: so each row is taken in once. Who takes in a
table is alone with it (``lake.alone``); another process leaves that to it, and looks again in its next pass.

A transaction that was replayed has a row in ``transactions`` for each run, and the trail of a run begins
with those of the runs before: ``run`` tells them apart in both tables.

Nothing here knows where transactions come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from penstock.lake.alone import alone
from penstock.spark.lake_writing import read, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.changes import Change
    from penstock.lake.table import LakeTable
    from penstock.spark.jobs.job import JobContext

_SOURCE: Final = "transactions"
#: Files that are read for one commit: a table that begins late takes in a large one by portions.
_FILES_AT_ONCE: Final = 500
#: Of what is read; a file that is written of them is smaller.
_BYTES_PER_FILE: Final = 268_435_456


def derive(context: JobContext) -> dict[str, int]:
    """Take in what is new, for every table; how many rows each got."""
    found: dict[str, int] = {}
    for name, make in MAKERS.items():
        with alone(context.lake, f"derive-{name}") as is_mine:
            rows = take_in(context, name, make) if is_mine else 0
        if rows:
            found[name] = rows
    return found


def take_in(context: JobContext, name: str, make: Callable[[DataFrame], DataFrame]) -> int:
    """What a table's source got since, made into rows of the table; how many. The caller is alone with it."""
    table = context.lake.table(name)
    source = context.lake.table(table.spec.source or _SOURCE)
    app = table.spec.app
    done = table.progress(app)
    rows = 0
    for changes in _portions(source.changes(done or 0)):
        if context.stopping.is_set():
            break
        new = make(read(context.spark, source, [path for change in changes for path in change.files]))
        upto = changes[-1].version
        files = write(new, table, f"upto-{upto}", files=_files(source, changes))
        rows += table.commit(files, progress={app: upto}, expected={app: done}).rows
        done = upto
        context.report(**{name: rows})
    return rows


def _portions(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Whole commits, together at most so many files (or one commit)."""
    portion: list[Change] = []
    files = 0
    for change in changes:
        if portion and files + len(change.files) > _FILES_AT_ONCE:
            yield portion
            portion, files = [], 0
        portion.append(change)
        files += len(change.files)
    if portion:
        yield portion


def _files(source: LakeTable, changes: Sequence[Change]) -> int:
    """How many files the rows of these commits become."""
    size_bytes = sum((source.root / path).stat().st_size for change in changes for path in change.files)
    return size_bytes // _BYTES_PER_FILE + 1


def _steps(transactions: DataFrame) -> DataFrame:
    took_ms = fn.unix_millis("entry.at") - fn.unix_millis("entry.started")
    return (
        transactions.select("*", fn.posexplode("trail").alias("position", "entry"))
        .where("entry.kind = 'step'")
        .select(
            fn.col("id").alias("tx"),
            *("run", "root", "owner", "pipeline", "node_group"),
            fn.col("position").cast("long").alias("position"),
            *(f"entry.{name}" for name in ("at", "step", "name", "status", "attempt", "started")),
            took_ms.alias("duration_ms"),
            *(f"entry.{name}" for name in ("worker", "group", "note", "logs")),
            fn.col("status").alias("tx_status"),
            fn.col("ended").alias("tx_ended"),
        )
    )


def _webhooks(transactions: DataFrame) -> DataFrame:
    return transactions.where("webhook is not null").select(
        fn.col("id").alias("tx"),
        *("run", "owner", "pipeline", "webhook"),
        fn.col("webhook_status").alias("status"),
        fn.col("webhook_comment").alias("comment"),
        *("ended", "notified"),
    )


#: How the rows of each table are made of those of ``transactions``.
MAKERS: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {"steps": _steps, "webhooks": _webhooks}
