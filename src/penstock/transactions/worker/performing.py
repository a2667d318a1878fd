"""Performing one step, whatever its kind: what comes out is data (``outcomes``), never an exception.

Rules: a step that throws (also what is no Exception: sys.exit in a step must not end the worker), returns
garbage or takes too long is an outcome like others. Only the loss of the lease leaves through here. Functions
in threads and processes cannot be interrupted: one that runs into its timeout is left alone, and its result
is thrown away. What they give is made an outcome where they run: not every exception can travel.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from functools import partial
from typing import Any, Final

from penstock.errors import (
    PenstockError,
    StepAbortedError,
    StepError,
    StepFailedError,
    TransactionError,
    UsageError,
)
from penstock.transactions.model import Ending, to_json
from penstock.transactions.pipelines import (
    AnyStep,
    CheckFields,
    Delay,
    Function,
    Http,
    MapFields,
    Pipeline,
    Progress,
    Reply,
    Retry,
    Wait,
)
from penstock.transactions.worker.app import App, StepFunction
from penstock.transactions.worker.context import StepContext, ThreadContext
from penstock.transactions.worker.fields import check_fields, map_fields, placed
from penstock.transactions.worker.holding import Held, LeaseLostError, NotWrittenError
from penstock.transactions.worker.http_calls import HttpCaller, HttpStepError
from penstock.transactions.worker.joining import is_join, perform_join
from penstock.transactions.worker.outcomes import Done, Failed, HandedBack, Outcome, Suspend, printable

#: A step that this worker does not have: another version of the code may.
UNKNOWN_STEP_RETRY: Final = Retry(limit=12, backoff_ms=1_000, factor=2.0, max_backoff_ms=60_000)
UNKNOWN_STEP: Final = "UnknownStepError"
_HTTP_TIMEOUT_MS: Final = 30_000
#: What a step meets that is not its own affair.
_TRAVELLERS: Final = (LeaseLostError, NotWrittenError)


class Pools:
    """Where functions run that would block the event loop. Made when they are needed."""

    def __init__(self, make_threads: Callable[[], Executor], make_processes: Callable[[], Executor]) -> None:
        self._make: dict[str, Callable[[], Executor]] = {"thread": make_threads, "process": make_processes}
        self._made: dict[str, Executor] = {}

    def get(self, kind: str) -> Executor:
        if kind not in self._made:
            self._made[kind] = self._make[kind]()
        return self._made[kind]

    def renew(self, kind: str) -> None:
        """One whose process was killed is of no use any more."""
        broken = self._made.pop(kind, None)
        if broken is not None:
            broken.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def processes(most: int | None) -> Executor:
        """Not forked from the worker: a copy would hold its locks and files, also when the worker is dead."""
        context = multiprocessing.get_context("forkserver")
        return ProcessPoolExecutor(most, mp_context=context, initializer=_be_a_helper)

    def close(self) -> None:
        for executor in self._made.values():
            executor.shutdown(wait=False, cancel_futures=True)
        self._made.clear()


def _be_a_helper() -> None:
    """The worker alone decides when a step ends: signals to the whole group (Ctrl-C, a service manager) are
    its affair. But a process whose worker was killed would wait for ever."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class ProcessInput:
    """What a function in another process is given: facts, and nothing that could write."""

    __slots__ = ("args", "attempt", "id", "idempotency_key", "input", "metadata", "name", "owner")

    def __init__(self, context: StepContext) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(context, name))


class Performer:
    """Performs the steps of an app."""

    def __init__(self, app: App, pools: Pools, http: HttpCaller, *, must_stop: Callable[[], bool]) -> None:
        self._app = app
        self._pools = pools
        self._http = http
        #: whether the worker waits for nobody any more
        self._must_stop = must_stop

    async def perform(
        self, step: AnyStep, pipeline: Pipeline, held: Held, context: StepContext, path: str
    ) -> Outcome:
        """One attempt."""
        if is_join(step):
            return await self._guard(held, partial(self._join, step, pipeline, held, context.number, path))
        if isinstance(step, Function):
            return await self._guard(held, partial(self._call, step.name, context), step.timeout_ms)
        return await self._guard(held, partial(self._builtin, step, context), _limit_of(step))

    async def undo(self, name: str, held: Held, context: StepContext, timeout_ms: int | None) -> Outcome:
        """Call the function that undoes a step."""
        return await self._guard(held, partial(self._call, name, context), timeout_ms)

    async def _guard(
        self, held: Held, work: Callable[[], Awaitable[Outcome]], timeout_ms: int | None = None
    ) -> Outcome:
        """Whatever happens is an outcome. While this runs, and at no other time, others may interrupt it."""
        if held.is_lost:
            raise LeaseLostError(f"{held.record.id} is held by somebody else now")
        if self._must_stop():
            return HandedBack()
        held.is_performing = True
        try:
            return await self._within(timeout_ms, work())
        except Suspend as suspend:
            return suspend.outcome
        except asyncio.CancelledError as error:
            return self._interrupted(held, error)
        except (LeaseLostError, NotWrittenError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a step throws is its own affair
            return failure_of(error)
        finally:
            held.is_performing = False

    def _interrupted(self, held: Held, error: asyncio.CancelledError) -> Outcome:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return failure_of(error)  # nobody interrupted us: the step awaited something that was cancelled
        if held.is_lost:
            raise LeaseLostError(f"{held.record.id} is held by somebody else now")
        if held.is_interrupted and held.cancel_reason:
            task.uncancel()
            return Failed(Ending.CANCELLED, held.cancel_reason)
        if self._must_stop():
            task.uncancel()
            return HandedBack()
        raise error

    @staticmethod
    async def _join(step: AnyStep, pipeline: Pipeline, held: Held, number: int, path: str) -> Outcome:
        return perform_join(step, pipeline, held.record, number, path, held.now_ms())

    @staticmethod
    async def _within(timeout_ms: int | None, work: Awaitable[Outcome]) -> Outcome:
        if timeout_ms is None:
            return await work
        try:
            async with asyncio.timeout(timeout_ms / 1_000) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            return Failed(Ending.TIMEOUT, f"it took more than {timeout_ms} ms", ("TimeoutError", "timeout"))

    # -------------------------------------------------------------------------------------- functions

    async def _call(self, name: str, context: StepContext) -> Outcome:
        function = self._app.find(name)
        if function is None:
            return Failed(
                Ending.INTERNAL_ERROR,
                f"this worker has no step {name!r}: deploy the code that defines it",
                (UNKNOWN_STEP,),
                is_fault=True,
            )
        if function.runs_in == "loop":
            return _result(name, await function.function(context))
        return await self._call_elsewhere(function, context)

    async def _call_elsewhere(self, function: StepFunction, context: StepContext) -> Outcome:
        loop = asyncio.get_running_loop()
        given: Any
        if function.runs_in == "thread":
            given = ThreadContext(context, loop)
        else:
            given = ProcessInput(context)
        try:
            outcome = await loop.run_in_executor(
                self._pools.get(function.runs_in), outcome_of, function.name, function.function, given
            )
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        except BrokenExecutor as error:
            self._pools.renew(function.runs_in)
            raise StepFailedError(
                f"the process of step {function.name!r} died: {error}", names=("ProcessDied",)
            ) from error

    # -------------------------------------------------------------------------------------- the others

    async def _builtin(self, step: AnyStep, context: StepContext) -> Outcome:
        data = context.input
        match step:
            case Delay():
                await context.sleep(_delay_ms(step))
                return Done()
            case Wait():
                return await self._wait(step, context)
            case Progress():
                await context.progress(step.report)
                return Done()
            case Reply():
                output = None if step.output is None else to_json("output", step.output)
                return Done(output, step.note, Ending(step.status))
            case MapFields():
                return Done(to_json("output", map_fields(step, data)))
            case CheckFields():
                return _check(step, context)
            case Http():
                answer = await self._http.call(
                    step,
                    data,
                    idempotency_key=context.idempotency_key,
                    timeout_ms=step.timeout_ms or _HTTP_TIMEOUT_MS,
                )
                return Done(to_json("output", placed(data, step.into, answer)))
            case _:
                raise UsageError(f"there is no way to perform a step of kind {step.kind!r}")

    async def _wait(self, step: Wait, context: StepContext) -> Outcome:
        value = await context.wait_for_switch(step.switch, timeout_ms=step.timeout_ms)
        if value is None and step.on_timeout == "timeout":
            return Failed(
                Ending.TIMEOUT,
                f"switch {step.switch!r} was not set within {step.timeout_ms} ms",
                ("TimeoutError", "timeout"),
            )
        if step.into is None:
            return Done()
        return Done(to_json("output", placed(context.input, step.into, value)))


def _limit_of(step: AnyStep) -> int | None:
    """Of how long the worker waits; a wait for a switch sleeps in the store instead, HTTP has its own."""
    return None if isinstance(step, Wait | Http) else step.timeout_ms


def _delay_ms(step: Delay) -> int:
    if step.ms is not None:
        return step.ms
    return random.randint(step.min_ms or 0, step.max_ms or step.min_ms or 0)


def _check(step: CheckFields, context: StepContext) -> Outcome:
    report = check_fields(step, context.input)
    for note in report.notes:
        context.log(note, "warning")
    if report.problems:
        return Failed(
            Ending.FAILED,
            printable("; ".join(report.problems)),
            ("FieldError",),
            to_json("output", {"problems": report.problems}),
        )
    return Done()


def _result(name: str, returned: Any) -> Outcome:
    if returned is None:
        return Done()
    if isinstance(returned, Outcome):
        return returned  # a function that stands for others, which have come to it elsewhere
    try:
        return Done(to_json("what it returned", returned))
    except UsageError as error:
        return Failed(Ending.INTERNAL_ERROR, f"step {name!r}: {error}", ("OutputError",), is_fault=True)


def outcome_of(name: str, function: Callable[..., Any], given: Any) -> Outcome | TransactionError:
    """Call a function in the thread or process where this runs. What concerns the worker is given back."""
    try:
        return _result(name, function(given))
    except Suspend as suspend:
        return suspend.outcome
    except _TRAVELLERS as error:
        return error
    except BaseException as error:  # noqa: BLE001 - as above
        return failure_of(error)


def failure_of(error: BaseException) -> Failed:
    """What a step threw, as an outcome."""
    names = [base.__name__ for base in type(error).__mro__[:-2]]
    if isinstance(error, StepError):
        ending = Ending.ABORTED if isinstance(error, StepAbortedError) else Ending.FAILED
        try:
            output = None if error.output is None else to_json("output", error.output)
        except UsageError:
            output = None
        names_of_all = (*error.names, *names, ending.value)
        if isinstance(error, HttpStepError):
            pause_ms = error.retry_after_ms or 0
            return Failed(
                ending,
                printable(error.note),
                names_of_all,
                output,
                is_retryable=error.retryable,
                pause_ms=pause_ms,
            )
        return Failed(ending, printable(error.note), names_of_all, output)
    if isinstance(error, TimeoutError) and not isinstance(error, PenstockError):
        return Failed(Ending.TIMEOUT, _text(error), (*names, "timeout"))
    return Failed(Ending.INTERNAL_ERROR, _text(error), (*names, "internal-error"), is_fault=True)


def _text(error: BaseException) -> str:
    try:
        return printable(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - some errors cannot even be told
        return type(error).__name__
