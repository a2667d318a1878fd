"""The driver of ``tests.crash.spark_driver`` under the clock of a scene.

    python -m tests.chaos.crews.spark_driver CLOCK-FILE URL LAKE MASTER

Spark's own Python processes keep the clock of the machine: they only read, and append to streams.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos import clocks
from tests.crash import spark_driver

if __name__ == "__main__":
    clocks.install(Path(sys.argv[1]))
    spark_driver.main(*sys.argv[2:5])
