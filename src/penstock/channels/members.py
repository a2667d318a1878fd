"""The stores behind a group of them: each with its breaker, its time limit, and a bound on what is under way.

Rules
-----
1. Whoever does not answer in time, or cannot be reached, is left alone by its breaker; then a call costs
   nothing but the look at the breaker. Single calls find out whether it is back.
2. A call that was begun goes on to its end or its time limit, also when nobody waits for it any more:
   what was written to some stores should reach the others. ``drain`` waits for the rest.
3. A store that answers with a refusal is alive: only silence and lost connections count against it.

Nothing here knows what is asked, nor what answers mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.channels.port import Channels
from penstock.clock import Clock
from penstock.errors import (
    AuthenticationError,
    BackpressureError,
    ClosedError,
    CommandTimeoutError,
    ConnectionLostError,
    NotSentError,
    PenstockError,
    ReceiptError,
    SubscriptionNotFoundError,
    UnavailableError,
)
from penstock.webhooks.breaker import BreakerPolicy, BreakerState, CircuitBreaker, Pass

T = TypeVar("T")

_UNREACHABLE: Final = (
    AuthenticationError, BackpressureError, ClosedError, CommandTimeoutError, ConnectionLostError,
)  # fmt: skip


class Store(Channels, Protocol):
    """One store: channels, and what a group must know about them."""

    name: str

    async def old_clocks(self, channel: str, subscriber: str, message_ids: Sequence[str]) -> list[int | None]:
        """The clock of each message that is old to the subscriber, None for others."""

    async def forget_outbox(self, channel: str) -> None:
        """Of an empty outbox."""


Call: TypeAlias = Callable[[Store], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What one store said, or why it said nothing."""

    name: str
    value: T | None = None
    error: PenstockError | None = None

    @property
    def is_confirmed(self) -> bool:
        return self.error is None

    @property
    def is_refusal(self) -> bool:
        """It is alive, and says that this cannot be."""
        return isinstance(self.error, SubscriptionNotFoundError | ReceiptError)


class Member:
    """One store of a group."""

    def __init__(self, store: Store, breaker: CircuitBreaker, timeout_ms: int, max_pending: int) -> None:
        self.name = store.name
        self.store = store
        self.breaker = breaker
        self.pending: set[asyncio.Task[object]] = set()
        #: those of them that took longer than the grace: while there are any, it gets no further grace
        self.late: set[asyncio.Task[object]] = set()
        #: calls that reached the store, for whoever wants to know what a breaker spares
        self.attempts = 0
        self._timeout_ms = timeout_ms
        self._max_pending = max_pending
        self._last_error: PenstockError | None = None

    @property
    def is_out(self) -> bool:
        return self.breaker.state is BreakerState.OPEN

    def begin(self, call: Call[T]) -> asyncio.Task[Answer[T]] | Answer[T]:
        """Start a call, or say at once why not."""
        if len(self.pending) >= self._max_pending:
            return Answer(
                self.name, error=BackpressureError(f"{self._max_pending} calls wait for it already")
            )
        passed = self.breaker.enter()
        if passed is None:
            return self.refusal()
        self.attempts += 1
        task = asyncio.create_task(self._run(call, passed), name=f"penstock store {self.name}")
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)
        task.add_done_callback(self.late.discard)
        return task

    def refusal(self) -> Answer[T]:
        """The answer instead of one, while the breaker keeps it out."""
        return Answer(self.name, error=NotSentError(f"it is left alone after: {self._last_error}"))

    async def _run(self, call: Call[T], passed: Pass) -> Answer[T]:
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                value = await call(self.store)
            passed.succeeded()
            return Answer(self.name, value)
        except _UNREACHABLE as error:
            return self._failed(passed, error)
        except TimeoutError:
            silence = CommandTimeoutError(f"no answer within {self._timeout_ms} ms")
            return self._failed(passed, silence)
        except PenstockError as error:
            passed.succeeded()
            return Answer(self.name, error=error)
        finally:
            passed.cancelled()  # the first word counts: this is for whoever was cancelled

    def _failed(self, passed: Pass, error: PenstockError) -> Answer[T]:
        self._last_error = error
        passed.failed()
        return Answer(self.name, error=error)

    async def drain(self) -> None:
        """Until nothing is under way; no longer than the time limit."""
        if self.pending:
            await asyncio.wait(self.pending)

    def __repr__(self) -> str:
        return f"<Member {self.name} {self.breaker.state}, {len(self.pending)} pending>"


class Members:
    """All of them, in the order in which they were named."""

    def __init__(
        self,
        stores: Iterable[Store],
        breaker: BreakerPolicy,
        clock: Clock,
        *,
        timeout_ms: int,
        grace_ms: int,
        max_pending: int,
    ) -> None:
        self._members = {
            store.name: Member(
                store,
                CircuitBreaker(
                    clock, breaker.failures, breaker.open_ms,
                    max_open_ms=breaker.max_open_ms, probes=breaker.probes,
                ),
                timeout_ms,
                max_pending,
            )
            for store in stores
        }  # fmt: skip
        self._grace_s = grace_ms / 1_000

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    async def ask(
        self, call: Call[T], names: Iterable[str] | None = None, *, enough: int | None = None
    ) -> list[Answer[T]]:
        """Ask all (or those named) at once; answers in the order of the stores.

        With ``enough`` confirmations the rest gets only a short grace; whoever is later has no answer here.
        """
        chosen = self._members if names is None else names
        answers: dict[str, Answer[T]] = {}
        waiting: dict[asyncio.Task[Answer[T]], Member] = {}
        for name in chosen:
            begun = self._members[name].begin(call)
            if isinstance(begun, Answer):
                answers[name] = begun
            else:
                waiting[begun] = self._members[name]
        now_s = asyncio.get_running_loop().time
        end_s: float | None = None
        while waiting:
            if enough is not None and end_s is None:
                confirmed = sum(answer.is_confirmed for answer in answers.values())
                end_s = now_s() + self._grace_s if confirmed >= enough else None
            if end_s is not None and all(member.late for member in waiting.values()):
                break
            left_s = None if end_s is None else max(end_s - now_s(), 0)
            done, _ = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                for task, member in waiting.items():
                    member.late.add(task)
                break
            for task in done:
                del waiting[task]
            answers.update((task.result().name, task.result()) for task in done)
        return [answers[name] for name in self._members if name in answers]

    def unavailable(self, answers: Iterable[Answer[T]], needed: int) -> UnavailableError:
        """Too few have answered: how many of how many, and why each of the others has not."""
        answers = list(answers)
        confirmed = sum(answer.is_confirmed for answer in answers)
        reasons = [
            f"{answer.name}: {type(answer.error).__name__}, {answer.error}"
            for answer in answers
            if answer.error is not None
        ]
        return UnavailableError(
            f"{confirmed} of {len(self)} stores confirmed and {needed} must: repeat it when they are back"
            + (f" ({'; '.join(reasons)})" if reasons else "")
        )

    async def drain(self) -> None:
        for member in self._members.values():
            await member.drain()
