"""Steps for tests of steps on Spark. Executors import this, so that it knows little.

Paths in the input (``begun``, ``go``) tell a function where to say that it has begun, and what to wait for.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StepAbortedError, StepFailedError
from penstock.spark.steps import SparkCall, spark_step
from penstock.transactions import App, Function, Pipeline, Retry

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LONGEST_S = 300.0
app = App()


@spark_step(app, "rate", linger_ms=20)
def rate(order: Any, call: SparkCall) -> Any:
    return {**order, "rated": call.tx, "percent": call.args.get("percent")}


@spark_step(app, "score", kind="pandas", linger_ms=50, max_batch=10,
            input_schema="n long, amount double", output_schema="n long, score double, rows int")  # fmt: skip
def score(frame: pd.DataFrame) -> pd.DataFrame:
    """The last comes first; nobody minds."""
    return frame.assign(score=frame["amount"] * 2, rows=len(frame))[::-1]


@spark_step(app, "pack", kind="arrow", linger_ms=20)
def pack(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return table.append_column("output", pc.binary_join_element_wise("[", table["input"], "]", ""))


@spark_step(app, "picky", linger_ms=20)
def picky(order: Any, call: SparkCall) -> Any:
    """Does what it is told to, at the first attempt; a good one does it always."""
    match order["do"]:
        case "abort":
            raise StepAbortedError("fraud", {"who": "bob"})
        case "fail":
            raise StepFailedError("no money", {"attempt": call.attempt})
        case "throw" if call.attempt == 1:
            raise ValueError("boom")
        case "die":
            os._exit(1)
    return {"attempt": call.attempt}


@spark_step(app, "poisoned", kind="pandas", linger_ms=50, keep_input=True,
            input_schema="n long", output_schema="half double")  # fmt: skip
def poisoned(frame: pd.DataFrame) -> pd.DataFrame:
    if (frame["n"] == 5).any():
        raise ValueError("poison")
    return frame[frame["n"] != 7].assign(half=frame["n"] / 2)


@spark_step(app, "wait", linger_ms=100)
def wait(order: Any, call: SparkCall) -> Any:
    with Path(order["begun"]).open("a") as out:
        out.write(f"{call.tx} {call.attempt}\n")
    end_s = time.monotonic() + LONGEST_S
    while not Path(order["go"]).exists() and time.monotonic() < end_s:
        time.sleep(0.02)
    return {"waited": call.tx}


@app.step("prepare")
async def prepare(tx: Any) -> Any:
    return {**tx.input, "prepared": True}


@app.step("finish")
async def finish(tx: Any) -> Any:
    return {**tx.input, "finished": True}


def one(name: str, **options: Any) -> Pipeline:
    return Pipeline(name, [Function(name, **options)], node_group="gpu")


RETRY = Retry(limit=3, backoff_ms=10, on=("ValueError", "SparkJobError"))
app.pipeline(one("rate", args={"percent": 3}))
app.pipeline(one("score"))
app.pipeline(one("pack"))
app.pipeline(one("picky", retry=RETRY))
app.pipeline(one("poisoned"))
app.pipeline(one("wait"))
app.pipeline(Pipeline("impatient", [Function("wait", timeout_ms=1_000)], node_group="gpu"))
app.pipeline(Pipeline("mixed", ["prepare", Function("rate", node_group="gpu"), "finish"], node_group="shop"))
