"""Steps of transactions that run on Spark executors.

    app = App()

    @spark_step(app, "score", kind="pandas", output_schema="score double")
    def score(frame): ...

    async with SparkWorker(ps, app, node_groups=["gpu"]) as worker:
        await worker.run()

==============  ====================================================================
``declaring``   a function, under a name, and how it is to be called
``batching``    many calls of a step become one
``executing``   the rows of such a batch, on an executor
``travelling``  how functions get there
``jobs``        a batch as one job of Spark, its failures, its end
``worker``      a worker of transactions whose Spark steps go there
==============  ====================================================================

Each knows those above it. A module that declares steps needs neither Spark nor Java: ordinary workers of the
same app import it, too.
"""

from __future__ import annotations

from penstock.spark.steps.declaring import SparkCall, spark_step
from penstock.spark.steps.worker import SparkWorker

__all__ = ["SparkCall", "SparkWorker", "spark_step"]
