"""The end of a log that becomes longer: as fast to plan and to read as that of a short one.

*Plan* is a query of the last message alone: what every query costs before its rows. *By time* is the same
with a moment instead of an offset, which has to be searched for.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import penstock.blocking
from bench.results import Results
from bench.spark_parts.common import (
    LOG,
    check,
    interleaved,
    rates,
    read_stream,
    spark_session,
    store_url,
    to_noop,
    top_up,
)
from bench.spark_parts.settings import Settings, told
from bench.tables import Table, spread
from penstock.blocking import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHORT = "short"


def main(settings: Settings) -> None:
    url = store_url(settings)
    tail, *longer = settings.sizes
    table = Table(
        f"The last {tail:,} messages of a log (median, least–most)",
        ("messages", "rows/s", "plan, ms", "plan by time, ms"),
    )
    with spark_session() as spark, penstock.blocking.open(url) as ps:
        top_up(ps, _SHORT, tail)
        results = Results()
        _measure(settings, spark, url, ps, _SHORT)  # warm
        for stream, size in ((_SHORT, tail), *((LOG, size) for size in longer)):
            top_up(ps, stream, size)
            length, taken = _measure(settings, spark, url, ps, stream)
            _record(results, f"{length:,} messages", taken)
            table.row(f"{length:,}", spread(taken["rows"]), spread(taken["plan"]), spread(taken["time"]))
    table.print()
    results.save(Path(settings.results))


def _record(results: Results, where: str, taken: dict[str, list[float]]) -> None:
    results.add("spark.growth", "the end of a log", f"of {where}", "rows/s", taken["rows"], role="ours")
    for name, line in (("plan", "plan"), ("time", "plan by time")):
        results.add("spark.growth", line, f"of {where}", "ms", taken[name], role="ours", better="lower")


def _measure(
    settings: Settings, spark: SparkSession, url: str, ps: Client, stream: str
) -> tuple[int, dict[str, list[float]]]:
    """Length of the log; rows a second, and milliseconds of the plans."""
    tail = settings.sizes[0]
    info = ps.stream(stream).info()
    ranges: dict[str, int | str] = {
        "rows": info.last + 1 - tail,
        "plan": info.last,
        "time": f"@{info.last_ms}",
    }

    def read(start: int | str) -> None:
        to_noop(read_stream(spark, url, stream, startingOffset=start))

    found = read_stream(spark, url, stream, startingOffset=ranges["rows"]).count()
    check(found == tail, f"{found} rows instead of {tail}")
    taken = interleaved({name: partial(read, start) for name, start in ranges.items()}, settings.rounds)
    plans = {name: [second * 1_000 for second in taken[name]] for name in ("plan", "time")}
    return info.last, {"rows": rates(tail, taken["rows"]), **plans}


if __name__ == "__main__":
    main(told())
