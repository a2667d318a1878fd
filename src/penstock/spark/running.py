"""Runs the jobs of the data pipeline: each once, or all of them for ever.

    with Runner(load(Path("pipeline.yml"), environment=os.environ)) as runner:
        runner.run()                      # until runner.stop(), from a signal or another thread

A job has a thread of its own. A pass that fails is logged, counted, and tried again, later each time; the
others do not notice. A job that can be kept running (``ContinuousJob``) is, if it works every minute or more
often.

Rules:

1. Nothing is kept here that a job needs: a runner may be killed at any moment, and several of them may run.
2. ``stop`` lets passes end at their next batch, and starts no other.
3. When Spark has died, it is started again for the next pass.
4. What jobs do is published (``noticeboard``) by a thread of its own: a store that is away holds nobody up.

What it must not know: what any job does, and how people are shown what happens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from penstock import blocking
from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError, PenstockError
from penstock.lake.lake import Lake
from penstock.spark.config import JobConfig, PipelineConfig, SessionConfig
from penstock.spark.jobs.job import ContinuousJob, JobContext, JobReport, Numbers
from penstock.spark.noticeboard import BEAT_MS, JobStatus, Notice, Noticeboard, read
from penstock.spark.reasons import reason
from penstock.spark.session import is_alive, is_started, session
from penstock.spark.timetable import Timetable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)

#: A job that is due less often is started each time, even if it could be kept running.
_KEPT_RUNNING_MS: Final = 60_000
#: Between two publications, and at the latest.
_PUBLISH_S: Final = 0.5
_BEAT_S: Final = BEAT_MS / 3_000

Listener = Callable[[JobStatus], None]


def _nobody(status: JobStatus) -> None:
    """Is told nothing."""


class Sessions:
    """The one Spark session of a runner; another one when it has died."""

    def __init__(self, config: SessionConfig, given: SparkSession | None = None) -> None:
        """``given``: somebody else's, which is neither stopped nor replaced."""
        self._config = config
        self._is_given = given is not None
        self._current = given
        #: to be stopped in the end: nobody in this process had one before
        self._is_ours = False
        self._has_died = False
        self._lock = threading.Lock()

    def get(self) -> SparkSession:
        with self._lock:
            if self._current is None:
                config = self._config
                self._is_ours = self._has_died or not is_started()
                self._current = session(master=config.master, conf=config.conf, log=config.log)
            return self._current

    def suspect(self) -> None:
        """Something failed: was it Spark that died?"""
        with self._lock:
            if self._current is not None and not self._is_given and not is_alive(self._current):
                _LOG.warning("Spark has died; it is started again for the next pass")
                self._current, self._has_died = None, True

    def close(self) -> None:
        with self._lock:
            if self._is_ours and self._current is not None and is_alive(self._current):
                self._current.stop()
            self._current = None


class Runner:
    """The jobs of a configuration, on one node."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        sessions: Sessions | None = None,
        clock: Clock | None = None,
        listener: Listener = _nobody,
        retry_ms: int = 1_000,
        max_retry_ms: int = 60_000,
    ) -> None:
        """``listener`` is called by the threads of jobs with whatever changes."""
        if not config.jobs:
            raise ConfigError("there is no job to run: name some under jobs, or on the command line")
        self._config = config
        self._sessions = sessions or Sessions(config.session)
        self._clock = clock or SystemClock()
        self._listener = listener
        self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._stopping = threading.Event()
        self._resources = ExitStack()
        self._lock = threading.Lock()
        self._statuses: dict[str, JobStatus] = {}
        #: names whose status the store has not got yet
        self._unpublished: set[str] = set()
        self._has_news = threading.Event()

    # ------------------------------------------------------------------------------- life

    def __enter__(self) -> Self:
        """Store, lake and Spark are there, or it is told why not."""
        with ExitStack() as stack:
            # A server that is not there is told at once; one that goes away later is waited for.
            with blocking.open(self._config.store, fail_fast=True):
                pass
            self._store = stack.enter_context(blocking.open(self._config.store))
            self._lake = Lake.open(self._config.lake)
            stack.callback(self._sessions.close)
            self._sessions.get()
            now_ms = self._clock.now_ms()
            self._board = Noticeboard(self._store, self._config.node, began_ms=now_ms)
            for each in self._config.jobs:
                self._tell(self._first_status(each))
            self._publishing = threading.Thread(target=self._publish, name="penstock news", daemon=True)
            self._is_over = threading.Event()
            self._publishing.start()
            stack.callback(self._end_publishing)
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def stop(self) -> None:
        """Let every pass end at its next batch. May be called by anybody, also by a signal handler."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def statuses(self) -> list[JobStatus]:
        """Of the jobs of this runner, now."""
        with self._lock:
            return list(self._statuses.values())

    @staticmethod
    def status(client: blocking.Client) -> list[Notice]:
        """What the jobs of all runners of a store do, as they last said."""
        return read(client)

    # ---------------------------------------------------------------------------- running

    def run(self) -> None:
        """Every job that has its times, until ``stop``."""
        jobs = [each for each in self._config.jobs if each.every_ms is not None]
        if not jobs:
            raise ConfigError(
                "no job has its times: set every, or run the ones you want with --available-now"
            )
        # As daemons: the interpreter need not wait for a pass that nobody wants to wait for.
        threads = [
            threading.Thread(
                target=self._run_for_ever, args=(each,), name=f"penstock {each.name}", daemon=True
            )
            for each in jobs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_available(self) -> list[JobStatus]:
        """Every job once, one after the other; one that fails does not keep the next ones back."""
        for each in self._config.jobs:
            if self._stopping.is_set():
                break
            self._pass(each, is_kept_running=False)
            self._change(each, state="stopped", next_ms=None)
        return self.statuses()

    def _run_for_ever(self, config: JobConfig) -> None:
        assert config.every_ms is not None
        timetable = Timetable(config.every_ms, self._retry_ms, self._max_retry_ms)
        is_kept_running = isinstance(config.job, ContinuousJob) and config.every_ms <= _KEPT_RUNNING_MS
        while not self._stopping.is_set():
            started_ms = self._clock.now_ms()
            failures = self._pass(config, is_kept_running=is_kept_running)
            ended_ms = self._clock.now_ms()
            next_ms = timetable.next_ms(started_ms=started_ms, ended_ms=ended_ms, failures=failures)
            self._change(config, state="failed" if failures else "waiting", next_ms=next_ms)
            self._stopping.wait(max(next_ms - ended_ms, 0) / 1_000)
        self._change(config, state="stopped", next_ms=None)

    def _pass(self, config: JobConfig, *, is_kept_running: bool) -> int:
        """How often in a row it has failed by now."""
        started_ms = self._clock.now_ms()
        self._change(config, state="running", progress={}, next_ms=None)
        try:
            context = self._context(config)
            if is_kept_running and isinstance(config.job, ContinuousJob):
                report = config.job.run_until_stopped(context)
            else:
                report = config.job.run_once(context)
        except Exception as error:  # noqa: BLE001 - a job may fail in any way, and must not end the others
            return self._failed(config, error, started_ms)
        self._worked(config, report)
        return 0

    def _context(self, config: JobConfig) -> JobContext:
        return JobContext(
            spark=self._sessions.get(),
            lake=self._lake,
            store=self._store,
            url=self._config.store,
            clock=self._clock,
            every_ms=config.every_ms or 0,
            stopping=self._stopping,
            listener=lambda numbers: self._progressed(config, numbers),
        )

    def _progressed(self, config: JobConfig, numbers: Numbers) -> None:
        self._change(config, progress={**self._statuses[config.name].progress, **numbers})

    def _worked(self, config: JobConfig, report: JobReport) -> None:
        passes = self._statuses[config.name].passes + 1
        self._change(config, passes=passes, failures=0, report=report, progress={})

    def _failed(self, config: JobConfig, error: Exception, started_ms: int) -> int:
        before = self._statuses[config.name]
        now_ms = self._clock.now_ms()
        # Who worked for long has begun anew.
        failures = 1 if now_ms - started_ms > self._max_retry_ms else before.failures + 1
        sentence = reason(error)
        _LOG.warning("%s failed (%d in a row): %s", config.name, failures, sentence)
        _LOG.debug("%s failed", config.name, exc_info=error)
        self._sessions.suspect()
        self._change(
            config,
            failed_passes=before.failed_passes + 1,
            failures=failures,
            error=sentence,
            error_ms=now_ms,
            progress={},
        )
        return failures

    # ---------------------------------------------------------------------------- telling

    def _first_status(self, config: JobConfig) -> JobStatus:
        return JobStatus(
            job=config.name, kind=config.kind, node=self._config.node, state="waiting",
            at_ms=self._clock.now_ms(), lake=str(self._lake.root),
        )  # fmt: skip

    def _change(self, config: JobConfig, **changes: object) -> None:
        """Each job's status is changed by its own thread alone."""
        self._tell(replace(self._statuses[config.name], at_ms=self._clock.now_ms(), **changes))

    def _tell(self, status: JobStatus) -> None:
        with self._lock:
            self._statuses[status.job] = status
            self._unpublished.add(status.job)
        self._has_news.set()
        self._listener(status)

    def _publish(self) -> None:
        """Until the runner is closed: news at once, a sign of life now and then."""
        self._try_to_publish(lambda: self._board.tidy(self._clock.now_ms()))
        while not self._is_over.is_set():
            self._try_to_publish(self._board.beat)
            self._publish_news()
            if not self._is_over.wait(_PUBLISH_S):
                self._has_news.wait(_BEAT_S)

    def _publish_news(self) -> None:
        self._has_news.clear()
        with self._lock:
            news = [self._statuses[name] for name in self._unpublished]
            self._unpublished.clear()
        if not self._try_to_publish(lambda: self._board.publish(news)):
            with self._lock:
                self._unpublished.update(status.job for status in news)

    def _try_to_publish(self, publish: Callable[[], None]) -> bool:
        try:
            publish()
        except PenstockError as error:
            _LOG.info("the state of jobs could not be published: %s", error)
            return False
        return True

    def _end_publishing(self) -> None:
        self._is_over.set()
        self._has_news.set()
        self._publishing.join()
        self._publish_news()
        self._try_to_publish(self._board.leave)
