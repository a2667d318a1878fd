"""The end of a log that becomes longer: as fast to plan and to read as that of a short one.

*Plan* is a query of the last message alone: what every query costs before its rows. *By time* is the same
with a moment instead of an offset, which has to be searched for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import penstock.blocking
from bench.spark_parts.common import (
    LOG,
    check,
    interleaved,
    rates,
    read_stream,
    spark_session,
    spread,
    store_url,
    to_noop,
    top_up,
)
from bench.spark_parts.settings import Settings, told
from bench.tables import Table
from penstock.blocking import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHORT = "short"


def main(settings: Settings) -> None:
    url = store_url(settings)
    tail, *longer = settings.sizes
    table = Table(
        f"The last {tail:,} messages of a log (median of 3, least–most)",
        ("messages", "rows/s", "plan, ms", "plan by time, ms"),
    )
    with spark_session() as spark, penstock.blocking.open(url) as ps:
        top_up(ps, _SHORT, tail)
        _measure(spark, url, ps, _SHORT, tail)  # warm
        table.row(*_measure(spark, url, ps, _SHORT, tail))
        for size in longer:
            top_up(ps, LOG, size)
            table.row(*_measure(spark, url, ps, LOG, tail))
    table.print()


def _measure(spark: SparkSession, url: str, ps: Client, stream: str, tail: int) -> tuple[str, ...]:
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
    taken = interleaved({name: partial(read, start) for name, start in ranges.items()})
    plans = ([second * 1_000 for second in taken[name]] for name in ("plan", "time"))
    return f"{info.last:,}", spread(rates(tail, taken["rows"])), *map(spread, plans)


if __name__ == "__main__":
    main(told())
