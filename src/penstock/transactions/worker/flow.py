"""Carrying one transaction through its steps, from where it is to where it leaves this worker.

What an outcome becomes:

===========  =========================================  ==============================================
outcome      and                                        is written as
===========  =========================================  ==============================================
Done         more steps follow                          keep (and the next step begins at once)
Done         … on another group, or the worker stops    queue
Done         it was the last                            end, success
Suspended                                               sleep, wait or join
Failed       its policy allows another attempt          sleep
Failed       nothing is to be undone                    end
Failed       steps have said how they are undone        keep; their functions run in reverse; end
HandedBack                                              queue
===========  =========================================  ==============================================

Rules: each line of the table is one write, with its entry in the trail. What was decided to fail stays so
(``fate``) while it is being undone, whoever goes on with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.transactions.model import MAX_NOTE, Ending, Queue, TrailEntry, entry_to
from penstock.transactions.pipelines import NO_RETRY, AnyStep, Function, Pipeline, Retry, steps_at
from penstock.transactions.worker.context import StepContext
from penstock.transactions.worker.fields import check_fields
from penstock.transactions.worker.holding import Held
from penstock.transactions.worker.joining import end_field, join_field
from penstock.transactions.worker.outcomes import Done, Failed, HandedBack, Outcome, Suspended, printable
from penstock.transactions.worker.performing import UNKNOWN_STEP, UNKNOWN_STEP_RETRY, Performer

#: Of functions that undo, unless their step has a policy of its own.
_UNDO_RETRY: Final = Retry(limit=6, backoff_ms=500, factor=3.0, max_backoff_ms=60_000)
#: Numbers of steps that are undone, in the names of what they write down.
_UNDO_BASE: Final = 1_000_000
_FINAL: Final = (Ending.ABORTED, Ending.CANCELLED)


class Fate(msgspec.Struct):
    """How it will end when everything is undone."""

    status: str
    note: str
    is_dead: bool = False


class Flow:
    """One transaction in one pipeline."""

    def __init__(self, held: Held, pipeline: Pipeline, performer: Performer, worker: str) -> None:
        self._held = held
        self._record = held.record
        self._pipeline = pipeline
        self._performer = performer
        self._worker = worker
        self._path = held.record.text(b"path")
        self._steps = steps_at(pipeline, self._path)
        #: of the attempt under way
        self._started_ms = 0

    async def run(self, is_stopping: Any) -> None:
        """Until it has left this worker."""
        record, held = self._record, self._held
        if record.fields.get(b"fate"):
            await self._undo_all(is_stopping)
            return
        refusal = self._check_input()
        if refusal is not None:
            await self._fail(refusal, None, is_stopping)
            return
        while True:
            number = record.number(b"step")
            if number >= len(self._steps):
                await self._end(Ending.SUCCESS, "")
                return
            step = self._steps[number]
            if held.cancel_reason:
                await self._fail(Failed(Ending.CANCELLED, held.cancel_reason), None, is_stopping)
                return
            deadline_ms = record.number(b"deadline_ms")
            if deadline_ms and held.now_ms() >= deadline_ms:
                await self._fail(_LATE, None, is_stopping)
                return
            if await self._moves(step):
                return
            arguments = step.args if isinstance(step, Function) else {}
            context = StepContext(held, number, step.id, arguments, record.data)
            self._started_ms = held.now_ms()
            outcome = await self._attempt(step, context, deadline_ms)
            if not await self._settle(step, context, outcome, is_stopping):
                return

    def _check_input(self) -> Failed | None:
        """The first step's input is the pipeline's."""
        wanted = self._pipeline.input
        if wanted is None or self._path or self._record.number(b"step") or self._record.number(b"attempt"):
            return None
        context = StepContext(self._held, 0, "input", {}, self._record.data)
        problems = check_fields(wanted, context.input).problems
        return Failed(Ending.FAILED, "; ".join(problems)[:MAX_NOTE], ("FieldError",)) if problems else None

    async def _moves(self, step: AnyStep) -> bool:
        """Whether the step belongs to another group, which goes on."""
        wanted = step.node_group or self._pipeline.node_group
        if wanted == self._record.text(b"group"):
            return False
        await self._held.settle("queue", arguments=(Queue.OUT, wanted))
        return True

    async def _attempt(self, step: AnyStep, context: StepContext, deadline_ms: int) -> Outcome:
        work = self._performer.perform(step, self._pipeline, self._held, context, self._path)
        if not deadline_ms:
            return await work
        try:
            async with asyncio.timeout(max(0.001, (deadline_ms - self._held.now_ms()) / 1_000)):
                return await work
        except TimeoutError:
            return _LATE

    # ------------------------------------------------------------------------------ what comes of it

    async def _settle(self, step: AnyStep, context: StepContext, outcome: Outcome, is_stopping: Any) -> bool:
        """Write it down; whether the next step is to begin here."""
        if isinstance(outcome, Done):
            return await self._done(step, context, outcome, is_stopping)
        if isinstance(outcome, Suspended):
            fields = [*outcome.fields, *self._recovered()]
            entry = self._entry("step", context, outcome.kind, outcome.note)
            await self._held.settle(outcome.kind, "", fields, [entry], (), outcome.arguments)
        elif isinstance(outcome, HandedBack):
            await self._held.settle("queue", arguments=(Queue.OUT, self._record.text(b"group")))
        elif not await self._retried(step, context, outcome):
            entry = self._entry("step", context, outcome.status, outcome.note)
            await self._fail(outcome, entry, is_stopping)
        return False

    async def _done(self, step: AnyStep, context: StepContext, outcome: Done, is_stopping: Any) -> bool:
        number = context.number + 1
        fields: list[Any] = ["step", number, *self._recovered()]
        if outcome.output is not None:
            fields += (f"d:{number}", outcome.output, "data", number)
        if self._record.number(b"attempt"):
            fields += ("attempt", 0)
        if step.compensate:
            fields += ("undo", f"{self._record.text(b'undo')} {context.number}".strip())
        entry = self._entry("step", context, "success", outcome.note)
        if outcome.ends is not None and outcome.ends is not Ending.SUCCESS:
            # It stays at this step, so that a retry comes to it again.
            failed = Failed(outcome.ends, outcome.note, output=outcome.output)
            await self._fail(failed, entry, is_stopping)
            return False
        if outcome.ends is not None or number >= len(self._steps):
            await self._end(Ending.SUCCESS, outcome.note, fields, [entry], context.outbox)
            return False
        if is_stopping():
            group = self._steps[number].node_group or self._pipeline.node_group
            await self._held.settle("queue", "", fields, [entry], context.outbox, (Queue.OUT, group))
            return False
        await self._held.keep(fields, [entry], context.outbox)
        self._remember(fields)
        return True

    async def _retried(self, step: AnyStep, context: StepContext, failed: Failed) -> bool:
        if UNKNOWN_STEP in failed.names:
            return await self._left_to_others(context, failed)
        policy, attempt = self._pipeline.retry_of(step), context.attempt
        if failed is _LATE or failed.status in _FINAL:
            return False
        if attempt >= policy.limit or not policy.applies(failed.names):
            return False
        if not failed.is_retryable and set(policy.on).isdisjoint(failed.names):
            return False
        delay_ms = max(policy.delay_ms(attempt, random.random()), failed.pause_ms)
        fields = ["attempt", attempt, *self._recovered()]
        if self._record.number(join_field(context.number).encode()):
            fields += (join_field(context.number), "", end_field(context.number), "")
        await self._sleep(context, failed, delay_ms, fields)
        return True

    async def _left_to_others(self, context: StepContext, failed: Failed) -> bool:
        """This worker does not have the step; that is no attempt of it."""
        field = f"z:{context.number}:unknown"
        looks = self._record.number(field.encode()) + 1
        if looks >= UNKNOWN_STEP_RETRY.limit:
            return False
        await self._sleep(
            context, failed, UNKNOWN_STEP_RETRY.delay_ms(looks, random.random()), [field, looks]
        )
        return True

    async def _sleep(
        self, context: StepContext, failed: Failed, delay_ms: int, fields: list[Any], kind: str = "step"
    ) -> None:
        """Until the next attempt."""
        entry = self._entry(kind, context, failed.status, failed.note)
        fields += ("wakes_ms", self._held.now_ms() + delay_ms)
        await self._held.settle("sleep", failed.note, fields, [entry], (), (max(1, delay_ms), 1))

    async def _fail(
        self, failed: Failed, entry: bytes | None, is_stopping: Any, fields: Sequence[Any] = ()
    ) -> None:
        """It ends so, when what can be undone is undone."""
        if failed.status is Ending.CANCELLED and self._held.cancel_reason == failed.note:
            failed = failed._replace(note=await self._held.reason())
        written = list(fields)
        if failed.output is not None:
            number = self._record.number(b"step") + 1
            written += (f"d:{number}", failed.output, "data", number, "has_output", 1)
        entries = [] if entry is None else [entry]
        is_dead = failed.is_fault and not self._record.fields.get(b"parent")
        if not self._record.text(b"undo"):
            await self._end(failed.status, failed.note, written, entries, is_dead=is_dead)
            return
        fate = msgspec.json.encode(Fate(failed.status, failed.note, is_dead))
        # There is no deadline for undoing: it would end every pause in it.
        written += ("fate", fate, "attempt", 0, "cancel", "", "deadline_ms", "")
        await self._held.keep(written, entries)
        self._remember(written)
        self._held.cancel_reason = ""
        await self._undo_all(is_stopping)

    async def _end(
        self,
        status: str,
        note: str,
        fields: Sequence[Any] = (),
        entries: Sequence[bytes] = (),
        outbox: Sequence[Any] = (),
        *,
        is_dead: bool = False,
    ) -> None:
        await self._held.settle("end", note, fields, entries, outbox, (status, int(is_dead)))

    # --------------------------------------------------------------------------------------- undoing

    async def _undo_all(self, is_stopping: Any) -> None:
        record = self._record
        while record.text(b"undo"):
            *rest, last = record.text(b"undo").split(" ")
            number = int(last)
            step = self._steps[number]
            if await self._moves(step):
                return
            context = self._undo_context(step, number)
            self._started_ms = self._held.now_ms()
            outcome = await self._performer.undo(step.compensate or "", self._held, context, step.timeout_ms)
            if isinstance(outcome, HandedBack) or (isinstance(outcome, Done) and is_stopping() and rest):
                fields = () if isinstance(outcome, HandedBack) else ("undo", " ".join(rest), "attempt", 0)
                await self._held.settle("queue", "", fields, arguments=(Queue.OUT, record.text(b"group")))
                return
            if isinstance(outcome, Suspended):
                await self._held.settle(outcome.kind, "", outcome.fields, arguments=outcome.arguments)
                return
            if isinstance(outcome, Failed) and await self._undo_retried(step, context, outcome):
                return
            await self._undone(context, outcome, rest)
        fate = msgspec.json.decode(record.fields[b"fate"], type=Fate)
        await self._end(fate.status, fate.note, is_dead=fate.is_dead)

    def _undo_context(self, step: AnyStep, number: int) -> StepContext:
        fields = self._record.fields
        given = next(k for k in range(number, -1, -1) if b"d:%d" % k in fields)
        made = fields.get(b"d:%d" % (number + 1), fields[b"d:%d" % given])
        arguments = step.args if isinstance(step, Function) else {}
        name = step.compensate or ""
        return StepContext(self._held, _UNDO_BASE + number, name, arguments, fields[b"d:%d" % given], made)

    async def _undo_retried(self, step: AnyStep, context: StepContext, failed: Failed) -> bool:
        if UNKNOWN_STEP in failed.names:
            return await self._left_to_others(context, failed)
        policy = self._pipeline.retry_of(step)
        policy = _UNDO_RETRY if policy is NO_RETRY else policy
        if context.attempt >= policy.limit:
            return False
        delay_ms = policy.delay_ms(context.attempt, random.random())
        await self._sleep(context, failed, delay_ms, ["attempt", context.attempt], "undo")
        return True

    async def _undone(self, context: StepContext, outcome: Done | Failed, rest: list[str]) -> None:
        """One is done with: undone, or given up, which somebody has to look at."""
        fields: list[Any] = ["undo", " ".join(rest), "attempt", 0]
        status = "success"
        if isinstance(outcome, Failed):
            status = outcome.status
            fate = msgspec.json.decode(self._record.fields[b"fate"], type=Fate)
            note = f"{fate.note}; {context.name} could not undo: {outcome.note}"[:MAX_NOTE]
            is_child = bool(self._record.fields.get(b"parent"))
            fields += ("fate", msgspec.json.encode(Fate(fate.status, note, not is_child)))
        entry = self._entry("undo", context, status, outcome.note)
        await self._held.keep(fields, [entry], context.outbox if status == "success" else ())
        self._remember(fields)

    # ---------------------------------------------------------------------------------------- writing

    def _recovered(self) -> tuple[Any, ...]:
        """A step came to its end: workers that fell silent before no longer count."""
        return ("losses", 0) if self._record.number(b"losses") else ()

    def _entry(self, kind: str, context: StepContext, status: str, note: str) -> bytes:
        number = context.number % _UNDO_BASE
        return entry_to(
            TrailEntry(
                kind, self._held.now_ms(), number, context.name, str(status), context.attempt,
                self._started_ms, self._worker, self._record.text(b"group"), printable(note), context.logs,
            )
        )  # fmt: skip

    def _remember(self, fields: Sequence[Any]) -> None:
        """What was written is what the next step finds."""
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            self._record.fields[name.encode()] = value if isinstance(value, bytes) else str(value).encode()


_LATE: Final = Failed(Ending.TIMEOUT, "its deadline has passed", ("TimeoutError", "timeout"))
