"""What a step function is given: its input, who it works for, and how to sleep, wait, report and act once.

    @step("charge-card")
    async def charge(tx):
        receipt = await tx.once("charge", lambda: gateway.charge(tx.input["card"], key=tx.idempotency_key))
        await tx.sleep(5_000)
        if await tx.wait_for_switch("approved", timeout_ms=3_600_000) != "yes":
            raise StepFailedError("nobody approved it")
        tx.write_stream("payments", {"receipt": receipt})       # exists if and only if this step succeeds
        return {**tx.input, "receipt": receipt}

Rules
-----
1. A function that sleeps or waits is left, and runs again from its top when the time has come. What is before
   the sleep runs again, too: put side effects into ``once``. Sleeps and waits are told apart by their order,
   so a function must come to them in the same order each time. What a wait has given, it gives again.
2. ``once`` writes the result down before it returns. A worker that dies between the effect and the note
   repeats the effect, with the same key: give it to whoever can recognise a repetition.
3. Returning something makes it the output; returning None passes the input on. Whatever is written to a
   stream or a channel goes out with the step's success, or not at all.
4. Every write carries the fencing token: a worker that was taken for dead changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import UsageError
from penstock.transactions.keys import check_name
from penstock.transactions.model import MAX_DELAY_MS, from_json, to_json
from penstock.transactions.outbox_messages import (
    channel_destination,
    encode_channel_message,
    encode_stream_message,
    stream_destination,
)
from penstock.transactions.worker.outcomes import Done, Suspend, Suspended, printable

if TYPE_CHECKING:
    from penstock.transactions.worker.holding import Held

T = TypeVar("T")

MAX_LOGS: Final = 200
MAX_OUTBOX: Final = 1_000


class StepContext:
    """One attempt of one step. Of use on the worker's event loop; threads get :class:`ThreadContext`."""

    def __init__(
        self, held: Held, number: int, name: str, args: dict[str, Any], data: bytes, done: bytes | None = None
    ) -> None:
        self._held = held
        self._data = data
        self._done = done
        self._input: Any = _UNREAD
        #: number of the step in its pipeline, its id there, and what the pipeline gives it
        self.number = number
        self.name = name
        self.args = args
        self._sleeps = 0
        self._waits = 0
        #: what waits have given, to be written down with the next sleep
        self._given: list[Any] = []
        self._logs: list[tuple[int, str, str]] = []
        self._outbox: list[Any] = []

    # ---------------------------------------------------------------------------------------- facts

    @property
    def id(self) -> str:
        """The transaction's."""
        return self._held.record.id

    @property
    def input(self) -> Any:
        """What the step before gave; of the first, what the transaction was started with."""
        if self._input is _UNREAD:
            self._input = from_json(self._data)
        return self._input

    @property
    def input_json(self) -> bytes:
        """… as it is kept, for who hands it on."""
        return self._data

    @property
    def output(self) -> Any:
        """For a function that undoes: what the step had given."""
        return None if self._done is None else from_json(self._done)

    @property
    def metadata(self) -> Any:
        value = self._held.record.fields.get(b"metadata")
        return from_json(value) if value else {}

    @property
    def owner(self) -> str:
        return self._held.record.text(b"owner")

    @property
    def external_id(self) -> str | None:
        return self._held.record.text(b"external_id") or None

    @property
    def pipeline(self) -> str:
        return self._held.record.text(b"pipeline")

    @property
    def attempt(self) -> int:
        """Of this step; the first is 1."""
        return self._held.record.number(b"attempt") + 1

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this step, and for no other."""
        return f"{self.id}:{self._held.record.number(b'run')}:{self.number}"

    # --------------------------------------------------------------------------------------- waiting

    async def sleep(self, delay_ms: int) -> None:
        """Leave now, run again in so many ms, and pass this place then."""
        if not 0 <= delay_ms <= MAX_DELAY_MS:
            raise UsageError(f"delay_ms must be 0 to {MAX_DELAY_MS}, not {delay_ms}")
        self._sleeps += 1
        field = f"z:{self.number}:{self._sleeps}"
        if field.encode() in self._held.record.fields:
            return  # it has slept: its time has come, or somebody woke it
        wake_ms = self._held.now_ms() + delay_ms
        fields = (*self._given, field, wake_ms, "wakes_ms", wake_ms)
        raise Suspend(Suspended("sleep", (max(1, delay_ms), 0), fields))

    async def switch(self, name: str) -> str | None:
        """The value of a switch, None if it is not set. It counts as seen from now."""
        get = self._held.store.get_switch
        value, _ = await self._held.ask(lambda: get(self.id, name, acknowledge=True))
        return value

    async def set_switch(self, name: str, value: str | None) -> None:
        """Set a switch of this transaction, or delete it."""
        set_ = self._held.store.set_switch
        await self._held.ask(lambda: set_(self.id, name, value, who=f"step {self.name}"))

    async def wait_for_switch(
        self, name: str, *, until: str | None = None, timeout_ms: int | None = None
    ) -> str | None:
        """The value of a switch as soon as it has one (``until``: this one); None when the time is over."""
        check_name("name", name)
        if timeout_ms is not None and not 0 <= timeout_ms <= MAX_DELAY_MS:
            raise UsageError(f"timeout_ms must be 0 to {MAX_DELAY_MS}, not {timeout_ms}")
        self._waits += 1
        field = f"z:{self.number}:w{self._waits}"
        known = self._held.record.fields.get(field.encode(), b"")
        if known[:1] in (b"=", b"-"):
            return known[1:].decode() if known[:1] == b"=" else None
        value = await self.switch(name)
        if value is not None and until in (None, value):
            self._given += (field, f"={value}")
            return value
        now_ms = self._held.now_ms()
        if known:
            end_ms = int(known)
        else:
            end_ms = 0 if timeout_ms is None else now_ms + timeout_ms
        if end_ms and end_ms <= now_ms:
            self._given += (field, "-")
            return None
        left_ms = end_ms - now_ms if end_ms else 0
        seen = "-" if value is None else f"={value}"
        fields = (*self._given, field, end_ms, "wakes_ms", end_ms)
        raise Suspend(Suspended("wait", (name, left_ms, seen), fields))

    # --------------------------------------------------------------------------------------- telling

    async def progress(self, report: Any) -> None:
        """Say how far it is: to those who watch, and by webhook to those who asked for that."""
        text = to_json("report", report)
        await self._held.keep(("progress", text))

    def log(self, text: str, level: str = "info") -> None:
        """A line for the trail of this step."""
        if len(self._logs) < MAX_LOGS:
            self._logs.append((self._held.now_ms(), printable(level), printable(text)))

    # ---------------------------------------------------------------------------------------- acting

    async def once(self, name: str, function: Callable[..., T | Awaitable[T]], *arguments: Any) -> T:
        """What the function gives, JSON; when it was called before (also by another worker), what it gave
        then."""
        known = self.recall(name)
        if known is None:
            await self.assure()
            made: Any = function(*arguments)
            if inspect.isawaitable(made):
                made = await made
            known = await self.record(name, made)
        result: T = from_json(known)
        return result

    def recall(self, name: str) -> bytes | None:
        """JSON of what ``once`` has under this name."""
        return self._held.record.fields.get(f"o:{self.number}:{check_name('name', name)}".encode())

    async def assure(self) -> None:
        """Raises if the transaction is another worker's by now: what is about to be done is theirs to do."""
        await self._held.assure()

    async def record(self, name: str, made: Any) -> bytes:
        """Write down what ``once`` is to have under this name."""
        text = to_json(f"the result of once({name!r})", made)
        field = f"o:{self.number}:{name}"
        await self._held.keep((field, text))
        self._held.record.fields[field.encode()] = text
        return text

    def write_stream(self, stream: str, data: Any, *, tag: str = "") -> None:
        """Write a message to a stream with the success of this step. Bytes are taken as they are."""
        payload = data if isinstance(data, bytes) else to_json("data", data)
        self._add_outbox(stream_destination(stream), encode_stream_message(tag, payload))

    def publish(self, channel: str, content: Any, *, message_id: str | None = None) -> None:
        """Publish to a durable channel with the success of this step."""
        to_json("content", content)
        if message_id is None:
            message_id = hashlib.sha256(f"{self.idempotency_key}:{len(self._outbox)}".encode()).hexdigest()[
                :40
            ]
        self._add_outbox(channel_destination(channel), encode_channel_message(message_id, content))

    def _add_outbox(self, destination: str, payload: bytes) -> None:
        if len(self._outbox) >= 2 * MAX_OUTBOX:
            raise UsageError(f"a step writes at most {MAX_OUTBOX} messages: write the rest in a later one")
        self._outbox += (destination, payload)

    def succeed(self, output: Any = None, note: str = "") -> Done:
        """To be returned: an output with a note."""
        return Done(None if output is None else to_json("output", output), printable(note))

    # ------------------------------------------------------------------------------------ for the worker

    @property
    def logs(self) -> list[tuple[int, str, str]]:
        return self._logs

    @property
    def outbox(self) -> list[Any]:
        return self._outbox

    def __repr__(self) -> str:
        return f"<StepContext {self.name} of {self.id}, attempt {self.attempt}>"


class ThreadContext:
    """The same for a function in a thread: what is awaited elsewhere blocks here."""

    def __init__(self, context: StepContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            return self._wait(value(*arguments, **options))

        return call

    def once(self, name: str, function: Callable[..., T | Awaitable[T]], *arguments: Any) -> T:
        """As of :class:`StepContext`; the function is called in this thread, and may block."""
        known = self._context.recall(name)
        if known is None:
            self._wait(self._context.assure())
            made: Any = function(*arguments)
            if inspect.iscoroutine(made):
                made = self._wait(made)
            known = self._wait(self._context.record(name, made))
        result: T = from_json(known)
        return result

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __repr__(self) -> str:
        return f"<ThreadContext of {self._context!r}>"


_UNREAD: Final = object()
