"""From a message that is written to the micro-batch that has it, in a query that is idle in between."""

from __future__ import annotations

import random
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import penstock.blocking
from bench.results import OURS, Results
from bench.spark_parts.common import check, percentile, spark_session, store_url, thirds
from bench.spark_parts.settings import Settings, told
from bench.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AIM_MS: Final = 200.0
_WARM: Final = 10
_SAMPLES: Final = 40
#: Between two messages: the query is idle again, and at a different place of its turn each time.
_PAUSES_S: Final = (0.1, 0.25)
_LIMIT_S: Final = 120.0
_STREAM: Final = "ticks"


class Seen:
    """The last offset that a batch had, for whoever waits for it."""

    def __init__(self) -> None:
        self._last = 0
        self._changed = threading.Condition()

    def __call__(self, batch: DataFrame, number: int) -> None:
        """For ``foreachBatch``."""
        offsets = [row.offset for row in batch.select("offset").collect()]
        with self._changed:
            self._last = max([self._last, *offsets])
            self._changed.notify_all()

    def wait(self, offset: int) -> None:
        with self._changed:
            check(
                self._changed.wait_for(lambda: self._last >= offset, _LIMIT_S),
                f"offset {offset} did not come",
            )


def main(settings: Settings) -> None:
    url = store_url(settings)
    with spark_session() as spark, penstock.blocking.open(url) as ps:
        stream = ps.stream(_STREAM)
        stream.write("tag", b"first")
        seen = Seen()
        source = spark.readStream.format("penstock").options(url=url, stream=_STREAM).load()
        place = Path(settings.directory) / "checkpoint-latency"
        query = source.writeStream.foreachBatch(seen).option("checkpointLocation", f"file://{place}").start()
        try:
            taken = [_sample(stream, seen) * 1_000 for _ in range(_WARM + _SAMPLES)][_WARM:]
        finally:
            query.stop()
    results = Results()
    line = "one message, to foreachBatch that has it, p50"
    results.add("spark.latency", line, OURS, "ms", thirds(taken), role="ours", better="lower", aim=_AIM_MS)
    results.save(Path(settings.results))
    table = Table(
        f"Micro-batch: a message, to foreachBatch that has it (ms, {_SAMPLES} samples)",
        ("what", "p50", "p90", "least", "most"),
    )
    figures = (statistics.median(taken), percentile(taken, 0.9), min(taken), max(taken))
    table.row("one message, embedded", *(f"{figure:.0f}" for figure in figures))
    table.print()


def _sample(stream: penstock.blocking.Stream, seen: Seen) -> float:
    time.sleep(random.uniform(*_PAUSES_S))
    started = time.perf_counter()
    seen.wait(stream.write("tag", b'{"id":1}'))
    return time.perf_counter() - started


if __name__ == "__main__":
    main(told())
