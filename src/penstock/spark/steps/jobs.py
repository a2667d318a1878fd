"""A batch of calls as one job of Spark: sent, awaited, cancelled; and what becomes of calls whose job failed.

    plans = prepared(spark, steps)                      # slow: executors get ready
    outcomes = await StepJobs(spark, plans[0], threads).run(calls)     # in the order of the calls

What may happen to a job:

====================================  ====================================================================
a task fails (its executor is killed) Spark runs it again, elsewhere; nobody hears of it
the job fails, the session lives      its calls are divided: each half is a job of its own, and so on, at most
                                      ``_MORE_JOBS`` times; who is alone in a failed job (or left over) fails
                                      with ``SparkJobError``, which its retry policy may know
the session is gone                   ``SparkLostError``, for everybody
nobody waits for it any more          it is interrupted
====================================  ====================================================================

Rules: a job runs in a thread, on a session of its own that shares everything but its settings with the one
that was given: interrupting it stops this job and no other (tags would not do: a classic session knows them
by the thread that has set them). Nothing here asks for a SparkContext. Knows no transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import ConfigError, SparkLostError, StepFailedError
from penstock.spark.reasons import reason
from penstock.spark.session import is_alive
from penstock.spark.steps.batching import Call
from penstock.spark.steps.declaring import SparkStep
from penstock.spark.steps.executing import INPUT, OUTPUT, OWN_COLUMNS, Plan, outcome_from
from penstock.spark.steps.travelling import over, trial
from penstock.transactions.worker.outcomes import Outcome
from penstock.transactions.worker.performing import failure_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_RESULTS: Final = "tx string, output binary, failure binary"
#: Jobs that may be tried after one that failed, to find out who is at fault.
_MORE_JOBS: Final = 48
#: How often, and for how long, somebody tries to interrupt a job.
_INTERRUPT_EVERY_S: Final = 0.2
_INTERRUPT_FOR_S: Final = 15.0


class Lane:
    """Where one job runs at a time."""

    def __init__(self, spark: SparkSession) -> None:
        # Over Connect a new session would not have the files that were sent to this one.
        clone = getattr(spark, "cloneSession", spark.newSession)
        self.spark: SparkSession = clone()
        self.is_cancelled = False

    def collect(self, rows: pa.Table, function: Callable[..., Any]) -> pa.Table:
        return self.spark.createDataFrame(rows).mapInArrow(function, _RESULTS).toArrow()

    def interrupt(self) -> None:
        try:
            self.spark.interruptAll()
        except Exception as error:  # noqa: BLE001 - of a session that is gone nothing runs any more
            _LOG.debug("a job was not interrupted: %s", error)


def lane_of(spark: SparkSession) -> Lane:
    """A new one; ``SparkLostError`` if there is nobody to make it."""
    try:
        return Lane(spark)
    except Exception as error:
        raise _lost(error) from error


def _lost(error: Exception) -> SparkLostError:
    return SparkLostError(f"the Spark session is gone: {reason(error)}")


def prepared(spark: SparkSession, steps: Sequence[SparkStep]) -> list[Plan]:
    """Plans of steps that were seen on an executor; ``ConfigError`` names one that cannot run there."""
    plans = [_plan_of(step) for step in steps]
    lane = lane_of(spark)
    try:
        _try_out(lane, plans)
    except ConfigError:
        for plan in plans:
            _try_out(lane, [plan])
        raise
    return plans


def _plan_of(step: SparkStep) -> Plan:
    inputs = _arrow_schema(step, "input_schema", step.input_schema, OWN_COLUMNS)
    return Plan(step, inputs, _arrow_schema(step, "output_schema", step.output_schema, ("tx",)))


def _try_out(lane: Lane, plans: Sequence[Plan]) -> None:
    try:
        lane.collect(_table_of([Call("", 0, "", b"", b"")]), trial(plans))
    except Exception as error:
        if not is_alive(lane.spark):
            raise _lost(error) from error
        names = ", ".join(repr(plan.step.name) for plan in plans)
        raise ConfigError(
            f"step {names} cannot run on executors (its module and Penstock must be installed there):"
            f" {reason(error)}"
        ) from error


class StepJobs:
    """The jobs of one step on one session."""

    def __init__(self, spark: SparkSession, plan: Plan, threads: Executor) -> None:
        self._spark = spark
        self._function = over(plan)
        self._name = plan.step.name
        self._threads = threads
        self._free: list[Lane] = []

    async def run(self, calls: Sequence[Call]) -> list[Outcome]:
        """Their outcomes. Whoever is cancelled in here leaves no job behind."""
        lane = self._free.pop() if self._free else await self._in_thread(lane_of, self._spark)
        job = self._in_thread(self._outcomes, lane, calls)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await self._interrupt(lane, job)
            raise
        finally:
            if job.done():
                self._free.append(lane)

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _interrupt(self, lane: Lane, job: asyncio.Future[list[Outcome]]) -> None:
        """Again and again: it may not have begun, or be between two jobs."""
        lane.is_cancelled = True
        end_s = asyncio.get_running_loop().time() + _INTERRUPT_FOR_S
        while not job.done() and asyncio.get_running_loop().time() < end_s:
            await self._in_thread(lane.interrupt)
            await asyncio.wait([job], timeout=_INTERRUPT_EVERY_S)
        if not job.done():
            _LOG.warning("a job of step %r does not end, though nobody waits for it", self._name)
        job.add_done_callback(lambda ended: ended.exception())  # nobody else looks at it
        lane.is_cancelled = not job.done()

    # ---------------------------------------------------------------------------------------- in a thread

    def _outcomes(self, lane: Lane, calls: Sequence[Call]) -> list[Outcome]:
        """Of one job; of several, if it failed."""
        found: dict[str, Outcome] = {}
        parts, left = [calls], _MORE_JOBS
        while parts:
            part = parts.pop()
            try:
                found.update(self._collect(lane, part))
            except Exception as error:  # noqa: BLE001 - whatever may happen to a job
                self._check_session(lane, error)
                if len(part) > 1 and left > 0:
                    left -= 2
                    parts += (part[: len(part) // 2], part[len(part) // 2 :])
                else:
                    found.update(dict.fromkeys([call.tx for call in part], self._failed(error)))
        return [found[call.tx] for call in calls]

    def _collect(self, lane: Lane, calls: Sequence[Call]) -> dict[str, Outcome]:
        results = lane.collect(_table_of(calls), self._function)
        if results.num_rows != len(calls):
            raise ValueError(f"{len(calls)} calls had {results.num_rows} results")
        columns = (results.column(name).to_pylist() for name in ("tx", OUTPUT, "failure"))
        return {tx: outcome_from(output, failure) for tx, output, failure in zip(*columns, strict=True)}

    def _check_session(self, lane: Lane, error: Exception) -> None:
        """Only with a living session, and if somebody waits, it makes sense to try again."""
        if lane.is_cancelled:
            raise error
        if not is_alive(lane.spark):
            raise _lost(error) from error
        _LOG.warning("a job of step %r failed: %s", self._name, reason(error))

    def _failed(self, error: Exception) -> Outcome:
        note = f"the Spark job of step {self._name!r} failed: {reason(error)}"
        return failure_of(StepFailedError(note, names=("SparkJobError",)))


def _table_of(calls: Sequence[Call]) -> pa.Table:
    import pyarrow as pa

    types = (pa.string(), pa.int32(), pa.string(), pa.binary(), pa.binary())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*calls, strict=True), types, strict=True)]
    return pa.table(columns, names=[*OWN_COLUMNS, INPUT])


def _arrow_schema(step: SparkStep, option: str, text: str | None, taken: Sequence[str]) -> pa.Schema | None:
    """Of columns as Spark writes them; only a session can read that."""
    if text is None:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import DataType, StructType

    try:
        schema = DataType.fromDDL(text)
    except PySparkException as error:
        raise ConfigError(f"{option} of step {step.name!r} cannot be read: {reason(error)}") from error
    if not isinstance(schema, StructType):
        raise ConfigError(f"{option} of step {step.name!r} must name columns, as in 'id long, amount double'")
    if both := [name for name in schema.names if name in taken]:
        raise ConfigError(
            f"{option} of step {step.name!r} must not have {both[0]}: that column is there anyway"
        )
    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
