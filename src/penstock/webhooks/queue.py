"""A durable queue of deliveries, on any store that a client can open.

    queue = WebhookQueue(client)
    await queue.put(endpoint, event_id, body)           # once for each endpoint and event
    claim = await queue.claim(10, lease_ms=30_000)       # due ones, for this caller alone
    await queue.settle(claim.deliveries[0].delivery, outcome, attempt)

Invariants, kept by scripts that run whole or not at all (``lua/``):

1. A delivery is in exactly one place: in line, under a lease, or finished.
2. A lease has a token. Whoever settles with another token changes nothing, so a worker that was taken for
   dead cannot undo what its successor did.
3. A lease that runs out puts its delivery back in line. No attempt is counted: nobody knows of one.
4. An endpoint never has more than ``max_in_flight`` leases, and one while its breaker is not closed.
5. Whenever something becomes due earlier than workers knew, the topic tells them. Nobody polls.

Rules: time is the store's. A call whose reply was lost (``OutcomeUnknownError``) may be repeated: ``put`` and
``settle`` do nothing twice, and what a lost ``claim`` took comes back after its lease. Nothing here opens a
socket to an endpoint.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.client.pubsub import Subscriber
from penstock.errors import BackpressureError, ConfigError, UsageError
from penstock.webhooks.breaker import BreakerPolicy
from penstock.webhooks.endpoints import Endpoint
from penstock.webhooks.keys import WebhookKeys, delivery_id
from penstock.webhooks.model import (
    DAY_MS,
    MAX_ERROR,
    MAX_EVENT_ID,
    MAX_EXCERPT,
    Attempt,
    Claim,
    Claimed,
    Delivery,
    EndpointState,
    LogPage,
    Outcome,
    OutcomeKind,
    Payload,
    Put,
    QueueStatistics,
    Settled,
    WaitingPage,
    checked_headers,
    delivery_from,
    log_entry_from,
    payload_from,
    state_from,
)
from penstock.webhooks.schedule import MAX_DELAY_MS
from penstock.webhooks.scripts import WebhookScripts

MAX_CLAIM: Final = 1_000
MAX_LEASE_MS: Final = 3_600_000
MAX_PAGE: Final = 1_000
#: Deliveries that one call of a script revives or forgets.
_BATCH: Final = 200


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue behaves; workers of one queue should agree on it."""

    #: how long finished deliveries can be looked at, replayed, and recognised when put again
    retention_ms: int = 7 * DAY_MS
    #: entries of each endpoint
    max_log: int = 1_000
    max_body_bytes: int = 1_048_576
    breaker: BreakerPolicy = BreakerPolicy()
    #: an endpoint that has failed for so long is disabled; 0: never
    disable_after_ms: int = 5 * DAY_MS

    def __post_init__(self) -> None:
        for name in ("retention_ms", "max_log", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.disable_after_ms < 0:
            raise ConfigError(f"disable_after_ms must be at least 0, not {self.disable_after_ms}")


class WebhookQueue:
    """The deliveries of one name. Of use by any number of tasks and processes."""

    def __init__(self, client: Client, name: str = "webhooks", settings: QueueSettings | None = None) -> None:
        self.keys = WebhookKeys(name)
        self.settings = settings or QueueSettings()
        self._client = client
        self._scripts = WebhookScripts(client, self.keys)

    # ------------------------------------------------------------------------------------- sending

    async def put(
        self,
        endpoint: Endpoint,
        event_id: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        delay_ms: int | None = None,
    ) -> Put:
        """Queue an event for an endpoint; does nothing if that pair was queued before and is still kept.

        ``delay_ms`` replaces the first pause of the endpoint's schedule. Raises ``BackpressureError`` when
        ``max_pending`` deliveries of this endpoint are unfinished.
        """
        if not 0 < len(event_id) <= MAX_EVENT_ID:
            raise UsageError(f"event_id must have 1 to {MAX_EVENT_ID} characters, not {len(event_id)}")
        if len(body) > self.settings.max_body_bytes:
            raise UsageError(
                f"body must be at most {self.settings.max_body_bytes} bytes (max_body_bytes), not {len(body)}"
            )
        first_ms = endpoint.schedule.delays_ms[0] if delay_ms is None else delay_ms
        if not 0 <= first_ms <= MAX_DELAY_MS:
            raise UsageError(f"delay_ms must be 0 to {MAX_DELAY_MS}, not {first_ms}")
        try:
            event_id.encode()
        except UnicodeEncodeError:
            raise UsageError("event_id must be text that UTF-8 can encode") from None
        payload = Payload(checked_headers(headers or {}), bytes(body))
        reply = await self._scripts.run(
            "put",
            delivery_id(endpoint.id, event_id), endpoint.id, event_id, msgspec.msgpack.encode(payload),
            first_ms, endpoint.max_in_flight, endpoint.max_pending, self.keys.topic,
        )  # fmt: skip
        if reply[0] < 0:
            raise BackpressureError(
                f"{endpoint.max_pending} deliveries to {endpoint.id} are unfinished (max_pending):"
                " put again when some are done"
            )
        return Put(delivery_from(reply[1]), reply[0] == 1)

    async def claim(self, limit: int, lease_ms: int) -> Claim:
        """Up to ``limit`` deliveries that are due, endpoints taking turns, and when to ask again.

        Fewer come although more are due when their bodies are large (``lua/claim.lua``).
        """
        if not 1 <= limit <= MAX_CLAIM:
            raise UsageError(f"limit must be 1 to {MAX_CLAIM}, not {limit}")
        _check_lease(lease_ms)
        now_ms, next_ms, *items = await self._scripts.run(
            "claim", limit, lease_ms, self.settings.max_log, self.keys.topic
        )
        deliveries = [
            Claimed(delivery_from(packed), payload_from(payload))
            for packed, payload in zip(items[::2], items[1::2], strict=True)
        ]
        return Claim(deliveries, now_ms, None if next_ms < 0 else next_ms)

    async def renew(self, deliveries: Sequence[Delivery], lease_ms: int) -> list[str]:
        """Go on holding these; answers the ids of those that were lost."""
        _check_lease(lease_ms)
        if not deliveries:
            return []
        words = [word for delivery in deliveries for word in (delivery.id, delivery.token)]
        return [lost.decode() for lost in await self._scripts.run("renew", lease_ms, *words)]

    async def settle(
        self, delivery: Delivery, outcome: Outcome, attempt: Attempt | None = None
    ) -> Settled | None:
        """Write down what became of a claimed delivery; None if its lease was lost, and nothing changed."""
        attempt = attempt or Attempt()
        breaker = self.settings.breaker
        settled = {
            "outcome": outcome.kind,
            "delay_ms": outcome.delay_ms,
            "hold_ms": outcome.hold_ms,
            "health": outcome.health,
            "reason": _reason(outcome),
            "code": attempt.status,
            "error": attempt.error and _storable(attempt.error, MAX_ERROR),
            "duration_ms": attempt.duration_ms,
            "excerpt": _storable(attempt.response_excerpt, MAX_EXCERPT),
            "failures": breaker.failures,
            "open_ms": breaker.open_ms,
            "max_open_ms": breaker.max_open_ms,
            "disable_after_ms": self.settings.disable_after_ms,
            "retention_ms": self.settings.retention_ms,
            "max_log": self.settings.max_log,
        }
        # The decoder of scripts makes a value of nil, too: what is missing must not be there.
        packed = msgspec.msgpack.encode({name: value for name, value in settled.items() if value is not None})
        reply = await self._scripts.run("settle", delivery.id, delivery.token, packed, self.keys.topic)
        if not reply[0]:
            return None
        return Settled(delivery_from(reply[1]), reply[2].decode() or None)

    @asynccontextmanager
    async def bell(self) -> AsyncGenerator[Subscriber, None]:
        """Rings (has an item) when a worker should look again before the time that ``claim`` told it."""
        async with self._client.pubsub() as subscriber:
            await subscriber.subscribe(self.keys.topic)
            yield subscriber

    # ------------------------------------------------------------------------------------ replaying

    async def replay(self, delivery: str) -> Delivery | None:
        """Send a finished delivery again, or a waiting one now, under the same ``webhook-id``.

        None if it is not known (any more); ``UsageError`` while it is being sent.
        """
        reply = await self._scripts.run("replay", delivery, self.keys.topic)
        if reply[0] < 0:
            return None
        if reply[0] == 0:
            raise UsageError(f"delivery {delivery} is being sent right now: replay it when it has ended")
        return delivery_from(reply[1])

    async def replay_failed(self, endpoint: Endpoint, since_ms: int = 0) -> int:
        """Send again what has failed for good since then, while ``max_pending`` allows; answers how many."""
        total = 0
        while True:
            count: int = await self._scripts.run(
                "replay_failed", endpoint.id, since_ms, _BATCH, endpoint.max_pending, self.keys.topic
            )
            total += count
            if count < _BATCH:
                return total

    # -------------------------------------------------------------------------------------- looking

    async def get(self, delivery: str) -> Delivery | None:
        """A delivery as it is now; None if it is not known (any more)."""
        packed = await self._client.execute("HGET", self.keys.deliveries, delivery)
        return None if packed is None else delivery_from(_bytes(packed))

    async def find(self, endpoint: str, event_id: str) -> Delivery | None:
        """The delivery of an event to an endpoint."""
        return await self.get(delivery_id(endpoint, event_id))

    async def payload(self, delivery: str) -> Payload | None:
        """What a delivery sends."""
        packed = await self._client.execute("HGET", self.keys.payloads, delivery)
        return None if packed is None else payload_from(_bytes(packed))

    async def pending(self, endpoint: str, *, cursor: str | None = None, limit: int = 100) -> WaitingPage:
        """What waits for an endpoint, the first due first."""
        _check_page(limit)
        if cursor is not None and not cursor.startswith(f"{endpoint} "):
            raise UsageError("cursor must be the next_cursor of a page of the same endpoint")
        last, *rows = await self._scripts.run("read", "waiting", endpoint, cursor or "", limit, readonly=True)
        return WaitingPage(
            [delivery_from(row) for row in rows], last.decode() if len(rows) == limit else None
        )

    async def log(self, endpoint: str, *, cursor: int | None = None, limit: int = 100) -> LogPage:
        """The attempts to reach an endpoint, newest first; the oldest are gone beyond ``max_log``."""
        _check_page(limit)
        if cursor is not None and cursor < 1:
            raise UsageError(f"cursor must be the next_cursor of a page, not {cursor}")
        rows = await self._scripts.run("read", "log", endpoint, cursor or 0, limit, readonly=True)
        entries = [log_entry_from(row) for row in rows]
        is_more = len(entries) == limit and entries[-1].number > 1
        return LogPage(entries, entries[-1].number if is_more else None)

    async def state(self, endpoint: str) -> EndpointState:
        """What is known of an endpoint; one of which nothing is known is well."""
        return state_from(await self._scripts.run("read", "state", endpoint, readonly=True))

    async def statistics(self) -> QueueStatistics:
        reply = await self._scripts.run("read", "statistics", "", readonly=True)
        names = ("now_ms", "waiting", "leased", "finished", "dead_kept", "endpoints")
        words = reply[len(names) :]
        counters = {
            name.decode(): int(value)
            for name, value in zip(words[::2], words[1::2], strict=True)
            if name.decode() in QueueStatistics.__struct_fields__
        }
        return QueueStatistics(**dict(zip(names, reply, strict=False)), **counters)

    # ------------------------------------------------------------------------------------ endpoints

    async def disable(self, endpoint: str, reason: str) -> bool:
        """Send nothing to it; what waits is kept. False if it was disabled already."""
        if not reason:
            raise UsageError("reason must say why the endpoint is disabled")
        return bool(await self._change(endpoint, "disable", _storable(reason, MAX_ERROR)))

    async def enable(self, endpoint: str) -> bool:
        """Send again, at once, whatever it was disabled or spared for. False if nothing hindered it."""
        return bool(await self._change(endpoint, "enable", ""))

    async def limit(self, endpoint: Endpoint) -> bool:
        """Make a changed ``max_in_flight`` known before the next ``put`` does."""
        return bool(await self._change(endpoint.id, "limit", endpoint.max_in_flight))

    async def purge(self, endpoint: str) -> None:
        """Forget an endpoint with all that waits for it, has failed, or is in its log."""
        while await self._scripts.run("purge", endpoint, _BATCH):
            pass

    async def _change(self, endpoint: str, wish: str, value: str | int) -> Any:
        return await self._scripts.run("endpoint", endpoint, wish, value, self.keys.topic)

    def __repr__(self) -> str:
        return f"<WebhookQueue {self.keys.name} on {self._client!r}>"


def _reason(outcome: Outcome) -> str | None:
    if outcome.kind in (OutcomeKind.DEAD, OutcomeKind.DISABLE):
        return _storable(outcome.reason or "it was given up", MAX_ERROR)
    return None


def _storable(text: str, most: int) -> str:
    """Cut to size, and such that UTF-8 can encode it."""
    return text[:most].encode("utf-8", "replace").decode()


def _check_lease(lease_ms: int) -> None:
    if not 1 <= lease_ms <= MAX_LEASE_MS:
        raise UsageError(f"lease_ms must be 1 to {MAX_LEASE_MS}, not {lease_ms}")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise UsageError(f"limit must be 1 to {MAX_PAGE}, not {limit}")


def _bytes(reply: Any) -> bytes:
    assert isinstance(reply, bytes), "the client does not decode replies (WebhookScripts)"
    return reply
