"""One sentence out of what Spark raises."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.spark.reasons import reason

FROM_AN_EXECUTOR = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: …
Traceback (most recent call last):
  File "…/range_reading.py", line 80, in read
penstock.errors.StoreError: stream 'orders' has lost offsets 1 to 40: set failOnDataLoss to false

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_our_own_sentence_is_found_wherever_it_is() -> None:
    assert reason(UsageError("there is no stream 'orders'")) == "there is no stream 'orders'"
    assert reason(RuntimeError(FROM_AN_EXECUTOR)) == (
        "stream 'orders' has lost offsets 1 to 40: set failOnDataLoss to false"
    )


IN_A_JOB = """\
An error occurred while calling o195.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt
"""
IN_A_FUNCTION = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "…/worker.py", line 7, in main
    import shop
ModuleNotFoundError: No module named 'shop'
"""


def test_the_innermost_cause_of_foreign_errors_is_told() -> None:
    assert reason(RuntimeError(IN_A_JOB)) == "Python worker exited unexpectedly (crashed)"
    assert reason(RuntimeError(IN_A_FUNCTION)) == "ModuleNotFoundError: No module named 'shop'"


def test_of_foreign_errors_the_first_line_is_told() -> None:
    assert reason(ValueError("no such thing\nat line 7")) == "ValueError: no such thing"
    assert reason(KeyError()) == "KeyError"
    assert len(reason(ValueError("x" * 10_000))) < 600
