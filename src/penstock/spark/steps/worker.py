"""A worker of transactions whose Spark steps run on executors. Everything else of it is an ordinary worker.

    async with penstock.open("./shop.pen") as ps:
        async with SparkWorker(ps, app, node_groups=["gpu"], spark=spark) as worker:
            await worker.run()                     # until stop() is called

A Spark step is an async step that hands its input to a batcher and waits for its outcome. So leases,
heartbeats, fencing, retries, timeouts, the trail and the graceful stop are those of
``penstock.transactions``: jobs run in threads, and the event loop is free to renew leases.

Rules
-----
1. Nothing is taken before every Spark step was seen to be ready on an executor.
2. Steps that are interrupted (the worker stops and its grace is over, the transaction was cancelled, a
   timeout) leave their batch; a batch that nobody waits for is interrupted in Spark.
3. A session that is gone ends the worker with ``SparkLostError``, so that whoever looks after it starts it
   again. What was in the job that noticed is left to its lease, which counts as a loss of a worker: six in a
   row, and the transaction is given up. Everything else is handed back at once; if the worker was stopping
   anyway, that is everything. A worker without jobs looks after its session now and then.
4. A session that was there before is left running; one that was made here is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from penstock.errors import ConfigError, SparkLostError
from penstock.spark.session import is_alive, is_started, require_pyspark, session
from penstock.spark.steps.batching import Batcher, Call
from penstock.spark.steps.declaring import spark_steps_of
from penstock.spark.steps.executing import Plan
from penstock.spark.steps.jobs import StepJobs, prepared
from penstock.transactions.model import to_json
from penstock.transactions.worker import App, StepContext, WorkerStatistics
from penstock.transactions.worker.holding import LeaseLostError
from penstock.transactions.worker.outcomes import HandedBack, Outcome
from penstock.transactions.workers_registry import MAX_CONCURRENCY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.front import Penstock

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

CONCURRENCY: Final = 10_000
#: Batches of one step under way: while one of them waits for its last rows, the next one runs.
JOBS: Final = 2
_LOOK_EVERY_S: Final = 15.0


class SparkWorker:
    """One worker."""

    def __init__(
        self,
        ps: Penstock,
        app: App,
        *,
        node_groups: Sequence[str] = ("default",),
        spark: SparkSession | None = None,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        log: str | None = None,
        concurrency: int = CONCURRENCY,
        **options: Any,
    ) -> None:
        """``spark``: the session; without it one is made, of ``master``, ``conf`` and ``log``. ``options``
        are those of :class:`penstock.transactions.Worker`."""
        self._steps = spark_steps_of(app)
        if not self._steps:
            raise ConfigError(
                "the app has no step on Spark: mark one with @spark_step, or run an ordinary worker"
            )
        if spark is not None and (master or conf or log):
            raise ConfigError("give either spark, or master, conf and log to make it of")
        self._spark = spark
        self._is_own = False
        self._master = master
        self._start = partial(session, "penstock-worker", master=master, conf=conf, log=log)
        self._labels = {"kind": "spark"}
        self._batchers: dict[str, Batcher] = {}
        # Named as threads of steps are: who stops a worker knows that they may not come back.
        self._threads = ThreadPoolExecutor(2 * JOBS * len(self._steps) + 2, "penstock-step-spark")
        self._lost: SparkLostError | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_entered = False
        self._worker = ps.transactions.worker(
            self._bound(app),
            node_groups=node_groups,
            concurrency=concurrency,
            max_concurrency=MAX_CONCURRENCY,
            labels=self._labels,
            **options,
        )

    def _bound(self, app: App) -> App:
        """The same app, its Spark steps bound to this worker."""
        bound = App(pipelines=app.pipelines)
        for name in app.step_names:
            known = app.find(name)
            if name in self._steps:
                bound.step(name)(partial(self._call, name))
            elif known is not None:
                bound.step(name, runs_in=known.runs_in)(known.function)
        return bound

    # -------------------------------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        """Run in the background."""
        self._is_entered = True
        try:
            await self._prepare()
            await self._worker.__aenter__()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._worker.__aexit__(kind, error, trace)
        finally:
            await self._close()
        if self._lost is not None and error is None:
            raise self._lost

    async def run(self) -> None:
        """Until ``stop`` is called; ``SparkLostError`` if the session is gone."""
        if not self._is_entered:
            async with self:
                await self._worker.run()
            return
        await self._worker.run()
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        """Take nothing more, and end when what is held has ended or was handed back. Twice: at once."""
        self._worker.stop()

    async def _prepare(self) -> None:
        if self._spark is None:
            require_pyspark()
            self._is_own = not is_started()
            self._spark = await self._in_thread(self._start)
        self._labels["master"] = self._master or self._spark.conf.get("spark.master", "") or ""
        plans = await self._in_thread(prepared, self._spark, list(self._steps.values()))
        self._batchers = {plan.step.name: self._batcher(plan) for plan in plans}
        self._watcher = asyncio.create_task(self._watch(self._spark))

    def _batcher(self, plan: Plan) -> Batcher:
        assert self._spark is not None
        jobs = StepJobs(self._spark, plan, self._threads)
        step = plan.step
        return Batcher(jobs.run, max_batch=step.max_batch, linger_ms=step.linger_ms, jobs=JOBS)

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _watch(self, spark: SparkSession) -> None:
        """A session without jobs may be gone as well: who takes transactions then would only lose them."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if not await self._in_thread(is_alive, spark):
                self._lose(SparkLostError("the Spark session is gone: it does not answer"))
                return

    async def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        for batcher in self._batchers.values():
            await batcher.close()
        if self._is_own and self._spark is not None:
            spark, self._spark = self._spark, None
            await self._in_thread(_stop, spark)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -------------------------------------------------------------------------------------- steps

    async def _call(self, name: str, tx: StepContext) -> Outcome:
        """A Spark step of one transaction."""
        args = to_json("args", tx.args)
        try:
            return await self._batchers[name].call(
                Call(tx.id, tx.attempt, tx.idempotency_key, args, tx.input_json)
            )
        except SparkLostError as error:
            if self._worker.is_stopping and self._lost is None:
                return HandedBack()
            self._lose(error)
            raise LeaseLostError(f"{tx.id}: {error}") from None

    def _lose(self, error: SparkLostError) -> None:
        if self._lost is None:
            _LOG.error("worker %s ends: %s", self.id, error)
            self._lost = error
            self._worker.stop()
            self._worker.stop()  # at once: nothing that waits could still run

    # -------------------------------------------------------------------------------------- looking

    @property
    def id(self) -> str:
        return self._worker.id

    @property
    def node_groups(self) -> tuple[str, ...]:
        return self._worker.node_groups

    @property
    def concurrency(self) -> int:
        return self._worker.concurrency

    @property
    def is_stopping(self) -> bool:
        return self._worker.is_stopping

    def statistics(self) -> WorkerStatistics:
        return self._worker.statistics()

    def __repr__(self) -> str:
        return f"<SparkWorker on {self._labels.get('master', 'no session yet')}, {self._worker!r}>"


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception as error:  # noqa: BLE001 - what is gone cannot be stopped
        _LOG.debug("the session was not stopped: %s", error)
