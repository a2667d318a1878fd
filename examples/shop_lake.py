# %%
"""A shop and its lake: a tutorial in cells.

A small shop writes visits to a stream and sells by transactions, all of it in one directory. Jobs of the data
pipeline take both to a lake of Delta tables, which then answers questions in SQL and draws four pictures.

Run it as a script (``python examples/shop_lake.py``, about a minute), or cell by cell in an editor that knows
``# %%``. It needs ``pip install 'penstock[spark]'``. With matplotlib it draws, else it writes bars.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import tempfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import penstock
import penstock.blocking
import penstock.spark
from penstock.errors import StepFailedError
from penstock.lake import Lake, LakeArchive
from penstock.spark.jobs.archive import ArchiveJob
from penstock.spark.jobs.export import ExportJob, ExportOptions
from penstock.spark.jobs.job import Job, JobContext
from penstock.spark.jobs.maintain import MaintainJob
from penstock.spark.jobs.reconcile import ReconcileJob
from penstock.spark.jobs.rollup import RollupJob
from penstock.spark.views import register
from penstock.transactions import App, Function, Pipeline, Retry, StepContext

HOME = Path(tempfile.mkdtemp(prefix="shop-lake-"))
STORE = str(HOME / "shop.pen")
CHANCE = random.Random(7)
COUNTRIES = {"de": 5, "fr": 3, "at": 2, "it": 1}
PRODUCTS = {"lamp": 49.0, "chair": 120.0, "table": 310.0, "rug": 75.0}
OPEN_S = 15

# %% [markdown]
# ## The shop
#
# Three steps sell something. The bank is away now and then, which a retry policy is for; dear things find
# some cards empty.

# %%
app = App()


@app.step("reserve")
async def reserve(tx: StepContext) -> Any:
    await asyncio.sleep(CHANCE.uniform(0.005, 0.03))
    return {**tx.input, "reservation": tx.id[-6:]}


@app.step("pay")
async def pay(tx: StepContext) -> Any:
    await asyncio.sleep(CHANCE.uniform(0.02, 0.2))
    if CHANCE.random() < 0.1:
        raise ConnectionError("the bank is away")
    if CHANCE.random() < tx.input["total"] / 2_000:
        raise StepFailedError("the card is empty")
    return {**tx.input, "paid": True}


@app.step("ship")
async def ship(tx: StepContext) -> Any:
    await asyncio.sleep(CHANCE.expovariate(20))
    return {**tx.input, "parcel": f"parcel-{tx.external_id}"}


paying = Function("pay", retry=Retry(limit=4, backoff_ms=50, on=("ConnectionError",)))
app.pipeline(Pipeline("checkout", ["reserve", paying, "ship"], node_group="shop"))

# %% [markdown]
# It is open for some seconds: people come and look, and every tenth buys. (A notebook has an event loop
# already, so the shop gets a thread with one of its own.)


# %%
async def visit(shop: penstock.Penstock, number: int) -> str | None:
    """Somebody looks at a product; the id of what is bought."""
    (country,) = CHANCE.choices(list(COUNTRIES), list(COUNTRIES.values()))
    product = CHANCE.choice(list(PRODUCTS))
    await shop.stream("visits").write(country, json.dumps({"product": product}))
    if number % 10:
        return None
    pieces = CHANCE.randint(1, 3)
    order = {"product": product, "country": country, "pieces": pieces, "total": pieces * PRODUCTS[product]}
    return (await shop.transactions.start("checkout", order, external_id=f"order-{number}")).id


async def trade() -> tuple[int, int]:
    """How many visited, and how many bought."""
    number = 0
    async with penstock.open(STORE) as shop:
        await shop.transactions.store.configure(archive_delay_ms=0)  # instead of a minute
        async with shop.transactions.worker(app, node_group="shop"):
            closes = asyncio.get_running_loop().time() + OPEN_S
            bought = []
            while (left := closes - asyncio.get_running_loop().time()) > 0:
                number += 1
                bought.append(await visit(shop, number))
                # Busiest in the middle of the day.
                await asyncio.sleep(0.002 + 0.01 * abs(left / OPEN_S - 0.5))
            orders = [await shop.transactions.wait(tx, timeout_ms=60_000) for tx in bought if tx]
    return number, len(orders)


def in_a_thread(work: Coroutine[Any, Any, Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


visits, orders = in_a_thread(trade())
print(f"{visits:,} visits, {orders} orders, in {HOME}")

# %% [markdown]
# ## To the lake
#
# `penstock spark run` keeps a lake in step for ever. Here each job runs once; what a job has done is known by
# the lake, so running it again does nothing.

# %%
ps = penstock.blocking.open(STORE)
lake = Lake.open(HOME / "lake")
spark = penstock.spark.session("shop-lake", master="local[2]")
context = JobContext(spark=spark, lake=lake, store=ps, url=STORE)
jobs: list[Job] = [
    ExportJob(ExportOptions(streams=("visits",))),
    ArchiveJob(),
    RollupJob(),
    MaintainJob(),
    ReconcileJob(),
]
for job in jobs:
    report = job.run_once(context)
    took_s = (report.ended_ms - report.started_ms) / 1_000
    print(f"{job.name:10} {report.rows:6,} rows in {took_s:.1f} s  {report.notes or ''}")
print(f"export once more: {jobs[0].run_once(context).rows} rows")

# %% [markdown]
# ## Questions
#
# Tables of the lake are views for SQL, and so is the live stream.

# %%
print("views:", ", ".join(register(spark, lake, url=STORE, streams=["visits"])))


def ask(title: str, question: str) -> list[Any]:
    print(f"\n{title}")
    answer = spark.sql(question)
    answer.show(truncate=False)
    return list(answer.collect())


ask(
    "How did it go?",
    "SELECT status, note, count(*) AS orders FROM transactions GROUP BY ALL ORDER BY orders DESC",
)
ask(
    "Who looks, and who buys?",
    """
    WITH seen AS (
      SELECT get_json_object(cast(message AS string), '$.product') AS product, count(*) AS visits
      FROM messages WHERE stream = 'visits' GROUP BY 1
    ), sold AS (
      SELECT get_json_object(input, '$.product') AS product, count(*) AS orders
      FROM transactions WHERE status = 'success' GROUP BY 1
    )
    SELECT product, visits, orders, round(100 * orders / visits, 1) AS percent
    FROM seen JOIN sold USING (product) ORDER BY percent DESC
    """,
)
steps = ask(
    "Which step takes long, and which is tried again?",
    """
    SELECT name, count(*) AS attempts, sum(int(attempt > 1)) AS repeated,
           round(avg(duration_ms)) AS mean_ms, max(duration_ms) AS longest_ms
    FROM steps GROUP BY name ORDER BY mean_ms DESC
    """,
)
countries = ask(
    "What was earned?",
    """
    SELECT get_json_object(output, '$.country') AS country,
           sum(double(get_json_object(output, '$.total'))) AS total
    FROM transactions WHERE status = 'success' GROUP BY 1 ORDER BY total DESC
    """,
)
windows = ask(
    "And by time?",
    """
    SELECT date_format(window, 'mm:ss') AS at, queued, success, failed, retries,
           round(latency_sum_ms / (success + failed)) AS mean_ms
    FROM stats_5s WHERE kind = 'all' ORDER BY window
    """,
)
latencies = ask(
    "How long did people wait?",
    """
    SELECT int(pow(2, bucket / 2) - 1) AS from_ms, sum(count) AS orders
    FROM stats_600s LATERAL VIEW posexplode(latency) AS bucket, count
    WHERE kind = 'all' AND count > 0 GROUP BY bucket ORDER BY bucket
    """,
)

# %% [markdown]
# One order by its external id, as a support desk would ask for it. This needs no Spark.

# %%
with penstock.blocking.open(STORE).with_archive(LakeArchive(lake)) as desk:
    found = desk.transactions.find("order-10", trail=True)
print(f"order-10: {found.status}, archived: {found.is_archived}, output: {found.output}")
for entry in found.trail:
    print(f"  {entry.name} {entry.status} {entry.note}")

# %% [markdown]
# ## Pictures


# %%
class Chart(NamedTuple):
    title: str
    bars: list[tuple[str, float]]


def draw(charts: list[Chart]) -> None:
    """By matplotlib into a file, and inline in a notebook; as text where it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        print("pip install matplotlib for pictures; here they are as text:")
        for chart in charts:
            print(f"\n{chart.title}")
            largest = max((value for _, value in chart.bars), default=0) or 1
            for label, value in chart.bars:
                print(f"{label:>10} {'█' * round(40 * value / largest)} {value:,.0f}")
        return
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7))
    for axis, chart in zip(axes.flat, charts, strict=True):
        axis.bar([label for label, _ in chart.bars], [value for _, value in chart.bars], color="#33658a")
        axis.set_title(chart.title)
        axis.tick_params(axis="x", rotation=45 if len(chart.bars) > 6 else 0)
    figure.tight_layout()
    figure.savefig(HOME / "shop.png", dpi=120)
    print(f"pictures: {HOME / 'shop.png'}")


draw(
    [
        Chart("Orders by five seconds", [(row["at"], row["queued"]) for row in windows]),
        Chart("Earned by country", [(row["country"], row["total"]) for row in countries]),
        Chart("Mean time of a step, ms", [(row["name"], row["mean_ms"]) for row in steps]),
        Chart(
            "Orders by time from start to end, ms",
            [(str(row["from_ms"]), row["orders"]) for row in latencies],
        ),
    ]
)

# %% [markdown]
# The lake is open to everybody: `DeltaTable("…/lake/steps").to_pandas()`, DuckDB, Polars.
# [docs/spark.md](../docs/spark.md) tells more.

# %%
ps.close()
spark.stop()
