"""Transactions through a pandas step on Spark, beside an ordinary worker whose step does the same in Python.

The transactions wait when a worker begins; its time is until all have ended. For a step as small as this an
ordinary worker is the quicker way: the figures tell what the way to Spark costs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

import penstock
from bench.results import OURS, Results
from bench.spark_parts.common import rates, ratio, spark_session, store_url
from bench.spark_parts.settings import Settings, told
from bench.spark_parts.transacting import start_many, until_ended
from bench.tables import Table, spread
from penstock.front import Penstock
from penstock.spark.steps import SparkWorker, spark_step
from penstock.transactions import App, Pipeline

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

_ROUNDS: Final = 2
_WARM: Final = 200
app = App()


@spark_step(
    app, "score", kind="pandas", keep_input=True, input_schema="amount double", output_schema="score double"
)
def score(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(score=frame["amount"] * 2)


@app.step("score_here")
async def score_here(tx: Any) -> Any:
    return {**tx.input, "score": tx.input["amount"] * 2}


ON_SPARK: Final = app.pipeline(Pipeline("on-spark", ["score"], node_group="on-spark"))
HERE: Final = app.pipeline(Pipeline("here", ["score_here"], node_group="here"))


def main(settings: Settings) -> None:
    with spark_session() as spark:
        uvloop.run(_measure(spark, settings))


async def _measure(spark: SparkSession, settings: Settings) -> None:
    taken: dict[str, list[float]] = {"spark": [], "here": []}
    async with penstock.open(store_url(settings, "steps")) as ps:
        await ps.transactions.deploy(ON_SPARK, HERE)
        await _by_spark(ps, spark, min(_WARM, settings.stepped))
        for _ in range(min(_ROUNDS, settings.rounds)):
            taken["here"].append(await _here(ps, settings.stepped))
            taken["spark"].append(await _by_spark(ps, spark, settings.stepped))
    count = settings.stepped
    ours, theirs = rates(count, taken["spark"]), rates(count, taken["here"])
    results = Results()
    line = f"{count:,} transactions of one step"
    results.add("spark.steps", line, "an ordinary worker", "transactions/s", theirs, role="limit")
    results.add("spark.steps", line, f"{OURS}, a step on Spark", "transactions/s", ours, role="ours")
    results.save(Path(settings.results))
    table = Table(
        f"{count:,} transactions of one step (transactions/s, least–most)",
        ("step", "rate", "to an ordinary worker"),
    )
    table.row("Python, an ordinary worker", spread(theirs), "")
    table.row("pandas, on Spark, two cores", spread(ours), ratio(ours, theirs))
    table.print()


async def _by_spark(ps: Penstock, spark: SparkSession, count: int) -> float:
    await start_many(ps, ON_SPARK.name, count)
    async with SparkWorker(ps, app, node_groups=[ON_SPARK.node_group], spark=spark) as worker:
        return await until_ended(worker, count)


async def _here(ps: Penstock, count: int) -> float:
    await start_many(ps, HERE.name, count)
    async with ps.transactions.worker(app, node_group=HERE.node_group) as worker:
        return await until_ended(worker, count)


if __name__ == "__main__":
    main(told())
