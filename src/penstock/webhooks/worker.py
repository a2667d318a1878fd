"""Sends what is due: claims deliveries, makes the attempts, writes down what came of them.

    async with WebhookWorker(queue, endpoints, sender) as worker:
        …                       # any number of workers, in any number of processes

The loop claims as many deliveries as it has room for. When nothing is due it sleeps until the time that the
store has named or until the topic rings. How many an endpoint gets at a time, and whether its breaker is
open, the store decides while claiming: so all processes respect it, and what cannot be sent now is not
claimed and loses no attempt.

While a delivery is being sent its lease is renewed three times within its length. A worker that dies stops
that, and its deliveries come back by themselves. A worker that is stopped finishes what it is sending within
``grace_ms`` and hands back the rest.

Rules: at least once, never at most once: a delivery is settled after its answer. An error of the store makes
the worker wait and try again; only the end of the client ends it. The worker does not know what it sends.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec

from penstock.client.pubsub import Subscriber
from penstock.clock import Clock, SystemClock
from penstock.errors import ClosedError, ConfigError, PenstockError
from penstock.webhooks.endpoints import Endpoint, EndpointSource
from penstock.webhooks.model import (
    Attempt,
    Claimed,
    Outcome,
    OutcomeKind,
    Request,
    Sender,
    Settled,
    checked_headers,
)
from penstock.webhooks.queue import MAX_CLAIM, MAX_LEASE_MS, WebhookQueue
from penstock.webhooks.schedule import Chance, judge
from penstock.webhooks.signing import signed_headers, webhook_id

logger = logging.getLogger(__name__)

#: Between tries to reach a store that fails: doubled from the first to the second.
_MIN_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 5.0
_RENEWALS_PER_LEASE: Final = 3
#: For a delivery whose endpoint could not be looked up.
_UNKNOWN_PAUSE_MS: Final = 5_000

#: Told the id of an endpoint that was just disabled, and why.
OnDisabled = Callable[[str, str], None]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker behaves."""

    #: deliveries at a time
    concurrency: int = 64
    #: after so long without a sign of life its deliveries are given to others
    lease_ms: int = 30_000
    #: for what is being sent when the worker is stopped
    grace_ms: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MAX_CLAIM:
            raise ConfigError(f"concurrency must be 1 to {MAX_CLAIM}, not {self.concurrency}")
        if not 30 <= self.lease_ms <= MAX_LEASE_MS:
            raise ConfigError(f"lease_ms must be 30 to {MAX_LEASE_MS}, not {self.lease_ms}")
        if self.grace_ms < 0:
            raise ConfigError(f"grace_ms must be at least 0, not {self.grace_ms}")


class WorkerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one worker since it was made."""

    #: now
    sending: int
    claimed: int = 0
    done: int = 0
    retry: int = 0
    dead: int = 0
    disable: int = 0
    release: int = 0
    #: leases that were gone when their delivery was to be settled
    lost: int = 0
    #: failed calls of the store
    store_errors: int = 0


class WebhookWorker:
    """One loop that sends. ``async with`` starts and stops it; or ``run`` it as a task of your own."""

    def __init__(
        self,
        queue: WebhookQueue,
        endpoints: EndpointSource,
        sender: Sender,
        settings: WorkerSettings | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance = random.random,
        on_disabled: OnDisabled | None = None,
    ) -> None:
        self._queue = queue
        self._endpoints = endpoints
        self._sender = sender
        self._settings = settings or WorkerSettings()
        self._clock = clock or SystemClock()
        self._chance = chance
        self._on_disabled = on_disabled
        self._counts: Counter[str] = Counter()
        #: at most ``concurrency``
        self._sending: dict[asyncio.Task[None], Claimed] = {}
        self._bell = asyncio.Event()
        self._is_stopping = False
        self._running: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------ lifecycle

    async def run(self) -> None:
        """Send until :meth:`stop` is called; then hand back what could not be sent in time.

        When it is cancelled instead, it hands back nothing: others wait until its leases have run out.
        """
        helpers = [asyncio.create_task(self._listen()), asyncio.create_task(self._renew())]
        claiming = asyncio.create_task(self._claim_and_start())
        try:
            await asyncio.wait([claiming, *helpers], return_when=asyncio.FIRST_COMPLETED)
            was_stopped, self._is_stopping = self._is_stopping, True
            claiming.cancel()
            await self._finish()
        finally:
            for task in [claiming, *helpers, *self._sending]:
                task.cancel()
            results = await asyncio.gather(claiming, *helpers, return_exceptions=True)
            await asyncio.gather(*self._sending, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                self._is_stopping = was_stopped  # whoever catches it may run it again
                raise result

    async def stop(self) -> None:
        """Claim nothing more, and return when the worker has ended. Idempotent."""
        self._is_stopping = True
        self._bell.set()
        if self._running is not None:
            await self._running

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise ClosedError("a worker can be started once: make another one")
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _finish(self) -> None:
        """What is being sent has ``grace_ms``; the rest goes back into the line."""
        if not self._sending:
            return
        _, late = await asyncio.wait(self._sending, timeout=self._settings.grace_ms / 1000)
        unsent = [self._sending[task] for task in late]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        outcome = Outcome(kind=OutcomeKind.RELEASE)
        for claimed in unsent:
            try:
                settled = await self._queue.settle(claimed.delivery, outcome)
            except PenstockError as error:
                logger.warning("delivery %s was not handed back: %s", claimed.delivery.id, error)
            else:
                self._counts["release" if settled else "lost"] += 1

    # ------------------------------------------------------------------------------------- claiming

    async def _claim_and_start(self) -> None:
        pause = _Pause(self._chance)
        while not self._is_stopping:
            room = self._settings.concurrency - len(self._sending)
            self._bell.clear()
            if room <= 0:
                await self._bell.wait()  # every end of a task rings
                continue
            try:
                claim = await self._queue.claim(room, self._settings.lease_ms)
            except ClosedError:
                raise
            except PenstockError as error:
                self._on_store_error("claim", error)
                await asyncio.sleep(pause.next_s())
                continue
            pause.reset()
            for claimed in claim.deliveries:
                self._start(claimed)
            if len(claim.deliveries) < room:
                await self._sleep(None if claim.next_ms is None else claim.next_ms - claim.now_ms)

    async def _sleep(self, wait_ms: int | None) -> None:
        """Until something may be due."""
        try:
            # Not less than a tick: what is due at this very millisecond may be one further on.
            async with asyncio.timeout(None if wait_ms is None else max(1, wait_ms) / 1000):
                await self._bell.wait()
        except TimeoutError:
            pass

    def _start(self, claimed: Claimed) -> None:
        self._counts["claimed"] += 1
        task = asyncio.create_task(self._deliver(claimed))
        self._sending[task] = claimed
        task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        claimed = self._sending.pop(task)
        if len(self._sending) == self._settings.concurrency - 1:
            self._bell.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease runs out, and somebody tries again.
            logger.error("delivery %s was not settled: %s", claimed.delivery.id, error, exc_info=error)

    async def _listen(self) -> None:
        """Ring whenever the topic does, or may have while it could not be heard."""
        pause = _Pause(self._chance)
        while True:
            try:
                async with self._queue.bell() as subscriber:
                    self._bell.set()
                    await self._ring_for(subscriber, pause)
            except ClosedError:
                raise
            except PenstockError as error:
                self._on_store_error("subscribe", error)
            await asyncio.sleep(pause.next_s())

    async def _ring_for(self, subscriber: Subscriber, pause: _Pause) -> None:
        async for _ in subscriber:
            pause.reset()
            self._bell.set()

    async def _renew(self) -> None:
        lease_ms = self._settings.lease_ms
        while True:
            await asyncio.sleep(lease_ms / 1000 / _RENEWALS_PER_LEASE)
            held = [claimed.delivery for claimed in self._sending.values()]
            try:
                await self._queue.renew(held, lease_ms)
            except ClosedError:
                raise
            except PenstockError as error:
                self._on_store_error("renew", error)  # there are two more renewals in a lease

    # -------------------------------------------------------------------------------------- sending

    async def _deliver(self, claimed: Claimed) -> None:
        delivery = claimed.delivery
        try:
            endpoint = await self._endpoints.get(delivery.endpoint)
        except ClosedError:
            raise
        except PenstockError as error:
            self._on_store_error("get endpoint", error)
            await self._settle(claimed, Outcome(kind=OutcomeKind.RELEASE, delay_ms=_UNKNOWN_PAUSE_MS))
            return
        if endpoint is None:
            reason = f"there is no endpoint {delivery.endpoint} any more"
            await self._settle(claimed, Outcome(kind=OutcomeKind.DEAD, reason=reason), Attempt(error=reason))
            return
        attempt = await self._attempt(endpoint, claimed)
        outcome = judge(attempt, delivery.attempts + 1, endpoint.schedule, endpoint.rules, self._chance)
        await self._settle(claimed, outcome, attempt)

    async def _attempt(self, endpoint: Endpoint, claimed: Claimed) -> Attempt:
        try:
            request = request_of(endpoint, claimed, self._clock.now_ms() // 1000)
            return await self._sender.send(request)
        except ClosedError:
            raise
        except Exception as error:
            # A sender's mistake must not keep deliveries from ending.
            logger.exception("the sender failed for endpoint %s", endpoint.id)
            return Attempt(error=f"{type(error).__name__}: {error}")

    async def _settle(self, claimed: Claimed, outcome: Outcome, attempt: Attempt | None = None) -> None:
        """Until the store knows. The lease is renewed meanwhile, so nobody else sends it."""
        pause = _Pause(self._chance)
        while True:
            try:
                settled = await self._queue.settle(claimed.delivery, outcome, attempt)
                break
            except ClosedError:
                raise
            except PenstockError as error:
                self._on_store_error("settle", error)
            await asyncio.sleep(pause.next_s())
        self._counts[outcome.kind if settled else "lost"] += 1
        if settled is not None and settled.disabled is not None:
            self._tell_disabled(settled)

    def _tell_disabled(self, settled: Settled) -> None:
        assert settled.disabled is not None
        logger.warning("endpoint %s was disabled: %s", settled.delivery.endpoint, settled.disabled)
        if self._on_disabled is not None:
            try:
                self._on_disabled(settled.delivery.endpoint, settled.disabled)
            except Exception:
                logger.exception("on_disabled failed for endpoint %s", settled.delivery.endpoint)

    # ---------------------------------------------------------------------------------- observation

    def _on_store_error(self, what: str, error: PenstockError) -> None:
        self._counts["store_errors"] += 1
        logger.warning("the store of the webhooks did not answer %s: %s", what, error)

    def statistics(self) -> WorkerStatistics:
        return WorkerStatistics(sending=len(self._sending), **self._counts)

    def __repr__(self) -> str:
        state = "stopping" if self._is_stopping else "running" if self._running else "new"
        return f"<WebhookWorker {state} sending={len(self._sending)} of {self._settings.concurrency}>"


class _Pause:
    """How long to wait after failures in a row."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._failures = 0

    def next_s(self) -> float:
        self._failures = min(self._failures + 1, 20)
        longest_s: float = min(_MIN_PAUSE_S * 2**self._failures, _MAX_PAUSE_S)
        return longest_s * (0.5 + 0.5 * self._chance())

    def reset(self) -> None:
        self._failures = 0


def request_of(endpoint: Endpoint, claimed: Claimed, timestamp_s: int) -> Request:
    """The request of one attempt; the id is the same for all of a delivery, the timestamp is not."""
    payload = claimed.payload
    headers = {
        "content-type": "application/json",
        **checked_headers(endpoint.headers),
        **payload.headers,
        **signed_headers(endpoint.secrets, webhook_id(claimed.delivery.event), timestamp_s, payload.body),
    }
    return Request(
        method=endpoint.method,
        url=endpoint.url,
        headers=headers,
        body=payload.body,
        timeout_ms=endpoint.timeout_ms,
        allowed_networks=endpoint.allowed_networks,
    )
