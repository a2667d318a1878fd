"""What the parts share: a session, a store, a log of messages, rounds, figures.

with spark_session() as spark, penstock.blocking.open(store_url(settings)) as ps:
    top_up(ps, LOG, settings.messages)
    times = interleaved({"ours": read_ours, "theirs": read_theirs}, settings.rounds)
    spread(rates(count, times["ours"]))
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import penstock.spark
from bench.spark_parts.settings import Settings
from penstock.blocking import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = "log"
MASTER: Final = "local[2]"
_TAGS: Final = [b"shop-%03d" % number for number in range(300)]
#: What messages have behind their number: so many different ones are enough, since a node has 1,000 messages
#: and a page of Parquet not many more.
_TAILS: Final = 20_000
_FILL: Final = 1_000_000


@contextmanager
def spark_session(conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    settings = {"spark.driver.memory": "2g", **(conf or {})}
    spark = penstock.spark.session("penstock-bench", master=MASTER, conf=settings)
    try:
        yield spark
    finally:
        spark.stop()


def store_url(settings: Settings, name: str = "store") -> str:
    return f"embedded:{Path(settings.directory) / name}.pen?durability=relaxed"


def read_stream(
    spark: SparkSession, url: str, stream: str, schema: str | None = None, **options: object
) -> DataFrame:
    """``schema``: without it all columns."""
    reader = spark.read.format("penstock").options(url=url, stream=stream)
    reader = reader.options(**{name: str(value) for name, value in options.items()})
    return (reader if schema is None else reader.schema(schema)).load()


def to_noop(df: DataFrame) -> None:
    """All of its rows, made and thrown away."""
    df.write.format("noop").mode("overwrite").save()


# ----------------------------------------------------------------------- messages


def messages(first: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """Tag and JSON of about 100 bytes; the same for the same number."""
    tails = _tails()
    for number in range(first, end):
        yield _TAGS[number * 7 % len(_TAGS)], b'{"id":%d,%b' % (number, tails[number % _TAILS])


def _tails() -> list[bytes]:
    chance = random.Random(1)
    return [
        b'"user":"user-%d","event":"%b","amount":%d.%02d,"page":"/products/%d"}'
        % (
            chance.randrange(10_000),
            chance.choice((b"click", b"view", b"buy", b"return")),
            chance.randrange(100),
            chance.randrange(100),
            chance.randrange(500),
        )
        for _ in range(_TAILS)
    ]


def top_up(ps: Client, stream: str, size: int) -> None:
    """Until the stream has so many messages; what a part before has written is kept."""
    have = ps.stream(stream).info().last if ps.exists(stream) else 0
    for first in range(have, size, _FILL):
        end = min(first + _FILL, size)
        print(f"  {stream}: {end:,} of {size:,} messages", file=sys.stderr, flush=True)
        ps.stream(stream).write_many(messages(first, end))


# ------------------------------------------------------------------------ rounds


def interleaved(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, all of them one after the other in each round."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(seconds(work))
    return taken


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rates(count: int, times: Sequence[float]) -> list[float]:
    """How many a second."""
    return [count / one for one in times]


# ----------------------------------------------------------------------- figures


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}×"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def thirds(samples: Sequence[float]) -> list[float]:
    """Three medians: of single calls, in their order, what rounds are of work that repeats them."""
    size = -(-len(samples) // 3)
    return [statistics.median(samples[start : start + size]) for start in range(0, len(samples), size)]


def check(is_right: bool, what: str) -> None:
    """A figure of work that was not done is worse than none."""
    if not is_right:
        raise RuntimeError(f"the benchmark is wrong: {what}")
