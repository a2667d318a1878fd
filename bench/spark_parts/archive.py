"""The job ``archive``: ended transactions from the store to the lake, and where its time goes.

The transactions have really run. Functions that the job calls are wrapped to see how long they take; they
do what they always do.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import penstock.blocking
from bench.results import OURS, Results
from bench.spark_parts.common import check, spark_session, store_url
from bench.spark_parts.settings import Settings, told
from bench.spark_parts.transacting import run_checkouts
from bench.tables import Table
from penstock.blocking.portal import PORTAL
from penstock.lake import Lake, LakeTable
from penstock.spark.jobs import archive_intake, derive
from penstock.spark.jobs.archive import ArchiveJob
from penstock.spark.jobs.archive_intake import Intake
from penstock.spark.jobs.job import JobContext

_WARM: Final = 500


def main(settings: Settings) -> None:
    count = settings.archived
    url = store_url(settings, "archive")
    with spark_session() as spark, penstock.blocking.open(url) as ps:
        lake = Lake.open(Path(settings.directory) / "lake-archive")
        context = JobContext(spark=spark, lake=lake, store=ps, url=url)
        job = ArchiveJob()
        PORTAL.run(run_checkouts(ps._client, min(_WARM, count)))
        job.run_once(context)
        PORTAL.run(run_checkouts(ps._client, count))
        watch = _Watch()
        watch.begin()
        started = perf_counter()
        report = job.run_once(context)
        watch.taken["all"] = perf_counter() - started
        check(report.rows == count, f"{report.rows} were archived instead of {count}")
    _print(count, report.batches, watch.taken)
    results = Results()
    rate = count / watch.taken["all"]
    line = f"{count:,} transactions archived"
    results.add("spark.archive", line, OURS, "transactions/s", [rate], role="ours")
    results.save(Path(settings.results))


class _Watch:
    """Seconds by function. What happens inside of ``derive`` counts for that alone."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = defaultdict(float)
        self._within: list[str] = []

    def begin(self) -> None:
        for owner, name in (
            (Intake, "take_in"),
            (archive_intake, "table_of"),
            (archive_intake, "write"),
            (LakeTable, "commit"),
            (derive, "derive"),
        ):
            setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            counts = "derive" not in self._within
            self._within.append(name)
            started = perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self._within.pop()
                self.taken[name] += (perf_counter() - started) * counts

        return call


def _print(count: int, batches: int, taken: Mapping[str, float]) -> None:
    all_s = taken["all"]
    taking_in_s = taken["table_of"] + taken["write"] + taken["commit"]
    parts = {
        "store: hands out, forgets": all_s - taken["take_in"] - taken["derive"],
        "rows are made of them": taken["table_of"],
        "Spark writes": taken["write"],
        "read back and compared, locks": taken["take_in"] - taking_in_s,
        "commit": taken["commit"],
        "steps and webhooks": taken["derive"],
    }
    table = Table(
        f"Archive, {count:,} transactions of one step in {batches} batches",
        ("what", "s", "share", "transactions/s"),
    )
    for name, part_s in parts.items():
        table.row(name, f"{part_s:.2f}", f"{part_s / all_s:.0%}", "")
    table.row("all", f"{all_s:.2f}", "", f"{count / all_s:,.0f}")
    table.print()


if __name__ == "__main__":
    main(told())
