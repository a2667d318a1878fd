"""Run by ``test_session`` in a process of its own, where there is no Java: writes what it saw to a file."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import penstock.spark
from penstock.errors import ConfigError
from penstock.spark.session import is_alive


def main() -> None:
    seen: dict[str, object] = {}
    small = {"spark.driver.memory": "512m"}
    try:
        penstock.spark.session(master="local[1]", conf={"spark.driver.memory": "lots"})
    except ConfigError as error:
        seen["refusal"] = str(error)

    spark = penstock.spark.session("my app", master="local[1]", conf=small)
    seen["count"] = spark.range(1_000).count()
    seen["log"] = spark.conf.get("spark.penstock.log")
    try:
        spark.sql("SELECT nothing FROM nowhere")
    except Exception as error:  # noqa: BLE001 - only that it is not printed as well
        seen["statement"] = "nowhere" in str(error)
    os.environ["SPARK_REMOTE"] = "sc://nowhere"
    again = penstock.spark.session(master="local[1]", conf={"spark.sql.shuffle.partitions": "7"})
    seen["is the same"] = again is spark
    seen["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")

    from pyspark import SparkContext

    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    seen["is alive when killed"] = is_alive(spark)
    spark = penstock.spark.session(master="local[1]", conf=small)
    seen["is alive again"] = is_alive(spark)
    seen["count again"] = spark.range(500).count()
    spark.stop()
    seen["is alive when stopped"] = is_alive(spark)
    Path(sys.argv[1]).write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
